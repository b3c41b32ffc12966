"""Plots as small SVG files, drawn by hand: bars side by side, and lines on logarithmic axes. Nothing is measured here.

Invariant: the same JSON gives the same bytes, so that a plot changes in git only when its figures do.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

COLOURS = {
    "tidelog": "#1b6ca8",
    "kafka": "#d1495b",
    "kafka, flush.messages=1": "#edae49",
    "floor": "#8d96a3",
    "floor in C": "#c9ced6",
    "rate": "#1b6ca8",
    "broker CPU": "#edae49",
}
OTHER_COLOURS = ("#66a182", "#7d5ba6", "#3d405b")
FONT = 'font-family="sans-serif" fill="#222"'
WIDTH, LABELS, ROW, BAR, TOP = 860, 250, 12, 13, 64

Groups = Mapping[str, Mapping[str, float]]  # what is measured -> who -> figure
Lines = Mapping[str, Sequence[tuple[float, float]]]  # who -> points


class Axis:
    """Where a value lies between 0 and 1: from nothing on, or, where figures differ tenfold, by powers of ten."""

    def __init__(self, values: Sequence[float], is_log: bool) -> None:
        self._is_log = is_log
        largest = max([*values, 1e-9])
        if is_log:
            self._low, self._high = _decades(values)
            self.ticks = [10.0**decade for decade in range(self._low, self._high + 1)]
        else:
            unit = 10.0 ** math.floor(math.log10(largest))
            self._top = unit * math.ceil(largest / unit)
            self.ticks = [self._top * part / 4 for part in range(5)]

    def place(self, value: float) -> float:
        if not self._is_log:
            return value / self._top
        return (math.log10(value) - self._low) / (self._high - self._low) if value > 0 else 0.0


def bars(title: str, unit: str, groups: Groups, write: Callable[[float], str], is_log: bool = False) -> str:
    """Draw horizontal bars."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    axis = Axis([value for group in groups.values() for value in group.values()], is_log)
    room = WIDTH - LABELS - 90
    parts, y = [], TOP
    for label, group in groups.items():
        middle = y + len(group) * BAR / 2 + 4
        parts.append(_text(LABELS - 10, middle, label, anchor="end"))
        for name, value in group.items():
            width = room * axis.place(value)
            colour = _colour(name, series)
            parts.append(
                f'<rect x="{LABELS}" y="{y:.0f}" width="{max(width, 1):.1f}" height="{BAR - 2}" fill="{colour}"/>'
            )
            parts.append(_text(LABELS + max(width, 1) + 5, y + BAR - 3, write(value), size=10))
            y += BAR
        y += ROW
    for tick in axis.ticks:
        x = LABELS + room * axis.place(tick)
        parts.insert(0, f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{y}" stroke="#e3e3e3"/>')
        parts.append(_text(x, y + 14, write(tick), anchor="middle", size=10))
    return _page(f"{title} ({unit}{', logarithmic' if is_log else ''})", series, parts, y + 26)


def lines(title: str, unit: str, across: str, curves: Lines, write: Callable[[float], str]) -> str:
    """Draw curves, both axes logarithmic: a flat curve costs the same however large the work."""
    points = [point for curve in curves.values() for point in curve]
    across_axis, up_axis = Axis([x for x, _ in points], True), Axis([y for _, y in points], True)
    width, height, x0 = WIDTH - 170, 240, 90

    def place(x: float, y: float) -> tuple[float, float]:
        return x0 + width * across_axis.place(x), TOP + height * (1 - up_axis.place(y))

    parts = []
    for tick in up_axis.ticks:
        x, y = place(across_axis.ticks[0], tick)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + width:.1f}" y2="{y:.1f}" stroke="#e3e3e3"/>')
        parts.append(_text(x - 8, y + 4, write(tick), anchor="end", size=10))
    for tick in across_axis.ticks:
        x, y = place(tick, up_axis.ticks[0])
        parts.append(_text(x, y + 16, write(tick), anchor="middle", size=10))
    parts.append(_text(x0 + width / 2, TOP + height + 34, across, anchor="middle"))
    for name, curve in curves.items():
        colour = _colour(name, list(curves))
        placed = [place(x, y) for x, y in curve]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        parts += [
            _text(x, y - 7, write(value), anchor="middle", size=10)
            for (x, y), (_, value) in zip(placed, curve, strict=True)
        ]
    return _page(f"{title} ({unit})", list(curves), parts, TOP + height + 44)


def _colour(name: str, series: Sequence[str]) -> str:
    """Return the same colour for the same contender in every plot."""
    return COLOURS.get(name) or OTHER_COLOURS[series.index(name) % len(OTHER_COLOURS)]


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten around the values."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    return low, max(math.ceil(math.log10(max(positive))), low + 1)


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _page(title: str, series: Sequence[str], parts: Sequence[str], height: float) -> str:
    legend, x = [], 16.0
    for name in series:
        legend.append(f'<rect x="{x}" y="34" width="11" height="11" fill="{_colour(name, series)}"/>')
        legend.append(_text(x + 16, 44, name))
        x += 40 + 7 * len(name)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" {FONT}>',
            '<rect width="100%" height="100%" fill="#fff"/>',
            f'<text x="16" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
            *legend,
            *parts,
            "</svg>\n",
        ]
    )
