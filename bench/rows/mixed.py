"""Several kinds of work at once."""

import os
import subprocess
import time
from dataclasses import dataclass
from mmap import mmap
from typing import Any

from bench import build, machine
from bench.metrics import Measures
from bench.row import OURS, THEIRS, Contender, Goal, Row, Workload, versus
from bench.rows.produce import FAST
from bench.stage import CLIENT_TIMEOUT_S, RunFailedError, Stage

QUIET = "tidelog, nobody drains"
# What the page cache may have: a quarter of what is drained.
LEFT_BYTES = 2_500_000_000
# Programs and topics are read from the same disk when they are first used.
WARM_UP_S = 0.5


@dataclass(frozen=True)
class ProduceWhileDrained(Workload):
    """A steady thin stream of produces while a consumer drains records that do not fit in the page cache.

    At a smaller scale they do fit.
    """

    drained_bytes: int = 10_000_000_000
    is_drained: bool = True
    rate: int = 500
    record_bytes: int = 1000

    def prepare(self, stage: Stage) -> tuple[str, mmap | None]:
        topic = stage.topic()
        records = stage.count(self.drained_bytes / self.record_bytes)
        stage.rdkafka("produce", topic, *FAST, records=records, size=self.record_bytes)
        os.sync()
        # For all runs: the page cache would get other pages each time.
        return topic, machine.take_memory(LEFT_BYTES) if stage.rig.scale >= 1 else None

    def measure(self, stage: Stage, prepared: Any) -> Measures:
        drained, _memory = prepared
        topic = stage.topic()
        self._produce(stage, topic, WARM_UP_S)
        os.sync()
        records = stage.count(self.drained_bytes / self.record_bytes)
        drain = stage.command(
            [build.rdkafka(), "consume"], drained, {"records": records, "seconds": CLIENT_TIMEOUT_S}
        )
        process = subprocess.Popen(drain, stdout=subprocess.DEVNULL) if self.is_drained else None
        try:
            measures = self._produce(stage, topic, 4)
            if process is not None and process.poll() is not None and stage.rig.scale >= 1:
                raise RunFailedError("the consumer was done before the producer")
            return measures
        finally:
            if process is not None:
                process.kill()
                process.wait()

    def _produce(self, stage: Stage, topic: str, full_s: float) -> Measures:
        return stage.load(
            "produce",
            topic,
            in_flight=100,
            rate=self.rate,
            seconds=stage.span(full_s),
            warm_up_seconds=stage.span(WARM_UP_S),
        )


@dataclass(frozen=True)
class Crowd(Workload):
    """Ten producers and ten consumers over the partitions of one topic."""

    partitions: int = 100
    records: int = 4_000_000
    clients: int = 10

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        topic = stage.topic(self.partitions)
        stage.settle()
        records = stage.count(self.records / self.clients) * self.clients
        options = {"records": records, "partitions": self.partitions, "clients": self.clients}
        consume = stage.command([build.rdkafka(), "consume"], topic, {**options, "seconds": CLIENT_TIMEOUT_S})
        broker = stage.broker
        started, cpu = time.perf_counter(), machine.cpu_s(broker.pid)
        consumers = subprocess.Popen([*consume, "fetch.wait.max.ms=100"], stdout=subprocess.DEVNULL)
        try:
            measures = stage.rdkafka("produce", topic, *FAST, **options)
            if consumers.wait(CLIENT_TIMEOUT_S) != 0:
                raise RunFailedError("the consumers did not get every record")
        finally:
            consumers.kill()
            consumers.wait()
            stage.strike()
        took, cpu = time.perf_counter() - started, machine.cpu_s(broker.pid) - cpu
        return {
            "records_s": records / took,
            "cpu_s_per_million": cpu / records * 1e6,
            "p99_us": measures["p99_us"],
            "rss_mb": measures["rss_mb"],
            "threads": measures["threads"],
        }


DRAINED = ProduceWhileDrained()

ROWS = [
    Row(
        "crowd",
        "ten producers and ten consumers at once, 100 partitions, 100 B",
        versus(Crowd()),
        [Goal("records_s", at_least=1.2), Goal("cpu_s_per_million", at_most=0.5)],
        shows=["p99_us", "rss_mb"],
    ),
    Row(
        "produce-while-drained",
        "one-record produce, 500/s, while a consumer drains 10 GB that do not fit in the page cache",
        {
            OURS: Contender("tidelog", DRAINED),
            THEIRS: Contender("kafka", DRAINED),
            QUIET: Contender("tidelog", ProduceWhileDrained(drained_bytes=1_000_000, is_drained=False)),
        },
        [Goal("p99_us", at_most=0.5), Goal("p99_us", at_most=2, than=QUIET)],
        shows=["p50_us", "p999_us"],
    ),
]
