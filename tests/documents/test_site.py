"""The site builds without a warning, and its pages stand alone in a real browser, on a phone too."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..reporting.browser import NAMES, Browser, browser_path

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PHONE, DESK = 390, 1280
TOO_WIDE = """[...document.querySelectorAll('article *')]
  .filter((part) => part.getBoundingClientRect().right > innerWidth + 1 && !part.closest('.table-frame, pre, .math'))
  .map((part) => part.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    strict = ["-W", "-n", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *strict, str(ROOT / "docs"), str(folder / "html")],
        env={**os.environ, "FEDADE_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    if browser_path() is None:
        pytest.skip(f"no browser on PATH ({', '.join(NAMES)}); install one, such as Debian's chromium")
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_pages_ask_no_other_host_and_fit_the_window(site, browser, width):
    pages = [page for page in sorted(site.rglob("*.html")) if "_modules" not in page.parts]
    assert len(pages) > 50
    for page in pages:
        browser.open(page, width)
        asked = [address for address in browser.requests if not address.startswith(("file:", "data:", "about:"))]
        assert asked == [], page
        assert browser.complaints == [], page
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, page
        assert browser.evaluate(TOO_WIDE) == [], page


def test_a_table_shows_the_rows_with_what_is_typed(site, browser):
    browser.open(site / "reference" / "methods.html", DESK)
    browser.select(".table-filter", "tent")
    shown = "[...document.querySelectorAll('table.filtered tbody tr')].filter((row) => !row.hidden).length"
    assert 0 < browser.evaluate(shown) < 20
    assert "tent" in browser.evaluate("document.querySelector('table.filtered tbody tr:not([hidden])').innerText")


def test_the_search_finds_a_public_name_from_the_file_system(site, browser):
    browser.open(str((site / "search.html").as_uri()) + "?q=drifting_streams", DESK)
    browser.wait("document.querySelectorAll('#search-results li').length > 0")
