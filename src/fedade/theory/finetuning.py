"""A comparator where no convex one exists: labelled fine-tuning of whole models, with early stopping."""

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from fedade.theory.client_models import ClientModels
from fedade.theory.oracle import Oracle

STEPS = 200
"""At most."""
RATE = 0.05
PATIENCE = 20
"""Steps without a better validation loss after which all clients stop."""

Parameters = dict[str, Tensor]


def finetuned_probabilities(oracle: Oracle, models: ClientModels | None, timestep: int, inputs: Tensor) -> Tensor:
    """Predictions of each client's better model of two: fine-tuned from the method's, and from the deployed one.

    Full-batch gradient descent on one labelled draw of the client's law; the model with the smallest loss on another
    draw is kept. This bounds the smallest possible loss from above, so regret against it is a lower bound.
    """
    starts = [ClientModels(oracle.deployment, {}, {}), *([models] if models is not None else [])]
    tuned = [_finetuned(oracle, start, timestep) for start in starts]
    probabilities = torch.stack(
        [_logits(start, moved, inputs).softmax(-1) for start, (moved, _) in zip(starts, tuned, strict=True)]
    )
    best = torch.stack([loss for _, loss in tuned]).argmin(0)
    return probabilities[best, torch.arange(len(best), device=best.device)]


def _finetuned(oracle: Oracle, models: ClientModels, timestep: int) -> tuple[Parameters, Tensor]:
    """The clients' best parameters on the way, `[c, ...]`, and their validation losses."""
    train, held_out = (oracle.fresh(timestep, purpose) for purpose in ("theory-training", "theory-validation"))

    def loss(moving: Parameters, own: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        parameters = {**models.model_with(own), **moving}
        return cross_entropy(models.deployment.network.logits(parameters, inputs), labels)

    moved = models.trainable(len(train.labels))
    best, lowest, waited = moved, vmap(loss)(moved, models.own, held_out.inputs, held_out.labels), 0
    for _ in range(STEPS):
        gradients = vmap(grad(loss))(moved, models.own, train.inputs, train.labels)
        moved = {name: value - RATE * gradients[name] for name, value in moved.items()}
        reached = vmap(loss)(moved, models.own, held_out.inputs, held_out.labels)
        better = reached < lowest
        best = {name: torch.where(_along(better, value), value, best[name]) for name, value in moved.items()}
        lowest = torch.where(better, reached, lowest)
        waited = 0 if better.any() else waited + 1
        if waited == PATIENCE:
            break
    return best, lowest


def _logits(models: ClientModels, moved: Parameters, inputs: Tensor) -> Tensor:
    def of_client(moving: Parameters, own: Parameters, seen: Tensor) -> Tensor:
        return models.deployment.network.logits({**models.model_with(own), **moving}, seen)

    logits: Tensor = vmap(of_client)(moved, models.own, inputs)
    return logits


def _along(flags: Tensor, values: Tensor) -> Tensor:
    return flags.view(-1, *(1,) * (values.ndim - 1))
