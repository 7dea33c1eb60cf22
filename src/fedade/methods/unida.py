"""UNIDA: universal domain adaptation by class prototypes, brought to a stream.

Every client keeps a full model of its own. It learns the labels of the reference set while it first decides which of
its samples belong to known classes: those are drawn to their nearest class prototype, unknown ones are kept uncertain
(entropy separation, DANCE, NeurIPS 2020). Normalisation statistics stay as deployed. Learning a small reference set
again and again is what costs under label shift.

A client keeps 4·(|θ| + K·d) bytes. A timestep costs about 3·steps·(samples + reference batch) forward passes; nothing
is sent.
"""

import math

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedade.core.method import Card, ClientContext, Deployment, Plan
from fedade.maths.losses import class_means, class_totals, entropy_from_logits
from fedade.maths.signals.dynamics import directions
from fedade.parts.composition import own_model
from fedade.parts.domain_pairs import AdaptingClient, DomainAdaptation, Embedded

SHARPNESS = 0.05
"""Temperature of all similarities (DANCE)."""


class Unida(DomainAdaptation):
    """Cross-entropy on the reference set plus a loss that tells known samples from unknown ones. A client remembers the
    class prototypes, `[K, d]`."""

    about = Card("own model, adapts to samples of known classes only", "prototype UNIDA", reference=True)

    confidence: float = Field(0.8, ge=0, le=1)
    """Similarity to its prototype from which a sample is known."""
    proto_margin: float = Field(0.5, ge=0, le=1)
    """Distance from ½ ln K, as a share of it, from which an entropy is low or high."""
    prototype_momentum: float = Field(0.99, ge=0, le=1)
    """Share of its past that a prototype keeps."""
    separation: float = Field(0.05, ge=0)
    """Weight of the entropy separation."""

    def first_memory(self, deployment: Deployment) -> Tensor:
        labels, features = deployment.reference.labels, deployment.network.summarise(deployment.reference_features)
        return class_means(directions(features), labels, features.new_ones(len(labels)), deployment.num_classes)

    def observe(self, ctx: ClientContext, state: AdaptingClient) -> tuple[AdaptingClient, Plan]:
        """`steps` steps on pairs of batches; the prototypes then take in the whole batch."""
        state, rate, _ = self.adapt(ctx, state)
        network, model = ctx.deployment.network, own_model(ctx, state.own)
        features = ctx.updated_features(model)
        logits = network.classify(model, features)
        moved = state._replace(memory=self.followed(state.memory, network.summarise(features), logits))
        return moved, {"learning_rate": rate, "unknown": self.unknown(logits).to(rate.dtype).mean()}

    def stream_loss(self, embedded: Embedded, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What the prototypes make of the samples; the trace has no need of it."""
        logits = embedded.target_logits
        common, nearest = self._common(memory, embedded.target_features, logits)
        losses = torch.where(common, cross_entropy(logits, nearest, reduction="none"), 0.0)
        middle = middle_entropy(logits.shape[-1])
        margin, unknown = self.proto_margin * middle, self.unknown(logits)
        separated = entropy_separation(entropy_from_logits(logits), middle, margin, unknown)
        loss = losses.sum() / common.sum().clamp_min(1) + self.separation * separated
        return loss, loss

    def followed(self, prototypes: Tensor, features: Tensor, logits: Tensor) -> Tensor:
        """Prototypes that moved towards the samples of a batch that are surely known."""
        common, nearest = self._common(prototypes, features, logits)
        fresh = class_means(directions(features), nearest, common.to(features.dtype), len(prototypes))
        weights = class_totals(nearest, common.to(features.dtype), len(prototypes))
        moved = self.prototype_momentum * prototypes + (1 - self.prototype_momentum) * fresh
        return torch.where((weights > 0).unsqueeze(-1), moved, prototypes)

    def unknown(self, logits: Tensor) -> Tensor:
        """Which samples seem to be of no known class, `[n]`."""
        return entropy_from_logits(logits) > (1 + self.proto_margin) * middle_entropy(logits.shape[-1])

    def _common(self, prototypes: Tensor, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Which samples are surely of a known class, and of which."""
        share, nearest = prototype_similarities(features, prototypes).max(-1)
        certain = entropy_from_logits(logits) < (1 - self.proto_margin) * middle_entropy(logits.shape[-1])
        return (share >= self.confidence) & certain, nearest


def middle_entropy(num_classes: int) -> float:
    """ρ = ½ ln K: below it a sample seems known, above it unknown (DANCE, Saito et al., 2020)."""
    return math.log(num_classes) / 2


def entropy_separation(
    entropies: Float[Tensor, " n"], middle: float, margin: float, chosen: Bool[Tensor, " n"]
) -> Float[Tensor, ""]:
    """Mean of -|H - ρ| over those chosen samples that lie further than the margin from ρ (DANCE, Eq. 6)."""
    distance = (entropies - middle).abs()
    return -torch.where((distance > margin) & chosen, distance, 0.0).mean()


def prototype_similarities(features: Float[Tensor, "n d"], prototypes: Float[Tensor, "K d"]) -> Float[Tensor, "n K"]:
    """s_k = softmax(cos(h, c_k) / 0.05); a class without a prototype (all 0) takes no share."""
    logits = directions(features) @ directions(prototypes).T / SHARPNESS
    known = (prototypes != 0).any(-1)
    return torch.where(known, logits, torch.finfo(logits.dtype).min).softmax(-1)
