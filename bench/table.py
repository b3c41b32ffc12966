"""Results as text: the table that is printed, and docs/performance.md, both from the same JSON."""

from collections.abc import Iterator
from typing import Any

from bench.row import METRICS, OURS
from bench.suite import Result

VERDICTS = {True: "met", False: "NOT MET", None: "not measured"}
HEAD = ("row", "figure", "tidelog", "beside", "", "ratio", "goal", "verdict")


def lines_of(result: Result) -> Iterator[tuple[str, ...]]:
    """Give the table lines of one row: its goals first, then what else it shows."""
    figures, name = result["contenders"], result["name"]
    seen = set()
    for goal in result["goals"]:
        of, than, metric = goal["of"], goal["than"], goal["metric"]
        seen.add((metric, than))
        ratio = "" if goal["ratio"] is None or than is None else f"{goal['ratio']:.2f}"
        yield (
            name,
            METRICS[metric].unit,
            figure(figures.get(of, []), metric),
            than or "",
            figure(figures.get(than, []), metric) if than else "",
            ratio,
            goal["goal"],
            VERDICTS[goal["is_met"]],
        )
    metrics = list(dict.fromkeys([*(goal["metric"] for goal in result["goals"]), *result["shows"]]))
    for metric in metrics:
        for other in figures:
            if other != OURS and (metric, other) not in seen and any(metric in run for run in figures[other]):
                ours = figures.get(OURS, [])
                yield (
                    name,
                    METRICS[metric].unit,
                    figure(ours, metric),
                    other,
                    figure(figures[other], metric),
                    ratio_of(ours, figures[other], metric),
                    "",
                    "",
                )
    for other, why in result["failures"].items():
        yield (name, "failed", "", other, why.splitlines()[0][:100], "", "", "NOT MET")


def median_of(runs: list[dict[str, float]], metric: str) -> float | None:
    """Return the median, or None."""
    values = sorted(run[metric] for run in runs if metric in run)
    if not values:
        return None
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def ratio_of(ours: list[dict[str, float]], theirs: list[dict[str, float]], metric: str) -> str:
    """Return ours / theirs, where both are there."""
    a, b = median_of(ours, metric), median_of(theirs, metric)
    return "" if a is None or not b else f"{a / b:.2f}"


def figure(runs: list[dict[str, float]], metric: str) -> str:
    """Write `median [min-max]`."""
    values = [run[metric] for run in runs if metric in run]
    middle = median_of(runs, metric)
    if middle is None:
        return "-"
    if len(values) == 1:
        return number(middle)
    return f"{number(middle)} [{number(min(values))}-{number(max(values))}]"


def number(value: float) -> str:
    """Write three significant digits, with k and M."""
    for limit, suffix in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if suffix == ' M' else 1e3):.3g}{suffix}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def text(results: list[Result]) -> str:
    """Return the table for a terminal."""
    rows = [HEAD, *(line for result in results for line in lines_of(result))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    printed, previous = [], ""
    for row in rows:
        shown = ("" if row[0] == previous else row[0], *row[1:])
        previous = row[0]
        printed.append(
            "  ".join(cell.ljust(width) for cell, width in zip(shown, widths, strict=True)).rstrip()
        )
    return "\n".join(printed)


def markdown(results: list[Result]) -> str:
    """Return the tables for docs/performance.md."""
    parts = []
    for result in results:
        parts.append(f"### {result['title']}\n")
        if result["note"]:
            parts.append(f"{result['note']}\n")
        parts.append(
            "| figure | Tidelog | beside | | ratio | goal | |\n| --- | --- | --- | --- | --- | --- | --- |"
        )
        parts += ["| " + " | ".join(line[1:]) + " |" for line in lines_of(result)]
        parts.append("")
    return "\n".join(parts)


def summary(results: list[Result]) -> dict[str, int]:
    """Count the goals by their verdict."""
    counts: dict[str, int] = dict.fromkeys(VERDICTS.values(), 0)
    for result in results:
        for goal in result["goals"]:
            counts[VERDICTS[goal["is_met"]]] += 1
    return counts


Json = dict[str, Any]
