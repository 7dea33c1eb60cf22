"""The live page: what it tells of a folder, how it is served, and that it follows a run in a real browser."""

import json
import re
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fedade.cli.main import main
from fedade.core import storage
from fedade.listeners.live_page import live_page, live_state, serve_in_background

from ..reporting.browser import Browser
from .folders import STEPS, Cell


def facts(page: bytes) -> dict[str, str]:
    return dict(re.findall(r"<li>(\w+) <b>(\d+)</b></li>", page.decode()))


def test_the_page_tells_where_every_cell_stands(tmp_path):
    cells = [Cell(tmp_path, method) for method in ("source", "fth", "fed-ade", "uda")]
    cells[0].finish()
    cells[1].write_rows(1, 3)
    cells[1].fail("the <disk> is full")
    cells[2].write_rows(1, 4)
    storage.write_json(tmp_path / "plan.json", {"cells": {"somewhere": "a cell to come"}})
    page = live_page(tmp_path)
    assert facts(page) == {"running": "1", "failed": "1", "waiting": "2", "done": "1"}
    for text in (f"4 of {STEPS}", f"{STEPS} of {STEPS}", "the &lt;disk&gt; is full", "a cell to come"):
        assert text in page.decode()
    assert "http" not in page.decode(), "nothing is asked of another host"


def test_the_version_changes_with_every_news_and_the_end_is_known(tmp_path):
    (tmp_path / "config.yaml").write_text("{}")
    seen = [live_state(tmp_path)]
    cell = Cell(tmp_path)
    seen.append(live_state(tmp_path))
    cell.write_rows(1, 3)
    seen.append(live_state(tmp_path))
    storage.write_json(tmp_path / "plan.json", {"cells": {cell.info.address: "one", "other": "two"}})
    cell.finish()
    seen.append(live_state(tmp_path))
    assert not any(one["over"] for one in seen), "a planned cell has not begun"
    storage.write_json(tmp_path / "plan.json", {"cells": {cell.info.address: "one"}})
    seen.append(live_state(tmp_path))
    assert seen[-1]["over"]
    assert len({one["version"] for one in seen}) == len(seen)
    assert live_state(tmp_path) == seen[-1]


def test_a_folder_that_does_not_exist_yet_can_be_served(tmp_path):
    with serve_in_background(tmp_path / "later") as address:
        assert address.startswith("http://127.0.0.1:")
        assert facts(urlopen(address).read())["running"] == "0"  # noqa: S310
        Cell(tmp_path / "later").write_rows(1, 2)
        assert facts(urlopen(address).read())["running"] == "1"  # noqa: S310
        assert json.load(urlopen(f"{address}state"))["over"] is False  # noqa: S310


def test_other_sites_cannot_read_the_page(tmp_path):
    with serve_in_background(tmp_path) as address:
        connection = HTTPConnection(address.split("/")[2])
        connection.request("GET", "/state", headers={"Host": "evil.example:80"})
        assert connection.getresponse().status == 403
        connection.close()


def test_a_damaged_folder_is_told_in_the_browser_and_not_on_the_terminal(tmp_path, capfd):
    Cell(tmp_path / "Läufe ∞").write_rows(1, 2)
    (tmp_path / "Läufe ∞" / "plan.json").write_text("[")
    with serve_in_background(tmp_path / "Läufe ∞") as address:
        for place in ("", "state"):
            with pytest.raises(HTTPError) as answer:
                urlopen(address + place)  # noqa: S310
            assert answer.value.code == 503
            assert "plan.json" in answer.value.read().decode()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("words", [["nowhere"], ["."], ["suite", "--port"]])
def test_what_cannot_be_watched_is_one_line(tmp_path, monkeypatch, capfd, words):
    Cell(tmp_path / "suite")
    monkeypatch.chdir(tmp_path)
    with serve_in_background(tmp_path) as address:
        taken = [address.strip("/").split(":")[-1]] if words[-1] == "--port" else []
        monkeypatch.setattr(sys, "argv", ["fedade", "watch", "--no-open", *words, *taken])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    assert re.fullmatch(r"fedade: .*\n", capfd.readouterr().err)


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    Cell(tmp_path).finish()
    command = [sys.executable, "-m", "fedade", "watch", str(tmp_path), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = re.search(r"http\S+", process.stdout.readline())[0]
        assert json.load(urlopen(f"{address}state"))["over"]  # noqa: S310
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")


def test_a_finished_and_an_unfinished_cell_are_exported_by_the_command(tmp_path, monkeypatch, capfd):
    pytest.importorskip("tensorboard", reason="pip install 'fedade[tensorboard]' to test this tracker")
    Cell(tmp_path, "source").finish()
    Cell(tmp_path, "fed-ade").write_rows(1, 2)
    monkeypatch.setattr(sys, "argv", ["fedade", "export", str(tmp_path), "--to", "tensorboard"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capfd.readouterr().out == f"tensorboard: 2 cells of {tmp_path}\n"
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2


def lines(browser: Browser) -> dict[str, str]:
    browser.scroll_to("#accuracy")
    drawn = "[...document.querySelectorAll('#accuracy .line')]"
    return dict(browser.evaluate(f"{drawn}.map((one) => [one.dataset.series, one.getAttribute('d')])"))


def shown(browser: Browser) -> str:
    return browser.evaluate("document.body.innerText")


def test_an_open_page_follows_the_run_and_keeps_the_choice(browser, tmp_path: Path):
    Cell(tmp_path, "fed-ade", schedule="lin")
    with serve_in_background(tmp_path) as address:
        browser.open(address)
        assert browser.evaluate("document.getElementById('plots').hidden"), "no rows, no plots"
        assert re.search(r"This page follows the run; updated \d\d:\d\d:\d\d", shown(browser))

        cells = {name: Cell(tmp_path, name, schedule="squ") for name in ("fed-ade", "source")}
        for name, last in (("fed-ade", 4), ("source", 2)):
            cells[name].write_rows(1, last)
        Cell(tmp_path, "fth", schedule="lin").finish()
        browser.wait("!document.getElementById('plots').hidden")
        browser.settle()
        browser.select("#scene select", "Squ.")
        browser.select("#smoothing", "5")
        browser.evaluate("document.querySelector('#legend button[data-method=source]').click()")
        browser.evaluate("document.querySelector('#results th button').click()")
        before = lines(browser)
        assert list(before) == ["Fed-ADE"]
        assert "4 of 10" in shown(browser)

        cells["fed-ade"].write_rows(5, 9)
        second = Cell(tmp_path, "fed-ade", seed=1, schedule="squ")
        second.write_rows(1, 3)  # a seed that is not so far
        Cell(tmp_path, "fth", schedule="ber").finish()  # a scene before the one that is looked at
        browser.wait("document.body.innerText.includes('9 of 10') && document.body.innerText.includes('3 of 10')")
        browser.settle()
        after = lines(browser)
        assert list(after) == ["Fed-ADE"], "what was switched off stays off"
        assert len(after["Fed-ADE"]) > len(before["Fed-ADE"])
        assert browser.evaluate("document.querySelector('#scene select').value") == "Squ."
        assert browser.evaluate("document.getElementById('smoothing').value") == "5"
        assert browser.evaluate("document.querySelector('#results th').getAttribute('aria-sort')") == "ascending"
        tables = (
            "[...document.querySelectorAll('[data-scene]')].filter((one) => !one.hidden).map((one) => one.innerText)"
        )
        assert ["Squ." in text for text in browser.evaluate(tables)] == [True, True]
        assert "NaN" not in browser.evaluate("document.getElementById('plots').innerHTML")

        for cell in (cells["fed-ade"], second, Cell(tmp_path, "fed-ade", schedule="lin")):
            cell.finish()
        cells["source"].fail("the disk is full")
        browser.wait("document.body.innerText.includes('The run is over')")
        assert "the disk is full" in shown(browser)
        asked = len(browser.requests)
        browser.evaluate("new Promise((done) => setTimeout(done, 2500))")
        assert len(browser.requests) == asked, "it asks no more"
        assert {url.removeprefix(address) for url in browser.requests} <= {"", "state", "favicon.ico"}
        assert browser.complaints == []


def test_a_server_that_is_gone_is_told(browser, tmp_path):
    Cell(tmp_path).write_rows(1, 3)
    with serve_in_background(tmp_path) as address:
        browser.open(address)
    browser.wait("document.body.innerText.includes('The server does not answer')")
