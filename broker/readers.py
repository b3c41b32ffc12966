"""The reader threads: what is not in the page cache is read there, never on the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tidelog.broker.waiting import Later, job_for

# One slow disk does not get faster with more readers; two let a small read pass a large one.
READERS = 2


class Readers:
    """A small pool of threads, started when first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="reader")

    def submit(self, job: Callable[[], Any]) -> Later:
        """Run `job` on a reader thread; the `Later` gets what it returns, or the exception that ended it."""
        later = Later()
        self._pool.submit(job_for(later, self._loop, job))
        return later

    def stop(self) -> None:
        """Wait for the reads under way."""
        self._pool.shutdown()
