"""Small produces that are on disk when they are answered, beside a Kafka that flushes every message."""

from dataclasses import dataclass
from typing import Any

from bench.metrics import Measures
from bench.row import FLUSHED, OURS, Contender, Goal, Row, Workload, floors, versus
from bench.rows.requests import ACKS_ALL, Produces
from bench.stage import Stage

SLOW_DISK_US = 2000


@dataclass(frozen=True)
class OnSlowDisk(Workload):
    """The same on a disk that takes longer to sync: most take longer than the one here."""

    work: Workload

    def measure(self, stage: Stage, prepared: Any) -> Measures:
        stage.broker.delay_sync(SLOW_DISK_US)
        try:
            return self.work.measure(stage, prepared)
        finally:
            stage.broker.delay_sync(0)


ONE = Produces(10, 5, ACKS_ALL)
TEN = Produces(10, 5, ACKS_ALL, partitions=10)
ALONE = Produces(1, 1, ACKS_ALL)


def on_disk(work: Workload) -> dict[str, Contender]:
    """Contend with a Kafka that promises as much as we do."""
    flushed = Contender("kafka", work, {"flush.messages": "1"})
    return {OURS: Contender("tidelog", work), FLUSHED: flushed, **floors(work, on_disk=True)}


ROWS = [
    Row(
        "on-disk-10x5",
        "on disk, 10 x 5, one partition; beside Kafka's page cache too",
        versus(ONE, flushed=ONE, floor=ONE, on_disk=True),
        [
            Goal("requests_s", at_least=10, than=FLUSHED),
            Goal("p99_us", at_most=0.2, than=FLUSHED),
            Goal("requests_s", at_least=1.1),
        ],
        quick=True,
        shows=["cpu_us", "p50_us"],
    ),
    Row(
        "on-disk-10x5-ten",
        "on disk, 10 x 5, ten partitions",
        on_disk(TEN),
        [Goal("requests_s", at_least=5, than=FLUSHED)],
        shows=["cpu_us", "p50_us", "p99_us"],
    ),
    Row(
        "on-disk-1x1",
        "on disk, one after another",
        on_disk(ALONE),
        [Goal("p50_us", at_most=0.75, than=FLUSHED), Goal("p99_us", at_most=0.75, than=FLUSHED)],
        shows=["requests_s", "cpu_us"],
    ),
    Row(
        "on-disk-slow",
        "on disk, 10 x 5, 2 ms added to every fsync and fdatasync",
        on_disk(OnSlowDisk(ONE)),
        [Goal("requests_s", at_least=20, than=FLUSHED)],
        shows=["p50_us", "p99_us", "cpu_us"],
    ),
]
