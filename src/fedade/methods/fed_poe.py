"""Fed-POE: a personal ensemble of local, global and remembered models, weighted by their losses (Ghari and Shen, 2024).

Each client mixes its own model, the federated one and a bank of earlier federated ones; multiplicative weights follow
their losses, so that an old model returns when its time does. Only the last layer ever moves, as in the authors' code.
The original learns from labels (`labels="oracle"`). In the label-free port every loss is the BBSE risk: the reference
set's loss under the batch's estimated prior. One sample of the original is one batch here, and snapshots are of the
averaged global model, where the authors' code stores the local one. The risk is linear in the prior, so the loss of a
new snapshot on all the past needs the sum of the past priors only. The BBSE risk reads reference inputs alone: under a
pure shift of the inputs it cannot tell the members apart.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import vmap

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.core.split import Parameters
from fedade.core.tree import repeat
from fedade.maths.counter import uniform
from fedade.maths.hedging import draw_experts, hedge, hedge_drawn, mixture
from fedade.parts import last_layers
from fedade.parts.objectives import LabelSource
from fedade.parts.optimisers import WHOLE, Optimiser, OptimiserState, PhaseStates, descend
from fedade.parts.priors import Estimator, batch_prior, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds, constant_rate

_OTHERS = 2
"""The local and the global model, beside which the bank stands."""


class FedPoeClient(NamedTuple):
    """A client's last layer, its bank of last layers, and the weights of all."""

    local: dict[str, Tensor]
    bank: dict[str, Tensor]
    """Snapshots, `[slots, ...]`; the oldest makes room for the newest."""
    bank_weights: Tensor
    """Logarithms; -inf for an empty slot."""
    drawn: Tensor
    """Which snapshots the next prediction uses."""
    tuned_weights: Tensor
    """Logarithms of a (local) and b (global)."""
    outer_weights: Tensor
    """Logarithms of c (local and global together) and d (bank)."""
    past: Tensor
    """Sum of the priors of all batches."""
    states: PhaseStates
    """States of the optimisers that move the global model (`joint`) and the local one."""


class Members(NamedTuple):
    """Probabilities of an ensemble's members, and of its two halves."""

    tuned: Tensor
    bank: Tensor
    halves: Tensor


class FedPoe(FederatedMethod[FedPoeClient, Shared]):
    """Personalised online federated learning with multiple models."""

    labels: LabelSource = "unsup"
    """Label-free as ported here, or the original with true labels."""
    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    prior: Estimator = "simplex_ls"
    models: int = Field(10, ge=3)
    """M: size of the ensemble; two of them are the local and the global model."""
    period: int = Field(20, ge=1)
    """Timesteps between two snapshots."""
    weight_rate: float = Field(0.1, ge=0)
    """η_c, published as 1/√T: this is T = 100."""
    steps: int = Field(1, ge=0)
    """Steps of the local model in a timestep, and of the global one in a round."""
    optimiser: Optimiser = Optimiser()

    @property
    def card(self) -> Card:
        summary = "loss-weighted ensemble of a local model, the federated one and a bank of earlier ones"
        paper, oracle = "Ghari and Shen, NeurIPS 2024", self.labels == "oracle"
        return Card(summary, paper, oracle, reads_deployed=True, reference=True)

    def begin(self, ctx: ClientContext) -> FedPoeClient:
        """The deployed model is the first snapshot."""
        deployment = ctx.deployment
        refuse_unsafe_inverse(deployment, self.prior)
        head, prior = last_layers.last_layer(deployment), deployment.source_prior
        slots = torch.arange(self.models - _OTHERS, device=prior.device)
        even = prior.new_zeros(2)
        return FedPoeClient(
            local=head,
            bank=repeat(head, len(slots)),
            bank_weights=torch.where(slots == 0, even[0], -torch.inf),
            drawn=slots == 0,
            tuned_weights=even,
            outer_weights=even,
            past=torch.zeros_like(prior),
            states=PhaseStates(joint=self.optimiser.start(head), personal=self.optimiser.start(head)),
        )

    def begin_server(self, deployment: Deployment) -> Shared:
        return last_layers.last_layer(deployment)

    def observe(self, ctx: ClientContext, state: FedPoeClient) -> tuple[FedPoeClient, Plan]:
        """Judge the members that predicted, reweight them, take a snapshot if due, step the local model."""
        prior, examination = self._examination(ctx)
        members = self._members(ctx, state, examination.features)
        rate = constant_rate(self.rate.mid, prior[0])
        slots = len(state.drawn)
        local, personal = self._stepped(ctx, state.local, examination, rate, state.states.personal)
        tuned, bank, halves = (last_layers.losses(predicted, examination) for predicted in members)
        judged = state._replace(
            local=local,
            states=state.states._replace(personal=personal),
            bank_weights=hedge_drawn(state.bank_weights, bank, state.drawn, slots, self.weight_rate),
            tuned_weights=hedge(state.tuned_weights, tuned, self.weight_rate),
            outer_weights=hedge(state.outer_weights, halves, self.weight_rate),
            past=state.past + prior,
        )
        banked = self._with_snapshot(ctx, judged)
        drawn = draw_experts(banked.bank_weights, uniform(ctx.key, (slots,)))
        own, bank = banked.tuned_weights.softmax(-1)[0], banked.outer_weights.softmax(-1)[1]
        plan = {"learning_rate": rate, "prior": prior, "weight_local": own, "weight_bank": bank}
        return banked._replace(drawn=drawn), plan

    def local_round(self, ctx: RoundContext, state: FedPoeClient, plan: Plan) -> tuple[FedPoeClient, Plan, Shared]:
        _, examination = self._examination(ctx)
        rate, states = plan["learning_rate"], state.states
        moved, joint = self._stepped(ctx, ctx.shared, examination, rate, states.joint)
        return state._replace(states=states._replace(joint=joint)), plan, moved

    def predict(self, ctx: ClientContext, state: FedPoeClient) -> Tensor:
        """(c f_tuned + d f_bank) / (c + d)."""
        return mixture(self._members(ctx, state, last_layers.frozen_features(ctx)).halves, state.outer_weights)

    def _stepped(
        self, ctx: ClientContext, head: Parameters, by: last_layers.Examination, rate: Tensor, state: OptimiserState
    ) -> tuple[dict[str, Tensor], OptimiserState]:
        """A last layer after steps on the loss by which models are judged."""
        loss = lambda moved, _: last_layers.loss(ctx.deployment, moved, by)  # noqa: E731
        return descend(loss, head, rate, [WHOLE] * self.steps, self.optimiser, state)

    def _members(self, ctx: ClientContext, state: FedPoeClient, features: Tensor) -> Members:
        """f_j of every model, f_tuned = (a f_local + b f_global) / (a + b), and f_bank over the drawn snapshots."""
        deployment, heads = ctx.deployment, (state.local, ctx.shared)
        tuned = torch.stack([last_layers.classified(deployment, head, features) for head in heads]).softmax(-1)
        bank = vmap(lambda head: last_layers.classified(deployment, head, features))(state.bank).softmax(-1)
        halves = [mixture(tuned, state.tuned_weights), mixture(bank, state.bank_weights, state.drawn)]
        return Members(tuned, bank, torch.stack(halves))

    def _examination(self, ctx: ClientContext) -> tuple[Tensor, last_layers.Examination]:
        """The batch's prior, and the samples by whose loss models are judged and trained."""
        if self.labels == "oracle":
            seen = last_layers.frozen_features(ctx)
            return ctx.prior.to(seen.dtype), last_layers.Examination(seen, ctx.labels, torch.ones_like(seen[:, 0]))
        prior = batch_prior(ctx, self.prior)
        return prior, last_layers.reference_examination(ctx.deployment, prior)

    def _with_snapshot(self, ctx: ClientContext, state: FedPoeClient) -> FedPoeClient:
        """Every `period` timesteps the global model enters the bank, with the weight that its loss on the past earns.
        That loss is taken on the reference set under the summed priors, in the oracle form too, whose labelled past
        would otherwise have to be kept."""
        shared, timestep = ctx.shared, ctx.timestep
        slots = torch.arange(len(state.drawn), device=timestep.device)
        replaced = (timestep % self.period == 0) & (slots == (timestep // self.period) % len(slots))
        past = last_layers.reference_examination(ctx.deployment, state.past)
        weight = -self.weight_rate * last_layers.loss(ctx.deployment, shared, past)
        bank = {
            name: torch.where(replaced.reshape(-1, *(1,) * shared[name].ndim), shared[name], old)
            for name, old in state.bank.items()
        }
        return state._replace(bank=bank, bank_weights=torch.where(replaced, weight, state.bank_weights))
