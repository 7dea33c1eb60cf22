"""Promises that every method keeps: each check takes a method on trial, and raises where one is broken."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor
from torch.utils import _pytree as pytree

from fedade.checking import trials
from fedade.checking.trials import MethodTrial, require, run
from fedade.core import storage, tree
from fedade.core.context import ClientContext, RoundContext, Truth
from fedade.core.errors import first_line
from fedade.core.method import Method, with_rounds
from fedade.core.scenario import Batch, Streams
from fedade.core.seeds import Seeds
from fedade.engine.scoring import LABELLED_COLUMNS

Check = Callable[[MethodTrial], None]
SCORES = ("accuracy_pre", "accuracy_post", "true_prior", *LABELLED_COLUMNS)


def is_a_method(trial: MethodTrial) -> None:
    """Settings are frozen, and a card says what the method is."""
    method = trial.method
    require(isinstance(method, Method), f"{type(method).__name__} does not derive from fedade.core.method.Method")
    require(method.card.summary and method.card.paper, "its card has no summary or no paper")
    try:
        method.anything = 1  # type: ignore[attr-defined]
    except ValidationError:
        return
    require(False, "its settings can be changed after it was made; keep model_config frozen")


def functions_return_what_they_should(trial: MethodTrial) -> None:
    """States are trees of tensors that keep their shapes, plans are named tensors, predictions are probabilities."""
    method, scenario = trial.method, trial.scenarios.usual
    deployment, batch = scenario.deployment, scenario.streams.draw(np.arange(1), 1)
    federated = with_rounds(method)
    shared = federated.begin_server(deployment) if federated is not None else {}
    truth = Truth(batch.labels[0], batch.prior[0]) if method.card.oracle else None

    def context(inputs: Tensor) -> ClientContext:
        return ClientContext(deployment, inputs, torch.tensor(1), torch.tensor(5), shared, truth)

    with torch.no_grad():
        state = _drawing_nothing(method.begin, context(batch.inputs[0][:0]))
        _require_tensors(state, "begin")
        answer: Any = _drawing_nothing(method.observe, context(batch.inputs[0]), state)
        require(isinstance(answer, tuple) and len(answer) == 2, f"observe gives {_kind(answer)}, not (state, plan)")
        moved, plan = answer
        _require_tensors(moved, "observe")
        before, after = _shapes(state), _shapes(moved)
        require(before == after, f"observe gives a state {after}, and the one it was given is {before}")
        named = isinstance(plan, dict) and all(isinstance(value, Tensor) for value in plan.values())
        require(named, f"observe gives a plan {_kind(plan)}, not a dict of tensors")
        predicted: Any = _drawing_nothing(method.predict, context(batch.inputs[0]), moved)
    expected = [len(batch.inputs[0]), deployment.num_classes]
    found = list(predicted.shape) if isinstance(predicted, Tensor) else _kind(predicted)
    require(found == expected, f"predict gives {found} for {expected[0]} inputs, not probabilities {expected}")
    require(predicted.isfinite().all(), "predict gives numbers that are not finite")
    sums = predicted.sum(-1)
    whole = torch.allclose(sums, torch.ones_like(sums), atol=1e-3) and bool((predicted >= 0).all())
    require(whole, f"predict gives rows that are no probabilities, the first sums to {float(sums[0]):.4g}; use softmax")


def _drawing_nothing(function: Callable[..., Any], *given: Any) -> Any:
    """What a function returns, if it left PyTorch's generator alone."""
    before = torch.get_rng_state()
    answer = function(*given)
    require(
        torch.equal(before, torch.get_rng_state()),
        f"{function.__name__} draws from PyTorch's generator; draw from ctx.key with fedade.maths.counter",
    )
    return answer


def _require_tensors(state: Any, function: str) -> None:
    other = next((leaf for leaf in pytree.tree_leaves(state) if not isinstance(leaf, Tensor)), None)
    require(other is None, f"{function} gives a state that holds {_kind(other)}; make it a tensor")


def _shapes(state: Any) -> str:
    leaves, structure = pytree.tree_flatten(state)
    return f"{structure} {[list(leaf.shape) for leaf in leaves]}" if len(leaves) != 1 else str(list(leaves[0].shape))


def _kind(value: Any) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def same_bits(trial: MethodTrial) -> None:
    """The same seed gives the same bits."""
    again = run(trial.method, trial.scenarios.usual)
    trials.require_same_rows(trial.usual_run.rows, again, "two runs of one seed differ")


@dataclass(frozen=True)
class OtherStreams:
    """Streams of which something is otherwise: who is asked for, or what comes."""

    streams: Streams
    asked: Callable[[NDArray[np.int64]], NDArray[np.int64]] = lambda clients: clients
    drawn: Callable[[Batch], Batch] = lambda batch: batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.streams, name)

    def draw(self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream") -> Batch:
        """The batches of whoever is asked in a client's place, changed."""
        return self.drawn(self.streams.draw(self.asked(clients), timestep, purpose))


def relabelled(batch: Batch) -> Batch:
    """The same inputs, with every label the next one."""
    return batch._replace(labels=(batch.labels + 1) % batch.prior.shape[-1], prior=batch.prior.roll(1, -1))


def hidden_labels_stay_hidden(trial: MethodTrial) -> None:
    """Hidden labels change the score and nothing else, unless the card says oracle."""
    usual, honest = trial.scenarios.usual, trial.usual_run.rows
    streams: Any = OtherStreams(usual.streams, drawn=relabelled)
    other = run(trial.method, replace(usual, streams=streams))
    scores = zip(honest, other, strict=True)
    require(any((one["accuracy_post"] != two["accuracy_post"]).any() for one, two in scores), "labels change no score")
    if not trial.method.card.oracle:
        trials.require_same_rows(honest, other, "what a method does depends on hidden labels", but=SCORES)


@dataclass(frozen=True)
class PermutedSeeds(Seeds):
    """Seeds by which a permuted client brings its number along: its own draws go by it."""

    order: tuple[int, ...] = ()

    def number(self, purpose: str, **coordinates: int) -> int:
        """The number of the client that stands here."""
        if "client" in coordinates:
            coordinates["client"] = self.order[coordinates["client"]]
        return super().number(purpose, **coordinates)


def clients_are_symmetric(trial: MethodTrial) -> None:
    """Permuting clients permutes the results."""
    usual, order = trial.scenarios.usual, np.array([3, 1, 0, 2])
    straight = run(trial.method, usual, participation=1.0)
    streams: Any = OtherStreams(usual.streams, asked=lambda clients: order[clients])
    references = usual.references
    if references is not None:
        references = references._replace(rows=references.rows[torch.from_numpy(order)])
    other = replace(usual, streams=streams, references=references)
    moved = replace(trials.clock(trial.method, other, participation=1.0), seeds=PermutedSeeds(0, tuple(order.tolist())))
    for one, two in zip(straight, moved.run(moved.beginning()), strict=True):
        for name in one.keys() - {"client"}:
            # Sums over clients are taken in another order, so rounding differs and may turn a tie.
            limit = 0.11 if name.startswith("accuracy") else 1e-4
            same = np.allclose(one[name][order], two[name], atol=limit, rtol=1e-3)
            require(same, f"column {name} depends on the order of the clients")


def nothing_is_mutated(trial: MethodTrial) -> None:
    """State, plan, shared layers and deployment are never written to."""
    method, scenario = trial.method, trial.scenarios.usual
    world = trials.only(trials.beginning(method, scenario))
    state, deployment = tree.take(world.clients, 0), scenario.deployment
    given = (state, world.server, deployment.parameters, tuple(deployment.reference))
    versions, key = _versions(given), torch.tensor(5)
    batch = scenario.streams.draw(np.arange(1), 1)
    truth = Truth(batch.labels[0], batch.prior[0]) if method.card.oracle else None

    def context(kind: type[ClientContext], shared: Any, **more: Any) -> Any:
        return kind(deployment, batch.inputs[0], torch.tensor(1), key, shared=shared, truth=truth, **more)

    with torch.no_grad():
        new, plan = method.observe(context(ClientContext, world.server), state)
        if (federated := with_rounds(method)) is not None:
            before = _versions((new, plan))
            moved, planned, uplink = federated.local_round(context(RoundContext, world.server), new, plan)
            server, told = federated.aggregate(
                deployment, world.server, tree.stack([uplink, uplink]), torch.ones(2, device=key.device)
            )
            personal = context(RoundContext, server, downlink=tree.take(told, 0))
            federated.personalise(personal, moved, planned)
            require(_versions((new, plan)) == before, "a round writes to the state or plan that it was given")
        method.predict(context(ClientContext, world.server), new)
    require(_versions(given) == versions, "it writes to the state, shared layers or deployment that it was given")


def _versions(given: Any) -> list[int]:
    """How often each tensor was written to, which also tells of a write that happens to change no value."""
    return [leaf._version for leaf in tree.leaves(given)]


def states_can_be_stored(trial: MethodTrial) -> None:
    """State survives save and load."""
    world, fresh = trial.usual_run.world, trials.only(trials.beginning(trial.method, trial.scenarios.usual))
    named = tree.to_named(world.clients, "clients") | tree.to_named(world.server, "server")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.safetensors"
        storage.save_tensors(path, named, {"timestep": str(world.timestep)})
        loaded, _ = storage.load_tensors(path)
    read = tree.from_named(fresh.clients, loaded, "clients"), tree.from_named(fresh.server, loaded, "server")
    trials.require_same_tensors(read, (world.clients, world.server), "what was stored is not what was there")


def columns_are_finite(trial: MethodTrial) -> None:
    """Diagnostics are finite and one per client; priors are distributions."""
    num_clients = trial.scenarios.usual.streams.num_clients
    for rows in trial.usual_run.rows:
        for name, values in rows.items():
            require(len(values) == num_clients, f"column {name} is not one value per client")
            require(np.isfinite(values).all(), f"column {name} is not finite")
        if "prior" in rows:
            require((rows["prior"] >= 0).all(), "a prior is negative")
            require(np.allclose(rows["prior"].sum(1), 1, atol=1e-5), "a prior does not sum to 1")


def single_samples_are_enough(trial: MethodTrial) -> None:
    """Batches of one sample give finite columns."""
    for rows in run(trial.method, trial.scenarios.single_samples):
        broken = [name for name, values in rows.items() if not np.isfinite(values).all()]
        require(not broken, f"with one sample per batch {', '.join(broken)} is not finite")


def clients_together_are_clients_alone(trial: MethodTrial) -> None:
    """The vectorised map and the loop agree on everything that a run leaves behind."""
    alone = trials.final_world(trial.method, trial.scenarios.usual, vectorised=False)
    for one, other in zip(_leaves(trial.usual_run.world), _leaves(alone), strict=True):
        # A rounding may fall on the other side of what half precision, in which servers store much, can tell apart.
        coarse = torch.finfo(one.dtype).eps if one.is_floating_point() else 0.0
        close = torch.allclose(one, other, max(1e-4, 2 * coarse), 1e-5, equal_nan=True)
        require(close, "torch.func.vmap over clients gives another state than one client after the other")


def steps_can_be_recorded(trial: MethodTrial) -> None:
    """No step reads a value back, so that a GPU can replay it as a CUDA graph."""
    watched = replace(trials.clock(trial.method, trial.scenarios.usual), execution=trials.AsIfRecorded())
    for _ in islice(
        watched.advance(trials.beginning(trial.method, trial.scenarios.usual)), 2
    ):  # watched from the second on
        pass


def _leaves(world: Any) -> list[Tensor]:
    return tree.leaves((world.clients, world.server))


_IN_ORDER = (
    is_a_method, functions_return_what_they_should, same_bits, hidden_labels_stay_hidden, clients_are_symmetric,
    nothing_is_mutated, states_can_be_stored, columns_are_finite, single_samples_are_enough,
    clients_together_are_clients_alone, steps_can_be_recorded,
)  # fmt: skip
CHECKS: Mapping[str, Check] = {check.__name__.replace("_", "-"): check for check in _IN_ORDER}


def checked(method: Method, scenarios: trials.TrialScenarios) -> Iterator[tuple[str, str | None]]:
    """The name of every check, and why it failed, as they end."""
    trial = MethodTrial(method, scenarios)
    for name, check in CHECKS.items():
        try:
            check(trial)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's method raises is why it failed
            kind = "" if isinstance(error, trials.BrokenPromiseError) else f"{type(error).__name__}: "
            yield name, f"{kind}{first_line(error)}{trials.line_of(error, method)}"
        else:
            yield name, None
