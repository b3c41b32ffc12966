"""The maintenance thread: everything slow that changes the structure of the data folder.

It creates and deletes topics, rolls idle segments, enforces retention and writes checkpoints, one job after
another, so that these never race. The event loop submits a job and gets a `Later`; it never waits.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from tidelog.broker.waiting import Later, job_for

_log = logging.getLogger(__name__)


class Periodic:
    """A job that runs every `interval_s` seconds, first after one interval."""

    __slots__ = ("due", "interval_s", "run")

    def __init__(self, interval_s: float, run: Callable[[], None]) -> None:
        self.interval_s = interval_s
        self.run = run
        self.due = time.monotonic() + interval_s


class Maintenance:
    """One thread, its queue of jobs, and the jobs that come round."""

    def __init__(self, loop: asyncio.AbstractEventLoop, periodic: list[Periodic]) -> None:
        self._loop = loop
        self._periodic = periodic
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> Later:
        """Run `job` on the thread; the `Later` gets what it returns, or the exception that ended it."""
        later = Later()
        self._jobs.put(job_for(later, self._loop, job))
        return later

    def stop(self) -> None:
        """Finish the jobs that were submitted and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            job = self._next_job()
            if job is None:
                return
            try:
                job()
            except Exception:
                # A failed round must not end the thread: the next one may succeed (a full disk, say).
                _log.exception("maintenance job failed")

    def _next_job(self) -> Callable[[], None] | None:
        """Return the next job: what was submitted first, and otherwise what is due."""
        while True:
            upcoming = min(self._periodic, key=lambda periodic: periodic.due)
            wait_s = upcoming.due - time.monotonic()
            try:
                return self._jobs.get(timeout=wait_s) if wait_s > 0 else self._jobs.get_nowait()
            except queue.Empty:
                if upcoming.due <= time.monotonic():
                    upcoming.due = time.monotonic() + upcoming.interval_s
                    return upcoming.run
