"""ListOffsets by time: ten clients at once, and one alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.fill import Filled, Shape, fill
from bench.metrics import Measures
from bench.row import Goal, Row, Workload, versus
from bench.stage import Stage
from bench.wire import Wire

ZSTD = 4
SEED = 7  # every broker gets the same records


@dataclass(frozen=True)
class Lookups(Workload):
    """Random times of one topic, from ten connections for the rate and from one for the latency."""

    shape: Shape
    records: int = 10_000_000
    times: int = 0  # only so many different ones
    seconds: float = 2

    def prepare(self, stage: Stage) -> tuple[str, Filled]:
        topic = stage.topic()
        if stage.kind.startswith("floor"):
            return topic, Filled(np.zeros(1, np.int64), 0, 1)
        rng = np.random.default_rng(SEED)
        with Wire(stage.broker.port) as wire:
            filled = fill(wire, topic, self.shape, stage.count(self.records), rng)
        return topic, filled

    def measure(self, stage: Stage, prepared: Any) -> Measures:
        topic, filled = prepared
        span: dict[str, Any] = {"from": filled.start_ms, "to": filled.end_ms, "times": self.times}
        span["warm_up_seconds"] = stage.span(0.5)
        many = stage.load("list-offsets", topic, connections=10, seconds=stage.span(self.seconds), **span)
        one = stage.load("list-offsets", topic, connections=1, seconds=stage.span(self.seconds / 2), **span)
        return {**many, "p50_us": one["p50_us"], "p99_us": one["p99_us"], "p999_us": one["p999_us"]}


@dataclass(frozen=True)
class FirstTouch(Workload):
    """Every batch of a topic asked for once, in an order that no read-ahead guesses, right after it was written."""

    shape: Shape
    records: int = 10_000_000

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        lookups = Lookups(self.shape, self.records)
        topic, filled = lookups.prepare(stage)
        try:
            batches = -(-len(filled.times) // self.shape.records_a_batch)
            return stage.load(
                "list-offsets",
                topic,
                connections=10,
                requests=batches,
                stride=(filled.end_ms - filled.start_ms) // batches,
                seconds=60,
                **{"from": filled.start_ms, "to": filled.end_ms},
            )
        finally:
            stage.strike()


def _row(name: str, title: str, workload: Workload, goals: list[Goal], quick: bool = False) -> Row:
    floor = workload if isinstance(workload, Lookups) else None
    return Row(
        f"lookups-{name}",
        f"ListOffsets by time, {title}",
        versus(workload, floor=floor),
        goals,
        quick=quick,
        shows=["p99_us", "cpu_us"],
    )


PLAIN = [Goal("requests_s", at_least=1.4), Goal("cpu_us", at_most=0.5), Goal("p50_us", at_most=0.8)]
BIG, BIG_ZSTD = Shape(9_000), Shape(10_000, codec=ZSTD)

ROWS = [
    _row("in-order", "batches of 100, in order", Lookups(Shape()), PLAIN, quick=True),
    _row("late", "batches of 100, 1 % late by up to an hour", Lookups(Shape(late=0.01)), PLAIN),
    _row(
        "in-order-zstd",
        "batches of 100, in order, zstd",
        Lookups(Shape(codec=ZSTD)),
        [Goal("requests_s", at_least=2.5)],
    ),
    _row(
        "late-zstd",
        "batches of 100, 1 % late, zstd",
        Lookups(Shape(late=0.01, codec=ZSTD)),
        [Goal("requests_s", at_least=2.5)],
    ),
    _row("9000-first", "batches of 9,000, first touch", FirstTouch(BIG), [Goal("requests_s", at_least=2)]),
    _row(
        "9000-recent",
        "batches of 9,000, lately searched",
        Lookups(BIG, times=8),
        [Goal("requests_s", at_least=10)],
    ),
    _row(
        "10000-zstd-first",
        "batches of 10,000, zstd, first touch",
        FirstTouch(BIG_ZSTD),
        [Goal("requests_s", at_least=1)],
    ),
    _row(
        "10000-zstd-recent",
        "batches of 10,000, zstd, lately searched",
        Lookups(BIG_ZSTD, times=8),
        [Goal("requests_s", at_least=10)],
    ),
]
