"""Rebuilds what is known of a segment whose files are not what its summary says.

Owns the rules by which a batch is damaged, applied in one walk over what was there when the segment was loaded, with
what the summary still tells. Knows segments, not logs, and takes no lock: it makes another description of the same
files, and the log replaces the first one with it.

A checksum leaves out the offset and the leader epoch of its batch. So every batch in a block whose digest does not
match is suspect. It is damage if its offset does not follow the batch before it (or, after damage, is not followed by
the batch after it), or if its epoch is not the one that the log has there. Compacted logs have gaps: if a checksum or
an epoch already tells what happened to the block, a gap is no damage, except one right after the first batch that
follows. If only the digest is wrong, the summary is of another log: the log's bytes win.
"""

import logging
from collections.abc import Sequence
from functools import cache, partial

from tidelog.protocol.records.batch import MAGIC, MAGIC_POSITION, BatchHeader
from tidelog.protocol.topic_names import is_internal
from tidelog.storage import append_index, blocks, walk
from tidelog.storage.blocks import Unverified
from tidelog.storage.layout import APPEND_INDEX, LOG, partition_of
from tidelog.storage.segment import Segment
from tidelog.storage.summary import NONE, OFFSET_MAX, Damage, Origin, Summary
from tidelog.storage.walk import EpochAt, Following, Refuses

_log = logging.getLogger(__name__)


def recheck(segment: Segment, epoch_at: EpochAt) -> Segment:
    """Return another description of a segment, by a walk over its unverified part; `scan` can go on from there.

    `epoch_at` gives the leader epoch of an offset, or -1. Damage is in the summary, and nothing is unverified.
    """
    found, mismatches = walked(segment, epoch_at)
    if segment.is_known_by_index:
        _log.info("read for the first time file=%s bytes=%d", segment.path(LOG), segment.size)
    elif not found.summary.damage:
        reason = "summary" if mismatches else "index"
        _log.warning("rebuilt from the log file=%s reason=%s-not-of-this-log", segment.path(LOG), reason)
    return found


def is_surely_of_another_log(segment: Segment, summary: Summary) -> bool:
    """Tell, before digests are compared, whether a summary is of another log: it does not end where this log does."""
    is_unlike = not summary.log_bytes or summary.log_bytes > segment.size
    return is_unlike and is_of_another_log(segment, summary)


def is_of_another_log(segment: Segment, summary: Summary) -> bool:
    """Tell whether a summary whose digests do not match is of another log, so that nothing in it counts.

    Damage cannot do this: a whole batch lies across the end of the described part, or the offsets up to there are
    others, or the first batch was appended at another time, or the summary stands for lost offsets and the log has
    batches.
    """
    if not summary.log_bytes:
        return bool(summary.damage and segment.size)
    base = segment.base_offset
    stored = append_index.load(segment.path(APPEND_INDEX))
    owner = stored.header_of(segment.folder, base)
    if owner is not None and append_index.begins_otherwise(stored, summary):
        return True
    if summary.log_bytes > segment.size:
        return False
    is_counted, expected = owner is not None and owner.origin == Origin.APPENDED, base
    for batch in walk.verified(segment.file, 0, segment.size, base, base):
        header, end = batch.header, batch.end
        if batch.position >= summary.log_bytes:
            break
        if header is None:
            is_counted = False
            continue
        if end > summary.log_bytes:
            return True
        # Where gaps are allowed, a changed offset may seem to follow.
        is_counted &= header.base_offset == expected
        expected = header.last_offset + 1
        if end == summary.log_bytes:
            return is_counted and expected != summary.next_offset
    return False


def verify_again(segment: Segment, position: int) -> None:
    """Have a segment verified again, from the disk, before it is served: some of its bytes have changed."""
    summary = segment.summary
    # The page cache may still be right. What counts is what the next start finds.
    segment.file.forget_clean(position)
    segment.unverified = Unverified(summary.digests, summary.log_bytes, summary.next_offset)


def walked(segment: Segment, epoch_at: EpochAt) -> tuple[Segment, set[int]]:
    """Do as `recheck`, and return the blocks that do not match the summary too; nothing is logged or written."""
    unverified = segment.unverified or Unverified(b"", 0, segment.base_offset)
    mismatches = unverified.mismatches(segment.file)
    if mismatches and is_of_another_log(segment, segment.summary):
        found = segment.unread(segment.size)
        found.scan(None, epoch_at)
        _go_by_entries(found)
        return found, mismatches
    found = segment.unread(unverified.end)
    known = segment.summary.damage
    suspicion = _suspicion(segment, mismatches, known, unverified, epoch_at)
    found.scan(suspicion if mismatches or known else None, epoch_at)
    summary = found.summary
    if summary.damage and summary.damage[-1].next_offset == OFFSET_MAX:
        # It is no unfinished write: the summary tells which offset came after it.
        summary.damage = (
            *summary.damage[:-1],
            summary.damage[-1]._replace(next_offset=unverified.next_offset),
        )
        summary.next_offset = unverified.next_offset
    if mismatches and not summary.damage:
        _go_by_entries(found)
    return found, mismatches


def _go_by_entries(found: Segment) -> None:
    """Take append times from their index alone: the summary's are of another log."""
    summary = found.summary
    summary.append_entries = summary.append_crc = 0
    stored = append_index.load(found.path(APPEND_INDEX))
    header = stored.header_of(found.folder, found.base_offset)
    summary.origin = Origin.IMPORTED if header is None else header.origin
    summary.appended_from = 0 if summary.origin == Origin.APPENDED else found.next_offset
    entries = [] if header is None else list(append_index.sound_entries(stored.entries))
    first, last = (entries[0], entries[-1]) if entries else (None, None)
    if first is not None and last is not None:
        summary.first_append_ms, summary.last_append_ms = first.time_ms, last.time_ms


def leaves_gap(
    segment: Segment, _position: int, header: BatchHeader, expected: int | None, following: Following
) -> bool:
    """Refuse a batch that leaves a gap where the segment may have none (`walk.Refuses`)."""
    may_skip = segment.summary.may_skip
    if expected is None:
        end, after = header.last_offset + 1, following()
        return after is not None and after != end and not may_skip(end, after)
    return expected != header.base_offset and not may_skip(expected, header.base_offset)


def _is_of_other_epoch(header: BatchHeader, epoch_at: EpochAt) -> bool:
    # Messages of the older formats carry none.
    return header.magic == MAGIC and 0 <= epoch_at(header.base_offset) != header.leader_epoch


def _damaged_blocks(segment: Segment, end: int, epoch_at: EpochAt) -> set[int]:
    """Return the numbers of the blocks that are damaged by a checksum or an epoch, without their digests."""
    base = segment.base_offset
    return {
        number
        for batch in walk.verified(segment.file, 0, end, base, base, None, epoch_at)
        if batch.header is None or _is_of_other_epoch(batch.header, epoch_at)
        for number in range(batch.position // blocks.BLOCK_BYTES, blocks.count_of(batch.end))
    }


def _suspicion(
    segment: Segment,
    mismatches: set[int],
    known: tuple[Damage, ...],
    unverified: Unverified,
    epoch_at: EpochAt,
) -> Refuses:
    """Return what refuses batches whose checksum is right: in changed blocks the suspect ones, in known damage all."""
    limit, refused_end = unverified.next_offset, NONE
    skips = segment.summary.may_skip
    damaged = cache(partial(_damaged_blocks, segment, unverified.end, epoch_at))

    def is_misplaced(
        position: int, header: BatchHeader, expected: int | None, following: Following, changed: set[int]
    ) -> bool:
        base, end = header.base_offset, header.last_offset + 1
        if expected is not None and expected != base:
            return not (skips(expected, base) and changed <= damaged())
        after = limit if position + header.size_bytes == unverified.end else following()
        is_followed = after is None or after == end
        if expected is None:
            if end > limit:
                return True
            if is_followed:
                return skips(base, base) and not changed <= damaged()
            # Damage that reaches up to it may have changed its offset too, unless a whole batch lies between.
            return position != refused_end or not (skips(base, base) and changed <= damaged())
        # It follows, so it is right, even beyond the end in the summary, which may be of another log. But where gaps
        # are allowed and nothing else is wrong, its offset may have changed to one that follows.
        return after is not None and after > end and skips(end, after) and not changed <= damaged()

    def refuses(position: int, header: BatchHeader, expected: int | None, following: Following) -> bool:
        nonlocal refused_end
        first, last = position // blocks.BLOCK_BYTES, (position + MAGIC_POSITION - 1) // blocks.BLOCK_BYTES
        changed = mismatches & {first, last}
        if changed:
            refused = _is_of_other_epoch(header, epoch_at) or is_misplaced(
                position, header, expected, following, changed
            )
        else:
            refused = any(start <= position < end for start, end, _ in known)
        if refused:
            refused_end = position + header.size_bytes
        return refused

    return refuses


def log_found(found: Segment, segments: Sequence[Segment]) -> None:
    """Log the damage of a rebuilt segment, and warn of its transactions if no other segment of the log has any."""
    log_damage(found)
    if not any(each.summary.transactional for each in segments if each is not found):
        log_transactions([found])


def log_transactions(segments: Sequence[Segment]) -> None:
    """Warn once if segments of a log have records of transactions, unless its topic is internal."""
    held = [each for each in segments if each.summary.transactional]
    named = partition_of(held[0].folder.name) if held else None
    if held and not (named and is_internal(named[0])):
        _log.warning(
            "transactions in a log from elsewhere log=%s from_offset=%d: consumers with isolation.level=read_committed "
            "get its aborted and open transactions, too; for committed records alone, copy the topic from Kafka with a "
            "consumer that reads them and a producer without transactions",
            held[0].folder.name,
            held[0].base_offset,
        )


def log_damage(segment: Segment) -> None:
    """Log what cannot be read: each range of damaged bytes, and offsets that are lost."""
    for start, end, next_offset in segment.summary.damage:
        if start == end:
            _log.error(
                "offsets lost from=%d to=%d at=%s: they were on disk; answered as corrupt, not given out again",
                segment.next_offset,
                next_offset - 1,
                segment.path(LOG),
            )
        else:
            place = f"{segment.path(LOG)}@{start}-{end}"
            _log.error(
                "damaged bytes at=%s: kept, and answered as corrupt up to offset %d", place, next_offset - 1
            )
