"""One word, one meaning: no public class shares its name with another class, or with a type of another module. And no
module is longer than can be read at one sitting."""

import ast
from collections import defaultdict
from pathlib import Path

import fedade

TWICE = {"Body", "Plan", "Progress", "Report"}
"""Names that still have two meanings. Take one out when it has lost its second; add none."""


def defined(statement: ast.stmt) -> tuple[str, bool]:
    """The name of a public class or of a type that a statement defines, and whether it is a class."""
    if isinstance(statement, ast.ClassDef):
        return statement.name, True
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    name = targets[0].id if isinstance(targets[0], ast.Name) else ""
    return (name, False) if name[:1].isupper() and not name.isupper() else ("", False)


def test_no_public_class_name_has_two_meanings():
    root = Path(fedade.__file__).parent
    places, classes = defaultdict(list), set()
    for path in sorted(root.rglob("*.py")):
        for name, is_class in map(defined, ast.parse(path.read_text()).body):
            if name and not name.startswith("_"):
                places[name].append(str(path.relative_to(root)))
                classes |= {name} if is_class else set()
    twice = {name: files for name, files in places.items() if name in classes and len(files) > 1}
    assert not {name: files for name, files in twice.items() if name not in TWICE}
    assert set(twice) >= TWICE, "take out what has one meaning now"


def test_modules_can_be_read_at_one_sitting():
    long = {
        path.name: count
        for path in Path(fedade.__file__).parent.rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 300
    }
    assert not long, "split what is not read together"
