"""Thousands of partitions."""

import time
from dataclasses import dataclass
from typing import Any

from bench.metrics import Measures
from bench.row import Goal, Row, Workload, versus
from bench.rows.produce import FAST
from bench.rows.start import first_ack_s
from bench.stage import Stage

RECORD_BYTES = 1000


@dataclass(frozen=True)
class Partitions(Workload):
    """The life of a topic of many partitions: created, filled, killed, recovered, stopped, started."""

    count: int = 3_500
    log_bytes: int = 2_000_000_000

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        count = stage.count(self.count)
        stage.settle()
        with stage.alone() as alone:
            alone.broker.start()
            started = time.perf_counter()
            topic = alone.topic(count)
            measures: Measures = {"create_s": time.perf_counter() - started, **alone.broker.spent()}
            records = stage.count(self.log_bytes / RECORD_BYTES)
            alone.rdkafka("produce", topic, *FAST, records=records, size=RECORD_BYTES, partitions=count)
            alone.broker.kill()
            measures["kill_s"] = first_ack_s(alone, topic, count - 1)
            alone.broker.stop()
            measures["restart_s"] = first_ack_s(alone, topic, count - 1)
            return measures


ROWS = [
    Row(
        "partitions-3500",
        "3,500 partitions, 2 GB in them",
        versus(Partitions()),
        [
            Goal("create_s", at_most=0.5),
            Goal("rss_mb", at_most=0.25),
            Goal("restart_s", at_most=0.15),
            Goal("kill_s", at_most=0.15),
        ],
        runs=3,
    )
]
