"""One word, one meaning: no two public classes have one name."""

import ast
from collections import defaultdict
from pathlib import Path

import fedade

TWICE: set[str] = set()
"""Names that still have two meanings. Take one out when it has lost its second; add none."""


def test_no_public_class_name_has_two_meanings():
    root = Path(fedade.__file__).parent
    places = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(root)))
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert not {name: files for name, files in twice.items() if name not in TWICE}
