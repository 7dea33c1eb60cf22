"""ATP: how far each module should move without labels is learned before deployment (Bao et al., NeurIPS 2023).

A module is one parameter tensor, or the running means or variances of one BatchNorm layer. Its rate α is learned on
labelled source clients: take one label-free step with α, see on the labels whether it helped, and correct α. After
deployment every batch takes one such step, with the rates frozen and without any exchange. Source clients are imitated
by drawing batches from the reference set with Dirichlet class priors, so the rates know label shift only.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from fedade.core.errors import FedadeError
from fedade.core.method import Card, ClientContext, Deployment, Method, Plan
from fedade.core.normalisation import RecordingStatistics, Statistics
from fedade.core.seeds import Seeds
from fedade.core.split import Parameters
from fedade.maths.losses import entropy_from_logits
from fedade.parts.composition import own_prediction
from fedade.parts.norm_layers import adaptable, follow, warn_without_batch_norm

_SOURCE_CLIENTS = Seeds(0)
"""Rates belong to the deployment, so their draws do not depend on the seed of a run."""


class AtpClient(NamedTuple):
    """The learned rates and the client's adapted model, statistics included."""

    rates: dict[str, Tensor]
    own: dict[str, Tensor]


class Atp(Method[AtpClient]):
    """Adaptive test-time personalisation."""

    about = Card(
        summary="one entropy step per batch, with a rate per module learned on labelled source clients; "
        "made for BatchNorm, moves any norm",
        paper="Bao et al., NeurIPS 2023",
        reference=True,
    )

    memory: Literal["batch", "online"] = "batch"
    """Restart from the deployed model at every batch, or average the adapted models over all batches so far."""
    training_rounds: int = Field(200, ge=0)
    """Rounds in which rates are learnt before deployment."""
    source_clients: int = Field(8, ge=1)
    """Source clients of a training round."""
    source_batch: int = Field(20, ge=1)
    """Samples of a source client."""
    source_alpha: float = Field(0.1, gt=0)
    """Dirichlet factor of the source clients' class priors."""
    rate_of_rates: float = Field(0.01, ge=0)
    """Published as 0.1, at which the rates of the small default network grow without bound."""

    def begin(self, ctx: ClientContext) -> AtpClient:
        """Learn the rates, from 0: one correction per round, averaged over its source clients."""
        deployment = ctx.deployment
        warn_without_batch_norm(deployment, "atp", "it moves the scales of other norms in place of statistics")
        modules = _modules(deployment)
        rates = {name: torch.zeros_like(value.sum()) for name, value in modules.items()}
        for number in range(self.training_rounds):
            rows = torch.from_numpy(self._source_rows(deployment, number)).to(deployment.reference.labels.device)
            corrections = vmap(lambda inputs, labels, known=rates: _correction(deployment, known, inputs, labels))(
                deployment.reference.inputs[rows], deployment.reference.labels[rows]
            )
            rates = {name: rate + self.rate_of_rates * corrections[name].mean(0) for name, rate in rates.items()}
        if not all(rate.isfinite() for rate in rates.values()):
            raise FedadeError(
                f"atp: the rates diverged in {self.training_rounds} training rounds; "
                f"lower atp.rate_of_rates ({self.rate_of_rates:g})"
            )
        return AtpClient(rates, modules)

    def observe(self, ctx: ClientContext, state: AtpClient) -> tuple[AtpClient, Plan]:
        """One step from the deployed model; `online`: θ̄ ← ((t - 1) θ̄ + θ') / t."""
        adapted = _stepped(ctx.deployment, state.rates, _direction(ctx.deployment, ctx.inputs))
        if self.memory == "online":
            adapted = {name: old + (adapted[name] - old) / ctx.timestep for name, old in state.own.items()}
        return state._replace(own=adapted), {}

    def predict(self, ctx: ClientContext, state: AtpClient) -> Tensor:
        return own_prediction(ctx, state.own)

    def _source_rows(self, deployment: Deployment, number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Rows of the reference set that the source clients of a round hold."""
        labels = deployment.reference.labels.cpu().numpy()
        classes, counts = np.unique(labels, return_counts=True)
        draws = _SOURCE_CLIENTS.generator("atp", round=number)
        priors = draws.dirichlet(np.full(len(classes), self.source_alpha), self.source_clients)
        chances = (priors / counts)[:, np.searchsorted(classes, labels)]
        return np.stack([draws.choice(len(labels), self.source_batch, p=row / row.sum()) for row in chances])


def _modules(deployment: Deployment) -> dict[str, Tensor]:
    """All parameters, and the statistics of all BatchNorm layers."""
    watching = RecordingStatistics(applies=False)
    deployment.network.represent(deployment.parameters, deployment.reference.inputs[:1], watching)
    return adaptable(deployment) | follow(deployment.parameters, watching.seen, 0.0)


def _direction(deployment: Deployment, inputs: Tensor) -> dict[str, Tensor]:
    """The label-free gradient: of the mean entropy for parameters, deployed minus batch value for statistics."""

    def loss(moved: dict[str, Tensor]) -> tuple[Tensor, dict[str, Statistics]]:
        watching = RecordingStatistics(applies=False)
        logits = deployment.network.logits({**deployment.parameters, **moved}, inputs, watching)
        return entropy_from_logits(logits).mean(), watching.seen

    gradients, seen = grad(loss, has_aux=True)(adaptable(deployment))
    batch = follow(deployment.parameters, seen, 1.0)
    return {**gradients, **{name: deployment.parameters[name] - value for name, value in batch.items()}}


def _stepped(deployment: Deployment, rates: Parameters, direction: Parameters) -> dict[str, Tensor]:
    """θ' = θ - α ∘ g; a rate outside [0, 1] must not make a variance negative."""
    moved = {name: deployment.parameters[name] - rates[name] * value for name, value in direction.items()}
    return {name: value.clamp_min(0) if name.endswith("running_var") else value for name, value in moved.items()}


def _correction(deployment: Deployment, rates: Parameters, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """⟨g_s, g_u⟩ / √size per module: g_s is the gradient of the labelled loss after the label-free step along g_u."""
    direction = _direction(deployment, inputs)

    def loss(moved: dict[str, Tensor]) -> Tensor:
        return cross_entropy(deployment.network.logits({**deployment.parameters, **moved}, inputs), labels)

    labelled = grad(loss)(_stepped(deployment, rates, direction))
    return {name: (labelled[name] * value).sum() / value.numel() ** 0.5 for name, value in direction.items()}
