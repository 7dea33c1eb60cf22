"""The clock of some cells: which client maps, which precision, where states are kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedade.client_map import Vectorised, loop, side_by_side
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.precision import set_multiplication
from fedade.core.scenario import Scenario
from fedade.core.threads import SMALL_NETWORK
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock, Federation
from fedade.engine.execution import Captured, Direct
from fedade.engine.steps import Maps
from fedade.experiments.settings import ExecutionSettings, Experiment
from fedade.kernels import compile_side_by_side
from fedade.models.text import entries_per_token

PIXELS_AT_ONCE = 8_000_000
"""Inputs of one forward pass, such as 8,000 CIFAR images; more would only cost memory."""

PIXELS_AT_ONCE_ON_GPU = 32_000_000
"""Inputs of one forward pass on a GPU, which several federations side by side fill better."""

HIDDEN_AT_ONCE = 70_000_000
"""Entries of the hidden states of one pass over texts, such as 80 of 48 tokens in SmolLM2-135M. With gradients each
takes about 100 bytes, because a layer keeps a dozen tensors of that size."""

HIDDEN_AT_ONCE_ON_GPU = 600_000_000
"""Entries of the hidden states of one pass on a GPU."""


def build_clock(experiment: Experiment, federations: Sequence[Federation], state_folder: Path) -> Clock:
    """The clock of one federation, or of several side by side, with the method of the first."""
    (scenario, seeds, method), *others = federations
    protocol, execution = experiment.protocol, experiment.execution
    built = method or experiment.build_method()
    # Whether a pass takes all labelled data of a client
    draws = getattr(built, "personal_draws", None) or getattr(built, "reference_draws", "epoch")
    reads_all = built.card.reference and not built.reads_reference_features and draws == "epoch"
    labelled = experiment.scenario.reference_size if reads_all else 0
    samples, keeps_body = experiment.scenario.samples, built.card.keeps_body
    set_multiplication("float32")  # rounding must not decide which clients may run together
    maps = client_maps(execution, scenario, samples, len(federations), keeps_body, labelled)
    rounds, scored = Rounds(protocol.rounds, protocol.participation), (protocol.score_fresh, protocol.scored_clients)
    # A rehearsal has zeros for results; an index that somebody's method made of them would end the process.
    ahead = (compile_side_by_side,) if type(built).__module__.startswith("fedade.") else ()
    running = Captured(*ahead) if execution.on_gpu and execution.cuda_graphs else Direct()
    states = state_folder if execution.client_state == "file" else None
    set_multiplication(execution.precision)
    return Clock(built, scenario, rounds, seeds, maps, *scored, tuple(others), running, states)


def check_precision(experiment: Experiment) -> None:
    precision = experiment.execution.precision
    if precision != "float32" and not experiment.execution.on_gpu:
        raise FedadeError(f"execution.precision: {precision} needs a GPU; use float32, or --device cuda")


def client_maps(
    execution: ExecutionSettings,
    scenario: Scenario,
    samples: int,
    federations: int = 1,
    keeps_body: bool = False,
    labelled: int = 0,
) -> Maps:
    """Which map runs what. `auto` follows what was measured: only big convolutional networks on a CPU want a client per
    core; and not where the body stays as it is, whose features streams remember."""
    if execution.client_map == "loop":
        return Maps(loop, loop)
    deployment = scenario.deployment
    if execution.client_map == "auto" and deployment.origin and not can_be_vectorised(deployment):
        return Maps(loop, loop)
    clients = Vectorised(_clients_at_once(deployment, federations * samples, execution.on_gpu))
    size = sum(value.numel() for value in deployment.parameters.values())
    alone = size > SMALL_NETWORK and not entries_per_token(deployment.network) and not keeps_body
    if execution.client_map == "auto" and not execution.on_gpu and alone:
        return Maps(side_by_side, side_by_side, loop)
    personal = Vectorised(_clients_at_once(deployment, federations * max(samples, labelled), execution.on_gpu))
    return Maps(clients, clients, Vectorised() if federations > 1 else loop, personal)


def can_be_vectorised(deployment: Deployment) -> bool:
    """Whether passes and gradients of a model that was brought can be made for several clients at once.

    Asked in float32, whatever the run computes in: rounded products differ between one client and several, though both
    are right."""
    network, parameters = deployment.network.computing_in("float32"), deployment.parameters
    inputs = deployment.reference.inputs[:2]
    moved = {name: value for name, value in parameters.items() if value.is_floating_point()}

    def gradient(batch: Tensor) -> Any:
        return grad(lambda own: network.logits({**parameters, **own}, batch).logsumexp(-1).sum())(moved)

    both = torch.stack([inputs, inputs.flip(0)])
    if inputs.is_cuda:
        compile_side_by_side(lambda: (vmap(gradient)(both), gradient(inputs)))
    try:
        together, alone = vmap(gradient)(both), gradient(inputs)
    except Exception:  # noqa: BLE001 - whatever PyTorch, or a stranger's code, says of a batch of batches
        return False
    return all(torch.allclose(together[name][0], value, 1e-3, 1e-4) for name, value in alone.items())


def _clients_at_once(deployment: Deployment, samples: int, on_gpu: bool) -> int:
    """How many clients fit into one pass; of images their pixels take the memory, of texts the hidden states."""
    inputs, per_token = deployment.reference.inputs, entries_per_token(deployment.network)
    if per_token:
        return max(1, (HIDDEN_AT_ONCE_ON_GPU if on_gpu else HIDDEN_AT_ONCE) // (samples * inputs.shape[1] * per_token))
    pixels = max(1, inputs[0, 0].numel())
    return max(1, (PIXELS_AT_ONCE_ON_GPU if on_gpu else PIXELS_AT_ONCE) // (samples * pixels))
