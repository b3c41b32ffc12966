"""Producing, as fast as one librdkafka producer does."""

from dataclasses import dataclass, field
from typing import Any

from bench.metrics import Measures
from bench.row import FLUSHED, OURS, THEIRS, Contender, Goal, Row, Workload, versus
from bench.stage import Stage

# librdkafka's defaults, but for what makes one producer fast on any broker.
FAST = ("queue.buffering.max.messages=1000000", "linger.ms=5", "batch.num.messages=10000")


@dataclass(frozen=True)
class Produce(Workload):
    """One producer into a fresh topic."""

    records: int
    size: int
    acks: str = "1"
    codec: str = "none"
    settings: tuple[str, ...] = field(default=FAST)

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        topic = stage.topic()
        stage.settle()
        try:
            return stage.rdkafka(
                "produce",
                topic,
                f"acks={self.acks}",
                f"compression.codec={self.codec}",
                *self.settings,
                records=stage.count(self.records),
                size=self.size,
            )
        finally:
            stage.strike()


@dataclass(frozen=True)
class Cold(Workload):
    """The first records that a process ever sees."""

    records: int = 5_000_000

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        with stage.alone() as alone:
            alone.broker.start()
            return Produce(self.records, 100).measure(alone, None)


@dataclass(frozen=True)
class RawProduce(Workload):
    """Full batches from the raw generator: what the floor is asked, which speaks no more than that."""

    size: int
    records_a_batch: int

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        stage.settle()
        raw = stage.load(
            "produce",
            stage.topic(),
            connections=1,
            in_flight=5,
            records=self.records_a_batch,
            size=self.size,
            seconds=stage.span(2),
        )
        batch_bytes = self.records_a_batch * self.size
        return {
            "records_s": raw["requests_s"] * self.records_a_batch,
            "mb_s": raw["requests_s"] * batch_bytes / 1e6,
            "cpu_s_per_million": raw["cpu_us"] / self.records_a_batch,
            "cpu_s_per_gb": raw["cpu_us"] / batch_bytes * 1e3,
            "rss_mb": raw["rss_mb"],
            "threads": raw["threads"],
        }


SMALL, LARGE = 5_000_000, 1_500_000

ROWS = [
    Row(
        "produce-100b",
        "produce 100 B, one librdkafka producer, acks=1",
        versus(Produce(SMALL, 100), floor=RawProduce(100, 1000)),
        [Goal("records_s", at_least=1.0), Goal("cpu_s_per_million", at_most=0.6)],
        quick=True,
        shows=["p99_us", "client_cpu_s_per_million", "rss_mb"],
    ),
    Row(
        "produce-100b-acks-all",
        "produce 100 B, acks=all: ours on disk; Kafka's in the page cache, and flushed",
        versus(Produce(SMALL, 100, "all"), flushed=Produce(SMALL, 100, "all")),
        [Goal("records_s", at_least=0.95), Goal("records_s", at_least=1.4, than=FLUSHED)],
        shows=["cpu_s_per_million", "p99_us"],
    ),
    Row(
        "produce-1kb",
        "produce 1 KB, acks=1",
        versus(Produce(LARGE, 1000), floor=RawProduce(1000, 100)),
        [Goal("records_s", at_least=1.1), Goal("cpu_s_per_gb", at_most=0.7)],
        quick=True,
        shows=["mb_s", "p99_us"],
    ),
    *(
        Row(
            f"produce-1kb-{codec}",
            f"produce 1 KB, {codec}",
            versus(Produce(records, 1000, codec=codec)),
            [Goal("cpu_s_per_gb", at_most=0.8)],
            shows=["records_s", "mb_s"],
        )
        for codec, records in (
            ("lz4", 1_000_000),
            ("zstd", 800_000),
            ("snappy", 1_000_000),
            ("gzip", 200_000),
        )
    ),
    Row(
        "produce-100b-cold",
        "produce 100 B, acks=1: the first five million records of a process",
        {OURS: Contender("tidelog", Cold()), THEIRS: Contender("kafka", Cold())},
        shows=["records_s", "cpu_s_per_million"],
    ),
]
