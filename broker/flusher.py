"""Group commit: one thread syncs appended batches to disk, and returns all their answers at once.

A produce that must be durable joins the queue, and the event loop goes on. The thread takes all that has gathered,
flushes each log once, and returns the whole commit to the loop in one call. While one commit is on its way to the disk,
the next one gathers: the slower the disk, the larger the commits.

After a failed flush nothing of that log is acknowledged any more: the kernel may have dropped the dirty pages, so a
successful retry proves nothing (`Durability.flush`). Whatever else goes wrong, each commit is answered.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from tidelog.broker.answers import Later, kept
from tidelog.broker.threads import Ended, new_thread
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log
from tidelog.storage.troubles import Troubles

_log = logging.getLogger(__name__)

# The memory of an answer that waits for the disk, for each of its partitions.
ANSWER_BYTES: Final = 512

# Returns the response for logs that failed, each with its error.
Failed = Callable[[dict[Log, StorageError]], Any]


class Commit(Later):
    """An answer that leaves once its logs are on disk."""

    __slots__ = ("failed", "logs", "outcome")

    # an append that fails must be taken back, even if its client has left
    ends_with_client = False

    def __init__(self, logs: Sequence[Log], outcome: Any, failed: Failed, weight_bytes: int) -> None:
        self.ready = self.lightened = None
        self.response = None
        self.weight_bytes = weight_bytes
        self.logs = logs
        self.outcome = outcome
        self.failed = failed


class Flusher:
    """The flusher thread and its queue."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        flush: Callable[[Collection[Log]], dict[Log, StorageError]],
        ended: Ended,
    ) -> None:
        """Sync logs with `flush`."""
        self._loop = loop
        self._flush = flush
        self._ended = ended
        self._queue: list[Commit] = []
        self._under_way: list[Commit] = []
        # An eventfd rather than a threading.Event: waking costs one write, and several wakes are one.
        self._wake = os.eventfd(0)
        self._signalled = False
        self._stopping = False
        self._end: StorageError | None = None  # why the thread has ended, other than by `stop`
        self._troubles = Troubles()
        self._worker = new_thread("flusher", self._run, self._has_ended)

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def commit(
        self, logs: Sequence[Log], response: Any, failed: Failed, weight_bytes: int = ANSWER_BYTES
    ) -> Later:
        """Answer `response` once the logs are on disk, or the result of `failed` if one cannot be synced. Event loop
        only.
        """
        commit = Commit(logs, response, failed, weight_bytes)
        self._queue.append(commit)
        if not self._signalled:
            # Not now: the thread would only wait for the interpreter's lock until this turn of the loop is over, and
            # what other connections send in the same turn belongs to this commit.
            self._signalled = True
            self._loop.call_soon(self._signal)
        return commit

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing waits for the disk. Event loop only."""
        return not self._queue and not self._under_way

    def _signal(self) -> None:
        if self._end is not None:
            self._refuse()
        elif not self._stopping:
            os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Flush what is queued, and end the thread."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._worker.join()
        os.close(self._wake)

    def _run(self) -> None:
        while True:
            os.read(self._wake, 8)  # not `eventfd_read`, which any signal to this thread interrupts
            self._signalled = False
            # Copy, then delete as many: both are atomic under the GIL, and a commit appended in between stays queued.
            self._under_way = commits = self._queue[:]
            del self._queue[: len(commits)]
            if commits:
                try:
                    failures = self._flush({log for commit in commits for log in commit.logs})
                    if self._troubles.any:
                        self._works_again()
                except Exception as fault:
                    failures = self._failed(commits, fault)
                self._loop.call_soon_threadsafe(self._complete, commits, failures)
                self._under_way = []
                del failures
            del commits  # an idle thread must not refer to logs, whose files stay open as long as they do
            if self._stopping and not self._queue:
                return

    def _failed(self, commits: list[Commit], fault: Exception) -> dict[Log, StorageError]:
        """Fail all logs of a commit: it is unknown which of them are on disk."""
        if self._troubles.begin("flush", repr(fault)):
            _log.error("flush ended by a fault: answered as failed", exc_info=fault)
        error = StorageError(f"the flush was ended by {fault!r}; try again, and see the broker's log")
        return {log: error for commit in commits for log in commit.logs}

    def _works_again(self) -> None:
        if self._troubles.end("flush"):
            _log.info("flush works again")

    def _complete(self, commits: list[Commit], failures: dict[Log, StorageError]) -> None:
        """Set every answer of a commit first, then notify each connection once."""
        connections: dict[Callable[[], None], None] = {}
        for commit in commits:
            has_failed = failures and any(log in failures for log in commit.logs)
            try:
                commit.response = commit.failed(failures) if has_failed else commit.outcome
            except Exception as fault:
                # Its connection logs it and closes; the others get their answers.
                commit.response = kept(fault)
            if commit.ready is not None:
                connections[commit.ready] = None
                commit.ready = None  # as in `Later.resolve`
        for answer_connection in connections:
            try:
                answer_connection()
            except Exception:
                _log.exception("answers of a commit not sent to one of %d connections", len(connections))

    def _has_ended(self, why: str) -> None:
        """Answer everything that waits or comes with an error: nothing reaches the disk any more."""
        self._end = StorageError(f"{why}; the broker stops")
        self._loop.call_soon_threadsafe(self._refuse)
        self._ended(why)

    def _refuse(self) -> None:
        assert self._end is not None
        commits, self._queue, self._under_way = self._under_way + self._queue, [], []
        self._signalled = False
        self._complete(commits, {log: self._end for commit in commits for log in commit.logs})
