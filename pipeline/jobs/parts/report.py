"""A report as one page of HTML: charts and a table, and nothing that is loaded from elsewhere.

Owns the page. Knows nothing of what the rows are. Invariant: text from a log is shown as text, whatever is in it.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.pipeline.errors import WrongOption

_WIDTH, _HEIGHT = 900, 180
# More bars than pixels show nothing more: neighbours share one, which is as high as the highest.
_BARS_MAX: Final = 300
_STYLE: Final = (
    "body{font:14px system-ui,sans-serif;margin:2em;color:#222}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left}svg{background:#f7f7f7;display:block}"
    "rect{fill:#2a6f97}text{font-size:11px;fill:#555}"
)


class Chart(NamedTuple):
    """Bars, each with what it is of, and how high it is."""

    title: str
    bars: Sequence[tuple[str, float]]


def demand_place(path: str) -> None:
    """WrongOption where no page can be written: that is known before the work, not behind it. No path is fine."""
    if path and (Path(path).is_dir() or not os.access(Path(path).absolute().parent, os.W_OK)):
        raise WrongOption(f"--html: no file {path} can be written; name one in a folder that is there")


def write(
    path: str, title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], charts: Iterable[Chart]
) -> None:
    """Write a page to a file; OSError where that cannot be written."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1>",
        *(f"<h2>{escape(chart.title)}</h2>{_svg(chart)}" for chart in charts),
        "<table><tr>" + "".join(f"<th>{escape(name)}</th>" for name in columns) + "</tr>",
        *(_line(row[name] for name in columns) for row in rows),
        "</table></html>",
    ]
    Path(path).write_text("\n".join(parts), encoding="utf-8")


def _line(values: Iterable[Any]) -> str:
    cells = ("-" if value is None else str(value) for value in values)
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _svg(chart: Chart) -> str:
    """Draw bars; each says what it is when it is pointed at."""
    bars = _thinned(chart.bars)
    top = max((height for _, height in bars), default=0) or 1
    width = _WIDTH / max(len(bars), 1)
    drawn = []
    for number, (name, height) in enumerate(bars):
        length = max(0.0, height) / top * (_HEIGHT - 40)
        place = f'x="{number * width:.1f}" y="{_HEIGHT - 20 - length:.1f}" width="{max(width - 1, 0.5):.1f}"'
        drawn.append(f'<rect {place} height="{length:.1f}"><title>{escape(name)}: {height:,}</title></rect>')
    first, last = (escape(bars[0][0]), escape(bars[-1][0])) if bars else ("", "")
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">'
        f'<text x="2" y="12">{top:,}</text>{"".join(drawn)}<text x="2" y="{_HEIGHT - 5}">{first}</text>'
        f'<text x="{_WIDTH - 2}" y="{_HEIGHT - 5}" text-anchor="end">{last}</text></svg>'
    )


def _thinned(bars: Sequence[tuple[str, float]]) -> Sequence[tuple[str, float]]:
    step = -(-len(bars) // _BARS_MAX)
    if step <= 1:
        return bars
    return [max(bars[at : at + step], key=lambda bar: bar[1]) for at in range(0, len(bars), step)]
