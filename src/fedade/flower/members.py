"""The clients of a run by their stable names, whatever ids Flower gives their nodes."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedade.core.errors import FedadeError
from fedade.flower.wire import Named

log = logging.getLogger("flwr.fedade")


@dataclass(eq=False)
class Member:
    """What the server knows of a client."""

    name: str
    number: int
    """Its place in the run: what draws and the trace call the client."""
    node: int | None = None
    """Flower's id of its node, while that is known."""
    in_order: bool = False
    """Its node answers one message after the other, as ours does. Flower's simulation has several at once."""
    absent: bool = False
    """It left a message unanswered, and is not waited for until it is heard of again."""
    late: int = 0
    """Answers in a row that came when they were no longer waited for."""
    lost: int = 0
    """Messages in a row that its node left without an answer, although it answered a later one."""
    base: int = -1
    """The last turn whose answer counted."""
    kept: int = -1
    """The same, in the last checkpoint."""
    timestep: int = 0
    """The last timestep that it opened."""
    personal_step_due: bool = False
    """It took part in a round, and has not been told the result."""
    downlink: Named = field(default_factory=dict)
    """What it alone is told about that round."""
    counted: list[str] = field(default_factory=list)
    """Digests of its last updates that counted, none of which counts again."""
    last_seen: float = 0.0
    """When its last answer came that counted, in seconds since 1970."""
    bad_answers: int = 0
    """Its last answers in a row that did not count."""
    trouble: str = ""
    """What was wrong with its last answer; empty where nothing was."""
    measures: dict[str, float] = field(default_factory=dict)
    """Single numbers that it told of the last timestep it closed."""
    participated: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    """Bytes of the method's exchanges in the open timestep, as the simulator counts them."""

    @property
    def away(self) -> bool:
        return self.absent or self.node is None


Names = Callable[[], Mapping[int, str] | None]
"""From nodes to the names that their keys are registered for; None where names are not bound to keys."""


class Roster:
    """Members in the order of their numbers."""

    def __init__(self, expected: Sequence[str], names: Names = lambda: None) -> None:
        self._open = not expected
        self._names = names
        self.impostors: dict[str, int] = {}
        """Claims of another's name, by the name that a node's key is registered for."""
        self._members = {name: Member(name, number) for number, name in enumerate(expected)}
        self._refused: dict[int, str] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, number: int) -> Member:
        return list(self._members.values())[number]

    @property
    def connected(self) -> int:
        return sum(member.node is not None for member in self)

    def strangers(self, online: Sequence[int]) -> list[int]:
        """Nodes to be asked for their client's name.

        One that was refused because another speaks for its client is asked again once that one is gone: without node
        authentication a restarted node has a new id, and its old one seems to live on for a while.
        """
        known = {member.node for member in self}

        def stays_refused(node: int) -> bool:
            holder = self._members.get(self._refused.get(node, ""))
            return node in self._refused and (holder is None or holder.node in online)

        return sorted(node for node in online if node not in known and not stays_refused(node))

    def welcome(self, name: str, node: int, online: Sequence[int], in_order: bool = False) -> None:
        """Note that a node speaks for a client; one whose key is another's, or a second for the same, is refused."""
        names = self._names()
        if names is not None and (owner := names.get(node, "nobody")) != name:
            self.impostors[owner] = self.impostors.get(owner, 0) + 1
            self.refuse(node, f"calls itself {name!r}, but its key is registered for {owner!r}")
        elif not self._open and name not in self._members:
            self.refuse(node, f"calls itself {name!r}, which is not in flower.clients", name)
        else:
            member = self._members.setdefault(name, Member(name, len(self)))
            if member.node not in (None, node) and member.node in online:
                self.refuse(node, f"calls itself {name!r}, but node {member.node} does so already", name)
            else:
                member.node, member.in_order, member.absent = node, in_order, False

    def refuse(self, node: int, why: str = "tells no client name", name: str = "") -> None:
        """Note that a node cannot speak for a client; `name` is whose, where it might do so later."""
        self._refused[node] = name
        log.warning("node %d %s; refused", node, why)

    def number_by_name(self) -> None:
        """Before the first timestep: numbers in the order of names, whoever came first."""
        if self._open:
            ordered = sorted(self._members.values(), key=lambda member: member.name)
            self._members = {member.name: member for member in ordered}
            for number, member in enumerate(ordered):
                member.number = number

    def restore(self, members: Sequence[Member]) -> None:
        """The members of a checkpoint; their nodes are to be met again."""
        if not self._open and [member.name for member in members] != list(self._members):
            raise FedadeError("flower.clients differs from the run's checkpoint; choose another --out")
        self._members = {member.name: member for member in members}
