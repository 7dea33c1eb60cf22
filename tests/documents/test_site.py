"""The site builds without a warning, and its pages stand alone in a real browser, on a phone too."""

import html.parser
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PHONE, DESK = 360, 1280
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


class Links(html.parser.HTMLParser):
    """What a page refers to, and the places in it that others may refer to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = {"", "top"}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value or "")


def test_no_link_within_the_site_is_dead(site):
    pages = {page.resolve(): Links(page) for page in site.rglob("*.html")}
    dead, followed = [], 0
    for page, links in pages.items():
        for target in links.targets:
            address = urlsplit(target)
            if address.scheme or address.netloc:
                continue
            followed += 1
            aim = (page.parent / unquote(address.path)).resolve() if address.path else page
            if not aim.is_file() or (aim in pages and unquote(address.fragment) not in pages[aim].places):
                dead.append(f"{page.relative_to(site.resolve())}: {target}")
    assert dead == []
    assert followed > 1000


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
