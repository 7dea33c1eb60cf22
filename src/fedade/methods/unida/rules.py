"""Three ways to tell which samples of a stream belong to known classes, and to learn from them (UNIDA)."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.split import Parameters
from fedade.maths.losses.adversarial import domain_loss, gradient_reversal
from fedade.maths.losses.entropy import entropy_from_logits
from fedade.maths.losses.pseudo_labels import class_means, class_totals
from fedade.maths.signals.directions import directions
from fedade.methods.unida.scores import (
    balanced_weights,
    entropy_separation,
    middle_entropy,
    neighbourhood_entropy,
    prototype_similarities,
    source_transferability,
)
from fedade.parts.discriminator import Discriminator, domain_logits, new_discriminator
from fedade.parts.domain_pairs import Embedded

Memory = dict[str, Tensor]
"""What a client remembers of earlier batches, of fixed size."""
Discriminators = dict[str, Discriminator]


class Situation(NamedTuple):
    """What the loss on the target samples of one step is computed from."""

    embedded: Embedded
    own: Parameters
    memory: Memory
    discriminators: Discriminators
    reversal: Tensor
    """Strength of the reversed gradient."""


class Universal(Protocol):
    """A way of universal domain adaptation."""

    def start(self, deployment: Deployment) -> tuple[Memory, Discriminators]:
        """What a client begins with."""
        ...

    def loss(self, situation: Situation) -> Tensor:
        """What is added to the cross-entropy of the labelled samples."""
        ...

    def remember(self, memory: Memory, features: Tensor, logits: Tensor) -> Memory:
        """The memory after a batch of the stream."""
        ...

    def unknown(self, features: Tensor, logits: Tensor, discriminators: Discriminators) -> Tensor:
        """Which samples seem to be of no known class, `[n]`."""
        ...


@dataclass(frozen=True)
class Prototypes:
    """Known samples are drawn to their nearest class prototype, unknown ones are kept uncertain."""

    confidence: float
    """Share of its nearest prototype from which a sample is known."""
    margin: float
    """Distance from ρ, as a share of ρ, from which an entropy is low or high."""
    separation: float
    momentum: float

    def start(self, deployment: Deployment) -> tuple[Memory, Discriminators]:
        labels = deployment.reference.labels
        features = deployment.network.summarise(deployment.reference_features)
        every = features.new_ones(len(labels))
        return {"prototypes": class_means(directions(features), labels, every, deployment.num_classes)}, {}

    def loss(self, situation: Situation) -> Tensor:
        _, _, features, logits = situation.embedded
        common, nearest = self._common(situation.memory["prototypes"], features, logits)
        losses = torch.where(common, cross_entropy(logits, nearest, reduction="none"), 0.0)
        middle = middle_entropy(logits.shape[-1])
        unknown = self.unknown(features, logits, {})
        separated = entropy_separation(entropy_from_logits(logits), middle, self.margin * middle, unknown)
        return losses.sum() / common.sum().clamp_min(1) + self.separation * separated

    def remember(self, memory: Memory, features: Tensor, logits: Tensor) -> Memory:
        prototypes = memory["prototypes"]
        common, nearest = self._common(prototypes, features, logits)
        fresh = class_means(directions(features), nearest, common.to(features.dtype), len(prototypes))
        weights = class_totals(nearest, common.to(features.dtype), len(prototypes))
        followed = self.momentum * prototypes + (1 - self.momentum) * fresh
        return {"prototypes": torch.where((weights > 0).unsqueeze(-1), followed, prototypes)}

    def unknown(self, features: Tensor, logits: Tensor, discriminators: Discriminators) -> Tensor:
        return entropy_from_logits(logits) > (1 + self.margin) * middle_entropy(logits.shape[-1])

    def _common(self, prototypes: Tensor, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Which samples are surely of a known class, and of which."""
        share, nearest = prototype_similarities(features, prototypes).max(-1)
        certain = entropy_from_logits(logits) < (1 - self.margin) * middle_entropy(logits.shape[-1])
        return (share >= self.confidence) & certain, nearest


@dataclass(frozen=True)
class Dance:
    """Samples gather around neighbours or class weights, and entropies move away from ρ (Saito et al., 2020)."""

    separation: float
    margin: float
    """Distance of an entropy from ρ, in nats, up to which it is left alone."""
    bank_size: int

    def start(self, deployment: Deployment) -> tuple[Memory, Discriminators]:
        weight = deployment.parameters.get("head.weight")
        if weight is None or weight.shape != (deployment.num_classes, len(deployment.initial_feature)):
            raise FedadeError(
                f"unida: variant=dance needs a linear head, which model {deployment.network.name!r} has not; "
                "set unida.variant=proto"
            )
        bank = weight.new_zeros(self.bank_size, weight.shape[-1])
        return {"bank": bank, "filled": weight.new_zeros(())}, {}

    def loss(self, situation: Situation) -> Tensor:
        _, _, features, logits = situation.embedded
        bank, filled = situation.memory["bank"], situation.memory["filled"]
        classes = situation.own["head.weight"]
        neighbours = torch.cat([features.detach(), bank, classes])
        others = ~torch.eye(len(features), dtype=torch.bool, device=features.device)
        remembered = torch.arange(len(bank), device=bank.device) < filled
        allowed = torch.cat(
            [
                others,
                remembered.expand(len(features), -1),
                torch.ones(len(features), len(classes), dtype=torch.bool, device=bank.device),
            ],
            dim=-1,
        )
        clustering = neighbourhood_entropy(features, neighbours, allowed)
        middle = middle_entropy(logits.shape[-1])
        return self.separation * (clustering + entropy_separation(entropy_from_logits(logits), middle, self.margin))

    def remember(self, memory: Memory, features: Tensor, logits: Tensor) -> Memory:
        newest_first = torch.cat([directions(features), memory["bank"]])[: self.bank_size]
        return {"bank": newest_first, "filled": (memory["filled"] + len(features)).clamp_max(self.bank_size)}

    def unknown(self, features: Tensor, logits: Tensor, discriminators: Discriminators) -> Tensor:
        return entropy_from_logits(logits) > middle_entropy(logits.shape[-1])


@dataclass(frozen=True)
class Uan:
    """Adversarial alignment in which samples count as far as they seem common to both domains (You et al., 2019)."""

    width: int
    """Hidden units of the discriminators."""
    source_temperature: float = 10.0
    target_temperature: float = 1.0
    threshold: float = -0.5
    """Transferability below which a target sample is of no known class."""

    def start(self, deployment: Deployment) -> tuple[Memory, Discriminators]:
        like = deployment.initial_feature
        return {}, {name: new_discriminator(like, self.width, turn) for turn, name in enumerate(("adversary", "judge"))}

    def loss(self, situation: Situation) -> Tensor:
        source, source_logits, target, target_logits = situation.embedded
        adversary, judge = situation.discriminators["adversary"], situation.discriminators["judge"]
        source_odds, target_odds = domain_logits(judge, source.detach()), domain_logits(judge, target.detach())
        source_weights = balanced_weights(
            source_transferability(source_logits, source_odds.sigmoid(), self.source_temperature).detach()
        )
        target_weights = balanced_weights(self._transferability(target_logits, target_odds).detach())
        adversarial = domain_loss(
            domain_logits(adversary, gradient_reversal(source, situation.reversal)),
            domain_logits(adversary, gradient_reversal(target, situation.reversal)),
            source_weights,
            target_weights,
        )
        # UAN adds the two domains up, where the mean is taken elsewhere.
        return 2 * (adversarial + domain_loss(source_odds, target_odds))

    def remember(self, memory: Memory, features: Tensor, logits: Tensor) -> Memory:
        return memory

    def unknown(self, features: Tensor, logits: Tensor, discriminators: Discriminators) -> Tensor:
        return self._transferability(logits, domain_logits(discriminators["judge"], features)) < self.threshold

    def _transferability(self, logits: Tensor, odds: Tensor) -> Tensor:
        return -source_transferability(logits, odds.sigmoid(), self.target_temperature)
