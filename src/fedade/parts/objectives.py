"""Label-free losses that a client can descend."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedade.maths.losses import class_weights, entropy, entropy_from_logits, estimated_risk

Examples = Literal["reference", "stream"]
ObjectiveName = Literal["bbse", "entropy", "bbse+entropy", "infomax", "pseudo", "posterior-entropy"]


class Material(NamedTuple):
    """What a loss is computed from."""

    logits: Callable[[Examples, Tensor | None], Tensor]
    """Logits of the given rows (None: all) of a set of examples."""
    reference_labels: Tensor
    prior: Tensor
    """Estimated class distribution of the stream's batch."""
    source_prior: Tensor
    drawn_by_prior: bool = False
    """Whether reference rows come as often as the prior weighs them, and so need no weight any more."""


class Objective(Protocol):
    """A loss over minibatches."""

    @property
    def examples(self) -> tuple[Examples, ...]:
        """The sets it reads; minibatches are rows of the first."""

    def loss(self, material: Material, rows: Tensor | None) -> Tensor:
        """Loss on the given rows of its first set."""


class Bbse:
    """The paper's estimated risk F̂ (eq:estimated_risk): class-wise reference losses, weighted by the prior."""

    examples: tuple[Examples, ...] = ("reference",)

    def loss(self, material: Material, rows: Tensor | None) -> Tensor:
        labels = material.reference_labels
        weights = class_weights(material.prior, labels)
        if material.drawn_by_prior:
            weights = weights.mean().expand_as(weights)  # 1, less the prior of classes without a reference sample
        if rows is not None:
            labels, weights = labels[rows], weights[rows]
        return estimated_risk(material.logits("reference", rows), labels, weights)


class Entropy:
    """Mean entropy of the predictions on the stream: what the released code minimises (TENT's loss)."""

    examples: tuple[Examples, ...] = ("stream",)

    def loss(self, material: Material, rows: Tensor | None) -> Tensor:
        return entropy_from_logits(material.logits("stream", rows)).mean()


class BbseAndEntropy:
    """The sum of the two: reference losses keep the classes apart while entropy sees the new inputs."""

    examples: tuple[Examples, ...] = ("reference", "stream")

    def loss(self, material: Material, rows: Tensor | None) -> Tensor:
        return Bbse().loss(material, rows) + Entropy().loss(material, None)


class Infomax:
    """Mean entropy minus the entropy of the mean: confident and varied predictions (Krause et al., 2010)."""

    examples: tuple[Examples, ...] = ("stream",)

    def loss(self, material: Material, rows: Tensor | None) -> Tensor:
        logits = material.logits("stream", rows)
        return entropy_from_logits(logits).mean() - entropy(logits.softmax(-1).mean(-2))


class PosteriorEntropy:
    """Mean entropy of the predictions after they are corrected by the prior, p ∘ q / μ0.

    The classes of the batch are accounted for by the prior, so that the network need not learn them.
    """

    examples: tuple[Examples, ...] = ("stream",)

    def loss(self, material: Material, rows: Tensor | None) -> Tensor:
        logits = material.logits("stream", rows)
        least = torch.finfo(logits.dtype).tiny
        log_ratio = material.prior.clamp(min=least).log() - material.source_prior.clamp(min=least).log()
        return entropy_from_logits(logits + log_ratio).mean()


class Pseudo:
    """Cross-entropy to the model's own confident predictions (Lee, 2013)."""

    examples: tuple[Examples, ...] = ("stream",)
    confidence = 0.9

    def loss(self, material: Material, rows: Tensor | None) -> Tensor:
        logits = material.logits("stream", rows)
        confidence, labels = logits.detach().softmax(-1).max(-1)
        losses = cross_entropy(logits, labels, reduction="none")
        trusted = (confidence >= self.confidence).to(losses.dtype)
        return (trusted * losses).sum() / trusted.sum().clamp(min=1)


OBJECTIVES: Mapping[ObjectiveName, Objective] = {
    "bbse": Bbse(),
    "entropy": Entropy(),
    "bbse+entropy": BbseAndEntropy(),
    "infomax": Infomax(),
    "pseudo": Pseudo(),
    "posterior-entropy": PosteriorEntropy(),
}
