"""FedTSA: an attention over clients and their recent past decides who shares statistics (Zhang et al., KDD 2024).

Clients send the statistics of their batch, and the mean features of their last few batches under the deployed model.
The server trains a small attention over these from scratch in every round: over each client's past, then over clients;
it should give the features back, also where most of what it attends to is hidden. Each participant gets the batch
statistics of all, weighed by the attention that it pays to them. The server here remembers nothing: clients bring their
past along, and who does not take part keeps its statistics.

A client keeps its statistics and `window` mean features; it sends both and gets statistics. A timestep costs two
forward passes per sample.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cosine_similarity, linear

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.core.normalisation import RecordingStatistics
from fedade.maths.counter import uniforms
from fedade.parts.composition import own_prediction
from fedade.parts.last_layers import frozen_features, frozen_reference_features
from fedade.parts.norm_layers import moved, named_statistics, warn_without_batch_norm
from fedade.parts.optimisers import AdamOptimiser, Learner
from fedade.parts.running_norms import own_statistics
from fedade.parts.similar_clients import mixed

HIDDEN_TIMES, HIDDEN_EDGES, ADDED_EDGES = 0.75, 0.8, 0.2
"""Shares of attention over time, and between clients that are alike, that the robust pass does without; and of pairs
that are not alike, which it adds."""
_LEAST = 1e-9
_ANOTHER = 0x9E3779B1
"""Makes one key of two, whose order counts."""


class FedTsaClient(NamedTuple):
    """Statistics in force, and the mean features of the last batches, the newest last."""

    statistics: dict[str, Tensor]
    past: Tensor  # [S, d]
    known: Tensor
    """Which of them there are, `[S]`."""


class FedTsaUplink(NamedTuple):
    """What a participant tells in a round."""

    statistics: dict[str, Tensor]
    past: Tensor
    known: Tensor
    key: Tensor
    """Addressed number of the round; those of all give the server's draws."""


class FedTsa(FederatedMethod[FedTsaClient, FedTsaUplink]):
    """Temporal-spatial aggregation of batch statistics, with the constants of the released code."""

    about = Card(
        summary="batch statistics shared by an attention over clients and their past; made for BatchNorm",
        paper="FedTSA, KDD 2024",
        reads_deployed=True,
    )

    window: int = Field(5, ge=1)
    """Timesteps of a client's past that attention reads."""
    attention_steps: int = Field(100, ge=0)
    """Steps that train the attention; 0: plain softmax(U Uᵀ / √d)."""
    attention_rate: float = Field(1e-4, ge=0)
    """Rate at which attention is trained."""
    robustness: float = Field(0.1, ge=0)
    """Weight of the distance between what is given back with and without hidden attention."""

    def begin(self, ctx: ClientContext) -> FedTsaClient:
        warn_without_batch_norm(ctx.deployment, "fed-tsa", "with nothing to adapt it predicts as source")
        past = torch.zeros_like(frozen_reference_features(ctx.deployment)[:1].expand(self.window, -1))
        return FedTsaClient(own_statistics(ctx.deployment), past, past[:, 0] > 0)

    def observe(self, ctx: ClientContext, state: FedTsaClient) -> tuple[FedTsaClient, Plan]:
        newest = frozen_features(ctx).mean(0, keepdim=True)
        known = torch.cat([state.known[1:], torch.ones_like(state.known[:1])])
        return state._replace(past=torch.cat([state.past[1:], newest]), known=known), {}

    def local_round(
        self, ctx: RoundContext, state: FedTsaClient, plan: Plan
    ) -> tuple[FedTsaClient, Plan, FedTsaUplink]:
        recording = RecordingStatistics()
        ctx.deployment.network.represent(ctx.deployment.parameters, ctx.inputs, recording)
        found = {name: value for name, value in named_statistics(recording.seen).items() if name in state.statistics}
        return state, plan, FedTsaUplink(found, state.past, state.known, ctx.key)

    def personalise(self, ctx: RoundContext, state: FedTsaClient, plan: Plan) -> tuple[FedTsaClient, Plan]:
        return state._replace(statistics=ctx.downlink), plan

    def predict(self, ctx: ClientContext, state: FedTsaClient) -> Tensor:
        return own_prediction(ctx, state.statistics)

    def aggregate(
        self, deployment: Deployment, shared: Shared, uplinks: FedTsaUplink, weights: Tensor
    ) -> tuple[Shared, dict[str, Tensor]]:
        statistics: dict[str, Tensor] = mixed(
            self.attention(uplinks.past, uplinks.known, uplinks.key), uplinks.statistics
        )
        return {}, statistics

    def attention(self, past: Tensor, known: Tensor, keys: Tensor) -> Tensor:
        """Attention of each participant to each, `[P, P]`, by pasts `[P, S, d]` as far as they are known, `[P, S]`;
        their keys draw what is hidden in training."""
        identity, optimiser = torch.eye(past.shape[-1], device=past.device, dtype=past.dtype), AdamOptimiser()
        names = [f"{over} {role}" for over in ("times", "clients") for role in ("query", "key")]
        layers = dict.fromkeys(names, identity) | {f"{name} bias": torch.zeros_like(identity[0]) for name in names}
        learner, draws = Learner(layers, optimiser.start(layers)), _draws(past, keys, self.attention_steps)
        best, least = _passed(layers, past, known)[2][-1], torch.full_like(past[0, 0, 0], torch.inf)

        def loss(own: dict[str, Tensor], draws: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            mixed_times, over_time, over_clients, found = _passed(own, past, known)
            hidden = _hidden(mixed_times.detach(), over_time.detach(), over_clients.detach(), draws)
            *_, robust = _passed(own, past, known, *hidden)
            there = known.unsqueeze(-1).expand_as(past)
            size = there.sum().clamp_min(1)
            apart = torch.where(there, (past - found).square(), 0.0).sum() / size
            unsteady = torch.where(there, (found - robust).square(), 0.0).sum() / size
            total = apart + self.robustness * unsteady
            return total, (total, over_clients[-1])

        for of_step in zip(*draws, strict=True):
            slopes, (value, attended) = grad(loss, has_aux=True)(learner.own, of_step)
            best, least = torch.where(value < least, attended, best), torch.minimum(value, least)
            learner = moved(learner, slopes, optimiser, self.attention_rate)
        return best


def _draws(past: Tensor, keys: Tensor, steps: int) -> tuple[Tensor, ...]:
    """For every step what hides attention over time, removes edges and adds some: logarithms of uniform numbers, which
    go with their clients into any order."""
    times = past.shape[1]
    pairs = keys.unsqueeze(1) * _ANOTHER + keys
    over_time = vmap(lambda key: uniforms(key, (times, times), range(steps)))(keys)
    over_pairs = vmap(vmap(lambda key: uniforms(key, (times,), range(2 * steps))))(pairs).permute(2, 3, 0, 1)
    drawn = over_time.movedim(1, 0), over_pairs[::2], over_pairs[1::2]
    return tuple(numbers.clamp_min(_LEAST).log() for numbers in drawn)


def _passed(
    layers: dict[str, Tensor], past: Tensor, known: Tensor, times: Tensor | None = None, clients: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features mixed over time, both attentions, and what is given back; `times` and `clients` may be attended to."""

    def attended(over: str, rows: Tensor, allowed: Tensor) -> Tensor:
        query, key = (
            linear(rows, layers[f"{over} {role}"], layers[f"{over} {role} bias"]) for role in ("query", "key")
        )
        scores = query @ key.mT / rows.shape[-1] ** 0.5
        oneself = torch.eye(rows.shape[-2], device=rows.device, dtype=torch.bool)
        return torch.where(allowed | oneself, scores, -torch.inf).softmax(-1)

    over_time = attended("times", past, known.unsqueeze(1) if times is None else known.unsqueeze(1) & times)
    mixed_times = over_time @ past
    rows, there = mixed_times.transpose(0, 1), known.T.unsqueeze(1)
    over_clients = attended("clients", rows, there if clients is None else there & clients)
    return mixed_times, over_time, over_clients, (over_clients @ rows).transpose(0, 1)


def _hidden(
    mixed_times: Tensor, over_time: Tensor, over_clients: Tensor, draws: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """What the robust pass may attend to: little attention is hidden first, and pairs that are alike are edges."""
    of_times, of_removed, of_added = draws
    newest = mixed_times[:, -1]
    alike = cosine_similarity(newest.unsqueeze(1), newest, dim=-1)
    edges = (alike > alike.mean()).expand_as(over_clients)
    everywhere = torch.ones_like(over_time, dtype=torch.bool)
    times = ~_drawn(1 - over_time, everywhere, HIDDEN_TIMES, of_times)
    removed = _drawn(1 - over_clients, edges, HIDDEN_EDGES, of_removed)
    added = _drawn(over_clients, ~edges, ADDED_EDGES, of_added)
    return times, (edges & ~removed) | added


def _drawn(weights: Tensor, among: Tensor, share: float, draws: Tensor) -> Tensor:
    """A share of the entries of each matrix, drawn in proportion to their weight (Efraimidis and Spirakis, 2006)."""
    scores = torch.where(among, draws / weights.clamp_min(_LEAST), -torch.inf).flatten(-2)
    ranks = scores.argsort(-1, descending=True).argsort(-1).reshape(weights.shape)
    return among & (ranks < (share * among.sum((-2, -1), keepdim=True)).floor())
