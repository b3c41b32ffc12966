"""Charts of a report, as HTML that fits any width: bars over time, and bars by name.

Labels are HTML outside the drawing, so they do not shrink on a phone. Text from a log is escaped.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

from tidelog.config import times

# More bars cannot be told apart: bars in the same column become one, as high as the highest.
_COLUMNS: Final = 600
_NAMES: Final = 60
# The years 1 and 9999, the limits of datetime.
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
STYLE: Final = (
    "figure{margin:1em 0}figcaption{font-weight:600}figcaption small{font-weight:400;color:#555}"
    ".plot{position:relative;margin:.8em 0 0 4.5em;border-left:1px solid #888;border-bottom:1px solid #888}"
    ".plot svg{display:block;width:100%;height:9em;background:#f7f7f7}"
    "rect{fill:#2a6f97}line{stroke:#ccc;vector-effect:non-scaling-stroke}"
    ".y,.x{font-size:11px;color:#555;white-space:nowrap}"
    ".y{position:absolute;right:100%;padding-right:.4em;transform:translateY(50%)}"
    ".x{display:flex;justify-content:space-between;margin-left:4.5em}"
    ".bar{display:grid;grid-template-columns:minmax(6em,30%) 1fr 7em;gap:.5em;align-items:center;font-size:12px}"
    ".bar b{font-weight:400;overflow-wrap:anywhere}.bar i{display:block;height:.9em;background:#2a6f97}"
)


class Timeline(NamedTuple):
    """Bars over time, each with the start of its window in ms and its height."""

    title: str
    unit: str  # "ms", or what is counted
    bars: Sequence[tuple[int, float]]
    window_ms: int


class Bars(NamedTuple):
    """A bar for each name."""

    title: str
    unit: str
    bars: Sequence[tuple[str, float]]


Chart = Timeline | Bars


def drawn(charts: Iterable[Chart]) -> str:
    """Return charts as HTML. Charts over time share the axis of time; with the same unit, they share both axes."""
    found = list(charts)
    lines = [each for each in found if isinstance(each, Timeline)]
    first = min((at for each in lines for at, _ in each.bars), default=0)
    end = max((at + each.window_ms for each in lines for at, _ in each.bars), default=1)
    tops: dict[str, float] = {}
    for each in lines:
        tops[each.unit] = max([tops.get(each.unit, 0), *(height for _, height in each.bars)])
    return "".join(
        _over_time(each, first, end, tops[each.unit] or 1) if isinstance(each, Timeline) else _by_name(each)
        for each in found
    )


def _caption(title: str, subtitle: str) -> str:
    return f"<figcaption>{escape(title)} <small>{escape(subtitle)}</small></figcaption>"


def _over_time(chart: Timeline, first: int, end: int, top: float) -> str:
    if not chart.bars:
        return f"<figure>{_caption(chart.title, 'nothing')}</figure>"
    width = _COLUMNS / (end - first)
    columns: dict[int, tuple[int, float]] = {}
    for at, height in chart.bars:
        column = int((at - first) * width)
        if column not in columns or columns[column][1] < height:
            columns[column] = at, height
    wide = max(chart.window_ms * width * 0.96, 1)
    rects = []
    for at, height in columns.values():
        length = 100 * max(height, 0) / top  # a delay is negative if a producer's clock was ahead
        rects.append(
            f'<rect x="{(at - first) * width:.2f}" y="{100 - length:.2f}" height="{length:.2f}" width="{wide:.2f}">'
            f"<title>{_moment(at)}: {_value(height, chart.unit)}</title></rect>"
        )
    levels = "".join(
        f'<span class="y" style="bottom:{part}%">{_value(top * part / 100, chart.unit)}</span>'
        for part in (0, 50, 100)
    )
    moments = "".join(f"<span>{_moment(at)}</span>" for at in (first, (first + end) // 2, end))
    unit = "" if chart.unit == "ms" else f"{chart.unit} "
    subtitle = f"{unit}in each {times.show_duration(chart.window_ms)}, by time in UTC"
    return (
        f'<figure>{_caption(chart.title, subtitle)}<div class="plot">{levels}'
        f'<svg viewBox="0 0 {_COLUMNS} 100" preserveAspectRatio="none" role="img">'
        f'<line x1="0" x2="{_COLUMNS}" y1="50" y2="50"/>{"".join(rects)}</svg></div>'
        f'<div class="x">{moments}</div></figure>'
    )


def _by_name(chart: Bars) -> str:
    step = max(-(-len(chart.bars) // _NAMES), 1)
    groups = [chart.bars[at : at + step] for at in range(0, len(chart.bars), step)]
    bars = [max(group, key=lambda bar: bar[1]) for group in groups]
    top = max((height for _, height in bars), default=0) or 1
    rows = "".join(
        f'<div class="bar"><b>{escape(name)}</b><i style="width:{100 * height / top:.2f}%"></i>'
        f"<span>{_value(height, chart.unit)}</span></div>"
        for name, height in bars
    )
    subtitle = "" if chart.unit == "ms" else chart.unit
    if step > 1:
        subtitle = f"{subtitle}, the largest of each {step} in sequence".removeprefix(", ")
    return f"<figure>{_caption(chart.title, subtitle)}{rows}</figure>"


def _value(height: float, unit: str) -> str:
    return times.show_duration(round(height)) if unit == "ms" else f"{height:,.10g}"


def _moment(at_ms: int) -> str:
    moment = datetime.fromtimestamp(max(_FIRST_MS, min(at_ms, _LAST_MS)) / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")
