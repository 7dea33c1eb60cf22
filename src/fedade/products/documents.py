"""Tables of results within Markdown files, made again from files of results. A table stands between the lines `<!--
results`, a description in YAML (`reporting.result_tables.TableSpec`), `-->`, and the line `<!-- end of results -->`."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.reporting.result_lines import read_lines
from fedade.reporting.result_tables import TableSpec, markdown

_BEGIN = "\n<!-- results\n"
_PLACE = re.compile(rf"({_BEGIN}(.*?)\n-->\n)(.*?)(<!-- end of results -->(?:\n|$))", re.DOTALL)


def write_documents(documents: Sequence[Path], results: Path, check: bool = False) -> list[Path]:
    """Make the tables of documents again; returns those whose text changed, or with `check` would change."""

    @cache
    def lines(name: str) -> list[dict[str, str]]:
        return read_lines(results / name)

    def table(document: Path, description: str) -> str:
        try:
            spec = TableSpec.model_validate(yaml.safe_load(description))
            return markdown(spec, [line for name in spec.file for line in lines(name)])
        except (yaml.YAMLError, ValueError, KeyError, FedadeError) as error:
            reason = f"no column {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
            raise FedadeError(f"{document}, table {' '.join(description.split())!r}: {reason}") from error

    def made_again(document: Path, text: str) -> str:
        return _PLACE.sub(lambda block: f"{block[1]}\n{table(document, block[2])}\n\n{block[4]}", text)

    changed = []
    for document in documents:
        text = "\n" + document.read_text(encoding="utf-8")  # a table may be the first that there is
        if text.count(_BEGIN) != len(_PLACE.findall(text)):
            raise FedadeError(f"{document}: a table of results has no end; close it with `<!-- end of results -->`")
        if (made := made_again(document, text)) != text:
            changed.append(document)
            if not check:
                storage.write_bytes(document, made.removeprefix("\n").encode())
    return changed
