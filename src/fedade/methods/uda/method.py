"""UDA: unsupervised domain adaptation by aligning features (Deep CORAL, ECCV Workshops 2016), brought to a stream.

Every client keeps a full model of its own, and descends cross-entropy on the labelled reference set plus the distance
between the features of that set and of its stream. Normalisation statistics stay as deployed.

Matching the features of two sets is harmful when they hold different classes in different shares.

A client keeps 4·|θ| bytes. A timestep costs about 3·steps·(samples + reference batch) forward passes; nothing is sent.
"""

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Plan
from fedade.methods.uda.alignment import coral_distance
from fedade.parts.domain_pairs import AdaptingClient, DomainAdaptation, Embedded


class Uda(DomainAdaptation):
    """Cross-entropy on the reference set plus λ times the distance of two feature distributions."""

    alignment_weight: float = Field(1.0, ge=0)
    """λ."""

    @property
    def card(self) -> Card:
        return Card(
            summary="own model, aligns the stream's features with the reference set's",
            paper="Deep CORAL, 2016",
            reference=True,
        )

    def begin(self, ctx: ClientContext) -> AdaptingClient:
        return self.first_state(ctx.deployment, ())

    def observe(self, ctx: ClientContext, state: AdaptingClient) -> tuple[AdaptingClient, Plan]:
        """`steps` steps on pairs of batches; the trace gets the distance that the last one met."""
        state, rate, distance = self.adapt(ctx, state)
        return state, {"learning_rate": rate, "alignment": distance}

    def stream_loss(self, embedded: Embedded, memory: tuple[()]) -> tuple[Tensor, Tensor]:
        """λ times the distance, and the distance."""
        distance = coral_distance(embedded.source_features, embedded.target_features)
        return self.alignment_weight * distance, distance
