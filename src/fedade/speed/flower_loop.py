"""The same work in Flower's simulation: the plain client as a `ClientApp`, on as many workers as there are cores."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.speed.plain_loop import PlainClient, first_summaries
from fedade.speed.workload import Work, random_scenario

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation
except ImportError as error:
    raise FedadeError("--flower needs Flower's simulation: pip install 'fedade[flower]'") from error

MOST_SECONDS = 3600.0
"""To wait for the answers of a round."""


@dataclass
class FlowerRun:
    """What a simulation of some timesteps took, and what it reached."""

    rounds: list[float] = field(default_factory=list)
    """Seconds of every round; the first one also starts the workers."""
    scores: list[float] = field(default_factory=list)
    """Seconds of asking all clients for their accuracy, once per timestep."""
    accuracies: list[list[float]] = field(default_factory=list)


def simulated_by_flower(work: Work, device: str, seeds: Seeds) -> FlowerRun:
    """Run the work's timesteps; every client is a node of its own, and workers are processes, one a core."""
    found, server = FlowerRun(), ServerApp()

    @server.main()
    def main(grid: Grid, _: Context) -> None:
        while len(list(grid.get_node_ids())) < work.clients:
            time.sleep(0.1)
        nodes = {
            answer.content["who"]["client"]: answer.metadata.src_node_id
            for answer in _ask(grid, grid.get_node_ids(), "query", RecordDict())
        }
        shared = ArrayRecord()
        for timestep in range(1, work.timesteps + 1):
            for chosen in work.exchange_rounds.participants(seeds, work.clients, timestep):
                begun = time.perf_counter()
                asked = [nodes[client] for client in chosen.tolist()]
                answers = _ask(grid, asked, "train", _told(shared, timestep))
                uploads = [_tensors(answer.content, "shared") for answer in answers]
                shared = ArrayRecord({name: torch.stack([one[name] for one in uploads]).mean(0) for name in uploads[0]})
                _ask(grid, asked, "train.personal", _told(shared, timestep))
                found.rounds.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            answers = _ask(grid, nodes.values(), "evaluate", _told(shared, timestep))
            reached: dict[int, Any] = {one.metadata.src_node_id: one.content["accuracy"]["accuracy"] for one in answers}
            found.accuracies.append([reached[nodes[client]] for client in range(work.clients)])
            found.scores.append(time.perf_counter() - begun)

    workers = os.cpu_count() or 1
    gpus = 1 / workers if device == "cuda" else 0.0
    run_simulation(
        server,
        _client_app(work, device),
        num_supernodes=work.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": gpus}, "init_args": {"num_cpus": workers}},
    )
    return found


def _tensors(records: RecordDict, name: str) -> dict[str, Tensor]:
    record = records.get(name)
    return dict(record.to_torch_state_dict()) if isinstance(record, ArrayRecord) else {}


def _told(shared: ArrayRecord, timestep: int) -> RecordDict:
    return RecordDict({"shared": shared, "when": ConfigRecord({"timestep": timestep})})


def _ask(grid: Grid, nodes: Iterable[int], kind: str, content: RecordDict) -> list[Message]:
    messages = [Message(content=content, dst_node_id=node, message_type=kind) for node in nodes]
    answers = list(grid.send_and_receive(messages, timeout=MOST_SECONDS))
    for answer in answers:
        if answer.has_error():
            raise FedadeError(f"a client of Flower's simulation failed: {answer.error.reason}")
    return answers


def _client_app(work: Work, device: str) -> ClientApp:
    app = ClientApp()

    def opened(message: Message, context: Context) -> tuple[PlainClient, Tensor, Tensor]:
        """The client as its last message left it, with the shared layers that were sent, and its batch."""
        (scenario, client), number = _worker(work, device), int(context.node_config["partition-id"])
        stored, deployed = _tensors(context.state, "kept"), scenario.deployment
        prediction, feature = first_summaries(deployed)
        client.previous = stored.pop("prediction", prediction), stored.pop("feature", feature)
        client.rate = float(stored.pop("rate", torch.zeros(())))
        client.receive(stored or deployed.parameters)
        client.receive(_tensors(message.content, "shared"))
        timestep: Any = message.content["when"]["timestep"]
        batch = scenario.streams.draw(np.array([number]), timestep)
        return client, batch.inputs[0], batch.labels[0]

    def keep(client: PlainClient, context: Context) -> None:
        own = {name: value for name, value in client.model.state_dict().items() if name not in client.shared_names}
        summaries = dict(zip(("prediction", "feature"), client.previous, strict=True))
        context.state["kept"] = ArrayRecord({**own, **summaries, "rate": torch.tensor(client.rate)})

    @app.query()
    def who(message: Message, context: Context) -> Message:
        told = ConfigRecord({"client": int(context.node_config["partition-id"])})
        return Message(content=RecordDict({"who": told}), reply_to=message)

    @app.train()
    def joint(message: Message, context: Context) -> Message:
        client, inputs, _ = opened(message, context)
        upload = client.joint(inputs)
        keep(client, context)
        return Message(content=RecordDict({"shared": ArrayRecord(upload)}), reply_to=message)

    @app.train("personal")
    def personal(message: Message, context: Context) -> Message:
        client, inputs, _ = opened(message, context)
        client.personal(inputs)
        keep(client, context)
        return Message(content=RecordDict(), reply_to=message)

    @app.evaluate()
    def score(message: Message, context: Context) -> Message:
        client, inputs, labels = opened(message, context)
        accuracy = ConfigRecord({"accuracy": client.accuracy(inputs, labels)})
        return Message(content=RecordDict({"accuracy": accuracy}), reply_to=message)

    return app


@lru_cache(1)
def _worker(work: Work, device: str) -> tuple[Scenario, PlainClient]:
    """A worker makes its data and its module once, whichever client it stands for."""
    torch.set_num_threads(1)
    scenario = random_scenario(work, device)
    return scenario, PlainClient(work, scenario.deployment)
