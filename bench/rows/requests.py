"""Small requests from the raw generator: what one request costs, and how long it takes."""

from dataclasses import dataclass
from typing import Any

from bench.metrics import Measures
from bench.row import Goal, Row, Workload, versus
from bench.stage import Stage

ACKS_ALL = -1


@dataclass(frozen=True)
class Produces(Workload):
    """Batches of a few records, so many connections, so many requests ahead on each."""

    connections: int = 1
    in_flight: int = 1
    acks: int = 1
    partitions: int = 1
    records: int = 1
    seconds: float = 3
    warm_up_seconds: float = 0.5

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        topic = stage.topic(self.partitions)
        if self.acks == ACKS_ALL:
            stage.settle()  # what the run before has left dirty would be written by the first to sync
        try:
            return stage.load(
                "produce",
                topic,
                connections=self.connections,
                in_flight=self.in_flight,
                acks=self.acks,
                partitions=self.partitions,
                records=self.records,
                seconds=stage.span(self.seconds),
                warm_up_seconds=stage.span(self.warm_up_seconds),
            )
        finally:
            stage.strike()


@dataclass(frozen=True)
class Fetches(Workload):
    """Fetches at random offsets of a topic of small batches."""

    connections: int
    fetch_bytes: int
    batches: int = 100_000
    records_a_batch: int = 10
    seconds: float = 3

    def prepare(self, stage: Stage) -> str:
        topic = stage.topic()
        options: dict[str, Any] = {"records": self.records_a_batch, "requests": stage.count(self.batches)}
        stage.load("produce", topic, in_flight=100, seconds=60, **options)
        return topic

    def measure(self, stage: Stage, prepared: Any) -> Measures:
        measures = stage.load(
            "fetch",
            prepared,
            connections=self.connections,
            fetch_bytes=self.fetch_bytes,
            to=self.records_a_batch * stage.count(self.batches * 0.9),
            seconds=stage.span(self.seconds),
            warm_up_seconds=stage.span(0.5),
        )
        if measures["empty"] and not stage.kind.startswith("floor"):
            raise RuntimeError(f"{measures['empty']:.1%} of the fetches were answered without a record")
        return measures


@dataclass(frozen=True)
class Relay(Workload):
    """From the moment a record is due to the moment its consumer has it: one producer, one waiting consumer."""

    rate: int = 100
    seconds: float = 5

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        topic = stage.topic()
        try:
            return stage.load(
                "relay",
                topic,
                in_flight=5,
                rate=self.rate,
                seconds=stage.span(self.seconds),
                warm_up_seconds=stage.span(1),
            )
        finally:
            stage.strike()


TEN_BY_FIVE, ALONE = Produces(10, 5), Produces(1, 1)
SMALL_FETCH, LARGE_FETCH = Fetches(10, 1), Fetches(1, 65_536)

ROWS = [
    Row(
        "one-record-10x5",
        "one-record produce, 10 connections, 5 in flight",
        versus(TEN_BY_FIVE, floor=TEN_BY_FIVE),
        [
            Goal("requests_s", at_least=1.6),
            Goal("cpu_us", at_most=0.45),
            Goal("p99_us", at_most=1.0),
        ],
        quick=True,
        shows=["p50_us", "p999_us", "rss_mb"],
    ),
    Row(
        "one-record-1x1",
        "one-record produce, one after another",
        versus(ALONE, floor=ALONE),
        [Goal("p50_us", at_most=0.6), Goal("p99_us", at_most=1.0)],
        quick=True,
        shows=["requests_s", "cpu_us", "p999_us"],
    ),
    Row(
        "fetch-small",
        "fetch of one small batch, random offset, 10 connections",
        versus(SMALL_FETCH, floor=SMALL_FETCH),
        [Goal("requests_s", at_least=1.5), Goal("cpu_us", at_most=0.45)],
        quick=True,
        shows=["p50_us", "p99_us"],
    ),
    Row(
        "fetch-64k",
        "fetch of 64 KiB, one after another",
        versus(LARGE_FETCH),
        [Goal("p50_us", at_most=0.8)],
        shows=["p99_us", "mb_s", "cpu_us"],
    ),
    Row(
        "produce-to-consume",
        "produce to consume, 100 records/s",
        versus(Relay()),
        [Goal("p50_us", at_most=0.8), Goal("p99_us", at_most=0.8)],
        shows=["p999_us"],
    ),
]
