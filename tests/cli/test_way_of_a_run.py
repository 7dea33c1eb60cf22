"""docs/architecture.md walks the way from `fedade run` to `observe`; the call stack is that way."""

import inspect
import re
from pathlib import Path

from fedade import cli
from fedade.methods.source import Source

from .conftest import TINY

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST_FILES = 25
"""What somebody who knows PyTorch can read in an afternoon."""


def test_the_way_to_observe_is_the_one_that_is_told(fedade, monkeypatch):
    stacks = []
    observe = Source.observe

    def noting(self, ctx, state):
        stacks.append([frame.filename for frame in inspect.stack(context=0)])
        return observe(self, ctx, state)

    monkeypatch.setattr(Source, "observe", noting)
    fedade("run", "--method", "source", "--out", "here", *TINY, check=True)
    root = Path(cli.__file__).parents[1]
    passed = {str(Path(name).relative_to(root)) for name in stacks[0] if Path(name).is_relative_to(root)}
    walk = PAGE.read_text().partition("## The way of a run")[2].partition("\n\nRows then go back")[0]
    told, on_stack = set(re.findall(r"`([\w/]+\.py)`", walk)), set(re.findall(r"\*\*`([\w/]+\.py)`\*\*", walk))
    assert len(told) <= MOST_FILES
    assert passed == on_stack - {"methods/NAME.py"}
    assert [name for name in told - {"methods/NAME.py"} if not (root / name).is_file()] == []
