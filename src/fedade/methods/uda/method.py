"""UDA: unsupervised domain adaptation by aligning features, brought to a stream.

Deep CORAL (ECCV Workshops 2016), DAN's multi-kernel MMD (ICML 2015) or DANN (JMLR 2016). Every client keeps a full
model of its own, and descends cross-entropy on the labelled reference set plus the distance between the features of
that set and of its stream. Normalisation statistics stay as deployed.

Matching the features of two sets is harmful when they hold different classes in different shares.

A client keeps 4·|θ| bytes (and about 4·d·discriminator_width for `dann`). A timestep costs about
3·steps·(samples + reference batch) forward passes; nothing is sent.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.context import ClientContext
from fedade.core.deployment import Deployment
from fedade.core.method import Card, Method, Plan
from fedade.maths.losses.adversarial import domain_loss, gradient_reversal, reversal_strength
from fedade.methods.uda.alignment import coral_distance, mmd_distance
from fedade.parts.composition import own_prediction, trainable
from fedade.parts.discriminator import Discriminator, domain_logits, new_discriminator
from fedade.parts.domain_pairs import DomainPair, descended, domain_pairs, embed, source_loss
from fedade.parts.optimisers import Optimiser, OptimiserState
from fedade.parts.rates import RateBounds


class UdaClient(NamedTuple):
    """A model of its own, the discriminator of `dann` (else empty), the steps taken so far, the optimiser's state."""

    own: dict[str, Tensor]
    discriminator: Discriminator
    steps: Tensor
    state: OptimiserState


class Uda(Method[UdaClient]):
    """Cross-entropy on the reference set plus λ times the distance of two feature distributions."""

    alignment: Literal["coral", "mmd", "dann"] = "coral"
    alignment_weight: float = Field(1.0, ge=0)
    """λ."""
    pace: Literal["low", "mid", "high"] = "mid"
    rate: RateBounds = RateBounds()
    steps: int = Field(4, ge=0)
    """Gradient steps per timestep."""
    pair_size: int = Field(32, ge=1)
    """Labelled samples in a step, and as many unlabelled ones."""
    discriminator_width: int = Field(64, ge=1)
    optimiser: Optimiser = Optimiser()
    """Moves the model; discriminators take plain steps."""
    discriminator_rate: float = Field(1e-2, ge=0)
    """`dann`: learning rate of the discriminator, as published."""

    @property
    def card(self) -> Card:
        papers = {"coral": "Deep CORAL, 2016", "mmd": "DAN, ICML 2015", "dann": "DANN, JMLR 2016"}
        return Card(
            summary=f"own model, aligns the stream's features with the reference set's ({self.alignment})",
            paper=papers[self.alignment],
            reference=True,
        )

    def begin(self, ctx: ClientContext) -> UdaClient:
        deployment = ctx.deployment
        adversarial, own = self.alignment == "dann", trainable(deployment)
        return UdaClient(
            own=own,
            discriminator=new_discriminator(deployment.initial_feature, self.discriminator_width)
            if adversarial
            else {},
            steps=torch.zeros_like(deployment.accuracy),
            state=self.optimiser.start(own),
        )

    def observe(self, ctx: ClientContext, state: UdaClient) -> tuple[UdaClient, Plan]:
        """`steps` steps on pairs of batches; the trace gets the distance that the last one met."""
        rate = self.rate.rate(self.pace, torch.zeros_like(state.steps))
        distance = torch.zeros_like(rate)
        for pair in domain_pairs(ctx, self.steps, self.pair_size):
            state, distance = self._step(ctx.deployment, state, pair, rate)
        return state, {"learning_rate": rate, "alignment": distance}

    def predict(self, ctx: ClientContext, state: UdaClient) -> Tensor:
        return own_prediction(ctx, state.own)

    def _step(
        self, deployment: Deployment, client: UdaClient, pair: DomainPair, rate: Tensor
    ) -> tuple[UdaClient, Tensor]:
        def loss(own: dict[str, Tensor], discriminator: Discriminator) -> tuple[Tensor, Tensor]:
            embedded = embed(deployment, own, pair)
            distance = self._distance(embedded.source_features, embedded.target_features, discriminator, client.steps)
            return source_loss(embedded, pair) + self.alignment_weight * distance, distance

        slopes, distance = grad(loss, argnums=(0, 1), has_aux=True)(client.own, client.discriminator)
        directions, state = self.optimiser.directions(client.own, slopes[0], client.state)
        moved = UdaClient(
            own=descended(client.own, directions, rate),
            discriminator=descended(client.discriminator, slopes[1], self.discriminator_rate),
            steps=client.steps + 1,
            state=state,
        )
        return moved, distance

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
