"""Gradients and curvatures of the true loss where a run came by, for the constants of the paper's theorems."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap
from torch.nn.functional import cross_entropy

from fedade.core.scenario import Batch
from fedade.core.seeds import Seeds
from fedade.theory.client_models import ClientModels
from fedade.theory.equations.convergence import gradient_diversity
from fedade.theory.equations.power_iteration import largest_singular_value

GRADIENT_SAMPLES = 64
"""Samples per client whose own gradients are measured."""
CURVATURE_CLIENTS, CURVATURE_SAMPLES = 2, 100
"""Clients at whose models curvatures are measured, and their samples: each costs some fifty gradients."""
_ITERATIONS = 8
_CHUNK = 16

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]


class Landscape(NamedTuple):
    """At one timestep, or over several."""

    gradient_norm: float
    """G: largest gradient norm of a single sample, in all parameters."""
    k_shared: float
    """K_ψ: largest norm of the Hessian's block of the shared parameters."""
    k_personal: float
    """K_φ"""
    k_cross: float
    """K_ψφ"""
    spreads: tuple[float, ...]
    """(1/C) Σ_c ‖∇_ψ F_c − ∇_ψ F‖² at every timestep."""
    squared_norms: tuple[float, ...]
    """‖∇_ψ F‖² at every timestep."""

    @classmethod
    def over(cls, several: Sequence["Landscape"]) -> "Landscape":
        """The largest of each constant, and all points of the gradient diversity."""
        return cls(
            max(one.gradient_norm for one in several),
            max(one.k_shared for one in several),
            max(one.k_personal for one in several),
            max(one.k_cross for one in several),
            tuple(value for one in several for value in one.spreads),
            tuple(value for one in several for value in one.squared_norms),
        )

    def diversity(self) -> tuple[float, float]:
        """ρ² and δ²."""
        return gradient_diversity(torch.tensor(self.spreads), torch.tensor(self.squared_norms))


def landscape(models: ClientModels, batch: Batch) -> Landscape:
    """Gradients and curvatures of the clients' models, on labelled draws of theirs."""
    clients = len(batch.labels)
    stacked = models.trainable(clients)
    every = [{name: value[client] for name, value in stacked.items()} for client in range(clients)]
    statistics = [{name: value[client] for name, value in models.own.items()} for client in range(clients)]
    split = models.deployment.split
    shared = [name for name in stacked if split.is_shared(name)]
    personal = [name for name in stacked if not split.is_shared(name)]

    def loss_on(client: int, inputs: Tensor, labels: Tensor) -> Loss:
        def loss(moving: Parameters) -> Tensor:
            parameters = {**models.one(statistics[client]), **moving}
            return cross_entropy(models.deployment.network.logits(parameters, inputs), labels)

        return loss

    losses = [loss_on(client, batch.inputs[client], batch.labels[client]) for client in range(clients)]
    gradients = torch.stack([_flat(grad(loss)(own), shared) for loss, own in zip(losses, every, strict=True)])
    mean = gradients.mean(0)
    spread = float((gradients - mean).square().sum(1).mean())
    norms = [
        _sample_gradient_norms(loss_on, client, own, batch.inputs[client], batch.labels[client])
        for client, own in enumerate(every)
    ]
    few = slice(CURVATURE_SAMPLES)
    curved = [
        Curvature(loss_on(client, batch.inputs[client, few], batch.labels[client, few]), own)
        for client, own in enumerate(every[:CURVATURE_CLIENTS])
    ]
    squared = float(mean.square().sum())
    return Landscape(
        float(torch.cat(norms).max()),
        max(one.block_norm(shared, shared) for one in curved),
        max(one.block_norm(personal, personal) for one in curved),
        max(one.block_norm(shared, personal) for one in curved),
        (spread,),
        (squared,),
    )


def _sample_gradient_norms(
    loss_on: Callable[[int, Tensor, Tensor], Loss], client: int, own: Parameters, inputs: Tensor, labels: Tensor
) -> Tensor:
    def norm(one_input: Tensor, one_label: Tensor) -> Tensor:
        gradient = grad(loss_on(client, one_input.unsqueeze(0), one_label.unsqueeze(0)))(own)
        length: Tensor = torch.linalg.vector_norm(_flat(gradient, list(own)))
        return length

    norms: Tensor = vmap(norm, chunk_size=_CHUNK)(inputs[:GRADIENT_SAMPLES], labels[:GRADIENT_SAMPLES])
    return norms


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
        found = largest_singular_value(
            lambda vector: self._product(vector, columns, rows),
            lambda vector: self._product(vector, rows, columns),
            start.to(next(iter(self.point.values()))),
            _ITERATIONS,
        )
        return float(found)

    def _product(self, vector: Tensor, into: Sequence[str], out_of: Sequence[str]) -> Tensor:
        direction = {name: torch.zeros_like(value) for name, value in self.point.items()}
        parts = torch.split(vector, [self.point[name].numel() for name in into])
        direction |= {name: part.view_as(self.point[name]) for name, part in zip(into, parts, strict=True)}
        return _flat(self.multiply(direction)[0], out_of)


def _flat(parameters: Parameters, names: Sequence[str]) -> Tensor:
    return torch.cat([parameters[name].flatten() for name in names])
