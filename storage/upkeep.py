"""What is done to a log now and then: what has expired is deleted, and a segment that nobody appends to is sealed.

Owns the order of these steps, and what has to be on disk before a segment goes. Knows what has expired from
`retention`; how segments go is the log's. Maintenance thread.
"""

import logging
from collections.abc import Callable

from tidelog.storage import files, retention
from tidelog.storage.durability import SEALED_AT_ONCE
from tidelog.storage.layout import LOG, SUMMARY
from tidelog.storage.log import Log
from tidelog.storage.segment import Mismatch, Segment
from tidelog.storage.sources import PATIENT

_Flush = Callable[[Log], object]

_log = logging.getLogger(__name__)


def enforce_retention(
    log: Log, now_ms: int, flush: _Flush = lambda log: log.durability.flush()
) -> int | None:
    """Delete what has expired, roll an idle segment, and remove files that were deleted long enough ago.

    Some segments and files at most; `flush` is for what must be on disk before. Return `next_due_ms`.
    """
    # Before segments go: those after the latest snapshot may be all that tells of their producers.
    log.snapshots.write()
    while True:
        try:
            _delete_and_roll(log, now_ms, flush)
            break
        except Mismatch as mismatch:
            log.recheck(mismatch.segment, PATIENT)
    return next_due_ms(log, now_ms)


def next_due_ms(log: Log, now_ms: int) -> int | None:
    """Return when there is something to do by time; None where nothing is, until more is appended.

    What is due already and cannot be done, in a log that takes no writes, does not count.
    """
    due = (
        retention.next_due_ms(log.segments[0], log.config),
        log.idle_due_ms,
        log.deleted.next_due_ms(),
    )
    past_ms = -1 if log.health.failure is None else now_ms
    return min((at for at in due if at is not None and at > past_ms), default=None)


def _delete_and_roll(log: Log, now_ms: int, flush: _Flush) -> None:
    with log.offline_on_error():
        _drop_expired(log, now_ms, flush)
        due_ms = log.idle_due_ms
        if due_ms is not None and now_ms >= due_ms and log.health.failure is None:
            log.roll(now_ms)
        log.deleted.remove_due(now_ms)


def _drop_expired(log: Log, now_ms: int, flush: _Flush) -> None:
    """Delete the oldest segments, as retention counts them; if that is all of them, begin a new one first."""
    with log.lock:
        count = retention.expired(log.segments, log.log_start_offset, log.config, now_ms)
        for segment in log.segments[:count]:
            if retention.rests_on_index(segment, log.config, now_ms):
                raise Mismatch(f"{segment.path(LOG)}: to be read before it is deleted", segment)
        if count == len(log.segments) and log.health.failure is None:
            count -= not _has_begun_another(log, now_ms)
        count = min(count, SEALED_AT_ONCE)
        left = log.segments[count:]
    # Only this thread takes segments away from the front, so that these are still the same ones below.
    if not count or not _keep_ends(log, left, flush):
        return
    with log.lock:
        size_bytes = sum(segment.size for segment in log.segments[:count])
        log.drop_segments(count, now_ms)
    log.shared.tally.deleted(count, size_bytes)
    _log.info("retention deleted log=%s segments=%d log_start_offset=%d", log, count, log.log_start_offset)


def _has_begun_another(log: Log, now_ms: int) -> bool:
    """Begin a segment that may stay; where the disk is full the others are to go first, with the lock held."""
    try:
        log.begin_segment(now_ms)
    except OSError as error:
        log.shared.disk.refused(error)
        if error.errno not in files.FULL or len(log.segments) == 1:
            raise
        return False
    return True


def _keep_ends(log: Log, left: tuple[Segment, ...], flush: _Flush) -> bool:
    """See to it that the log's end and its last append time are on disk in what retention leaves.

    That is so if a batch that stays is. Where none is, what stays is flushed; where none stays, the new segment's
    name and summary tell. Return false where that can no longer be done. Without the lock, as it may wait.
    """
    if any(segment.size and segment.base_offset < log.recovery_point for segment in left):
        return True
    if log.health.failure is not None:
        return False
    with log.lock:
        active = log.active
        is_empty = not any(segment.size for segment in left)
        if is_empty:
            # For good, so that no write that is cut short replaces it as long as nothing else tells.
            active.save(final=True)
    if is_empty:
        files.sync(active.path(SUMMARY))
        files.sync_folder(log.directory)
    else:
        flush(log)
    return True
