"""How the parts of a message are fetched and sent. Flower registers a message first, and sends its parts then."""

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError, inflate_object_from_contents
from flwr.superlink.grid.http_grid import HttpGrid

from fedade.core.errors import FedadeError
from fedade.flower.wire import one_line

log = logging.getLogger("flwr.fedade")
PATIENCE: dict[str, Any] = {"initial_backoff": 0.05, "backoff_cap": 2.0, "max_tries_per_object": 20}
"""Of a node, with a part of the server's message that is announced and not there: half a minute. Flower waits for a
second at first, and for minutes in all."""
PART_SECONDS = 30.0
"""How long the server waits for the next part of an answer that is announced."""
FETCHED_AT_ONCE = 8
EXCESS = 2**24
"""Bytes beyond the most that an answer may have of which one is still fetched, to be measured and refused."""
PLAIN_PARTS, PIECE_BYTES = 16, 2**20
"""Parts of an answer beside the pieces of its arrays, and the least that Flower makes of these but for the last: one
that is announced in many more parts would have the server ask for each of them, again and again."""
Send = Callable[[str, bytes], tuple[bool, int]]
"""Sends a part by its name; tells whether it was taken, and how often it had to be sent until there was an answer."""


@dataclass
class Parcel:
    """An answer that was announced, as far as it has come."""

    about: Metadata
    missing: list[str]
    parts: dict[str, bytes] = field(default_factory=dict)
    last_part: float = field(default_factory=time.monotonic)
    held: int = 0
    too_much: bool = False


class Mailbox:
    """Answers of a grid, each as soon as all its parts are there.

    Flower's own grid waits for the parts of one answer before it looks at the next, so that a node that announces one
    and does not send it holds up everybody; and it fetches all of an answer, however large.
    """

    def __init__(self, grid: Grid, most_bytes: int) -> None:
        self._grid, self._most_bytes = grid, most_bytes + EXCESS
        self._parcels: dict[str, Parcel] = {}
        """By the message that they answer."""
        self._threads = ThreadPoolExecutor(FETCHED_AT_ONCE)

    def pull(self, identities: Collection[str]) -> list[Message]:
        """Answers to these messages that are whole now, or of which no further part will come."""
        if not isinstance(self._grid, HttpGrid):
            return list(self._grid.pull_messages(identities))
        self._parcels = {one: parcel for one, parcel in self._parcels.items() if one in identities}
        if unheard := [one for one in identities if one not in self._parcels]:
            response = self._grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=unheard))
            for announced, tree in zip(response.messages_list, response.message_object_trees, strict=True):
                about = message_from_proto(announced).metadata
                names = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
                much = len(names) > PLAIN_PARTS + self._most_bytes // PIECE_BYTES
                self._parcels[about.reply_to_message_id] = Parcel(about, names, too_much=much)
        return self._fetched(self._grid)

    def _fetched(self, grid: HttpGrid) -> list[Message]:
        wanted = [(parcel, name) for parcel in self._parcels.values() for name in parcel.missing]
        gone = {one for one in self._threads.map(lambda part: self._fetch(grid, *part), wanted) if one}
        whole = []
        for one, parcel in list(self._parcels.items()):
            if not parcel.missing or parcel.too_much:
                whole.append(self._unpacked(grid, self._parcels.pop(one)))
            elif one in gone or time.monotonic() - parcel.last_part > PART_SECONDS:
                reason = f"its answer was announced, and {PART_SECONDS:.0f} s later parts of it have not come"
                lost = Error(code=ErrorCode.MESSAGE_UNAVAILABLE, reason=reason)
                whole.append(make_message(self._parcels.pop(one).about, error=lost))
        return whole

    def _fetch(self, grid: HttpGrid, parcel: Parcel, name: str) -> str | None:
        """Put a part into its parcel, if it is there; the parcel's name where it never will be."""
        if parcel.too_much:
            return None
        asked = PullObjectRequest(node=grid.node, run_id=grid.run.run_id, object_id=name)
        response = grid._runtime_client.PullObject(asked)
        if response.object_available:
            parcel.parts[name], parcel.last_part = response.object_content, time.monotonic()
            parcel.held += len(response.object_content)
            parcel.missing.remove(name)
            parcel.too_much = parcel.held > self._most_bytes
        return None if response.object_found else parcel.about.reply_to_message_id

    def _unpacked(self, grid: HttpGrid, parcel: Parcel) -> Message:
        """The message in a parcel; without content where there is none, it is too large or answers another."""
        about, run = parcel.about, grid.run.run_id
        received = ConfirmMessageReceivedRequest(node=grid.node, run_id=run, message_object_id=about.message_id)
        grid._runtime_client.ConfirmMessageReceived(received)
        try:
            if parcel.missing:
                raise FedadeError(f"too large: {len(parcel.missing)} parts of it were not even fetched")
            message = inflate_object_from_contents(about.message_id, parcel.parts)
            if not isinstance(message, Message) or message.metadata.reply_to_message_id != about.reply_to_message_id:
                raise FedadeError("no answer to the message that it says it answers")
        except Exception as error:  # noqa: BLE001 - a node may send whatever it likes
            log.warning("what node %d sent is refused: %s", about.src_node_id, one_line(error))
            return make_message(about, content=RecordDict())
        message.metadata.__dict__["_message_id"] = about.message_id
        return message


def once(send: Send, run: int, session: str, known: bool) -> Callable[[str, bytes], None]:
    """Sends parts so that a lost answer does no harm: what was taken the first time is not taken again. `known` says
    that the message itself was sent twice, so that its parts may have come already."""

    def send_part(name: str, content: bytes) -> None:
        taken, times = send(name, content)
        if not taken and times == 1 and not known:
            raise ObjectPushError(name, run, session)

    return send_part
