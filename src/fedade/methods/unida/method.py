"""UNIDA: universal domain adaptation, brought to a stream (UAN, CVPR 2019; DANCE, NeurIPS 2020; prototypes).

Every client keeps a full model of its own. It learns the labels of the reference set while it first decides which of
its samples belong to known classes, and adapts to those only. Normalisation statistics stay as deployed.

Learning a small reference set again and again is what costs under label shift.

A client keeps 4·|θ| bytes, and for its variant 4·K·d (`proto`), 4·bank_size·d (`dance`) or about
8·d·discriminator_width (`uan`). A timestep costs about 3·steps·(samples + reference batch) forward passes; nothing is
sent.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad
from torch.nn.functional import pad

from fedade.core.context import ClientContext
from fedade.core.deployment import Deployment
from fedade.core.method import Card, Method, Plan
from fedade.maths.losses.adversarial import reversal_strength
from fedade.methods.unida.rules import Dance, Discriminators, Memory, Prototypes, Situation, Uan, Universal
from fedade.parts.composition import own_model, trainable
from fedade.parts.domain_pairs import DomainPair, descended, domain_pairs, embed, source_loss
from fedade.parts.optimisers import Optimiser, OptimiserState
from fedade.parts.rates import RateBounds


class UnidaClient(NamedTuple):
    """A model of its own, what it remembers, the steps taken so far, and the optimiser's state."""

    own: dict[str, Tensor]
    memory: Memory
    discriminators: Discriminators
    steps: Tensor
    state: OptimiserState


class Unida(Method[UnidaClient]):
    """Cross-entropy on the reference set plus a loss that tells known samples from unknown ones."""

    variant: Literal["proto", "uan", "dance"] = "proto"
    pace: Literal["low", "mid", "high"] = "mid"
    rate: RateBounds = RateBounds()
    steps: int = Field(4, ge=0)
    """Gradient steps per timestep."""
    pair_size: int = Field(32, ge=1)
    """Labelled samples in a step, and as many unlabelled ones."""
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
    discriminator_width: int = Field(64, ge=1)
    optimiser: Optimiser = Optimiser()
    """Moves the model; discriminators take plain steps."""
    discriminator_rate: float = Field(1e-2, ge=0)
    """`uan`: learning rate of the discriminators."""
    reject_as_error: bool = False
    """Count samples taken for unknown as errors. False is right for streams of known classes only."""

    @property
    def card(self) -> Card:
        return Card(
            summary=f"own model, adapts to samples of known classes only ({self.variant})",
            paper={"proto": "prototype UNIDA", "uan": "UAN, CVPR 2019", "dance": "DANCE, NeurIPS 2020"}[self.variant],
            reference=True,
        )

    def begin(self, ctx: ClientContext) -> UnidaClient:
        deployment = ctx.deployment
        memory, discriminators = self._universal.start(deployment)
        own, steps = trainable(deployment), torch.zeros_like(deployment.accuracy)
        return UnidaClient(own, memory, discriminators, steps, self.optimiser.start(own))

    def observe(self, ctx: ClientContext, state: UnidaClient) -> tuple[UnidaClient, Plan]:
        """`steps` steps on pairs of batches; the memory then takes in the whole batch."""
        rate = self.rate.rate(self.pace, torch.zeros_like(state.steps))
        for pair in domain_pairs(ctx, self.steps, self.pair_size):
            state = self._step(ctx.deployment, state, pair, rate)
        features, logits = _vectors_and_logits(ctx.deployment, state, ctx.updated_features(own_model(ctx, state.own)))
        unknown = self._universal.unknown(features, logits, state.discriminators)
        moved = state._replace(memory=self._universal.remember(state.memory, features, logits))
        return moved, {"learning_rate": rate, "unknown": unknown.to(rate.dtype).mean()}

    def predict(self, ctx: ClientContext, state: UnidaClient) -> Tensor:
        """The client's own model; with `reject_as_error` there is one more class, which no label has."""
        features, logits = _vectors_and_logits(ctx.deployment, state, ctx.own_features(own_model(ctx, state.own)))
        if not self.reject_as_error:
            return logits.softmax(-1)
        unknown = self._universal.unknown(features, logits, state.discriminators)
        rejection = pad(torch.zeros_like(logits), (0, 1), value=1.0)
        return torch.where(unknown.unsqueeze(-1), rejection, pad(logits.softmax(-1), (0, 1)))

    def _step(self, deployment: Deployment, client: UnidaClient, pair: DomainPair, rate: Tensor) -> UnidaClient:
        strength = reversal_strength(client.steps)

        def loss(own: dict[str, Tensor], discriminators: Discriminators) -> Tensor:
            embedded = embed(deployment, own, pair)
            situation = Situation(embedded, own, client.memory, discriminators, strength)
            return source_loss(embedded, pair) + self._universal.loss(situation)

        slopes = grad(loss, argnums=(0, 1))(client.own, client.discriminators)
        directions, state = self.optimiser.directions(client.own, slopes[0], client.state)
        return client._replace(
            own=descended(client.own, directions, rate),
            discriminators=descended(client.discriminators, slopes[1], self.discriminator_rate),
            steps=client.steps + 1,
            state=state,
        )

    @property
    def _universal(self) -> Universal:
        if self.variant == "uan":
            return Uan(self.discriminator_width)
        if self.variant == "dance":
            return Dance(self.separation, self.dance_margin, self.bank_size)
        return Prototypes(self.confidence, self.proto_margin, self.separation, self.prototype_momentum)


def _vectors_and_logits(deployment: Deployment, state: UnidaClient, features: Tensor) -> tuple[Tensor, Tensor]:
    """One vector per sample, and logits, of features of a client's own model."""
    network = deployment.network
    return network.summarise(features), network.classify({**deployment.parameters, **state.own}, features)
