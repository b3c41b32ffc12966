"""Charts of a report, as HTML that fits any width: bars over time, and bars by name.

Labels are HTML beside the drawing, so they have the same size on a phone. Text from a log is escaped.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

from tidelog.config import times

# More bars than this show nothing more: those that share a place are one, as high as the highest.
_COLUMNS: Final = 600
_NAMES: Final = 60
_TICKS: Final = 4
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_STEPS: Final = tuple(
    [1, 2, 5, 10, 20, 50, 100, 200, 500]
    + [1000 * each for each in (1, 2, 5, 10, 15, 30)]
    + [_MINUTE * each for each in (1, 2, 5, 10, 15, 30)]
    + [_HOUR * each for each in (1, 2, 3, 6, 12)]
    + [_DAY * each for each in (1, 2, 7, 14, 30, 90, 180, 365, 730, 1825, 3650, 36500)]
)
_DURATIONS: Final = (("d", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", 1000), ("ms", 1))
# The years 1 and 9999: a date shows none outside of them.
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
STYLE: Final = (
    "figure{margin:1em 0}figcaption{font-weight:600}figcaption small{font-weight:400;color:#555}"
    ".plot{position:relative;margin:.8em 0 0 4.5em;border-left:1px solid #888;border-bottom:1px solid #888}"
    ".plot svg{display:block;width:100%;height:9em;background:#f7f7f7}"
    "rect{fill:#2a6f97}line{stroke:#ccc;vector-effect:non-scaling-stroke}"
    ".y,.x span{position:absolute;font-size:11px;color:#555;white-space:nowrap}"
    ".y{right:100%;padding-right:.4em;transform:translateY(50%)}"
    ".x{position:relative;height:1.6em;margin-left:4.5em}.x span{transform:translateX(-50%)}"
    ".bar{display:grid;grid-template-columns:minmax(6em,30%) 1fr 7em;gap:.5em;align-items:center;font-size:12px}"
    ".bar b{font-weight:400;overflow-wrap:anywhere}.bar i{display:block;height:.9em;background:#2a6f97}"
)


class Timeline(NamedTuple):
    """A bar for each window of time that has one: when it begins, in ms, and how high it is."""

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


class _Scale(NamedTuple):
    top: float
    shown: Callable[[float], str]


def drawn(charts: Iterable[Chart]) -> str:
    """Return charts as HTML; those over time share one axis of time, and those of one unit the other, too."""
    found = list(charts)
    lines = [each for each in found if isinstance(each, Timeline)]
    starts = [at for each in lines for at, _ in each.bars]
    ends = [at + each.window_ms for each in lines for at, _ in each.bars]
    span = min(starts, default=0), max(ends, default=1)
    most: dict[str, float] = {}
    for each in lines:
        most[each.unit] = max([most.get(each.unit, 0), *(height for _, height in each.bars)])
    return "".join(
        _over_time(each, span, _scale(most[each.unit], each.unit))
        if isinstance(each, Timeline)
        else _by_name(each)
        for each in found
    )


def _caption(title: str, subtitle: str) -> str:
    return f"<figcaption>{escape(title)} <small>{escape(subtitle)}</small></figcaption>"


def _over_time(chart: Timeline, span: tuple[int, int], scale: _Scale) -> str:
    first, end = span
    if not chart.bars:
        return f"<figure>{_caption(chart.title, 'nothing')}</figure>"
    width = _COLUMNS / (end - first)
    columns: dict[int, tuple[int, float]] = {}
    for at, height in chart.bars:
        column = int((at - first) * width)
        if column not in columns or columns[column][1] < height:
            columns[column] = at, height
    rects = []
    for at, height in columns.values():
        length = 100 * max(height, 0) / scale.top  # a delay is negative where a record bears a later time
        place = f'x="{(at - first) * width:.2f}" y="{100 - length:.2f}" height="{length:.2f}"'
        wide = f'width="{max(chart.window_ms * width * 0.96, 1):.2f}"'
        rects.append(f"<rect {place} {wide}><title>{_moment(at)}: {scale.shown(height)}</title></rect>")
    half = '<line x1="0" x2="600" y1="50" y2="50"/>'
    levels = "".join(
        f'<span class="y" style="bottom:{part}%">{scale.shown(scale.top * part / 100)}</span>'
        for part in (0, 50, 100)
    )
    step, ticks = _ticks(first, end)
    marks = "".join(
        f'<span style="left:{100 * (at - first) / (end - first):.2f}%">{_label(at, step)}</span>'
        for at in ticks
    )
    unit = "" if chart.unit == "ms" else f"{chart.unit} "
    window = times.show_duration(chart.window_ms)
    subtitle = f"{unit}in each {window}, by time in UTC from {_moment(first)} to {_moment(end)}"
    return (
        f'<figure>{_caption(chart.title, subtitle)}<div class="plot">{levels}'
        f'<svg viewBox="0 0 {_COLUMNS} 100" preserveAspectRatio="none" role="img">{half}{"".join(rects)}</svg></div>'
        f'<div class="x">{marks}</div></figure>'
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
        subtitle = f"{subtitle}, of each {step} that follow one another the largest".removeprefix(", ")
    return f"<figure>{_caption(chart.title, subtitle)}{rows}</figure>"


def _value(height: float, unit: str) -> str:
    return times.show_duration(round(height)) if unit == "ms" else f"{height:,.10g}"


def _scale(most: float, unit: str) -> _Scale:
    """Return where an axis ends, which is a round number, and how a value on it is shown."""
    name, size = ("", 1)
    if unit == "ms":
        name, size = next((each for each in _DURATIONS if most >= each[1]), _DURATIONS[-1])
    power = 10.0 ** (len(str(int(max(most / size, 1)))) - 1)
    top = next(round_ * power for round_ in (1, 2, 4, 6, 8, 10) if round_ * power * size >= most)
    return _Scale(top * size, lambda value: f"{value / size:,.6g} {name}".rstrip())


def _ticks(first: int, end: int) -> tuple[int, list[int]]:
    """Return round moments between two, a few, and how far they lie apart."""
    longest = _STEPS[-1]
    # One record in nanoseconds, say, is far off: its year has five digits or more.
    far = -(-(end - first) // (_TICKS * longest)) * longest
    step = next((each for each in _STEPS if (end - first) / each <= _TICKS), far)
    return step, list(range(-(-first // step) * step, end, step))


def _date(at_ms: int) -> datetime:
    return datetime.fromtimestamp(max(_FIRST_MS, min(at_ms, _LAST_MS)) / 1000, UTC)


def _label(at_ms: int, step_ms: int) -> str:
    moment = _date(at_ms)
    if step_ms >= _DAY:
        return moment.strftime("%Y-%m-%d")
    if step_ms >= _MINUTE:
        return moment.strftime("%m-%d %H:%M")
    return moment.strftime("%H:%M:%S") + f".{at_ms % 1000:03d}" * (step_ms < 1000)


def _moment(at_ms: int) -> str:
    moment = _date(at_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")
