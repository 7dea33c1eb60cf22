"""UDA: unsupervised domain adaptation by aligning features, brought to a stream.

Deep CORAL (ECCV Workshops 2016), DAN's multi-kernel MMD (ICML 2015) or DANN (JMLR 2016). Every client keeps a full
model of its own, and descends cross-entropy on the labelled reference set plus the distance between the features of
that set and of its stream. Normalisation statistics stay as deployed.

Matching the features of two sets is harmful when they hold different classes in different shares.

A client keeps 4·|θ| bytes (and about 4·d·discriminator_width for `dann`). A timestep costs about
3·steps·(samples + reference batch) forward passes; nothing is sent.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedade.core.context import ClientContext
from fedade.core.method import Card, Plan
from fedade.core.split import Parameters
from fedade.maths.losses.adversarial import domain_loss, gradient_reversal, reversal_strength
from fedade.methods.uda.alignment import coral_distance, mmd_distance
from fedade.parts.composition import own_prediction
from fedade.parts.discriminator import Discriminator, domain_logits, new_discriminator
from fedade.parts.domain_pairs import AdaptingClient, DomainAdaptation, Embedded


class Uda(DomainAdaptation):
    """Cross-entropy on the reference set plus λ times the distance of two feature distributions."""

    alignment: Literal["coral", "mmd", "dann"] = "coral"
    alignment_weight: float = Field(1.0, ge=0)
    """λ."""

    @property
    def card(self) -> Card:
        papers = {"coral": "Deep CORAL, 2016", "mmd": "DAN, ICML 2015", "dann": "DANN, JMLR 2016"}
        return Card(
            summary=f"own model, aligns the stream's features with the reference set's ({self.alignment})",
            paper=papers[self.alignment],
            reference=True,
        )

    def begin(self, ctx: ClientContext) -> AdaptingClient:
        like, width = ctx.deployment.initial_feature, self.discriminator_width
        return self.first_state(ctx.deployment, {}, new_discriminator(like, width) if self.alignment == "dann" else {})

    def observe(self, ctx: ClientContext, state: AdaptingClient) -> tuple[AdaptingClient, Plan]:
        """`steps` steps on pairs of batches; the trace gets the distance that the last one met."""
        state, rate, distance = self.adapt(ctx, state)
        return state, {"learning_rate": rate, "alignment": distance}

    def predict(self, ctx: ClientContext, state: AdaptingClient) -> Tensor:
        return own_prediction(ctx, state.own)

    def stream_loss(
        self, embedded: Embedded, own: Parameters, discriminators: Discriminator, client: AdaptingClient
    ) -> tuple[Tensor, Tensor]:
        """λ times the distance, and the distance."""
        distance = self._distance(embedded.source_features, embedded.target_features, discriminators, client.steps)
        return self.alignment_weight * distance, distance

    def _distance(self, source: Tensor, target: Tensor, discriminator: Discriminator, steps: Tensor) -> Tensor:
        """The part that λ weighs; for `dann` a game, which the discriminator plays down and the features up."""
        if self.alignment == "coral":
            return coral_distance(source, target)
        if self.alignment == "mmd":
            return mmd_distance(source, target)
        strength = reversal_strength(steps)
        return domain_loss(
            domain_logits(discriminator, gradient_reversal(source, strength)),
            domain_logits(discriminator, gradient_reversal(target, strength)),
        )
