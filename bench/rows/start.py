"""From nothing to the first record acknowledged: after an orderly stop, after kill -9. And what a process weighs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.metrics import Measures
from bench.row import OURS, THEIRS, Contender, Goal, Row, Workload, versus
from bench.rows.produce import FAST
from bench.stage import RunFailedError, Stage
from bench.wire import RefusedError, Wire
from tidelog.protocol.records.build import Record, build_batch

GIVE_UP_S = 120
RETRY_S = 0.002
ACKS_ALL = -1
SETTLED_S = 5
SHORT_SESSION = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "500"}


def first_ack_s(stage: Stage, topic: str, partition: int = 0) -> float:
    """Start the broker, and return how long it takes until a record is acknowledged."""
    started = time.perf_counter()
    stage.broker.spawn()
    while time.perf_counter() - started < GIVE_UP_S:
        try:
            with Wire(stage.broker.port) as wire:
                while True:
                    batch = build_batch([Record(0, int(time.time() * 1000), None, b"first", ())])
                    wire.send_batch(topic, bytearray(batch), partition, acks=ACKS_ALL)
                    try:
                        wire.receive_ack()
                    except RefusedError:  # it listens, but does not lead yet
                        time.sleep(RETRY_S)
                        continue
                    return time.perf_counter() - started
        except OSError:
            time.sleep(RETRY_S)
    raise RunFailedError(f"no acknowledgement within {GIVE_UP_S} s")


@dataclass(frozen=True)
class Restart(Workload):
    """A log of some size, an end, and the time to the first acknowledgement of the process that follows."""

    log_bytes: int = 0
    kill: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    record_bytes: int = 1000

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        with stage.alone(self.settings) as alone:
            alone.broker.start()
            topic = alone.topic()
            if self.log_bytes:
                records = stage.count(self.log_bytes / self.record_bytes)
                alone.rdkafka("produce", topic, *FAST, records=records, size=self.record_bytes)
            if self.kill:
                alone.broker.kill()
            else:
                alone.broker.stop()
            took = first_ack_s(alone, topic)
            return {("kill_s" if self.kill else "start_s"): took, **alone.broker.spent()}


@dataclass(frozen=True)
class IdleMemory(Workload):
    """A process that has just started, and has one empty topic."""

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        with stage.alone() as alone:
            alone.broker.start()
            alone.topic()
            time.sleep(stage.span(SETTLED_S))
            return alone.broker.spent()


@dataclass(frozen=True)
class LoadedMemory(Workload):
    """The warm process, after its eight million records and whatever rows came before."""

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        return stage.broker.spent()


ROWS = [
    Row(
        "start-empty",
        "start to first ack: one empty topic",
        versus(Restart()),
        [Goal("start_s", at_most=0.2)],
        quick=True,
    ),
    Row(
        "start-1gb",
        "start to first ack: 1 GB",
        versus(Restart(1_000_000_000)),
        [Goal("start_s", at_most=0.2)],
    ),
    Row(
        "kill-9",
        "kill -9, 5.2 GB in one partition, to first ack",
        {
            **versus(Restart(5_200_000_000, kill=True)),
            "kafka, session 1.5 s": Contender("kafka", Restart(5_200_000_000, True, SHORT_SESSION)),
        },
        [Goal("kill_s", at_most=0.05), Goal("kill_s", at_most=0.2, than="kafka, session 1.5 s")],
        runs=3,
    ),
    Row(
        "memory-idle",
        "memory and threads, idle",
        {OURS: Contender("tidelog", IdleMemory()), THEIRS: Contender("kafka", IdleMemory())},
        [Goal("rss_mb", at_most=0.15), Goal("threads", at_most=0.1)],
        quick=True,
    ),
    Row(
        "memory-loaded",
        "memory and threads after load",
        versus(LoadedMemory()),
        [Goal("rss_mb", at_most=0.12), Goal("threads", at_most=0.1)],
        quick=True,
        runs=1,
    ),
]
