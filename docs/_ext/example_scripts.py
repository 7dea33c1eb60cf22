"""Tutorials as scripts: `python docs/_ext/example_scripts.py` writes `examples/` from `docs/tutorials/`."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1]
CELL = re.compile(r"^```\{code-cell\}\n(?::tags:.*\n\n?)?(.*?)^```\n", re.MULTILINE | re.DOTALL)


def script_of(tutorial: str) -> str:
    """The code of a tutorial's cells, each under the heading that it stands below, with the title as docstring."""
    title = re.search(r"^# (.+)$", tutorial, re.MULTILINE)
    assert title is not None
    parts, heading = [f'"""{title[1]}, as a script."""'], ""
    for cell in CELL.finditer(tutorial):
        above = re.findall(r"^## (.+)$", tutorial[: cell.start()], re.MULTILINE)
        comment = f"# {above[-1]}\n" if above and above[-1] != heading else ""
        heading = above[-1] if above else ""
        parts.append(comment + cell[1].strip())
    return "\n\n".join(parts) + "\n"


def example_scripts() -> dict[str, str]:
    """Every file of `examples/` by its name: tutorials, and the modules that they import."""
    folder = DOCS / "tutorials"
    tutorials = {page.stem: page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.md"))}
    scripts = {f"{name.replace('-', '_')}.py": script_of(text) for name, text in tutorials.items() if CELL.search(text)}
    return scripts | {module.name: module.read_text(encoding="utf-8") for module in sorted(folder.glob("*.py"))}


if __name__ == "__main__":
    for name, text in example_scripts().items():
        (DOCS.parent / "examples" / name).write_text(text, encoding="utf-8")
