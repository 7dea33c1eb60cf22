"""UNIDA: universal domain adaptation, brought to a stream (UAN, CVPR 2019; DANCE, NeurIPS 2020; prototypes).

Every client keeps a full model of its own. It learns the labels of the reference set while it first decides which of
its samples belong to known classes, and adapts to those only. Normalisation statistics stay as deployed.

Learning a small reference set again and again is what costs under label shift.

A client keeps 4·|θ| bytes, and for its variant 4·K·d (`proto`), 4·bank_size·d (`dance`) or about
8·d·discriminator_width (`uan`). A timestep costs about 3·steps·(samples + reference batch) forward passes; nothing is
sent.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from fedade.core.context import ClientContext
from fedade.core.deployment import Deployment
from fedade.core.method import Card, Plan
from fedade.core.split import Parameters
from fedade.maths.losses.adversarial import reversal_strength
from fedade.methods.unida.rules import Dance, Discriminators, Prototypes, Situation, Uan, Universal
from fedade.parts.composition import own_model
from fedade.parts.domain_pairs import AdaptingClient, DomainAdaptation, Embedded


class Unida(DomainAdaptation):
    """Cross-entropy on the reference set plus a loss that tells known samples from unknown ones."""

    variant: Literal["proto", "uan", "dance"] = "proto"
    confidence: float = Field(0.8, ge=0, le=1)
    """`proto`: similarity to its prototype from which a sample is known."""
    proto_margin: float = Field(0.5, ge=0, le=1)
    """`proto`: distance from ½ ln K, as a share of it, from which an entropy is low or high."""
    prototype_momentum: float = Field(0.99, ge=0, le=1)
    separation: float = Field(0.05, ge=0)
    """`proto`, `dance`: weight of the entropy separation (and of DANCE's clustering)."""
    dance_margin: float = Field(0.5, ge=0)
    """`dance`: distance from ½ ln K, in nats, up to which entropies are left alone."""
    bank_size: int = Field(100, ge=1)
    """`dance`: features remembered; the original keeps the whole target set."""
    reject_as_error: bool = False
    """Count samples taken for unknown as errors. False is right for streams of known classes only."""

    @property
    def card(self) -> Card:
        return Card(
            summary=f"own model, adapts to samples of known classes only ({self.variant})",
            paper={"proto": "prototype UNIDA", "uan": "UAN, CVPR 2019", "dance": "DANCE, NeurIPS 2020"}[self.variant],
            reference=True,
        )

    def begin(self, ctx: ClientContext) -> AdaptingClient:
        return self.first_state(ctx.deployment, *self._universal.start(ctx.deployment))

    def observe(self, ctx: ClientContext, state: AdaptingClient) -> tuple[AdaptingClient, Plan]:
        """`steps` steps on pairs of batches; the memory then takes in the whole batch."""
        state, rate, _ = self.adapt(ctx, state)
        features, logits = _vectors_and_logits(ctx.deployment, state, ctx.updated_features(own_model(ctx, state.own)))
        unknown = self._universal.unknown(features, logits, state.discriminators)
        moved = state._replace(memory=self._universal.remember(state.memory, features, logits))
        return moved, {"learning_rate": rate, "unknown": unknown.to(rate.dtype).mean()}

    def predict(self, ctx: ClientContext, state: AdaptingClient) -> Tensor:
        """The client's own model; with `reject_as_error` there is one more class, which no label has."""
        features, logits = _vectors_and_logits(ctx.deployment, state, ctx.own_features(own_model(ctx, state.own)))
        if not self.reject_as_error:
            return logits.softmax(-1)
        unknown = self._universal.unknown(features, logits, state.discriminators)
        rejection = pad(torch.zeros_like(logits), (0, 1), value=1.0)
        return torch.where(unknown.unsqueeze(-1), rejection, pad(logits.softmax(-1), (0, 1)))

    def stream_loss(
        self, embedded: Embedded, own: Parameters, discriminators: Discriminators, client: AdaptingClient
    ) -> tuple[Tensor, Tensor]:
        """What the variant makes of the samples; the trace has no need of it."""
        strength = reversal_strength(client.steps)
        loss = self._universal.loss(Situation(embedded, own, client.memory, discriminators, strength))
        return loss, loss

    @property
    def _universal(self) -> Universal:
        if self.variant == "uan":
            return Uan(self.discriminator_width)
        if self.variant == "dance":
            return Dance(self.separation, self.dance_margin, self.bank_size)
        return Prototypes(self.confidence, self.proto_margin, self.separation, self.prototype_momentum)


def _vectors_and_logits(deployment: Deployment, state: AdaptingClient, features: Tensor) -> tuple[Tensor, Tensor]:
    """One vector per sample, and logits, of features of a client's own model."""
    network = deployment.network
    return network.summarise(features), network.classify({**deployment.parameters, **state.own}, features)
