"""Consuming from the page cache, as fast as one librdkafka consumer does."""

from dataclasses import dataclass
from typing import Any

from bench.metrics import Measures
from bench.row import Goal, Row, Workload, versus
from bench.rows.produce import FAST
from bench.stage import Stage


@dataclass(frozen=True)
class Consume(Workload):
    """One consumer through all of a topic that was just filled."""

    records: int
    size: int

    def prepare(self, stage: Stage) -> str:
        topic = stage.topic()
        stage.rdkafka("produce", topic, *FAST, records=stage.count(self.records), size=self.size)
        return topic

    def measure(self, stage: Stage, prepared: Any) -> Measures:
        return stage.rdkafka(
            "consume",
            prepared,
            "queued.min.messages=1000000",
            "fetch.error.backoff.ms=1",
            "check.crcs=true",
            records=stage.count(self.records),
            size=self.size,
        )


ROWS = [
    Row(
        "consume-100b",
        "consume 100 B, from the page cache",
        versus(Consume(10_000_000, 100)),
        [Goal("records_s", at_least=1.0), Goal("cpu_s_per_million", at_most=0.8)],
        quick=True,
        shows=["client_cpu_s_per_million"],
    ),
    Row(
        "consume-1kb",
        "consume 1 KB, from the page cache",
        versus(Consume(3_000_000, 1000)),
        [Goal("records_s", at_least=1.0), Goal("cpu_s_per_gb", at_most=0.8)],
        shows=["mb_s", "client_cpu_s_per_million"],
    ),
]
