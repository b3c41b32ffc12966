"""When records that have expired can no longer be read, and when their disk space is free."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.metrics import Measures
from bench.row import OURS, THEIRS, Contender, Goal, Row, Workload
from bench.stage import RunFailedError, Stage
from bench.wire import EARLIEST, Wire
from tidelog.protocol.records.build import Record, build_batch

GIVE_UP_S = 450  # Kafka looks every five minutes, and waits a minute before it removes
POLL_S = 0.02


@dataclass(frozen=True)
class Expiry(Workload):
    """One record in an otherwise idle topic."""

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        retention_s = int(stage.topic_settings["retention.ms"]) / 1000
        with stage.alone() as alone:
            alone.broker.start()
            topic = alone.topic()
            with Wire(alone.broker.port) as wire:
                now_s = time.time()
                record = Record(0, int(now_s * 1000), None, b"soon gone", ())
                wire.send_batch(topic, bytearray(build_batch([record])))
                wire.receive_ack()
                expires_s = now_s + retention_s
                folder = alone.broker.folder / f"{topic}-0"
                return {
                    "unreadable_s": _wait(stage, lambda: wire.offset_at(topic, EARLIEST) == 1) - expires_s,
                    "gone_s": _wait(stage, lambda: not any(folder.glob("00000000000000000000.log*")))
                    - expires_s,
                }


def _wait(stage: Stage, is_so: Callable[[], bool]) -> float:
    """Return the time of day when it was first so."""
    give_up = time.monotonic() + max(15.0, stage.span(GIVE_UP_S))
    while not is_so():
        if time.monotonic() > give_up:
            raise RunFailedError(f"not so after {stage.span(GIVE_UP_S):.0f} s")
        time.sleep(POLL_S)
    return time.time()


SHORT = {"retention.ms": "10000"}

ROWS = [
    Row(
        "retention",
        "expired records, retention.ms=10000, idle topic",
        {OURS: Contender("tidelog", Expiry(), SHORT), THEIRS: Contender("kafka", Expiry(), SHORT)},
        [Goal("unreadable_s", at_most=1, than=None), Goal("gone_s", at_most=0.1)],
        shows=["unreadable_s"],
        runs=1,
    )
]
