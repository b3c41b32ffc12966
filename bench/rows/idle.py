"""What it costs to do nothing."""

import time
from dataclasses import dataclass
from typing import Any

from bench import machine
from bench.metrics import Measures
from bench.row import Goal, Row, Workload, versus
from bench.stage import Stage


@dataclass(frozen=True)
class Idle(Workload):
    """Nobody is connected."""

    seconds: float = 10

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        pid = stage.broker.pid
        time.sleep(stage.span(5))  # what a pause has held up is done
        before, started = machine.cpu_s(pid), time.perf_counter()
        time.sleep(stage.span(self.seconds))
        spent = machine.cpu_s(pid) - before
        return {"cpu_percent": spent / (time.perf_counter() - started) * 100, **stage.broker.spent()}


@dataclass(frozen=True)
class LongPolls(Workload):
    """Consumers that wait for records which never come, and ask again every half second, as clients do."""

    connections: int = 500
    seconds: float = 10

    def prepare(self, stage: Stage) -> str:
        return stage.topic()

    def measure(self, stage: Stage, prepared: Any) -> Measures:
        return stage.load(
            "fetch",
            prepared,
            connections=self.connections,
            max_wait_ms=500,
            seconds=max(0.6, stage.span(self.seconds)),
            warm_up_seconds=stage.span(1),
        )


ROWS = [
    Row("idle", "idle", versus(Idle()), [Goal("cpu_percent", at_most=0.25)], runs=3),
    Row("idle-polls", "500 idle long polls", versus(LongPolls()), [Goal("cpu_percent", at_most=0.5)], runs=3),
]
