"""Simulate from Python: what `fedade run` does, with scenarios, methods and listeners of one's own."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedade.adapter.choosing import describe
from fedade.core import trace
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.events import Listener, Listeners
from fedade.core.importing import OptionalModule
from fedade.core.method import Method
from fedade.core.scenario import Streams
from fedade.experiments.assignments import in_present_words
from fedade.experiments.identifying import identified_experiment
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import experiment_from, merged
from fedade.products.run_folder import Run, fingerprint, run
from fedade.reporting.figures import Figures, figures
from fedade.reporting.results import Result, ResultRow, rows
from fedade.scenarios.own_testbed import OwnTestbed, StreamsOfSeed, own_testbed

pandas = OptionalModule("pandas", package="pandas")


@dataclass(frozen=True)
class Results:
    """What a simulation found; its folder holds the page, the figures and every cell.

    >>> import tempfile
    >>> small = {"num_clients": 4, "num_timesteps": 2, "samples": 10, "pretraining": {"epochs": 1}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = simulate(["source"], {"scenario": small}, out=folder)
    ...     [row.method for row in results.table], results.page.name, sorted(results.figures)[0]
    (['source'], 'report.html', 'accuracy')
    """

    run: Run

    @property
    def folder(self) -> Path:
        """The folder, which the same call continues or reads again."""
        return self.run.folder

    @property
    def page(self) -> Path:
        """The report page."""
        return self.folder / "report.html"

    @property
    def by_seed(self) -> tuple[Result, ...]:
        """One result per method and seed."""
        return self.run.results

    @property
    def table(self) -> list[ResultRow]:
        """One row per method, over all seeds."""
        return rows(self.run.results)

    @property
    def trace(self) -> pa.Table:
        """One row per method, seed, client and timestep, as an Arrow table."""
        return trace.read(self.folder / "trace.parquet")

    def data_frame(self) -> Any:
        """The trace as a data frame of pandas, which must be installed."""
        pandas.DataFrame  # noqa: B018 - says what to install, where Arrow would not
        return self.trace.to_pandas()

    @property
    def figures(self) -> Figures:
        """Matplotlib's figures of the trace, by name."""
        return figures(self.trace)

    @property
    def failed(self) -> dict[str, str]:
        """Reasons of the methods and seeds that have no result."""
        return {cell.title: status.reason or "" for cell, status in self.run.failed}


def simulate(
    methods: str | Mapping[str, Any] | Method | Sequence[str | Mapping[str, Any] | Method],
    scenario: str | Mapping[str, Any] | Deployment = "digits-label",
    streams: Streams | StreamsOfSeed | None = None,
    *,
    seeds: Sequence[int] = (0,),
    protocol: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    out: Path | str | None = None,
    jobs: int = 1,
) -> Results:
    """Run methods on drifting clients with hidden labels, or continue where an earlier call stopped.

    `methods` are names, `{name: settings}` or objects, or one of them. `scenario` is a preset, a file, settings as a
    file would hold them (with `preset` to build on one), or a deployment of yours with its `streams`
    (`drifting_streams`, `recorded_streams`, or a function from a seed to them). `protocol` has the rounds and who takes
    part; listeners hear of every timestep. Without `out` the folder is `runs/NAME-HASH`. What fails stops nothing else,
    and is warned of.

    >>> import tempfile, torch, fedade
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> inputs, labels = torch.rand(90, 4), torch.arange(90) % 3
    >>> deployment = fedade.deploy(model, (inputs[:60], labels[:60]))
    >>> streams = fedade.drifting_streams(inputs[60:], labels[60:], num_clients=4, num_timesteps=2, samples=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = simulate(["source", {"fed-ade-plus": {"memory": 0}}], deployment, streams, out=folder)
    ...     [row.method for row in results.table], len(results.trace)
    (['source', 'fed-ade-plus'], 16)
    """
    if isinstance(seeds, int):
        raise FedadeError(f"seeds is {seeds}; pass a list of them, such as seeds=[{seeds}]")
    if isinstance(listeners, Listener) or not all(isinstance(listener, Listener) for listener in listeners):
        raise FedadeError("listeners are not a list of objects that derive from fedade.Listener; its docstring has one")
    testbed, settings, name = _prepared(scenario, streams, seeds)
    several = [methods] if isinstance(methods, str | Mapping | Method) else methods
    chosen = [_written(method) for method in several]
    asked = {"methods": chosen, "seeds": list(seeds), "protocol": {**settings.get("protocol", {}), **(protocol or {})}}
    experiment = experiment_from(in_present_words({**settings, **asked}))
    if testbed is None:
        experiment = identified_experiment(experiment)
    elif jobs > 1:
        raise FedadeError(f"jobs={jobs}: deployments and streams that were brought run in this process; leave jobs out")
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{fingerprint(experiment)}"
    results = Results(run(experiment, folder, Listeners(list(listeners)), jobs, testbed))
    if results.failed:
        first, reason = next(iter(results.failed.items()))
        told = f"{first}: {reason}" if len(results.failed) == 1 else f"{first}: {reason}; results.failed has all"
        count = len(results.failed) + len(results.by_seed)
        warnings.warn(f"{len(results.failed)} of {count} have no result; {told}", RuntimeWarning, stacklevel=2)
    return results


def _prepared(
    scenario: str | Mapping[str, Any] | Deployment, streams: Streams | StreamsOfSeed | None, seeds: Sequence[int]
) -> tuple[OwnTestbed | None, dict[str, Any], str]:
    """A testbed that was brought, settings as a file would hold them, and the beginning of the folder's name."""
    if isinstance(scenario, Deployment):
        if streams is None:
            raise FedadeError("a deployment needs streams; pass fedade.drifting_streams(inputs, labels), or your own")
        testbed, own = own_testbed(scenario, streams, seeds[0] if seeds else 0)
        device = str(scenario.source_prior.device)
        return testbed, {"scenario": own.model_dump(mode="json"), "execution": {"device": device}}, "simulation"
    if streams is not None:
        raise FedadeError("streams go with a deployment; pass fedade.deploy(model, held_out) in place of a scenario")
    if not isinstance(scenario, str | Mapping):
        raise FedadeError(
            f"the scenario is a {type(scenario).__name__}; pass a preset, a file, settings, or fedade.deploy(...)"
        )
    if isinstance(scenario, str):
        return None, settings_from(scenario), Path(scenario).stem
    rest = {key: value for key, value in scenario.items() if key != "preset"}
    return None, merged(settings_from(scenario["preset"]), rest) if "preset" in scenario else rest, "simulation"


def _written(method: str | Mapping[str, Any] | Method) -> Any:
    """A method as files name it; an object by its class and settings."""
    if not isinstance(method, Method):
        return method
    said = describe(method)
    return {said["method"]: said["settings"]}
