"""The page as text: what is there without a script, and what must never be there."""

import html.parser
import json
import re

from fedade.reporting.page import Page, origin, render
from fedade.reporting.page.scenes import PackedScenes, pack
from fedade.reporting.paper import Published
from fedade.reporting.rendering import Column, Table, TableCell, TableRow, texts
from fedade.reporting.results import ResultRow, run_table

from .made_up import made_up_page, made_up_scenes

HOSTILE = "</script><script>alert('1')</script>"
NOTHING = PackedScenes({"keys": [], "methods": [], "scenes": []}, [], [])


class Tags(html.parser.HTMLParser):
    """Which elements a page has, and the text of its tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.texts, self._inside = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *one) for one in attrs]
        self._inside.append(tag)

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data):
        if "table" in self._inside:
            self.texts.append(data)


def row(method: str, accuracy: float, oracle: bool = False) -> ResultRow:
    return ResultRow(method, oracle, accuracy, 0.01, accuracy - 0.02, 5e-5, 0.5, 1.25, 3.0)


def page_of(*rows: ResultRow, **changes) -> str:
    return render(
        Page(
            **{
                "title": "A run",
                "tables": [run_table(rows)],
                "scenes": NOTHING,
                "config": {"a": 1},
                "command": "fedade run",
                **changes,
            }
        )
    )


def test_the_table_needs_no_script():
    found = Tags(page_of(row("source", 0.5), row("fed-ade", 0.75), row("oracle-prior", 0.9, oracle=True)))
    shown = run_table([row("fed-ade", 0.75)])
    for text in (*(column.name for column in shown.columns), *texts(shown)[0]):
        assert text in found.texts, text
    assert texts(shown) == [["fed-ade", "75.00", "1.00", "73.00", "50%", "5e-05", "1.2", "3.0"]]
    assert "oracle-prior (oracle)" in found.texts
    assert ("table", "class", "sortable") in found.attributes


def test_the_best_method_is_marked_and_no_oracle_is():
    page = page_of(row("source", 0.5), row("fed-ade", 0.75), row("oracle-prior", 0.9, oracle=True))
    assert re.findall(r'<td data-value="([\d.]+)" class="best">', page) == ["75.0"]


def test_nothing_is_fetched_from_anywhere():
    page = made_up_page(made_up_scenes(("lin",), ("source", "fed-ade"), (0,), clients=4, steps=5))
    assert "http" not in page
    assert "//" not in re.sub(r'<script type="text/plain".*?</script>|^\s*//.*$', "", page, flags=re.S | re.M)
    assert not [one for one in Tags(page).attributes if one[1] in ("src", "href", "srcset", "action")]


def test_names_cannot_become_markup():
    scenes = made_up_scenes((HOSTILE,), ("fed-ade",), (0,), clients=4, steps=5)
    packed = pack(scenes)
    packed.index["methods"][0]["name"] = HOSTILE
    honest = Tags(page_of(row("fed-ade", 0.5), scenes=pack(scenes)))
    attacked = Tags(
        page_of(
            row(HOSTILE, 0.5),
            scenes=packed,
            title=HOSTILE,
            command=HOSTILE,
            config={HOSTILE: HOSTILE},
            facts={HOSTILE: HOSTILE},
            notes=[],
        )
    )
    assert attacked.tags.count("script") == honest.tags.count("script") == 3


def test_the_index_is_read_back_as_it_was():
    packed = pack(made_up_scenes((HOSTILE,), ("fed-ade",), (0,), clients=4, steps=5))
    page = page_of(row("fed-ade", 0.5), scenes=packed)
    index = re.search(r'id="index">(.*?)</script>', page, re.S).group(1)
    assert json.loads(index) == json.loads(json.dumps(packed.index))
    blobs = re.search(r'id="blobs">(.*?)</script>', page, re.S).group(1)
    assert blobs.split("\n") == list(packed.blobs)


def test_ours_the_papers_and_the_difference_stand_together():
    cell = TableCell(77.123, 0.5, paper=Published(80.0, 0.3))
    table = Table(
        "t", (Column("Lin."),), (TableRow("Fed-ADE", (cell,)), TableRow("FTH", (TableCell(status="failed"),)))
    )
    shown = Tags(page_of(row("fed-ade", 0.5), tables=[table])).texts
    assert "77.12 ±0.50" in shown
    assert "80.0 ±0.3 | -2.9" in shown
    assert "failed" in shown


def test_where_numbers_came_from_is_told_as_far_as_it_is_known():
    assert origin({}) == {}
    told = origin({"versions": {"fedade": "0.1.0"}, "commit": "0123456789abcdef", "dirty": True, "device": "cpu"})
    assert told == {"fedade": "0.1.0", "commit": "0123456789 and changes", "device": "cpu"}
