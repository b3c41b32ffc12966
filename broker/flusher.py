"""Group commit: one thread that puts appended batches on disk, and hands back all their answers at once.

A produce that must be durable joins the queue and the event loop goes on; the thread takes whatever has
gathered, flushes each log once, and returns the whole commit to the loop in one call. While one commit is on its
way to the disk, the next one gathers: the slower the disk, the larger the commits.

After a failed flush nothing of that log is acknowledged any more (the kernel may have dropped the dirty pages:
a retry that succeeds proves nothing); see `Log.flush`.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tidelog.broker.waiting import Later
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log

# From the logs that failed, and why, to the response that is due then.
Failed = Callable[[dict[Log, StorageError]], Any]


class Commit(Later):
    """An answer that leaves once its logs are on disk."""

    __slots__ = ("failed", "logs", "outcome")

    def __init__(self, logs: Sequence[Log], outcome: Any, failed: Failed) -> None:
        self.ready = None
        self.response = None
        self.logs = logs
        self.outcome = outcome
        self.failed = failed


class Flusher:
    """The flusher thread and its queue."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        flush: Callable[[Collection[Log]], dict[Log, StorageError]],
    ) -> None:
        """Put logs on disk by `flush`."""
        self._loop = loop
        self._flush = flush
        self._queue: list[Commit] = []
        # An eventfd rather than a threading.Event: waking costs one write, and several wakes are one.
        self._wake = os.eventfd(0)
        self._signalled = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def commit(self, logs: Sequence[Log], response: Any, failed: Failed) -> Later:
        """Answer `response` once the logs are on disk, or what `failed` returns if one is not. Event loop only."""
        commit = Commit(logs, response, failed)
        self._queue.append(commit)
        if not self._signalled:
            # Not at once: until this turn of the loop is over the thread would only wait for the interpreter's lock,
            # and what the other connections send in the same turn belongs into this commit.
            self._signalled = True
            self._loop.call_soon(self._signal)
        return commit

    def _signal(self) -> None:
        if not self._stopping:
            os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Finish what is queued and end the thread."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    def _run(self) -> None:
        while True:
            os.eventfd_read(self._wake)
            self._signalled = False
            # Copy, then delete as many: both are atomic under the GIL, and an append in between stays queued.
            commits = self._queue[:]
            del self._queue[: len(commits)]
            if commits:
                failures = self._flush({log for commit in commits for log in commit.logs})
                self._loop.call_soon_threadsafe(self._complete, commits, failures)
            if self._stopping and not self._queue:
                return

    def _complete(self, commits: list[Commit], failures: dict[Log, StorageError]) -> None:
        """Hand back a whole commit: every answer first, then each connection once."""
        connections: dict[Callable[[], None], None] = {}
        for commit in commits:
            has_failed = failures and any(log in failures for log in commit.logs)
            commit.response = commit.failed(failures) if has_failed else commit.outcome
            if commit.ready is not None:
                connections[commit.ready] = None
        for answer_connection in connections:
            answer_connection()
