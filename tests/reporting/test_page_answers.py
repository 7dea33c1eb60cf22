"""What the page tells beyond accuracy, and charts as files, in a real browser."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from .browser import Browser
from .made_up import made_up_page, made_up_scenes

METHODS = ("source", "fed-ade", "fth", "oracle-prior")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[int, Path]:
    """By the number of timesteps."""
    folder, found = tmp_path_factory.mktemp("page"), {}
    for steps in (12, 40):
        found[steps] = folder / f"{steps}.html"
        found[steps].write_text(made_up_page(made_up_scenes(("squ",), METHODS, (0,), clients=9, steps=steps)))
    return found


def named(browser: Browser, plot: str, kind: str) -> list[str]:
    browser.scroll_to(plot)
    return browser.evaluate(f"[...document.querySelectorAll('{plot} {kind}')].map((one) => one.dataset.series)")


def test_calibration_classes_and_clients_have_a_line_or_dots_for_every_method(browser, pages):
    browser.open(pages[12])
    shown = ["source", "fed-ade", "fth", "oracle-prior (oracle)"]
    assert named(browser, "#calibration", ".line") == ["confidence is accuracy", *shown]
    assert named(browser, "#classes", ".dots") == shown
    assert browser.evaluate("document.querySelectorAll('#classes .dots:first-of-type circle').length") == 10
    assert named(browser, "#client-ranks", ".line") == shown
    browser.point_at("#classes", 0.5, 0.5)
    assert browser.evaluate("document.getElementById('tip').innerText").startswith("class ")
    browser.evaluate("document.querySelector('#legend button').click()")
    browser.settle()
    assert named(browser, "#client-ranks", ".line") == shown[1:]


def test_expected_and_true_accuracy_and_signals_and_drift_are_of_the_chosen_method(browser, pages):
    browser.open(pages[12])
    browser.select("#answers-method", "fed-ade")
    assert named(browser, "#expected", ".line") == ["true", "expected by the model"]
    assert len(named(browser, "#true-drift", ".line")) == 1
    assert len(named(browser, "#drift-signals", ".line")) == 3
    browser.select("#answers-method", "source")
    assert "source has no signals" in browser.evaluate("document.getElementById('drift-note').innerText")
    assert browser.evaluate("document.getElementById('drift').getClientRects().length") == 0
    browser.select("#answers-method", "fed-ade")
    assert browser.evaluate("document.getElementById('drift').getClientRects().length") == 1
    assert browser.complaints == []


def test_the_page_opens_on_the_best_method_that_is_no_oracle(browser, pages):
    browser.open(pages[12])
    means = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#results table')[0].tBodies[0].rows]"
        ".map((one) => [one.cells[0].innerText, Number(one.cells[1].dataset.value)]))"
    )
    best = max((name for name in means if "oracle" not in name), key=means.get)
    assert best == "fed-ade"
    for control in ("answers-method", "heat-method", "client-method"):
        assert browser.evaluate(f"document.getElementById('{control}').value") == best


@pytest.mark.parametrize(("steps", "smoothing"), [(12, "1"), (40, "5")])
def test_few_timesteps_are_drawn_as_they_are(browser, pages, steps, smoothing):
    browser.open(pages[steps])
    assert browser.evaluate("document.getElementById('smoothing').value") == smoothing


def test_wide_tables_scroll_inside_their_frame(browser, pages):
    browser.open(pages[12], 360)
    for frame in range(2):
        wider = f"(() => {{ const one = document.querySelectorAll('#results .scroll')[{frame}];"
        assert browser.evaluate(f"{wider} return one.scrollWidth > one.clientWidth; }})()")
        assert browser.evaluate(f"{wider} one.scrollLeft = 50; return one.scrollLeft; }})()") == 50
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def saved(browser: Browser, plot: str, kind: str, folder: Path) -> Path:
    """Press the button under a plot and wait for the file."""
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    browser.scroll_to(plot)
    buttons = f"document.querySelector('{plot}').closest('figure').querySelectorAll('.saving button')"
    browser.evaluate(f"[...{buttons}].find((one) => one.textContent === '{kind}').click()")
    path = folder / f"{plot.removeprefix('#')}.{kind.lower()}"
    for _ in range(200):
        if path.exists() and path.stat().st_size:
            return path
        browser.settle()
    raise AssertionError(f"{path.name} never came: {list(folder.iterdir())}")


def test_charts_are_saved_as_svg_that_stands_alone(browser, pages, tmp_path):
    browser.open(pages[12])
    text = saved(browser, "#accuracy", "SVG", tmp_path).read_text()
    drawing = ElementTree.fromstring(text)  # noqa: S314 - of our own page
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in "".join(one.get("style", "") for one in drawing.iter()), "colours are written out"
    words = [one.text for one in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"accuracy after adaptation (%)", "fed-ade", "oracle-prior (oracle)"} <= set(words)


@pytest.mark.parametrize("plot", ["#accuracy", "#heat"])
def test_charts_are_saved_as_pictures(browser, pages, tmp_path, plot):
    browser.open(pages[12])
    width = browser.evaluate(f"document.querySelector('{plot}').clientWidth")
    image = Image.open(saved(browser, plot, "PNG", tmp_path)).convert("RGB")
    assert image.width == 2 * width
    colours = np.unique(np.asarray(image).reshape(-1, 3), axis=0)
    assert (colours == 255).all(1).any(), "on white"
    assert len(colours) > 20
