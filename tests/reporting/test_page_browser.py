"""The page in a real browser: drawn, quiet, alone, and obedient."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedade.reporting.page.scenes import TIERS, pack

from .browser import Browser
from .made_up import made_up_page, made_up_scenes

WIDE, NARROW = 1280, 360
METHODS = ("source", "fth", "fix-lr-mid", "fed-ade", "oracle-prior")
ANSWERS = ("#calibration", "#expected", "#classes", "#client-ranks", "#true-drift", "#drift-signals")
PLOTS = ("#accuracy", *ANSWERS, "#heat", "#client-accuracy", "#signals", "#priors")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(made_up_page(made_up_scenes(("lin", "squ"), METHODS, (0, 1), clients=15, steps=20)))
    return path


@pytest.fixture
def wide(browser, page) -> Browser:
    browser.open(page, WIDE)
    return browser


def drawn(browser: Browser, selector: str) -> list[str]:
    """The paths of the lines of a plot."""
    browser.scroll_to(selector)
    return browser.evaluate(f"[...document.querySelectorAll('{selector} .line')].map((one) => one.getAttribute('d'))")


def series(browser: Browser, selector: str) -> list[str]:
    return browser.evaluate(f"[...document.querySelectorAll('{selector} .line')].map((one) => one.dataset.series)")


def pixels(browser: Browser, selector: str, folder: Path) -> np.ndarray:
    """What a reader sees of an element."""
    browser.scroll_to(selector)
    box = browser.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().toJSON()")
    browser.screenshot(folder / "shot.png")
    image = Image.open(io.BytesIO((folder / "shot.png").read_bytes())).convert("RGB")
    corners = (box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"])
    return np.asarray(image.crop(tuple(int(one) for one in corners)))


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_plots_are_drawn_without_a_complaint(browser, page, width, dark):
    browser.open(page, width, dark=dark)
    for plot in PLOTS:
        browser.scroll_to(plot)
        assert browser.evaluate(f"document.querySelectorAll('{plot} svg').length") > 0, plot
        overflowing = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflowing == 0, f"at {plot} the page is {overflowing} px too wide"
        inside = browser.evaluate(
            f"[...document.querySelectorAll('{plot} svg text')].every((one) => {{ const box ="
            " one.getBoundingClientRect(); return box.left >= -1 && box.right <= innerWidth + 1; })"
        )
        assert inside, f"labels of {plot} leave the window"
    assert browser.complaints == []
    assert browser.requests == [page.resolve().as_uri()], "the page asks nobody for anything"
    assert "NaN" not in browser.evaluate("document.getElementById('plots').innerHTML")


def test_the_table_is_there_without_scripts(browser, page):
    browser.open(page, scripts=False)
    assert "fed-ade" in browser.evaluate("document.querySelector('#results table').innerText")
    assert browser.evaluate("document.getElementById('plots').hidden")
    assert browser.evaluate("document.querySelectorAll('#results th button').length") == 0


def test_the_legend_shows_and_hides_methods(wide):
    wide.scroll_to("#accuracy")
    before, y = series(wide, "#accuracy"), drawn(wide, "#accuracy")
    assert before == ["source", "fth", "fix-lr-mid", "fed-ade", "oracle-prior (oracle)"]
    wide.evaluate("document.querySelector('#legend button').focus()")
    wide.press(" ")
    assert series(wide, "#accuracy") == before[1:]
    assert wide.evaluate("document.querySelector('#legend button').getAttribute('aria-pressed')") == "false"
    assert drawn(wide, "#client-accuracy")
    assert series(wide, "#client-accuracy") == before[1:]
    wide.evaluate("document.querySelector('#legend button').click()")
    wide.evaluate("document.activeElement.blur()")
    assert drawn(wide, "#accuracy") == y, "as it was"


def test_nothing_to_draw_is_said(wide):
    wide.scroll_to("#accuracy")
    wide.evaluate("document.querySelectorAll('#legend button').forEach((one) => one.click())")
    wide.settle()
    assert "switch a method on" in wide.evaluate("document.getElementById('accuracy').innerText")


@pytest.mark.parametrize(
    ("control", "value"),
    [("#score", "accuracy_pre"), ("#curve-seed", "1"), ("#smoothing", "5"), ("#scene select", "squ")],
)
def test_choices_change_the_accuracy_plot(wide, control, value):
    before = drawn(wide, "#accuracy")
    wide.select(control, value)
    assert drawn(wide, "#accuracy") != before
    assert wide.complaints == []


def test_the_scene_brings_its_own_table(wide):
    shown = "[...document.querySelectorAll('[data-scene]')].filter((one) => !one.hidden).map((one) => one.innerText)"
    assert ["lin" in text for text in wide.evaluate(shown)] == [True, True]
    wide.select("#scene select", "squ")
    assert ["squ" in text for text in wide.evaluate(shown)] == [True, True]


def test_bands_are_drawn_where_they_do_not_hide_one_another(wide):
    bands = "document.querySelectorAll('#accuracy .band').length"
    wide.scroll_to("#accuracy")
    assert wide.evaluate(bands) == 0, "five methods are too many"
    wide.point_at("#legend button:nth-child(4)")
    assert wide.evaluate("document.querySelector('#accuracy .band').dataset.series") == "fed-ade"
    assert wide.evaluate("document.querySelectorAll('#accuracy .dim').length") == 4
    wide.point_at("#accuracy-title")
    wide.evaluate("document.querySelector('#legend button').click()")
    wide.settle()
    assert wide.evaluate(bands) == 4
    wide.evaluate("document.getElementById('bands').click()")
    wide.settle()
    assert wide.evaluate(bands) == 0


def test_pointing_at_a_plot_reads_its_values(wide):
    wide.scroll_to("#accuracy")
    assert wide.evaluate("document.getElementById('tip').hidden")
    wide.point_at("#accuracy", 0.5, 0.5)
    told = wide.evaluate("document.getElementById('tip').innerText")
    assert "t = " in told
    assert "fed-ade" in told
    assert "%" in told
    wide.point_at("#accuracy-title")
    assert wide.evaluate("document.getElementById('tip').hidden")


def test_keys_read_values_too(wide):
    wide.scroll_to("#accuracy")
    wide.evaluate("document.getElementById('accuracy').focus()")
    wide.press("ArrowRight")
    assert wide.evaluate("document.getElementById('tip').innerText").startswith("t = 1\n")
    wide.press("ArrowRight")
    assert wide.evaluate("document.getElementById('tip').innerText").startswith("t = 2\n")


def test_another_client_changes_its_plots(wide):
    before = {plot: drawn(wide, plot) for plot in ("#client-accuracy", "#signals", "#prior-distance")}
    wide.select("#client", "7")
    for plot, lines in before.items():
        assert len(lines) == len(drawn(wide, plot)) > 0
        assert drawn(wide, plot) != lines, plot


def test_the_timestep_changes_the_frequencies(wide):
    bars = "[...document.querySelectorAll('#prior-classes .true')].map((one) => one.getAttribute('height')).join()"
    wide.scroll_to("#priors")
    before = wide.evaluate(bars)
    wide.select("#timestep", "0")
    assert wide.evaluate(bars) != before
    assert wide.evaluate("document.getElementById('timestep-shown').innerText") == "t = 1"


def test_a_method_without_signals_says_so_and_others_come_back(wide):
    wide.scroll_to("#signals-part")
    wide.select("#client-method", "source")
    assert "neither a rate nor signals" in wide.evaluate("document.getElementById('signals-note').innerText")
    wide.scroll_to("#priors-part")
    assert "estimates no class frequencies" in wide.evaluate("document.getElementById('priors-note').innerText")
    wide.select("#client-method", "fed-ade")
    assert len(drawn(wide, "#signals")) == 4
    assert len(drawn(wide, "#prior-distance")) == 1


def test_the_heat_map_shows_many_colours(wide, tmp_path):
    wide.scroll_to("#heat")
    seen = pixels(wide, "#heat canvas", tmp_path)
    assert len(np.unique(seen.reshape(-1, 3), axis=0)) > 15
    wide.select("#heat-method", "source")
    other = pixels(wide, "#heat canvas", tmp_path)
    assert (seen != other).any()


def test_a_press_on_the_heat_map_chooses_a_client(wide):
    wide.scroll_to("#heat")
    wide.evaluate(
        "(() => { const box = document.querySelector('#heat canvas').getBoundingClientRect();"
        " document.querySelector('#heat svg').dispatchEvent(new MouseEvent('click', { bubbles: true,"
        " clientX: box.x + box.width * 0.51, clientY: box.y + box.height * 0.5 })); })()"
    )
    wide.settle()
    assert wide.evaluate("document.getElementById('client').value") == "7"
    assert wide.evaluate("document.getElementById('timestep-shown').innerText") == "t = 11"
    wide.evaluate("document.getElementById('heat').focus()")
    wide.press("ArrowDown")
    assert wide.evaluate("document.getElementById('client').value") == "8"


def test_clients_can_be_sorted_by_their_mean(wide):
    first = "[...document.querySelectorAll('#heat svg text[text-anchor=end]')].map((one) => one.textContent)"
    wide.scroll_to("#heat")
    assert wide.evaluate(first)[0] == "0"
    wide.select("#heat-order", "mean")
    numbers = [int(one) for one in wide.evaluate(first)]
    assert numbers != sorted(numbers)


def test_tables_sort_by_a_press_on_a_heading(wide):
    column = "[...document.querySelector('#results tbody').rows].map((one) => Number(one.cells[1].dataset.value))"
    press = "document.querySelectorAll('#results th button')[1].click()"
    wide.evaluate(press)
    falling = wide.evaluate(column)
    assert falling == sorted(falling, reverse=True)
    wide.evaluate(press)
    assert wide.evaluate(column) == falling[::-1]
    assert wide.evaluate("document.querySelectorAll('#results th')[1].getAttribute('aria-sort')") == "ascending"


def test_everything_that_takes_the_focus_has_a_name(wide):
    for plot in PLOTS:
        wide.scroll_to(plot)
    nameless = wide.evaluate(
        "[...document.querySelectorAll('select, input, button, [tabindex]')].filter((one) => !(one.labels?.length"
        " || one.textContent.trim() || one.getAttribute('aria-label'))).map((one) => one.outerHTML)"
    )
    assert nameless == []


def test_what_was_left_out_is_said(browser, tmp_path):
    scenes = made_up_scenes(("lin",), ("source", "fed-ade"), (0, 1), clients=20, steps=20)
    tiers = [replace(tier, characters=characters) for tier, characters in zip(TIERS, (5_500, 1_500), strict=True)]
    path = tmp_path / "thin.html"
    path.write_text(made_up_page(scenes, pack(scenes, tiers)))
    browser.open(path)
    browser.scroll_to("#kept")
    assert "1 of 2 seeds" in browser.evaluate("document.getElementById('kept').innerText")
    browser.scroll_to("#priors-part")
    assert len(drawn(browser, "#prior-distance")) == 1, "client 0 is kept"
    browser.select("#client", "1")
    assert "here for one client in" in browser.evaluate("document.getElementById('priors-note').innerText")
    shown = "document.getElementById('priors').getClientRects().length > 0"
    assert not browser.evaluate(shown)
    browser.select("#client", "0")
    assert browser.evaluate(shown), "it comes back"
    assert browser.complaints == []


def test_one_method_one_client_and_one_timestep_are_enough(browser, tmp_path):
    path = tmp_path / "tiny.html"
    path.write_text(made_up_page(made_up_scenes(("lin",), ("fed-ade",), (0,), clients=1, steps=1)))
    browser.open(path, NARROW)
    for plot in PLOTS:
        browser.scroll_to(plot)
    labels = "[...document.querySelectorAll('#accuracy text[text-anchor=middle]')].map((one) => one.textContent)"
    assert browser.evaluate(labels) == ["1", "timestep t"]
    assert drawn(browser, "#accuracy")[0].endswith("h4"), "one point alone is a short stroke"
    assert browser.complaints == []
    assert "NaN" not in browser.evaluate("document.getElementById('plots').innerHTML")
