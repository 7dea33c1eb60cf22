"""Tracks: one method and seed each, one after the other or several at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing import get_context
from multiprocessing.managers import SyncManager
from pathlib import Path
from queue import Empty, Queue
from typing import NamedTuple

import pyarrow as pa

from fedade.client_map import Vectorised, loop
from fedade.client_map.side_by_side import side_by_side
from fedade.core import trace
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.method import Method
from fedade.core.paths import cache_dir
from fedade.core.precision import Precision, set_multiplication
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.core.threads import SMALL_NETWORK
from fedade.data.locate import search_path
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock, Federation
from fedade.engine.execution import Captured, Direct
from fedade.engine.steps import Maps
from fedade.engine.track import run_track
from fedade.experiments.settings import Experiment, FederationSettings
from fedade.models import MODELS
from fedade.models.text import entries_per_token, is_text
from fedade.scenarios import ScenarioSettings, another, build_deployment, build_scenario

Report = Callable[[str, int, int], None]
"""Called with what is under way, how much of it is done, and how much there is."""

PIXELS_AT_ONCE = 8_000_000
"""Inputs of one forward pass, such as 8,000 CIFAR images; more would only cost memory."""

PIXELS_AT_ONCE_ON_GPU = 32_000_000
"""The same on a GPU, which several federations side by side fill better."""

HIDDEN_AT_ONCE = 70_000_000
"""Entries of the hidden states of one pass over texts, such as 80 of 48 tokens in SmolLM2-135M. With gradients each
takes about 100 bytes, because a layer keeps a dozen tensors of that size."""

HIDDEN_AT_ONCE_ON_GPU = 600_000_000
"""The same on a GPU."""

RATES_FROM = "fed-ade"
"""The method whose measured rates others replay."""


class Track(NamedTuple):
    """What is run: a method and a seed of an experiment."""

    method: str
    seed: int

    def folder(self, run: Path) -> Path:
        """Where its rows and its state are kept."""
        return run / "checkpoint" / f"{self.method}-{self.seed}"

    def is_done(self, run: Path) -> bool:
        """Whether its trace is whole."""
        return (self.folder(run) / "trace.parquet").exists()


def run_tracks(experiment: Experiment, folder: Path, device: str, jobs: int, report: Report) -> None:
    """Run all tracks that are not done, in stages: those that replay another's rates come last."""
    _check_precision(experiment, device)  # before a model is trained for nothing
    build_deployment(experiment.scenario, device, cache_dir(), lambda done, of: report("pre-training", done, of))
    methods = experiment.build_methods()
    replaying = {name for name, method in methods.items() if getattr(method, "replays", False)}
    first = [name for name in methods if name not in replaying]
    if replaying and RATES_FROM not in first:
        first.append(RATES_FROM)
    for stage in (first, sorted(replaying)):
        tracks = [Track(name, seed) for seed in experiment.seeds for name in stage]
        todo = [track for track in tracks if not track.is_done(folder)]
        if jobs > 1 and len(todo) > 1:
            _side_by_side(experiment, folder, device, todo, jobs, report)
        else:
            for track in todo:
                run_one(experiment, folder, device, track, report)


def run_one(
    experiment: Experiment,
    folder: Path,
    device: str,
    track: Track,
    report: Report,
) -> pa.Table:
    """Run or continue one track."""
    scenario = prepared_scenario(experiment, track.seed, device)
    place = track.folder(folder)
    federation = Federation(scenario, Seeds(track.seed), method_of(experiment, folder, track))
    clock = build_clock(experiment, [federation], device, place)
    title = track.method if len(experiment.seeds) == 1 else f"{track.method}, seed {track.seed}"
    steps = experiment.scenario.num_timesteps
    return run_track(clock, place, track._asdict(), lambda done: report(title, done, steps))


def prepared_scenario(experiment: Experiment, seed: int, device: str) -> Scenario:
    """The scenario of a seed, in the experiment's precision."""
    _check_precision(experiment, device)
    settings = experiment.scenario
    common = settings.model_copy(update={"schedule": "lin"})
    places = (cache_dir(), *search_path(settings.data_dir))
    return another(_ground(common, experiment.federation.precision, device, places), settings.schedule, seed)


@lru_cache(maxsize=1)
def _ground(settings: ScenarioSettings, precision: Precision, device: str, places: tuple[Path, ...]) -> Scenario:
    """What scenarios of other seeds and schedules have in common: deployment, examples, and what is known of them."""
    scenario = build_scenario(settings, 0, device, places[0], lambda _done, _of: None)
    return replace(scenario, deployment=scenario.deployment.computing_in(precision))


def _check_precision(experiment: Experiment, device: str) -> None:
    precision, model = experiment.federation.precision, experiment.scenario.model
    if precision != "float32" and not device.startswith("cuda"):
        raise FedadeError(f"federation.precision: {precision} needs a GPU; use float32, or --device cuda")
    if precision == "bf16" and model not in MODELS and not is_text(model):
        known = f"{', '.join(MODELS)} and text models"
        raise FedadeError(f"federation.precision: bf16 is for {known}; {model} computes in float32 or tf32")


def build_clock(experiment: Experiment, federations: Sequence[Federation], device: str, folder: Path) -> Clock:
    """The clock of one federation, or of several side by side, with the method of the first."""
    (scenario, seeds, method), *beside = federations
    settings, built = experiment.federation, method or experiment.build_method(experiment.methods[0])
    set_multiplication(settings.precision)
    return Clock(
        built,
        scenario,
        Rounds(settings.rounds, settings.participation),
        seeds,
        client_maps(settings, scenario, experiment.scenario.samples, device, len(federations), built.card.keeps_body),
        settings.score_fresh,
        settings.scored_clients,
        tuple(beside),
        Captured() if device.startswith("cuda") and settings.cuda_graphs else Direct(),
        folder / "states" if settings.client_state == "file" else None,
    )


def method_of(experiment: Experiment, folder: Path, track: Track) -> Method:
    """A track's method; one that replays rates is given all those of the same seed's Fed-ADE run."""
    method = experiment.build_method(track.method)
    if not getattr(method, "replays", False):
        return method
    table = trace.read(Track(RATES_FROM, track.seed).folder(folder) / "trace.parquet")
    return experiment.build_method(track.method, tuple(trace.column(table, "learning_rate").tolist()))


def client_maps(
    federation: FederationSettings,
    scenario: Scenario,
    samples: int,
    device: str,
    federations: int = 1,
    keeps_body: bool = False,
) -> Maps:
    """Which map runs what. `auto` follows what was measured: only big convolutional networks on a CPU want a client per
    core; and not where the body stays as it is, whose features streams remember."""
    if federation.client_map == "loop":
        return Maps(loop, loop)
    deployment, on_gpu = scenario.deployment, device.startswith("cuda")
    clients = Vectorised(_clients_at_once(deployment, federations * samples, on_gpu))
    size = sum(value.numel() for value in deployment.parameters.values())
    alone = size > SMALL_NETWORK and not entries_per_token(deployment.network) and not keeps_body
    if federation.client_map == "auto" and device == "cpu" and alone:
        return Maps(side_by_side, side_by_side, loop)
    return Maps(clients, clients, Vectorised() if federations > 1 else loop)


def _clients_at_once(deployment: Deployment, samples: int, on_gpu: bool) -> int:
    """How many clients fit into one pass; of images their pixels take the memory, of texts the hidden states."""
    inputs, per_token = deployment.reference.inputs, entries_per_token(deployment.network)
    if per_token:
        return max(1, (HIDDEN_AT_ONCE_ON_GPU if on_gpu else HIDDEN_AT_ONCE) // (samples * inputs.shape[1] * per_token))
    pixels = max(1, inputs[0, 0].numel())
    return max(1, (PIXELS_AT_ONCE_ON_GPU if on_gpu else PIXELS_AT_ONCE) // (samples * pixels))


def _side_by_side(
    experiment: Experiment, folder: Path, device: str, tracks: Sequence[Track], jobs: int, report: Report
) -> None:
    """Several processes, each on a track of its own; what they finish before an error is kept."""
    context = get_context("spawn")
    with SyncManager(ctx=context) as manager, ProcessPoolExecutor(jobs, mp_context=context) as pool:
        told: Queue[tuple[str, int, int]] = manager.Queue()
        work = partial(_work, experiment.as_plain(), folder, device, told=told)
        pending: set[Future[None]] = {pool.submit(work, track) for track in tracks}
        while pending:
            done, pending = wait(pending, timeout=0.2)
            _pass_on(told, report)
            for future in done:
                future.result()
        _pass_on(told, report)


def _work(
    plain: dict[str, object], folder: Path, device: str, track: Track, told: "Queue[tuple[str, int, int]]"
) -> None:
    experiment = Experiment.model_validate(plain)
    run_one(experiment, folder, device, track, lambda title, done, of: told.put((title, done, of)))


def _pass_on(told: "Queue[tuple[str, int, int]]", report: Report) -> None:
    try:
        while True:
            report(*told.get_nowait())
    except Empty:
        return
