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
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from tidelog.broker.waiting import Later
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log


class Commit(NamedTuple):
    """An answer that leaves once its logs are on disk; `answers` pairs each log with its part of the response."""

    answers: list[tuple[Log, Any]]
    response: Any
    later: Later


class Flusher:
    """The flusher thread and its queue."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        flush: Callable[[Collection[Log]], dict[Log, StorageError]],
        fail: Callable[[Any, StorageError], None],
    ) -> None:
        """Put logs on disk by `flush`, and turn answers into failures by `fail`."""
        self._loop = loop
        self._flush = flush
        self._fail = fail
        self._queue: list[Commit] = []
        # An eventfd rather than a threading.Event: waking costs one write, and several wakes are one.
        self._wake = os.eventfd(0)
        self._signalled = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def commit(self, answers: list[tuple[Log, Any]], response: Any) -> Later:
        """Answer `response` once the logs of `answers` are on disk. Event loop only."""
        later = Later()
        self._queue.append(Commit(answers, response, later))
        if not self._signalled:
            # Not at once: until this turn of the loop is over the thread would only wait for the interpreter's lock,
            # and what the other connections send in the same turn belongs into this commit.
            self._signalled = True
            self._loop.call_soon(self._signal)
        return later

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
                failures = self._flush({log for commit in commits for log, _ in commit.answers})
                self._loop.call_soon_threadsafe(self._complete, commits, failures)
            if self._stopping and not self._queue:
                return

    def _complete(self, commits: list[Commit], failures: dict[Log, StorageError]) -> None:
        """Hand back a whole commit: every answer first, then each connection once."""
        connections: dict[Callable[[], None], None] = {}
        for answers, response, later in commits:
            if failures:
                for log, answer in answers:
                    if log in failures:
                        self._fail(answer, failures[log])
            later.response = response
            if later.ready is not None:
                connections[later.ready] = None
        for answer_connection in connections:
            answer_connection()
