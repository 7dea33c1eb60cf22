"""Answers reach the server as their parts come, and one that does not come holds up nobody."""

from types import SimpleNamespace

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from fedade.flower import delivery, exchange
from fedade.flower.delivery import Mailbox
from fedade.flower.exchange import Exchange
from fedade.flower.members import Roster
from fedade.flower.wire import HELLO

from .hostile import array


class Link:
    """A SuperLink to which answers are announced, and parts of them sent, when a test says so."""

    def __init__(self) -> None:
        self.announced, self.parts, self.gone, self.confirmed = [], {}, set(), []
        self.pushed = self.fetched = 0

    def answer(
        self, to: str, said: str, metadata_to: str | None = None, arrays: int = 0, **more: str | bool
    ) -> list[str]:
        """Announce an answer; the names of its parts, none of which is there yet."""
        asked = Message(RecordDict(), dst_node_id=7, message_type="train.turn")
        asked.metadata.__dict__["_message_id"] = metadata_to or to
        content = RecordDict({"config": ConfigRecord({"said": said, **more})})
        content["arrays"] = ArrayRecord({f"a{one}": array(bytes([one]) * 1000) for one in range(arrays)})
        message = Message(content, reply_to=asked)
        message.metadata.__dict__["_message_id"] = message.object_id
        envelope = message_to_proto(remove_content_from_message(message))
        envelope.metadata.reply_to_message_id = to
        self.announced.append((to, envelope, get_object_tree(message)))
        content = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        self.unsent = {**getattr(self, "unsent", {}), **content}
        return list(content)

    def send(self, *names: str) -> None:
        self.parts |= {name: self.unsent[name] for name in names}

    def PullMessages(self, request):  # noqa: N802 - Flower's name
        told = [one for one in self.announced if one[0] in request.message_ids]
        self.announced = [one for one in self.announced if one not in told]
        return SimpleNamespace(messages_list=[one[1] for one in told], message_object_trees=[one[2] for one in told])

    def PullObject(self, request):  # noqa: N802 - Flower's name
        name = request.object_id
        self.fetched += 1
        there, found = name in self.parts, name not in self.gone
        return SimpleNamespace(object_found=found, object_available=there, object_content=self.parts.get(name, b""))

    def ConfirmMessageReceived(self, request):  # noqa: N802 - Flower's name
        self.confirmed.append(request.message_object_id)


@pytest.fixture
def link() -> Link:
    # Messages ask the process who it is; inside a run, Flower has told it.
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    return Link()


@pytest.fixture
def grid(link, monkeypatch) -> HttpGrid:
    made = HttpGrid("127.0.0.1:1", insecure=True, token="any")  # noqa: S106 - of no link
    monkeypatch.setattr(made, "_client", link)
    monkeypatch.setattr(HttpGrid, "run", SimpleNamespace(run_id=1))
    return made


def said(messages: list[Message]) -> list[object]:
    return [message.content.config_records["config"]["said"] for message in messages]


def test_an_answer_that_does_not_come_holds_up_no_other(grid, link, monkeypatch):
    mailbox = Mailbox(grid, 10**6)
    link.answer("first", "never")
    link.send(*link.answer("second", "here"))
    assert said(mailbox.pull(["first", "second"])) == ["here"]
    assert mailbox.pull(["first"]) == []
    monkeypatch.setattr(delivery, "PART_SECONDS", 0.0)
    (lost,) = mailbox.pull(["first"])
    assert lost.has_error()
    assert lost.metadata.reply_to_message_id == "first"
    assert "parts of it have not come" in lost.error.reason
    assert len(link.confirmed) == 1


def test_parts_that_come_one_by_one_are_put_together(grid, link):
    mailbox = Mailbox(grid, 10**6)
    parts = link.answer("asked", "whole")
    assert len(parts) == 4
    for part in parts[:-1]:
        link.send(part)
        assert mailbox.pull(["asked"]) == []
    link.send(parts[-1])
    assert said(mailbox.pull(["asked"])) == ["whole"]
    assert link.confirmed


def test_an_answer_whose_parts_the_link_has_dropped_is_lost_at_once(grid, link):
    mailbox = Mailbox(grid, 10**6)
    link.gone |= set(link.answer("asked", "gone"))
    assert mailbox.pull(["asked"])[0].has_error()


@pytest.mark.parametrize("kind", ["no message", "an answer to another"])
def test_what_is_no_answer_is_handed_on_without_content_to_be_refused(grid, link, kind):
    mailbox = Mailbox(grid, 10**6)
    names = link.answer("asked", "lie", metadata_to="another" if kind == "an answer to another" else None)
    link.send(*names)
    if kind == "no message":
        link.parts = dict.fromkeys(names, b"garbage")
    (found,) = mailbox.pull(["asked"])
    assert (found.metadata.reply_to_message_id, len(found.content)) == ("asked", 0)


@pytest.mark.parametrize(("piece_bytes", "most_fetched"), [(1, 100), (2**20, 0)], ids=["bytes", "parts"])
def test_what_is_far_too_large_is_not_fetched_whole(grid, link, monkeypatch, caplog, piece_bytes, most_fetched):
    """Neither in bytes that come, nor in parts that are announced, of which the link would be asked for each."""
    monkeypatch.setattr(delivery, "EXCESS", 10_000)
    monkeypatch.setattr(delivery, "PIECE_BYTES", piece_bytes)
    names = link.answer("asked", "much", arrays=200)
    link.send(*names)
    (found,) = Mailbox(grid, 10_000).pull(["asked"])
    assert (found.metadata.reply_to_message_id, len(found.content)) == ("asked", 0)
    assert link.fetched <= most_fetched < len(names)
    assert "parts of it were not even fetched" in caplog.text
    assert link.confirmed  # so that the link forgets it


class Fleet:
    """Ada, who answers at once, and eve, whose parts are sent when a test says so; both are asked turn by turn."""

    def __init__(self, grid: HttpGrid, link: Link, monkeypatch, timeout_seconds: float) -> None:
        self.link, self.polls, self.heard, self.unsent = link, 0, [], []
        self.prompt = False
        """Whether eve answers at once, too."""
        monkeypatch.setattr(exchange, "POLL_SECONDS", 0.001)
        monkeypatch.setattr(HttpGrid, "get_node_ids", lambda _: [1, 2])
        monkeypatch.setattr(HttpGrid, "push_messages", lambda _, messages: [self._push(one) for one in messages])
        real = Mailbox.pull

        def pull(mailbox: Mailbox, wanted: list[str]) -> list[Message]:
            self.polls += 1
            return real(mailbox, wanted)

        monkeypatch.setattr(Mailbox, "pull", pull)
        roster = Roster(["ada", "eve"])
        for node, member in enumerate(roster, 1):
            member.node = node
        self.members = {member.name: member for member in roster}
        self.exchange = Exchange(grid, roster, timeout_seconds, 10**6)

    def _push(self, message: Message) -> str:
        self.link.pushed += 1
        names = self.link.answer(f"m{self.link.pushed}", "turn", **{"client": "eve", "in-order": True})
        if message.metadata.message_type == HELLO or message.metadata.dst_node_id == 1 or self.prompt:
            self.link.send(*names)
        else:
            self.unsent += names
        return f"m{self.link.pushed}"

    def turn(self) -> int:
        """One exchange that needs ada alone; how often the link was asked until it ended."""
        before, answered = self.polls, []

        def judge(member, _):
            answered.append(member.name)
            return True

        self.exchange.attempt(self.members, lambda _: RecordDict(), judge, lambda: "ada" in answered)
        self.heard += answered
        return self.polls - before


def test_a_node_that_announces_answers_and_sends_none_is_waited_for_once(grid, link, monkeypatch):
    monkeypatch.setattr(delivery, "PART_SECONDS", 0.3)
    fleet = Fleet(grid, link, monkeypatch, timeout_seconds=60.0)
    waited = [fleet.turn() for _ in range(3)]
    assert fleet.heard == ["ada"] * 3
    assert fleet.members["eve"].absent
    assert waited[0] > 2 >= max(waited[1:])


def test_a_node_that_is_late_again_and_again_is_waited_for_twice_until_it_is_in_time(grid, link, monkeypatch):
    fleet = Fleet(grid, link, monkeypatch, timeout_seconds=0.3)
    absent = []
    for _ in range(4):
        fleet.turn()
        absent.append(fleet.members["eve"].absent)
        link.send(*fleet.unsent)  # after its time
        fleet.exchange._hear({})
        absent.append(fleet.members["eve"].absent)
    # Left behind, back, left behind, late again and so left behind.
    assert absent == [True, False, True, True, True, True, True, True]
    fleet.prompt = True
    fleet.turn()
    assert fleet.heard[-2:] == ["ada", "eve"]
    assert not fleet.members["eve"].absent


def test_a_node_that_answers_all_but_its_turns_is_waited_for_three_times(grid, link, monkeypatch, caplog):
    monkeypatch.setattr(exchange, "LOST_SECONDS", 0.01)
    fleet = Fleet(grid, link, monkeypatch, timeout_seconds=60.0)
    fleet.members["eve"].in_order = True
    absent = []
    for _ in range(5):
        fleet.turn()
        absent.append(fleet.members["eve"].absent)
    assert absent == [False, False, True, True, True]
    assert caplog.text.count("a message to eve was lost") == 3
    fleet.prompt = True
    while "eve" not in fleet.heard:
        fleet.turn()
    assert not fleet.members["eve"].absent
