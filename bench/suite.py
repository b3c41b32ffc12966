"""Measures rows: every contender in turn, again and again, so that what drifts on the machine drifts for all.

Invariant: a run that fails is a failure of its row, told in the results, and never the end of the others.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from bench.metrics import Measures
from bench.row import Contender, Goal, Row
from bench.stage import Rig, Stage

Result = dict[str, Any]  # as it lies in the JSON


def measure(rig: Rig, row: Row, runs: int, only: str | None) -> Result:
    """Measure one row; return its figures, and what they say of its goals."""
    contenders = {
        name: contender
        for name, contender in row.contenders.items()
        if only is None or contender.broker == only or contender.broker.startswith("floor")
    }
    figures: dict[str, list[Measures]] = {name: [] for name in contenders}
    failures: dict[str, str] = {}
    stages = {name: Stage(rig, None, each.topic, each.broker) for name, each in contenders.items()}
    prepared: dict[str, Any] = {}
    try:
        for run in range(row.runs or runs):
            # There and back again: who comes first in one run comes last in the next.
            for name in list(contenders) if run % 2 == 0 else reversed(list(contenders)):
                if name not in failures:
                    _once(contenders[name], stages[name], name, prepared, figures, failures)
    finally:
        for stage in stages.values():
            stage.strike()
    return {
        "name": row.name,
        "title": row.title,
        "note": row.note,
        "shows": list(row.shows),
        "contenders": figures,
        "failures": failures,
        "goals": [judge(goal, figures) for goal in row.goals],
    }


def _once(
    contender: Contender,
    stage: Stage,
    name: str,
    prepared: dict[str, Any],
    figures: dict[str, list[Measures]],
    failures: dict[str, str],
) -> None:
    try:
        if name not in prepared:
            prepared[name] = contender.workload.prepare(stage)
        figures[name].append(contender.workload.measure(stage, prepared[name]))
    except Exception as error:
        failures[name] = f"{type(error).__name__}: {error}"


def judge(goal: Goal, figures: dict[str, list[Measures]]) -> Result:
    """Compare medians with a goal; its verdict is None where a side was not measured."""

    def median(name: str) -> float | None:
        values = [run[goal.metric] for run in figures.get(name, []) if goal.metric in run]
        return statistics.median(values) if values else None

    of = median(goal.of)
    than = 1.0 if goal.than is None else median(goal.than)
    ratio = of / than if of is not None and than else None
    return {
        "metric": goal.metric,
        "of": goal.of,
        "than": goal.than,
        "goal": goal.text,
        "ratio": ratio,
        "is_met": None if ratio is None else goal.is_met(ratio),
    }


def measure_all(
    rig: Rig, rows: Iterable[Row], runs: int, only: str | None, done: Callable[[Result], None]
) -> None:
    """Measure rows one after another; `done` gets each as soon as it is there."""
    for row in rows:
        started = time.monotonic()
        print(f"bench: {row.name} ...", end=" ", file=sys.stderr, flush=True)
        result = measure(rig, row, runs, only)
        print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
        done(result)
