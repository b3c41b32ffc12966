"""Periodic work on one log: deletes expired segments and seals an idle active one.

Owns the order of these steps, and what must be on disk before a segment is deleted. `retention` says what has expired,
and the log deletes it. Maintenance thread.
"""

import logging
from collections.abc import Callable

from tidelog.storage import files, retention
from tidelog.storage.durability import SEALED_AT_ONCE
from tidelog.storage.errors import Mismatch
from tidelog.storage.layout import LOG, SUMMARY
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT

_Flush = Callable[[Log], object]

_log = logging.getLogger(__name__)


def enforce_retention(log: Log, now_ms: int, flush: _Flush = Log.flush) -> int | None:
    """Delete expired segments, roll an idle one, and remove files whose delay is over; a limited number per call.

    `flush` is called if something must be on disk before. Return `next_due_ms`.
    """
    while True:
        try:
            _delete_and_roll(log, now_ms, flush)
            break
        except Mismatch as mismatch:
            log.recheck(mismatch.segment, PATIENT)
    return next_due_ms(log, now_ms)


def next_due_ms(log: Log, now_ms: int) -> int | None:
    """Return when the log needs `enforce_retention` next; None if not before the next append.

    For a log that takes no writes, work that is already due does not count: it cannot be done.
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
    """Delete the expired segments; if these are all, begin a new one first."""
    with log.lock:
        count = retention.expired(log.segments, log.log_start_offset, log.config, now_ms)
        for segment in log.segments[:count]:
            if retention.rests_on_index(segment, log.config, now_ms):
                raise Mismatch(f"{segment.path(LOG)}: must be verified before it is deleted", segment)
        if count == len(log.segments) and log.health.failure is None:
            count -= not _begin_another(log, now_ms)
        count = min(count, SEALED_AT_ONCE)
        left = log.segments[count:]
    # Only this thread deletes from the front, so the same segments are there below.
    if not count or not _keep_ends(log, left, flush):
        return
    _keep_producers(log, left[0], flush)
    with log.lock:
        size_bytes = sum(segment.size for segment in log.segments[:count])
        log.drop_segments(count, now_ms)
    log.shared.tally.deleted(count, size_bytes)
    _log.info("retention deleted log=%s segments=%d log_start_offset=%d", log, count, log.log_start_offset)


def _keep_producers(log: Log, first: Segment, flush: _Flush) -> None:
    """Put a snapshot on disk that covers the segments before `first`: nothing else names their producers.

    It has to be as of a flushed offset: a start after a power cut does not believe one of batches that are gone. May
    wait, so call it without the lock.
    """
    if not log.producers.producers:
        return
    with log.lock:
        is_covered = any(
            first.base_offset <= offset <= log.recovery_point for offset in log.snapshots.offsets
        )
        if not is_covered:
            log.copy_producers()
    log.snapshots.write()
    # After the write, so that it covers also a snapshot of a roll in between.
    if not is_covered and log.health.failure is None:
        flush(log)
    log.snapshots.secure(log.recovery_point)


def _begin_another(log: Log, now_ms: int) -> bool:
    """Begin a new segment, with the lock held; return False on a full disk if other segments can be deleted first."""
    try:
        log.begin_segment(now_ms)
    except OSError as error:
        log.shared.disk.refused(error)
        if error.errno not in files.FULL or len(log.segments) == 1:
            raise
        return False
    return True


def _keep_ends(log: Log, left: tuple[Segment, ...], flush: _Flush) -> bool:
    """Make sure that the remaining segments have the log's end and its last append time on disk.

    One flushed batch is enough. If there is none, flush; if all remaining segments are empty, the active one's name and
    summary have both. Return False if the log takes no writes, so that this cannot be done. May wait, so call it
    without the lock.
    """
    if any(segment.size and segment.base_offset < log.recovery_point for segment in left):
        return True
    if log.health.failure is not None:
        return False
    with log.lock:
        active = log.active
        is_empty = not any(segment.size for segment in left)
        if is_empty:
            # As final, so that it is not rewritten, and possibly torn, while nothing else has these values.
            active.save(final=True)
    if is_empty:
        files.sync(active.path(SUMMARY))
        files.sync_folder(log.directory)
    else:
        flush(log)
    return True
