"""What of a log is on disk: flushes, what they prove, and what is saved now and then for the next start.

Owns the recovery point, the list of what is not flushed, and the marks by which a sync of a whole file system is
confirmed. Knows a log by what it has to offer (`Flushable`); nothing of who waits for what is flushed.

`lock` is held by a flush from its beginning to its end, and by whatever must not meet one. Its place among the log's
locks is in the docstring of `log`. The recovery point is changed under it, and read by any thread. `unflushed` and
`saved_bytes` are changed under the log's lock, which a flush takes only where it has more to do than to sync the tail
of one file.
"""

import logging
import threading
import time
import weakref
from typing import NamedTuple, NoReturn, Protocol

from tidelog.storage import files
from tidelog.storage.errors import FlushPostponed, OnError
from tidelog.storage.health import Health
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.search.by_offset import segment_number
from tidelog.storage.segment import Segment
from tidelog.storage.unflushed import Pending, Unflushed

# What a recovery scans at most of what was flushed: so often are indexes and producers saved in between.
SAVE_INTERVAL_BYTES = 16 << 20
# What is done to sealed segments with the log's lock held is done to so many: a millisecond or two. Then others get the
# lock, if there is a moment in which nobody has it.
SEALED_AT_ONCE = 20
_LET_OTHERS_S = 0.0001

_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """The log, as a flush sees it."""

    lock: threading.Lock
    segments: tuple[Segment, ...]
    active: Segment
    log_end_offset: int
    epochs: LeaderEpochs

    def copy_producers(self) -> None:
        """Have a snapshot of the producers written soon; called with `lock` held."""


class Mark(NamedTuple):
    """What a flush puts on disk: all up to an offset, of a log that was cut so often, and what else was pending."""

    end: int
    cuts: int
    active: Segment
    pending: Pending | None


class Durability:
    """The durability of one log."""

    __slots__ = ("_health", "_log", "cuts", "lock", "recovery_point", "saved_bytes", "unflushed")

    def __init__(self, log: Flushable, health: Health, recovery_point: int, unflushed: Unflushed) -> None:
        """Begin with what is known to be on disk: all before the recovery point."""
        self.lock = threading.Lock()
        self.recovery_point = recovery_point
        self.unflushed = unflushed
        self.saved_bytes = (
            log.active.size
        )  # how much of the active segment indexes and producers were saved for
        self.cuts = 0  # how often the log was cut
        # Not the log itself: the files of one that is deleted go with it, and no collector has to find it first.
        self._log: Flushable = weakref.proxy(log)
        self._health = health

    def flush(self) -> int:
        """Return once everything appended before the call is on disk, with the offset after it. Flusher thread.

        FlushPostponed if it could not begin: it may be tried again. Any other failure is final: the system may have
        dropped the pages, so that a second try would prove nothing.
        """
        log = self._log
        with self.lock:
            if self._health.failure is not None:
                raise self._health.offline()
            # As a rule there is the tail of one file to sync, and no need for the lock that appends take. The order
            # matters: a roll says that there is more before it publishes another active segment.
            target, active = log.log_end_offset, log.active
            if target == self.recovery_point and not self.unflushed.sealed:
                return target
            with OnError(OSError, self._fail):
                if self.unflushed or self._is_save_due(active):
                    return self._flush_all()
                active.file.sync()
            self.recovery_point = target
            return target

    def _flush_all(self) -> int:
        """Flush sealed segments and names too, and save now and then what recovery goes by."""
        log = self._log
        with log.lock:
            file = log.active.file
            mark, pending = self._mark_all()
        self.unflushed.sync(pending, file, log.epochs)
        self._note_flushed(mark)
        return mark.end

    def _mark_all(self) -> tuple[Mark, Pending]:
        """Return what a flush that begins now puts on disk, saved if that is due. Call with the log's lock held."""
        log = self._log
        pending = self.unflushed.pending(self._save_if_due())
        return Mark(log.log_end_offset, self.cuts, log.active, pending), pending

    def _note_flushed(self, mark: Mark) -> None:
        """Take note that what a mark says is on disk. Call with `lock` held."""
        log = self._log
        self.recovery_point = max(self.recovery_point, mark.end)
        pending = mark.pending
        if pending is None:
            return
        with log.lock:
            self.unflushed.done(pending)
            saved = pending.saved
            if saved is not None and mark.active is log.active and saved[0] == self.saved_bytes:
                log.active.write_summary(saved[1])
        # Some at a time: appends wait for the lock.
        for first in range(0, len(pending.sealed), SEALED_AT_ONCE):
            if first:
                time.sleep(_LET_OTHERS_S)
            with log.lock:
                for segment in pending.sealed[first : first + SEALED_AT_ONCE]:
                    # A summary is written by name, and what retention has taken away meanwhile has none any more.
                    segments = log.segments
                    if segments[segment_number(segments, segment.base_offset)] is segment:
                        segment.note_flushed()

    @property
    def is_flush_due(self) -> bool:
        """Whether so much was appended since the last flush, or a segment sealed, that another is due unasked."""
        return self._health.failure is None and (
            bool(self.unflushed.sealed) or self._is_save_due(self._log.active)
        )

    @property
    def files_to_flush(self) -> int:
        """How many files `flush` would sync, about."""
        if self._log.log_end_offset == self.recovery_point and not self.unflushed.sealed:
            return 0
        return 1 + self.unflushed.count

    def flush_mark(self) -> Mark | None:
        """Return what a sync of the whole file system, begun now, puts on disk; None where `flush` is to say why not.

        What has to be written for it is written.
        """
        log = self._log
        with self.lock:
            # The same order as in `flush`.
            end, active = log.log_end_offset, log.active
            if self._health.failure is not None:
                return None
            if not self.unflushed and not self._is_save_due(active):
                return Mark(end, self.cuts, active, None)
            with log.lock:
                mark, pending = self._mark_all()
            self.unflushed.prepare(pending, log.epochs)
            return mark

    def flushed(self, mark: Mark) -> bool:
        """Take note that a sync which began after `flush_mark` has succeeded; return whether that proves anything.

        It does not for a log that was cut meanwhile, or had a failed flush: what that sync did not find dirty may be
        what the failed one lost.
        """
        with self.lock:
            if mark.cuts != self.cuts or self._health.failure is not None:
                return False
            self._note_flushed(mark)
            return True

    def cut(self, gone: tuple[Segment, ...]) -> None:
        """Forget what is cut off with these segments: what was marked before proves nothing. Call with both locks."""
        self.cuts += 1
        self.unflushed.forget(gone)
        self.saved_bytes = 0

    def _fail(self, error: OSError) -> NoReturn:
        """Take no more writes after a failed sync; where a file could not even be opened nothing has been lost."""
        log = self._log
        if isinstance(error, files.Shortage):
            raise FlushPostponed(
                f"{log}: not flushed yet: {error}; the next flush tries again; raise the limit of open files"
            ) from error
        # An append may be about to mend an earlier failure, which this one is not to go with.
        with log.lock:
            raise self._health.flush_failed(error) from error

    def _is_save_due(self, active: Segment) -> bool:
        return active.size - self.saved_bytes >= SAVE_INTERVAL_BYTES

    def _save_if_due(self) -> tuple[int, bytes] | None:
        """Save now and then what a recovery, once all is flushed, need not scan for; return `Pending.saved`."""
        log = self._log
        active = log.active
        if not self._is_save_due(active):
            return None
        self.saved_bytes = active.size
        with active.shared.disk.may_refuse("state", log):
            log.copy_producers()
            return active.size, active.save()
        return None
