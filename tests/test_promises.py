"""Every test that the page of promises names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_promise_names_a_test_that_exists():
    page = (ROOT / "docs" / "promises.md").read_text()
    promised = [line for line in page.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(promised) > 10
    for line in promised:
        file = ""
        for name in re.findall(r"`([^`]*test_[^`]*)`", line.split("|")[2]):
            file, _, test = name.rpartition("::") if "::" in name else (file, "", name)
            assert f"def {test}(" in (ROOT / file).read_text(), name
