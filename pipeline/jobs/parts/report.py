"""A report as one self-contained HTML page, with charts and a table.

Columns whose names end in `_ms` or `_s` are durations. Text from a log is escaped.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from tidelog.config import times
from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.jobs.parts import charts
from tidelog.pipeline.jobs.parts.charts import Chart

_STYLE: Final = (
    "body{font:14px system-ui,sans-serif;margin:1em auto;padding:0 1em;max-width:60em;color:#222}"
    "h1{font-size:1.4em;overflow-wrap:anywhere}.wide{overflow-x:auto}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left;white-space:nowrap}"
    ".n{text-align:right;font-variant-numeric:tabular-nums}"
)
_MS_IN: Final = {"_ms": 1, "_s": 1000}


def demand_place(path: str) -> None:
    """Raise WrongOption if the page cannot be written, so that a job fails before its work. The path may be empty."""
    if path and (Path(path).is_dir() or not os.access(Path(path).absolute().parent, os.W_OK)):
        raise WrongOption(f"--html: no file {path} can be written; name one in an existing folder")


def write(
    path: str, title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], drawn: Iterable[Chart]
) -> None:
    """Write a page to a file; OSError."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<style>{_STYLE}{charts.STYLE}</style><h1>{escape(title)}</h1>",
        charts.drawn(drawn),
        '<div class="wide"><table><tr>'
        + "".join(f"<th>{escape(_head(name))}</th>" for name in columns)
        + "</tr>",
        *("<tr>" + "".join(_cell(name, row[name]) for name in columns) + "</tr>" for row in rows),
        "</table></div></html>",
    ]
    Path(path).write_text("\n".join(parts), encoding="utf-8")


def _unit(name: str) -> str:
    return next((end for end in _MS_IN if name.endswith(end)), "")


def _head(name: str) -> str:
    """Return the heading of a column. Durations carry their units, so the column's name need not."""
    unit = _unit(name)
    return f"{name.removesuffix(unit)} (time)" if unit else name


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "<td>-</td>"
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    unit = _unit(name)
    shown = times.show_duration(round(value * _MS_IN[unit])) if unit else f"{value:,}"
    return f'<td class="n">{shown}</td>'
