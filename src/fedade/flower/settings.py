"""What a Flower run can be told, and the one file that tells it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from fedade.core import storage
from fedade.core.choices import StrictSettings, hint
from fedade.core.errors import FedadeError
from fedade.core.method import Method
from fedade.core.seeds import Seeds
from fedade.engine.scoring import Quality
from fedade.experiments.assignments import in_present_words
from fedade.experiments.settings import Experiment, experiment_from
from fedade.methods import METHODS
from fedade.scenarios.stream_laws import STREAMS

CONFIG = "fedade.yaml"
"""The file in the app's folder that names model, stream and method."""
SHAREABLE = (
    "accuracy_pre", "accuracy_post", "accuracy_fresh", "severity", "true_prior", "state_bytes", "passes",
    *Quality._fields,
    "learning_rate", "s_unc", "s_rep", "s", "prior", "trust", "novelty", "risk", "alignment", "unknown", "entropy",
    "reliable", "reset", "anchor_confidence", "averaged_views", "weight_local", "weight_bank", "trusted",
    "estimated_accuracy", "estimated_low", "estimated_high", "alarm", "waiting",
)  # fmt: skip
"""Columns that clients may tell, of all methods here; a test keeps them together. Methods from outside have others."""
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class PartitionStream(StrictSettings):
    """Trials: each client draws its part of the experiment's dataset, with labels to be scored by."""

    kind: Literal["partition"] = "partition"


class FolderStream(StrictSettings):
    """A folder into which batches arrive as `.npy` or `.npz` files, taken in the order of their names."""

    kind: Literal["folder"]
    path: Path
    """On the client; its node may name another: `--node-config 'stream="/data/batches"'`."""


class ImportedStream(StrictSettings):
    """A function that yields batches, by import path: called with the client's name and how many it has taken."""

    kind: Literal["import"]
    path: str = Field(pattern=r"^[\w.]+:[\w.]+$")


StreamSettings = Annotated[PartitionStream | FolderStream | ImportedStream, Field(discriminator="kind")]


class PrivacySettings(StrictSettings):
    """Client-level differential privacy: clipped updates, Gaussian noise on their mean."""

    noise_multiplier: float = Field(gt=0)
    """Standard deviation of the noise, in units of one client's greatest influence."""
    clipping_norm: float = Field(gt=0)
    """Greatest L2 norm of what one client may change in a round."""
    delta: float = Field(1e-5, gt=0, lt=1)
    max_epsilon: float | None = Field(None, gt=0)
    """The run ends, loudly, before it would spend more."""


class MetricsSettings(StrictSettings):
    """Where the server answers Prometheus."""

    port: int = Field(9464, ge=1, le=65535)
    host: str = "127.0.0.1"
    """Whoever reaches it can read all that clients tell; there is no password."""


def _everything_or_columns(written: Any) -> Any:
    if isinstance(written, str) and written != "everything":
        raise ValueError(f"write everything, or a list of columns: [{written}]")
    return written


class FlowerSettings(StrictSettings):
    """How a run meets its clients."""

    clients: tuple[str, ...] = ()
    """The names that may take part, in the order of their numbers; empty: all that come, numbered as they come."""
    min_clients: Count | None = None
    """Clients to wait for before the first timestep; None: all of scenario.num_clients."""
    join_seconds: Seconds = 600.0
    """How long to wait for them."""
    timeout_seconds: Seconds = 600.0
    """How long a client may take for one turn."""
    retries: int = Field(2, ge=0)
    """How often a turn without quorum is tried again before the run fails."""
    quorum: float = Field(0.5, gt=0, le=1)
    """Share of the clients that a turn needs an answer from; of its participants, where there are any."""
    timestep_seconds: float = Field(0.0, ge=0)
    """Shortest time from one timestep to the next."""
    endless: bool = False
    """The run goes on until it is stopped; written as `scenario.num_timesteps: null`."""
    stream: StreamSettings = PartitionStream()
    share: Annotated[Literal["everything"] | tuple[str, ...], BeforeValidator(_everything_or_columns)] = ()
    """Columns of the trace that clients may tell the server: the diagnostics that the user agrees to share."""
    monitor: bool = False
    """Whether clients estimate their accuracy without labels (docs/accuracy-estimates.md), by a rehearsal of drift
    before their first turn: on their own labelled data, or on those of the deployment."""
    track: tuple[str, ...] = ()
    """Tracking systems that the server also writes to, of what clients share: tensorboard, mlflow."""
    metrics: MetricsSettings | None = None
    """Metrics for Prometheus while the run goes on; None: none."""
    aggregation: Literal["mean", "median", "trimmed-mean"] = "mean"
    trim: float = Field(0.2, ge=0, lt=0.5)
    """Share of the values that a trimmed mean drops at either end."""
    outlier_factor: float | None = Field(3.0, gt=1)
    """Updates that move farther than this many times the fleet's median are scaled back to it, and no client's samples
    weigh more than this many times the median; None: neither."""
    max_update: float = Field(10.0, gt=0)
    """Updates that move farther than this, in norms of the shared layers, are refused."""
    max_samples: Count = 10_000
    """Most samples of a batch; updates that claim more are refused."""
    privacy: PrivacySettings | None = None

    @model_validator(mode="after")
    def _distinct(self) -> "FlowerSettings":
        if len(set(self.clients)) != len(self.clients):
            raise ValueError("clients: every name may appear once")
        return self

    def shares(self, column: str) -> bool:
        return self.share == "everything" or column in self.share


class FlowerTask(StrictSettings):
    """One method and seed of an experiment, and how to run it on Flower."""

    experiment: Experiment
    flower: FlowerSettings
    deployment: str | None = None
    """Digest of the stored deployment that every host must hold; None: built from the scenario, for trials."""

    @property
    def method_name(self) -> str:
        return self.experiment.entry.method

    @property
    def seed(self) -> int:
        return self.experiment.seed

    @property
    def timesteps(self) -> int | None:
        """How many there are; None: no end."""
        return None if self.flower.endless else self.experiment.scenario.num_timesteps

    @property
    def rounds(self) -> int:
        """Exchanges per timestep: a method without rounds needs one, to observe."""
        return self.experiment.protocol.rounds if self.method().has_rounds else 1

    def method(self) -> Method:
        return self.experiment.build_method()

    def first_timestep(self, client: int) -> int:
        """When a client joins a trial; real ones do when they connect."""
        if self.flower.stream.kind != "partition":
            return 1
        scenario = self.experiment.scenario
        return int(STREAMS[scenario.stream].joining(scenario, Seeds(self.seed))[client])

    def as_plain(self) -> dict[str, Any]:
        """As written to the app's configuration file."""
        beside = self.model_dump(mode="json", include={"flower", "deployment"})
        return {**self.experiment.as_plain(), **beside}


def end_as_setting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which `scenario.num_timesteps: null` became `flower.endless`: the simulator always has an end."""
    scenario, flower = dict(settings.get("scenario") or {}), settings.get("flower") or {}
    if scenario.get("num_timesteps", 0) is not None:
        return dict(settings)
    del scenario["num_timesteps"]
    return {**settings, "scenario": scenario, "flower": {**flower, "endless": True}}


def task_from(settings: Mapping[str, Any]) -> FlowerTask:
    """Validate an experiment's settings with a `flower` group beside them."""
    rest = in_present_words({"methods": ["fed-ade"], **end_as_setting(settings)})
    flower, deployment = rest.pop("flower", None) or {}, rest.pop("deployment", None)
    experiment = experiment_from(rest)
    try:
        task = FlowerTask(experiment=experiment, flower=FlowerSettings(**flower), deployment=deployment)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        path = ".".join(("flower", *(str(part) for part in found["loc"])))
        said = f"{found['msg'].removeprefix('Value error, ')}; see docs/flower.md"
        if found["type"] == "extra_forbidden" and len(found["loc"]) == 1:
            said = f"there is no such setting{hint(str(found['loc'][0]), FlowerSettings.model_fields)}"
        raise FedadeError(f"{path}: {said}") from error
    _refuse_unfit(task)
    _refuse_unfit_end(task.flower)
    return task


def read_task(folder: Path) -> FlowerTask:
    return task_from(storage.read_yaml(folder / CONFIG))


def _refuse_unfit(task: FlowerTask) -> None:
    experiment, flower = task.experiment, task.flower
    unknown = [name for name in flower.share if name not in SHAREABLE] if flower.share != "everything" else []
    if unknown and experiment.methods[0].method in METHODS:
        raise FedadeError(f"flower.share: clients have no column {unknown[0]!r}{hint(unknown[0], SHAREABLE)}")
    if len(experiment.methods) > 1 or len(experiment.seeds) > 1:
        raise FedadeError(
            f"methods: a Flower run has one method and one seed, not {len(experiment.methods)} and "
            f"{len(experiment.seeds)}; for example --set methods=[fed-ade] --set seeds=[0]"
        )
    method = task.method()
    if method.replays_rates_of and not getattr(method, "measured_rates", ()):
        raise FedadeError(
            f"{task.method_name} replays the rates of a finished run; give them as its setting `measured_rates`, "
            "or choose another method"
        )
    if method.constants == "calibrated":
        raise FedadeError(
            f"{task.method_name}.constants: a Flower run does not calibrate; run `fedade tune --method "
            f"{task.method_name}` and set what it chose"
        )
    if method.card.oracle and flower.stream.kind != "partition":
        raise FedadeError(f"{task.method_name} needs labels, which only the stream `partition` has")
    if flower.privacy is not None and flower.aggregation != "mean":
        raise FedadeError(f"flower.aggregation: {flower.aggregation} has no privacy account; use mean with privacy")
    if flower.privacy is not None and not flower.clients:
        raise FedadeError("flower.clients: privacy needs the names of all clients, whose number its account rests on")
    if flower.stream.kind != "partition" and task.deployment is None:
        raise FedadeError("deployment: real streams need a stored deployment; `fedade flower init` writes one")


def _refuse_unfit_end(flower: FlowerSettings) -> None:
    if flower.endless and flower.stream.kind == "partition":
        raise FedadeError("scenario.num_timesteps: a run without end needs a real stream; that of a trial ends")
    if flower.endless and not flower.timestep_seconds:
        raise FedadeError("flower.timestep_seconds: a run without end needs the time from one timestep to the next")
