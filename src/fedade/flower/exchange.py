"""Sending to many clients and waiting for enough of them."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedade.core.errors import FedadeError
from fedade.flower import CLIENT_NAME
from fedade.flower.delivery import Mailbox
from fedade.flower.members import Member, Roster
from fedade.flower.wire import HELLO, TURN, content_bytes, message_bytes, one_line

log = logging.getLogger("flwr.fedade")
POLL_SECONDS = 0.2
RESEND_SECONDS = 4.0
"""Between two attempts to reach a client that a turn cannot do without."""
LOST_SECONDS = 5.0
"""Of silence, after which a node is asked whether it ever got its message: an answer of the SuperLink that a network
loses takes the message with it, which Flower delivers once."""
MOST_DOUBLINGS = 5
"""Of that time, for a client that does answer and never well: asked in a hurry, it would only repeat itself."""
MOST_LATE = 1
"""Answers after their time that show a client to be back; one that is late again is not waited for."""
MOST_LOST = 2
"""Messages in a row that a network may lose of one client; a node that loses more is not waited for."""


Write = Callable[[Member], RecordDict]
Judge = Callable[[Member, RecordDict], bool]
"""Whether an answer counts; what is wrong with it is the judge's to tell."""


def patience(bad_answers: int) -> float:
    """Seconds before a client is asked again that has answered badly, and so many times before."""
    return RESEND_SECONDS * 2.0 ** min(bad_answers, MOST_DOUBLINGS)


@dataclass
class Traffic:
    """Bytes of the messages of a run, as Flower transfers them."""

    to_clients: int = 0
    from_clients: int = 0
    largest_turn: int = 0
    """Most bytes of one client in one turn, both ways together."""

    def count(self, down: int, up: int) -> None:
        self.to_clients += down
        self.from_clients += up
        self.largest_turn = max(self.largest_turn, down + up)


@dataclass
class Pending:
    """A message of a turn that is under way."""

    member: Member
    size: int
    asked_after: float
    """When its node is next asked whether it got it; later every time."""
    pause: float = LOST_SECONDS


@dataclass
class Exchange:
    """Turns of all clients over a grid; nodes that are new are asked for their names on the way."""

    grid: Grid
    roster: Roster
    timeout_seconds: float
    most_bytes: int
    """Answers that hold more are refused; they are not even copied to be measured, and much larger ones not fetched."""
    traffic: Traffic = field(default_factory=Traffic)
    _hellos: dict[str, int] = field(default_factory=dict)
    """Nodes that were asked for their names, by message."""
    _greeted: dict[int, float] = field(default_factory=dict)
    _questions: dict[str, str] = field(default_factory=dict)
    """Messages that may be lost, by the hello that was sent after them: where a node answers one message after the
    other, an answer to the second tells that there is none to the first."""
    _overdue: dict[str, Member] = field(default_factory=dict)
    """Messages that were not waited for any longer, whose answers still show that a client is back."""

    def __post_init__(self) -> None:
        self._mailbox = Mailbox(self.grid, self.most_bytes)

    def gather(self, wanted: int, seconds: float) -> None:
        """Wait until enough clients have told their names."""
        deadline, asked = time.monotonic() + seconds, 0.0
        while self.roster.connected < wanted:
            if time.monotonic() > deadline:
                raise FedadeError(
                    f"{self.roster.connected} of {wanted} clients came within {seconds:.0f} s; start the others, "
                    "or change flower.min_clients or flower.join_seconds"
                )
            if time.monotonic() - asked > 1:
                asked = time.monotonic()
                self._greet()
            self._hear({})
            time.sleep(POLL_SECONDS)

    def attempt(self, members: Mapping[str, Member], write: Write, judge: Judge, enough: Callable[[], bool]) -> None:
        """Ask members until all who are present have answered and that is enough, or the time is over."""
        deadline, resend = time.monotonic() + self.timeout_seconds, 0.0
        unsent, waiting = dict(members), dict[str, Pending]()
        due = dict.fromkeys(members, 0.0)
        """When each may be asked; those who were asked already also wait until nobody else is waited for."""
        while True:
            now = time.monotonic()
            idle = all(pending.member.absent for pending in waiting.values())
            again = idle and now >= resend and not (resend and enough())
            if unsent and again:
                self._greet()
                resend = now + RESEND_SECONDS
            ready = {
                name: one
                for name, one in unsent.items()
                if one.node is not None and (not due[name] or (again and now >= due[name]))
            }
            sent = self._send(ready, write)
            waiting |= sent
            due |= dict.fromkeys(ready, now)
            under_way = {pending.member.name for pending in sent.values()}
            unsent = {name: one for name, one in unsent.items() if name not in under_way}
            self._ask_for_lost(waiting)
            for member, content in self._hear(waiting):
                if content is not None and judge(member, content):
                    member.bad_answers = 0
                    continue
                unsent[member.name] = member
                if content is not None:
                    due[member.name] = time.monotonic() + patience(member.bad_answers)
                    member.bad_answers += 1
            settled = enough() and all(pending.member.absent for pending in waiting.values())
            if settled or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        self._overdue |= {identity: pending.member for identity, pending in waiting.items()}
        for pending in waiting.values():
            pending.member.absent = True

    def _send(self, members: Mapping[str, Member], write: Write) -> dict[str, Pending]:
        """Messages that are under way, by Flower's id of them."""
        sent = {}
        for member in members.values():
            if member.node is None:
                continue
            message = Message(write(member), dst_node_id=member.node, message_type=TURN, ttl=self.timeout_seconds)
            for identity in self.grid.push_messages([message]):
                if identity:
                    sent[identity] = Pending(member, message_bytes(message), time.monotonic() + LOST_SECONDS)
        return sent

    def _ask_for_lost(self, waiting: Mapping[str, Pending]) -> None:
        """Say hello to nodes that are silent and answer in order: elsewhere a hello may overtake a long turn."""
        for identity, pending in waiting.items():
            member = pending.member
            silent = time.monotonic() >= pending.asked_after
            if silent and member.in_order and member.node is not None and not member.absent:
                pending.pause *= 2
                pending.asked_after = time.monotonic() + pending.pause
                self._questions |= dict.fromkeys(self._say_hello(member.node), identity)

    def _hear(self, waiting: dict[str, Pending]) -> list[tuple[Member, RecordDict | None]]:
        """Answers to what is waited for, which then is so no longer; None in place of an error. Others are noted."""
        heard: list[tuple[Member, RecordDict | None]] = []
        wanted, lost = [*waiting, *self._overdue, *self._hellos], list[str]()
        for message in self._mailbox.pull(wanted) if wanted else []:
            identity = message.metadata.reply_to_message_id
            if identity in self._hellos:
                question = self._questions.pop(identity, None)
                if question is not None and not message.has_error():
                    lost.append(question)
                self._meet(self._hellos.pop(identity), message)
            elif identity in self._overdue:
                member = self._overdue.pop(identity)
                member.late += not message.has_error()
                member.absent = message.has_error() or member.late > MOST_LATE
            elif identity in waiting:
                heard.append(self._heard(waiting.pop(identity), message))
        # Only now: the answer that was asked for may come together with that to the question.
        for pending in [waiting.pop(identity) for identity in lost if identity in waiting]:
            log.warning("a message to %s was lost on its way", pending.member.name)
            pending.member.lost += 1
            pending.member.absent = pending.member.lost > MOST_LOST
            heard.append((pending.member, None))
        return heard

    def _heard(self, pending: Pending, message: Message) -> tuple[Member, RecordDict | None]:
        member = pending.member
        member.absent, member.late, member.lost = message.has_error(), 0, 0
        if message.has_error():
            log.warning("%s did not answer: %s", member.name, one_line(message.error.reason))
        held = 0 if message.has_error() else content_bytes(message.content)
        self.traffic.count(pending.size, message_bytes(message) if held <= self.most_bytes else held)
        return member, None if message.has_error() else message.content

    def _greet(self) -> None:
        """Ask nodes that are new for their clients' names; the answers come in time."""
        online, now = list(self.grid.get_node_ids()), time.monotonic()
        self._greeted = {node: when for node, when in self._greeted.items() if node in online}
        for node in self.roster.strangers(online):
            if now - self._greeted.get(node, -math.inf) > LOST_SECONDS:
                self._say_hello(node)

    def _say_hello(self, node: int) -> list[str]:
        """Ask a node for its client's name; what Flower calls the message."""
        self._greeted[node] = time.monotonic()
        message = Message(RecordDict(), dst_node_id=node, message_type=HELLO, ttl=self.timeout_seconds)
        sent = [identity for identity in self.grid.push_messages([message]) if identity]
        self._hellos |= dict.fromkeys(sent, node)
        return sent

    def _meet(self, node: int, message: Message) -> None:
        if message.has_error():
            log.warning("node %d did not tell its name: %s", node, one_line(message.error.reason))
            return
        told = message.content.config_records.get("config", ConfigRecord())
        name, in_order = told.get("client"), told.get("in-order") is True
        if isinstance(name, str) and CLIENT_NAME.fullmatch(name):
            self.roster.welcome(name, node, list(self.grid.get_node_ids()), in_order)
        else:
            self.roster.refuse(node)
