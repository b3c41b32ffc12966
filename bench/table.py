"""Results as text: the table that is printed, and those of docs/performance.md, both from the same JSON."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.metrics import METRICS
from bench.row import OURS, THEIRS
from bench.suite import Result

Runs = Sequence[Mapping[str, float]]

VERDICTS = {True: "met", False: "NOT MET", None: "not measured"}


class Line(NamedTuple):
    """One comparison: a figure of ours, one of somebody else's, and what was to be reached."""

    row: str
    figure: str
    ours: str
    beside: str
    theirs: str
    ratio: str = ""
    goal: str = ""
    verdict: str = ""


HEAD = Line("row", "figure", "Tidelog", "beside", "", "ratio", "goal", "verdict")


def lines_of(result: Result) -> list[Line]:
    """Return the lines of one row: its goals first, then what else it shows, then what failed."""
    goals = [_goal_line(result, goal) for goal in result["goals"]]
    judged = {(goal["metric"], goal["of"], goal["than"]) for goal in result["goals"]}
    others = [line for *key, line in pair_lines(result) if tuple(key) not in judged]
    failed = [
        Line(result["name"], "failed", "", name, why.splitlines()[0][:40], verdict=VERDICTS[False])
        for name, why in result["failures"].items()
    ]
    return [*goals, *others, *failed]


def _goal_line(result: Result, goal: Result) -> Line:
    figures, metric, of, than = result["contenders"], goal["metric"], goal["of"], goal["than"]
    ours = figure(figures.get(of, []), metric)
    return Line(
        result["name"],
        METRICS[metric].unit,
        ours if of == OURS else f"{of.removeprefix(OURS + ', ')}: {ours}",
        than or "",
        figure(figures.get(than, []), metric) if than else "",
        "" if goal["ratio"] is None or than is None else f"{goal['ratio']:.2f}",
        goal["goal"],
        VERDICTS[goal["is_met"]],
    )


def pair_lines(result: Result) -> Iterator[tuple[str, str, str, Line]]:
    """Give every contender a line beside ours: `kafka, X` beside `tidelog, X` where there is such a one."""
    figures = result["contenders"]
    metrics = dict.fromkeys([*(goal["metric"] for goal in result["goals"]), *result["shows"]])
    for metric in metrics:
        for other, runs in figures.items():
            twin = other.replace(THEIRS, OURS, 1)
            ours = twin if twin != other and twin in figures else OURS
            if ours == other or (ours not in figures and twin == other and not other.startswith("floor")):
                continue
            a, b = median(figures.get(ours, []), metric), median(runs, metric)
            if b is not None:
                label = other if ours == OURS else f"{THEIRS}; both {other.removeprefix(THEIRS + ', ')}"
                ratio = "" if a is None or not b else f"{a / b:.2f}"
                left = figure(figures.get(ours, []), metric)
                line = Line(result["name"], METRICS[metric].unit, left, label, figure(runs, metric), ratio)
                yield (metric, ours, other, line)
        if list(figures) == [OURS]:
            alone = figure(figures[OURS], metric)
            yield (metric, OURS, "", Line(result["name"], METRICS[metric].unit, alone, "", ""))


def median(runs: Runs, metric: str) -> float | None:
    """Return the median of a metric over the runs that have it."""
    values = [run[metric] for run in runs if metric in run]
    return statistics.median(values) if values else None


def figure(runs: Runs, metric: str) -> str:
    """Write `median [min-max]`."""
    values = [run[metric] for run in runs if metric in run]
    middle = median(runs, metric)
    if middle is None:
        return "-"
    spread = f" [{number(min(values))}-{number(max(values))}]" if len(values) > 1 else ""
    return number(middle) + spread


def number(value: float) -> str:
    """Write three significant digits, with k and M."""
    for limit, unit, suffix in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def text(results: Sequence[Result]) -> str:
    """Return the table for a terminal."""
    lines = [HEAD, *(line for result in results for line in lines_of(result))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    printed, previous = [], ""
    for line in lines:
        shown = line._replace(row="") if line.row == previous else line
        previous = line.row
        printed.append(
            "  ".join(cell.ljust(width) for cell, width in zip(shown, widths, strict=True)).rstrip()
        )
    return "\n".join(printed)


def markdown(result: Result) -> str:
    """Return one row's table."""
    return grid(HEAD[1:], (line[1:] for line in lines_of(result)))


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def summary(results: Sequence[Result]) -> str:
    """Say how many goals are met."""
    verdicts = [VERDICTS[goal["is_met"]] for result in results for goal in result["goals"]]
    return ", ".join(f"{verdicts.count(verdict)} {verdict.lower()}" for verdict in VERDICTS.values())
