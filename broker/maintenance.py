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

# A job that is due again at once must not keep the thread from everything else.
SHORTEST_WAIT_S = 0.01
# The longest that a queue can be told to wait is less than an option may say.
LONGEST_WAIT_S = 3600.0


class Periodic:
    """A job that comes round: `run` says in how many seconds it wants to run again, at most `interval_s`."""

    __slots__ = ("_due", "_interval_s", "_run")

    def __init__(self, interval_s: float, run: Callable[[], float | None]) -> None:
        self._interval_s = max(interval_s, SHORTEST_WAIT_S)
        self._run = run
        self._due = time.monotonic() + interval_s

    def wait_s(self) -> float:
        """Return how long it is until the job is due; 0 or less when it is."""
        return self._due - time.monotonic()

    def hasten(self, wait_s: float) -> None:
        """Run in that time, if not before."""
        self._due = min(self._due, time.monotonic() + wait_s)

    def run(self) -> None:
        """Run the job."""
        self._due = time.monotonic() + self._interval_s
        wait_s = self._run()
        if wait_s is not None:
            self.hasten(max(wait_s, SHORTEST_WAIT_S))


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
            upcoming = min(self._periodic, key=Periodic.wait_s)
            wait_s = min(upcoming.wait_s(), LONGEST_WAIT_S)
            try:
                return self._jobs.get(timeout=wait_s) if wait_s > 0 else self._jobs.get_nowait()
            except queue.Empty:
                if upcoming.wait_s() <= 0:
                    return upcoming.run
