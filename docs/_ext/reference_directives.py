"""Directives of the reference: `{fedade} NAME` is a table of a registry, or the commands."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from command_pages import command_sections
from registry_tables import TABLES

TEXTS = {**TABLES, "commands": command_sections}

PAGES_OF_FILES = {"](../CHANGELOG.md": "](/reference/changelog.md", "](../CONTRIBUTING.md": "](/contributing.md"}
"""Files above this folder that are pages of the site; links to them stay those of the repository."""


class FedadeDirective(SphinxDirective):
    """What the installed package says of itself, as if it were written in the page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in TEXTS:
            raise self.error(f"nothing is called {name!r}; there are {', '.join(TEXTS)}")
        parsed = self.parse_text_to_nodes(TEXTS[name](), allow_section_headings=True)
        for table in (table for node in parsed for table in node.findall(nodes.table)):
            table["classes"].append("filtered")
        return parsed


def link_pages_of_files(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Let links to files above this folder lead to their pages."""
    for file, page in PAGES_OF_FILES.items():
        source[0] = source[0].replace(file, page)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", link_pages_of_files)
    app.add_directive("fedade", FedadeDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
