"""The models behind methods' states, and the true loss around them: gradients and curvatures for the theorems."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vjp, vmap
from torch.nn.functional import cross_entropy

from fedade.core import tree
from fedade.core.deployment import Deployment
from fedade.core.scenario import Batch
from fedade.core.seeds import Seeds
from fedade.theory.equations.convergence import largest_singular_value

GRADIENT_SAMPLES = 64
"""Samples per client whose own gradients are measured."""

CURVATURE_CLIENTS, CURVATURE_SAMPLES = 2, 100
"""Clients at whose models curvatures are measured, and their samples: each costs some fifty gradients."""

_ITERATIONS = 8
_CHUNK = 16

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]


class ClientModels(NamedTuple):
    """What some clients compute with: deployed, under `shared`, under `own`."""

    deployment: Deployment
    shared: dict[str, Tensor]
    own: dict[str, Tensor]  # [c, ...]

    def model_with(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**self.deployment.parameters, **self.shared, **own}

    @property
    def moves(self) -> bool:
        """Whether anything differs, or may differ, from what was deployed."""
        return bool(self.own or self.shared)

    def trainable(self, clients: int) -> dict[str, Tensor]:
        """What gradient steps may move, of every client, `[c, ...]`."""
        common = {**self.deployment.parameters, **self.shared}
        return {
            name: self.own[name] if name in self.own else common[name].expand(clients, *common[name].shape)
            for name in sorted(self.deployment.network.trainable())
        }

    def distances(self, clients: int) -> Tensor:
        start = self.deployment.parameters
        moved = [(value - start[name]).flatten(1) for name, value in self.trainable(clients).items()]
        lengths: Tensor = torch.linalg.vector_norm(torch.cat(moved, 1), dim=1)
        return lengths


def client_models(deployment: Deployment, clients: tree.Tree, server: tree.Tree) -> ClientModels | None:
    """The models of the clients whose states these are; None where a state holds several candidates.

    A tensor belongs to the model if its place in the state ends with a parameter's name and it has its shape. Teachers
    and ensembles have those too, and nothing tells which of them is the model. Models are looked at with
    their running statistics, also those of methods whose passes use the batch's own.
    """
    shared, own = _parameters(deployment, server, 0), _parameters(deployment, clients, 1)
    return None if shared is None or own is None else ClientModels(deployment, shared, own)


def _parameters(deployment: Deployment, state: tree.Tree, axes: int) -> dict[str, Tensor] | None:
    parameters: dict[str, Tensor] = {}
    for place, leaf in tree.to_named(state, "").items():
        for name, deployed in deployment.parameters.items():
            if place.endswith(f"['{name}']"):
                if name in parameters or leaf.shape[axes:] != deployed.shape:
                    return None
                parameters[name] = leaf
    return parameters


class Slopes(NamedTuple):
    """The clients' losses and gradients at one moment."""

    loss: float
    """Mean loss."""
    shared: float
    """Δ_ψ = ‖∇_ψ F‖² of the mean loss."""
    personal: float
    """Δ_φ = (1/C) Σ_c ‖∇_φ F_c‖²"""
    spread: float
    """(1/C) Σ_c ‖∇_ψ F_c − ∇_ψ F‖²"""


class Steepness(NamedTuple):
    """The largest gradients and curvatures of a moment, or of several."""

    gradient_norm: float
    """G: norm of a single sample's gradient, in all parameters."""
    k_shared: float
    """K_ψ: norm of the Hessian's block of the shared parameters."""
    k_personal: float  # K_φ
    k_cross: float  # K_ψφ
    variance_shared: float
    """Variance of a single sample's gradient by ψ."""
    variance_personal: float


class Landscape:
    """The loss around the clients' models, on labelled draws of theirs."""

    def __init__(self, models: ClientModels, batch: Batch) -> None:
        self.models, self.batch = models, batch
        stacked, clients = models.trainable(len(batch.labels)), range(len(batch.labels))
        self.points = [{name: value[client] for name, value in stacked.items()} for client in clients]
        self.shared = [name for name in stacked if models.deployment.split.is_shared(name)]
        self.personal = [name for name in stacked if not models.deployment.split.is_shared(name)]

    def loss(self, client: int, inputs: Tensor, labels: Tensor) -> Loss:
        """A client's loss on samples, as a function of what its steps may move."""
        own = {name: value[client] for name, value in self.models.own.items()}

        def loss(moving: Parameters) -> Tensor:
            logits = self.models.deployment.network.logits({**self.models.model_with(own), **moving}, inputs)
            return cross_entropy(logits, labels)

        return loss

    def slopes(self) -> Slopes:
        measured = [grad_and_value(self._loss_on(client, slice(None)))(own) for client, own in enumerate(self.points)]
        shared = torch.stack([_flat(gradient, self.shared) for gradient, _ in measured])
        personal = torch.stack([_flat(gradient, self.personal) for gradient, _ in measured])
        mean = shared.mean(0)
        return Slopes(
            float(torch.stack([loss for _, loss in measured]).mean()),
            float(mean.square().sum()),
            float(personal.square().sum(1).mean()),
            float((shared - mean).square().sum(1).mean()),
        )

    def steepness(self) -> Steepness:
        squares = torch.stack([self._sample_squares(client) for client in range(len(self.points))])
        # Squared norms of the mean gradient of the same samples
        slopes = [grad(self._loss_on(client, slice(GRADIENT_SAMPLES)))(own) for client, own in enumerate(self.points)]
        means = torch.stack([self._squares(gradient) for gradient in slopes])
        variances = (squares.mean(1) - means).clamp_min(0).amax(0)
        curvatures = [
            Curvature(self._loss_on(client, slice(CURVATURE_SAMPLES)), own)
            for client, own in enumerate(self.points[:CURVATURE_CLIENTS])
        ]
        blocks = ((self.shared, self.shared), (self.personal, self.personal), (self.shared, self.personal))
        norms = [max(curvature.block_norm(*block) for curvature in curvatures) for block in blocks]
        return Steepness(float(squares.sum(-1).max().sqrt()), *norms, *variances.tolist())

    def _loss_on(self, client: int, samples: slice) -> Loss:
        return self.loss(client, self.batch.inputs[client, samples], self.batch.labels[client, samples])

    def _sample_squares(self, client: int) -> Tensor:
        """Squared norms of single samples' gradients by ψ and by φ, `[n, 2]`."""

        def squares(sample: Tensor, label: Tensor) -> Tensor:
            gradient = grad(self.loss(client, sample.unsqueeze(0), label.unsqueeze(0)))(self.points[client])
            return self._squares(gradient)

        few = slice(GRADIENT_SAMPLES)
        mapped = vmap(squares, chunk_size=_CHUNK)
        every: Tensor = mapped(self.batch.inputs[client, few], self.batch.labels[client, few])
        return every

    def _squares(self, gradient: Parameters) -> Tensor:
        return torch.stack([_flat(gradient, names).square().sum() for names in (self.shared, self.personal)])


class Curvature:
    """The Hessian of a loss at a point, known by its products with vectors."""

    def __init__(self, loss: Loss, point: Parameters) -> None:
        self.point = point
        # A Hessian is symmetric, so pulling a vector back through the gradient multiplies it.
        self.multiply = vjp(grad(loss), point)[1]

    def block_norm(self, rows: Sequence[str], columns: Sequence[str]) -> float:
        """Largest singular value of the block with these rows and columns; approached from below."""
        size = sum(self.point[name].numel() for name in columns)
        start = torch.from_numpy(Seeds(0).generator("power-iteration").standard_normal(size))
        norm = largest_singular_value(
            lambda vector: self._product(vector, columns, rows),
            lambda vector: self._product(vector, rows, columns),
            start.to(next(iter(self.point.values()))),
            _ITERATIONS,
        )
        return float(norm)

    def _product(self, vector: Tensor, into: Sequence[str], out_of: Sequence[str]) -> Tensor:
        direction = {name: torch.zeros_like(value) for name, value in self.point.items()}
        parts = torch.split(vector, [self.point[name].numel() for name in into])
        direction |= {name: part.view_as(self.point[name]) for name, part in zip(into, parts, strict=True)}
        return _flat(self.multiply(direction)[0], out_of)


def _flat(parameters: Parameters, names: Sequence[str]) -> Tensor:
    return torch.cat([parameters[name].flatten() for name in names])
