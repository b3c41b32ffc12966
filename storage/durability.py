"""The flushes of one log: its recovery point, and the state that is saved for the next start.

Owns the recovery point, the list of unflushed files, and the marks that confirm a sync of a whole file system. Sees of
the log only `Flushable`; knows nothing of who waits for a flush. Keeps no reference to the log: with that cycle, a
deleted log would keep its files open until the collector runs.

`lock` is held for a whole flush, and by operations that must not overlap one; `log` documents the order of locks. The
recovery point changes under it, and any thread reads it. `unflushed` and `saved_bytes` change under the log's lock,
which a flush takes only if it has more to do than to sync the tail of one file.
"""

import logging
import threading
import time
from typing import Final, NamedTuple, NoReturn, Protocol

from tidelog.storage import files
from tidelog.storage.errors import FlushPostponed
from tidelog.storage.health import Health
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.search.by_offset import segment_number
from tidelog.storage.segment import Segment
from tidelog.storage.unflushed import Pending, Unflushed

# How often indexes and producers are saved, which bounds how many flushed bytes a recovery scans.
SAVE_INTERVAL_BYTES: Final = 16 << 20
# How many sealed segments are processed with the log's lock held: a millisecond or two. The pause lets other threads
# take the lock.
SEALED_AT_ONCE: Final = 20
_LET_OTHERS_S: Final = 0.0001

_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """The log, as a flush sees it."""

    lock: threading.Lock
    segments: tuple[Segment, ...]
    active: Segment
    log_end_offset: int
    epochs: LeaderEpochs

    def copy_producers(self) -> None:
        """Schedule a snapshot of the producers; called with `lock` held."""


class Mark(NamedTuple):
    """What a flush puts on disk: the log up to `end`, and the pending files."""

    end: int
    cuts: int  # `Durability.cuts` when the flush began
    active: Segment
    pending: Pending | None


class Durability:
    """The durability of one log, which the callers of its methods pass."""

    __slots__ = ("_health", "cuts", "lock", "recovery_point", "saved_bytes", "unflushed")

    def __init__(self, health: Health, active: Segment, recovery_point: int, unflushed: Unflushed) -> None:
        """Take everything before the recovery point as flushed."""
        self.lock = threading.Lock()
        self.recovery_point = recovery_point
        self.unflushed = unflushed
        self.saved_bytes = active.size  # the active segment's size when its state was last saved
        self.cuts = 0  # how often the log was truncated
        self._health = health

    def flush(self, log: Flushable) -> int:
        """Put everything appended before the call on disk; return the offset after it. Flusher thread.

        Raise FlushPostponed if the flush could not begin: the caller may try again. Any other failure is final: the
        system may have dropped the dirty pages, and a second sync would succeed without them.
        """
        with self.lock:
            if self._health.failure is not None:
                raise self._health.offline()
            # Usually only the tail of one file needs a sync, without the log's lock. Read these first: a roll adds to
            # `unflushed` before it publishes a new active segment.
            target, active = log.log_end_offset, log.active
            if target == self.recovery_point and not self.unflushed.sealed:
                return target
            try:
                if self.unflushed or self._is_save_due(active):
                    return self._flush_all(log)
                active.file.sync()
            except OSError as error:
                self._fail(log, error)
            self.recovery_point = target
            return target

    def _flush_all(self, log: Flushable) -> int:
        """Flush sealed segments and file names too, and save state for a recovery if that is due."""
        with log.lock:
            file = log.active.file
            mark, pending = self._mark_all(log)
        self.unflushed.sync(pending, file, log.epochs)
        self._note_flushed(log, mark)
        return mark.end

    def _mark_all(self, log: Flushable) -> tuple[Mark, Pending]:
        """Return what a flush that begins now covers; save state if that is due. Call with the log's lock held."""
        pending = self.unflushed.pending(self._save_if_due(log))
        return Mark(log.log_end_offset, self.cuts, log.active, pending), pending

    def _note_flushed(self, log: Flushable, mark: Mark) -> None:
        """Record that everything in a mark is on disk. Call with `lock` held."""
        self.recovery_point = max(self.recovery_point, mark.end)
        pending = mark.pending
        if pending is None:
            return
        with log.lock:
            self.unflushed.done(pending)
            saved = pending.saved
            if saved is not None and mark.active is log.active and saved[0] == self.saved_bytes:
                log.active.write_summary(saved[1])
        # In groups, because appends wait for the lock.
        for first in range(0, len(pending.sealed), SEALED_AT_ONCE):
            if first:
                time.sleep(_LET_OTHERS_S)
            with log.lock:
                for segment in pending.sealed[first : first + SEALED_AT_ONCE]:
                    # Skip a segment that was replaced or deleted since: its summary would be written by name.
                    segments = log.segments
                    if segments[segment_number(segments, segment.base_offset)] is segment:
                        segment.note_flushed()

    def is_flush_due(self, log: Flushable) -> bool:
        """Tell whether a flush is due even if no client waits for one: a segment was sealed, or much was appended."""
        return self._health.failure is None and (bool(self.unflushed.sealed) or self._is_save_due(log.active))

    def files_to_flush(self, log: Flushable) -> int:
        """Return about how many files `flush` would sync."""
        if log.log_end_offset == self.recovery_point and not self.unflushed.sealed:
            return 0
        return 1 + self.unflushed.count

    def flush_mark(self, log: Flushable) -> Mark | None:
        """Prepare for a sync of the whole file system; return what it will cover.

        Return None if the log is offline: `flush` then raises the error.
        """
        with self.lock:
            # In the order of `flush`.
            end, active = log.log_end_offset, log.active
            if self._health.failure is not None:
                return None
            if not self.unflushed and not self._is_save_due(active):
                return Mark(end, self.cuts, active, None)
            with log.lock:
                mark, pending = self._mark_all(log)
            self.unflushed.prepare(pending, log.epochs)
            return mark

    def flushed(self, log: Flushable, mark: Mark) -> bool:
        """Record that a sync of the file system after `flush_mark` has succeeded; return whether that covers the log.

        It does not if the log was truncated in between, or if a flush failed: the data may have been lost before the
        sync.
        """
        with self.lock:
            if mark.cuts != self.cuts or self._health.failure is not None:
                return False
            self._note_flushed(log, mark)
            return True

    def cut(self, gone: tuple[Segment, ...]) -> None:
        """Forget truncated segments and invalidate earlier marks. Call with both locks held."""
        self.cuts += 1
        self.unflushed.forget(gone)
        self.saved_bytes = 0

    def _fail(self, log: Flushable, error: OSError) -> NoReturn:
        """Refuse writes after a failed sync, unless a file could not even be opened: then nothing was lost."""
        if isinstance(error, files.Shortage):
            raise FlushPostponed(
                f"{log}: not flushed yet: {error}; the next flush tries again; raise the limit of open files"
            ) from error
        # With the lock, so that an append that repairs an earlier failure cannot clear this one.
        with log.lock:
            raise self._health.flush_failed(error) from error

    def _is_save_due(self, active: Segment) -> bool:
        return active.size - self.saved_bytes >= SAVE_INTERVAL_BYTES

    def _save_if_due(self, log: Flushable) -> tuple[int, bytes] | None:
        """Save indexes and producers if that is due; return `Pending.saved`."""
        active = log.active
        if not self._is_save_due(active):
            return None
        self.saved_bytes = active.size
        with active.shared.disk.optional_write("state", log):
            log.copy_producers()
            return active.size, active.save()
        return None
