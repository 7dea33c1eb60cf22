"""The Flower client: who it is by its node's configuration, and one turn for one message."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import platformdirs
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedade.adapter.accuracy_monitor import AccuracyMonitor
from fedade.adapter.adapter import Adapter
from fedade.core import storage
from fedade.core.context import context_before_first_batch
from fedade.core.deployment import Deployment, Reference, ReferenceRows
from fedade.core.errors import FedadeError
from fedade.core.importing import only_imports
from fedade.core.paths import cache_dir
from fedade.core.scenario import Scenario
from fedade.core.threads import set_threads
from fedade.flower import CLIENT_NAME, numbered_name
from fedade.flower.bundle import read_bundle
from fedade.flower.privacy import clipped
from fedade.flower.settings import CONFIG, FlowerSettings, FlowerTask, PartitionStream, read_task
from fedade.flower.snapshots import Store, inherited
from fedade.flower.streams import ClientStream, SimulatedStream, own_labelled, real_stream
from fedade.flower.turns import AfterTurn, Client
from fedade.flower.wire import Answer, TurnOutcome, answer_record, read_instruction
from fedade.scenarios.building import build_scenario

ANYTHING = "*"
"""Instead of the names of modules: all that can be imported."""


@dataclass(frozen=True)
class Identity:
    """A client by its node's configuration: `client`, `state-dir`, `stream`, `labelled`, `deployment`, `imports`,
    `partition-id`."""

    name: str
    state_dir: Path
    stream: str | None
    labelled: Path | None
    """The file of its own labelled data, which never leaves its host."""
    deployment: Path | None
    partition: int | None
    imports: tuple[str, ...] | None = ()
    """Modules that an app may name for a stream, a method or a model; None: any."""

    @classmethod
    def of(cls, node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> "Identity":
        """Read a node's configuration; what it leaves out may be said by the run."""
        partition = node_config.get("partition-id")
        name = str(node_config.get("client") or ("" if partition is None else numbered_name(int(partition))))
        if not CLIENT_NAME.fullmatch(name):
            raise FedadeError(
                f"--node-config: client={name!r} is no client name; expected letters, digits, '.', '_' and '-', "
                'for example client="clinic-7"'
            )
        state = node_config.get("state-dir") or run_config.get("state-dir") or platformdirs.user_state_dir("fedade")
        stream, labelled = node_config.get("stream"), node_config.get("labelled")
        deployment = node_config.get("deployment") or run_config.get("deployment")
        imports = str(node_config.get("imports") or "")
        return cls(
            name,
            Path(str(state)) / name,
            None if stream is None else str(stream),
            Path(str(labelled)) if labelled else None,
            Path(str(deployment)) if deployment else None,
            None if partition is None else int(partition),
            None if imports == ANYTHING else tuple(imports.replace(",", " ").split()),
        )

    def state_of(self, run: str) -> Path:
        """Where the client keeps its state of a run; the name comes over the network, and must not lead elsewhere."""
        if not CLIENT_NAME.fullmatch(run):
            raise FedadeError(f"the server calls its run {run!r}, which is no name; is it the right server?")
        return self.state_dir / run

    def number_in(self, settings: FlowerSettings) -> int:
        """Which part of a dataset is this client's."""
        if self.partition is not None:
            return self.partition
        if self.name not in settings.clients:
            raise FedadeError(
                f"client {self.name}: the stream `partition` needs partition-id in --node-config, or its name in "
                "flower.clients"
            )
        return settings.clients.index(self.name)


log = logging.getLogger("flwr.fedade")


def client_app(folder: Path, then: AfterTurn = lambda *_: None, in_order: bool = False) -> ClientApp:
    """The client of the task in an app's folder; `then` is told of every turn. `in_order`: whoever runs it answers one
    message after the other, which the server may count on."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        name = Identity.of(context.node_config, context.run_config).name
        return Message(RecordDict({"config": ConfigRecord({"client": name, "in-order": in_order})}), reply_to=message)

    @app.train("turn")
    def turn(message: Message, context: Context) -> Message:
        return Message(answer_record(_answer(folder, message, context, then)), reply_to=message)

    return app


def _answer(folder: Path, message: Message, context: Context, then: AfterTurn) -> Answer:
    """The client's answer; of a failure the server learns that it happened, and only the client's own log why."""
    nonce = ""
    try:
        instruction = read_instruction(message.content)
        nonce = instruction.nonce
        identity = Identity.of(context.node_config, context.run_config)
        with only_imports(identity.imports):
            return _client(folder, identity, instruction.run).take_turn(instruction, then)
    except FedadeError as error:
        log.error("turn failed: %s", error)
    except Exception:
        log.exception("turn failed")
    return Answer(TurnOutcome.failed, nonce=nonce)


def make_client(task: FlowerTask, identity: Identity, run: str) -> Client:
    method = task.method()
    stream, deployment, labelled = _surroundings(task, identity)
    privacy, monitor = task.flower.privacy, None
    if task.flower.monitor:  # rehearsed on the client's own labelled data, or else on what ships with the deployment
        held_out = deployment.reference if labelled is None else labelled
        monitor = AccuracyMonitor.rehearsed(deployment, (held_out.inputs, held_out.labels), method)
    simulated = method.card.oracle or method.replays_rates_of  # methods for the simulator only predict for nobody
    store = Store(
        identity.state_of(run),
        method.begin(context_before_first_batch(deployment)),
        method.model_dump_json(),
        () if monitor is None else monitor.begin(deployment),
    )
    return Client(
        method,
        deployment,
        stream,
        store,
        task.flower,
        task.experiment.protocol.score_fresh,
        None if privacy is None else partial(clipped, clipping_norm=privacy.clipping_norm),
        labelled,
        None if simulated else Adapter(deployment, method),
        monitor,
        None if task.deployment is None else inherited(store, task),
    )


def _surroundings(
    task: FlowerTask, identity: Identity
) -> tuple[ClientStream, Deployment, Reference | ReferenceRows | None]:
    """A client's stream, what is deployed, and its own labelled data if it has any."""
    if isinstance(task.flower.stream, PartitionStream):
        scenario, number = _scenario(task.model_dump_json()), identity.number_in(task.flower)
        own = scenario.references
        labelled = None if own is None else ReferenceRows(own.pool, own.rows[number])
        return SimulatedStream(scenario.streams, number), scenario.deployment, labelled
    deployment = stored_deployment(task, identity.deployment)
    stream = real_stream(task.flower.stream, identity.name, identity.stream)
    return stream, deployment, None if identity.labelled is None else own_labelled(identity.labelled, deployment)


def stored_deployment(task: FlowerTask, path: Path | None) -> Deployment:
    """The deployment that the task names, from this host's disk."""
    if task.deployment is None or path is None:
        raise FedadeError("deployment: name the stored file in --node-config, or as run configuration of the server")
    deployment = _bundle(path, task.deployment)
    set_threads(sum(value.numel() for value in deployment.parameters.values()))
    return deployment


# A node is one client; in a simulation one process plays many.


_task = lru_cache(maxsize=1)(read_task)
_bundle = lru_cache(maxsize=1)(read_bundle)


@lru_cache(maxsize=1)
def _client(folder: Path, identity: Identity, run: str) -> Client:
    # What its states are of.
    storage.write_bytes(identity.state_of(run) / CONFIG, (folder / CONFIG).read_bytes(), private=True)
    client = make_client(_task(folder), identity, run)
    for written in (identity.state_dir, client.stream.answers):
        if written is not None:
            storage.sweep(written)  # what a process before this one has left, in whichever run
    return client


@lru_cache(maxsize=1)
def _scenario(task: str) -> Scenario:
    parsed = FlowerTask.model_validate_json(task)
    return build_scenario(parsed.experiment.scenario, parsed.seed, "cpu", cache_dir(), lambda _done, _of: None)
