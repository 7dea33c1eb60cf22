"""The Flower client: one message, one turn."""

import logging
from functools import lru_cache, partial
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedade.core.context import context_before_first_batch
from fedade.core.deployment import Deployment, Reference, ReferenceRows
from fedade.core.errors import FedadeError
from fedade.core.importing import only_imports
from fedade.core.paths import cache_dir
from fedade.core.scenario import Scenario
from fedade.core.threads import set_threads
from fedade.flower.bundle import read_bundle
from fedade.flower.identity import Identity
from fedade.flower.privacy import clipped
from fedade.flower.settings import FlowerTask, PartitionStream, read_task
from fedade.flower.snapshots import Store
from fedade.flower.streams import ClientStream, SimulatedStream, own_labelled, real_stream
from fedade.flower.turns import Client
from fedade.flower.wire import Answer, TurnOutcome, answer_record, read_instruction
from fedade.scenarios.building import build_scenario

log = logging.getLogger("flwr.fedade")


def client_app(folder: Path) -> ClientApp:
    """The client of the task in an app's folder."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        name = Identity.of(context.node_config, context.run_config).name
        return Message(RecordDict({"config": ConfigRecord({"client": name})}), reply_to=message)

    @app.train("turn")
    def turn(message: Message, context: Context) -> Message:
        return Message(answer_record(_answer(folder, message, context)), reply_to=message)

    return app


def _answer(folder: Path, message: Message, context: Context) -> Answer:
    """The client's answer; of a failure the server learns that it happened, and only the client's own log why."""
    nonce = ""
    try:
        instruction = read_instruction(message.content)
        nonce = instruction.nonce
        identity = Identity.of(context.node_config, context.run_config)
        with only_imports(identity.imports):
            return make_client(_task(folder), identity, instruction.run).take_turn(instruction)
    except FedadeError as error:
        log.error("turn failed: %s", error)
    except Exception:
        log.exception("turn failed")
    return Answer(TurnOutcome.failed, nonce=nonce)


def make_client(task: FlowerTask, identity: Identity, run: str) -> Client:
    """The client of one message, from the task and its identity."""
    method = task.method()
    stream, deployment, labelled = _surroundings(task, identity)
    privacy = task.flower.privacy
    return Client(
        method,
        deployment,
        stream,
        Store(identity.state_of(run), method.begin(context_before_first_batch(deployment)), method.model_dump_json()),
        task.flower,
        task.experiment.protocol.score_fresh,
        None if privacy is None else partial(clipped, clipping_norm=privacy.clipping_norm),
        labelled,
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


# In a deployment each message has a process of its own; in a simulation one process plays many clients.


@lru_cache(maxsize=1)
def _task(folder: Path) -> FlowerTask:
    return read_task(folder)


@lru_cache(maxsize=1)
def _scenario(task: str) -> Scenario:
    parsed = FlowerTask.model_validate_json(task)
    return build_scenario(parsed.experiment.scenario, parsed.seed, "cpu", cache_dir(), lambda _done, _of: None)


@lru_cache(maxsize=1)
def _bundle(path: Path, digest: str) -> Deployment:
    return read_bundle(path, digest)
