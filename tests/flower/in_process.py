"""A grid without processes: messages are the real ones, and clients answer in the caller's own process."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Tamper = Callable[[int, Message], Message | None]
"""From a node and its true reply to what the server gets; None for silence."""


class InProcessGrid(Grid):
    """Nodes that answer when they are asked, unless the test says otherwise."""

    def __init__(self, app: ClientApp, nodes: dict[int, dict[str, Any]], run_config: dict[str, Any]) -> None:
        # Messages ask the process who it is; inside a run, Flower has told it.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app, self.nodes, self.run_config = app, nodes, run_config
        self.online = set(nodes)
        self.tamper: Tamper = lambda _node, reply: reply
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self._replies: dict[str, Message] = {}

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        identities = []
        for message in messages:
            identity = f"message-{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = identity
            self.sent.append(message)
            identities.append(identity)
            reply = self._reply(message)
            if reply is not None:
                self.received.append(reply)
                self._replies[identity] = reply
        return identities

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(identity) for identity in list(message_ids) if identity in self._replies]

    def get_node_ids(self) -> list[int]:
        return sorted(self.online)

    def _reply(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        if node not in self.online:
            return Message(Error(code=3, reason="Node Unavailable"), reply_to=message)
        context = Context(1, node, self.nodes[node], RecordDict(), self.run_config)
        return self.tamper(node, self.app(message, context))

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        raise NotImplementedError


def grid_of(folder: Path, app: ClientApp, names: Iterable[str]) -> InProcessGrid:
    """One node a client, with unlike ids that come in no order."""
    nodes = {(7919 * (place + 3)) % 1009: {"client": name} for place, name in enumerate(names)}
    return InProcessGrid(app, nodes, {"state-dir": str(folder / "state"), "out": str(folder / "out")})
