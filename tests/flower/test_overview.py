"""Seeing a fleet: clients by name, when they were seen, what they tell and what was wrong."""

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedade.cli.flower import app
from fedade.core.errors import FedadeError
from fedade.flower.overview import (
    ago,
    columns_of,
    headline,
    lines_of,
    notes_of,
    status_at,
    table_of,
    write_status,
)
from fedade.flower.server_app import adapt
from fedade.flower.wire import TURN


def test_a_run_tells_of_every_client_by_name(make_task, make_grid, tmp_path):
    task = make_task(methods=["tent"], flower={"quorum": 0.5, "share": ["learning_rate", "entropy"]})
    grid = make_grid(task)
    bad = next(node for node, config in grid.nodes.items() if config["client"] == "client-0002")

    def tamper(node, reply):
        if node == bad and reply.metadata.message_type == TURN:
            reply.content["config"]["samples"] = -1
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    status = status_at(tmp_path / "out")
    assert headline(status).startswith("finished, 3 turns")
    lines = {line[0]: line for line in lines_of(status, status["updated"])}
    assert sorted(lines) == list(task.flower.clients)
    assert lines["client-0000"][1:3] in (("2", "0 s ago"), ("2", "1 s ago"))
    assert (lines["client-0002"][1], status["timestep"], status["timesteps"]) == ("0", 2, 2)
    assert lines["client-0002"][2].startswith("never")
    assert "is not a count" in lines["client-0002"][-1]
    assert lines["client-0000"][-1] == ""
    assert any("client-0002" in note for note in notes_of(status))


def test_measures_that_clients_tell_have_a_column():
    members = [
        {"name": "a", "timestep": 3, "last_seen": 40.0, "away": True, "trouble": "", "measures": {"s": 0.25}},
        {"name": "b", "timestep": 0, "last_seen": 0.0, "away": False, "trouble": "late", "measures": {}},
    ]
    status = {"members": members, "timestep": 3, "timesteps": None}
    assert columns_of(status) == ("client", "timestep", "last seen", "s", "trouble")
    assert lines_of(status, 100.0) == [("a", "3", "1 min ago, away", "0.25", ""), ("b", "0", "never", "", "late")]
    assert headline(status) == "timestep 3, 0 turns, 0 turns unanswered"


def test_names_of_clients_are_whole_in_a_narrow_terminal():
    measures = {"s": 0.25, "learning_rate": 4.67, "accuracy_post": 0.8, "waiting": 3.0}
    member = {"timestep": 3, "last_seen": 1.0, "away": True, "trouble": "its turn failed; its own log says why"}
    names = ["clinic-of-saint-anne-ward-12", "b"]
    members = [{"name": name, "measures": measures, **member} for name in names]
    screen = Console(width=80, file=io.StringIO())
    screen.print(table_of({"members": members, "timestep": 3, "timesteps": None}))
    assert all(name in screen.file.getvalue() for name in names)


def test_what_a_client_is_quoted_with_is_shown_as_it_is():
    """In square brackets it would be a colour, a link, or the end of the command."""
    said = "answer refused: '[/x]' is no outcome; [link=http://elsewhere]see[/link]"
    member = {"name": "a", "timestep": 1, "last_seen": 1.0, "away": False, "trouble": said, "measures": {}}
    screen = Console(width=200, file=io.StringIO(), force_terminal=True)
    screen.print(table_of({"members": [member]}))
    assert said in screen.file.getvalue()
    screen.print(table_of({"error": said}))
    screen.print(table_of({"client": "a", "requests": 0, "quarantined": {"[/x].npy": said}}))
    assert "[/x].npy" in screen.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s ago"), (200, "3 min ago"), (7300, "2 h ago"), (9e5, "10 d ago")]
)
def test_times_are_told_as_people_do(seconds, words):
    assert ago(1.0, 1.0 + seconds) == words


def test_the_commands_show_a_run_and_watch_ends_with_it(tmp_path):
    write_status(tmp_path, {"finished": True, "turns": 7, "members": []})
    shown = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert "finished, 7 turns" in shown.output
    assert json.loads(CliRunner().invoke(app, ["status", str(tmp_path), "--json"]).output)["turns"] == 7
    assert "finished, 7 turns" in CliRunner().invoke(app, ["watch", str(tmp_path)]).output


def test_a_folder_that_is_neither_is_refused(tmp_path):
    with pytest.raises(FedadeError, match="name a run's folder"):
        status_at(tmp_path / "missing")
    with pytest.raises(FedadeError, match="holds no state"):
        status_at(tmp_path)
