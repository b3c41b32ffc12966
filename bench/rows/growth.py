"""How cost grows with the work: it should not. Each row compares a broker with itself, and shows Kafka beside it."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.metrics import Measures
from bench.row import THEIRS, Contender, Goal, Row, Workload
from bench.rows.produce import FAST, RawProduce
from bench.rows.requests import Produces
from bench.stage import RunFailedError, Stage

RECORD_BYTES = 1000
FLAT = 1.3
MOST_PARTITIONS = 9_999  # Kafka refuses a topic of more
TOUCHED_S = 20.0  # by then each connection has sent a request to each of them


@dataclass(frozen=True)
class OnItsOwn(Workload):
    """The work on a warm broker that has nothing else, so that ten thousand partitions burden no other row."""

    work: Workload

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        with stage.alone() as alone:
            alone.broker.start()
            if alone.kind == THEIRS:
                alone.rig.warm(alone.broker)
            return self.work.measure(alone, None)


@dataclass(frozen=True)
class LookupsInLog(Workload):
    """Time lookups over a log of some size, written by one producer just now."""

    log_bytes: int

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        size = self.log_bytes * stage.rig.scale
        disk = os.statvfs(stage.rig.folder)
        if disk.f_bavail * disk.f_frsize < size * 1.2:
            raise RunFailedError(f"{size / 1e9:.0f} GB do not fit on this disk")
        with stage.alone() as alone:
            alone.broker.start()
            topic = alone.topic()
            began = int(time.time() * 1000)
            records = int(size / RECORD_BYTES)
            alone.rdkafka("produce", topic, *FAST, records=records, size=RECORD_BYTES, seconds=600)
            span: dict[str, Any] = {"from": began, "to": int(time.time() * 1000)}
            return alone.load(
                "list-offsets",
                topic,
                connections=10,
                seconds=stage.span(3),
                warm_up_seconds=stage.span(3),
                **span,
            )


def _row(
    name: str, title: str, works: Sequence[tuple[str, Workload]], metric: str, shows: list[str], runs: int
) -> Row:
    contenders = {
        f"{broker}, {label}": Contender(broker, work)
        for label, work in works
        for broker in ("tidelog", "kafka")
    }
    first, last = f"tidelog, {works[0][0]}", f"tidelog, {works[-1][0]}"
    goal = Goal(metric, at_most=FLAT, of=last, than=first)
    return Row(f"growth-{name}", title, contenders, [goal], runs=runs, shows=shows)


ROWS = [
    _row(
        "partitions",
        "one-record produce, 10 x 5, spread over more and more partitions",
        [
            (f"{n:,}", OnItsOwn(Produces(10, 5, partitions=n, warm_up_seconds=TOUCHED_S)))
            for n in (1, 100, 1_000, MOST_PARTITIONS)
        ],
        "cpu_us",
        ["requests_s", "p99_us", "rss_mb"],
        runs=2,
    ),
    _row(
        "connections",
        "one-record produce from more and more connections",
        [(f"{n:,}", Produces(n, 1)) for n in (10, 100, 1_000, 5_000)],
        "cpu_us",
        ["requests_s", "p99_us", "rss_mb"],
        runs=2,
    ),
    _row(
        "log",
        "time lookups in a longer and longer log",
        [(f"{n} GB", LookupsInLog(n * 10**9)) for n in (1, 10, 50)],
        "cpu_us",
        ["requests_s", "p99_us", "rss_mb"],
        runs=1,
    ),
    _row(
        "batch",
        "produce 100 B in larger and larger batches",
        [(f"{n:,} records", RawProduce(100, n)) for n in (1, 10, 100, 1_000, 9_000)],
        "cpu_s_per_million",
        ["records_s", "rss_mb"],
        runs=2,
    ),
]
