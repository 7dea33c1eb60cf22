"""UDA: unsupervised domain adaptation by aligning features (Deep CORAL, ECCV Workshops 2016), brought to a stream.

Every client keeps a full model of its own, and descends cross-entropy on the labelled reference set plus the distance
between the features of that set and of its stream. Normalisation statistics stay as deployed. Matching the features of
two sets is harmful when they hold different classes in different shares.

A client keeps 4·|θ| bytes. A timestep costs about 3·steps·(samples + reference batch) forward passes; nothing is sent.
"""

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Plan
from fedade.parts.domain_pairs import AdaptingClient, DomainAdaptation, Embedded


class Uda(DomainAdaptation):
    """Cross-entropy on the reference set plus λ times the distance of two feature distributions."""

    about = Card("own model, aligns the stream's features with the reference set's", "Deep CORAL, 2016", reference=True)

    alignment_weight: float = Field(1.0, ge=0)
    """λ."""

    def observe(self, ctx: ClientContext, state: AdaptingClient) -> tuple[AdaptingClient, Plan]:
        """`steps` steps on pairs of batches; the trace gets the distance that the last one met."""
        state, rate, distance = self.adapt(ctx, state)
        return state, {"learning_rate": rate, "alignment": distance}

    def stream_loss(self, embedded: Embedded, memory: tuple[()]) -> tuple[Tensor, Tensor]:
        distance = coral_distance(embedded.source_features, embedded.target_features)
        return self.alignment_weight * distance, distance


def coral_distance(source: Float[Tensor, "m d"], target: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """mean((μ_s - μ_t)²) + mean((Σ_s - Σ_t)²): Deep CORAL (Sun and Saenko, 2016) with its means, as in practice."""
    means = (source.mean(0) - target.mean(0)).square().mean()
    return means + (_covariance(source) - _covariance(target)).square().mean()


def _covariance(features: Tensor) -> Tensor:
    centred = features - features.mean(0)
    return centred.T @ centred / max(1, len(features) - 1)
