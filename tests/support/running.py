"""Coroutines as requests run them, without a request: on the reader threads of a broker, or of nothing but those."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.broker.running import Readers, Running
from tidelog.broker.turns import Turns
from tidelog.broker.work import Lane, reader


def _never(why: str) -> None:
    raise AssertionError(why)


class Threads:
    """What a coroutine needs of a broker. Call in a coroutine."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.readers = Readers(_never)
        self.turns = Turns(self.loop)


def run(broker: Broker | Threads, job: Callable[[], Any] | Coroutine[Any, Any, Any], owner: str) -> Running:
    """Run a coroutine, or a short function on a reader thread."""
    coroutine = job if isinstance(job, Coroutine) else _short(job)
    running = Running(broker, owner, coroutine)
    assert running.begin() is running
    return running


async def _short(job: Callable[[], Any]) -> Any:
    await reader(Lane.SHORT)
    return job()


async def in_lanes(*needed: Lane, gate: threading.Event | None = None) -> list[Lane]:
    """Return in which lanes the steps were made, the first of them after a gate was opened."""
    had = []
    for number, lane in enumerate(needed):
        had.append(await reader(lane))
        if gate is not None and not number:
            gate.wait(20)
    return had
