"""The report page: one file that opens without a network."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from matplotlib.figure import Figure

from fedade.reporting.results import Row

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid #8884; text-align: right; }
th:first-child, td:first-child { text-align: left; }
tr.oracle { opacity: .6; font-style: italic; }
img { max-width: 100%; height: auto; background: white; border-radius: 6px; }
pre { background: #8882; padding: 1rem; overflow-x: auto; border-radius: 6px; font-size: .85rem; }
.scroll { overflow-x: auto; }
"""

_COLUMNS = (
    "method", "after", "±", "before", "oracle share", "mean rate", "MB sent", "seconds",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table as text, in the order of the report's columns."""
    return (
        row.method + (" (oracle)" if row.oracle else ""),
        f"{100 * row.accuracy_post:.2f}",
        f"{100 * row.deviation:.2f}",
        f"{100 * row.accuracy_pre:.2f}",
        "" if row.share_of_oracle is None else f"{100 * row.share_of_oracle:.0f}%",
        "" if row.learning_rate is None else f"{row.learning_rate:.3g}",
        f"{row.megabytes_sent:.1f}",
        f"{row.seconds:.1f}",
    )


def page(
    title: str, rows: Sequence[Row], figures: Mapping[str, Figure], config: Mapping[str, Any], command: str
) -> str:
    """The whole page as HTML."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in _COLUMNS)
    body = "".join(_html_row(row) for row in rows)
    pictures = "".join(
        f'<p><img alt="{html.escape(name)}" src="{_data_url(one)}"></p>' for name, one in figures.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1>"
        f"<p>How well do clients keep up with their own drifting data, without labels? Accuracy in percent, mean over "
        f"clients and timesteps, on the batch itself, after and before the timestep's adaptation; ± is the standard "
        f"deviation over seeds; oracle share is the part of the way from source to oracle-prior.</p>"
        f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
        f"{pictures}<h2>Reproduce</h2><pre>{html.escape(command)}</pre>"
        f"<h2>Configuration</h2><pre>{html.escape(yaml.safe_dump(dict(config), sort_keys=False))}</pre></html>\n"
    )


def column_names() -> tuple[str, ...]:
    """The headings that belong to `cells`."""
    return _COLUMNS


def _html_row(row: Row) -> str:
    mark = ' class="oracle"' if row.oracle else ""
    return f"<tr{mark}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(row)) + "</tr>"


def _data_url(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
