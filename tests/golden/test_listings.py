"""What `fedade list` tells without PyTorch is what there is."""

import json
import os

import pytest

from fedade.cli.listing import COMPUTED, STORED


@pytest.mark.parametrize("kind", ["methods", "settings", "models", "streams", "corruptions", "measures", "suites"])
def test_stored_listings_are_up_to_date(kind):
    known = json.loads(STORED.read_text()) if STORED.exists() else {}
    if os.environ.get("FEDADE_REWRITE_GOLDEN"):
        written = {**known, kind: COMPUTED[kind]()}
        lists = (f'"{name}": [\n' + ",\n".join(map(json.dumps, written[name])) + "\n]" for name in sorted(written))
        STORED.write_text("{\n" + ",\n".join(lists) + "\n}\n")
        return
    assert known[kind] == COMPUTED[kind](), "run `make golden`, and read the difference"
