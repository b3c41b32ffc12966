"""From a partition's folder to a log: what is believed, what is verified, what is cut, what is missing.

Owns the rules for what a crash or a bad disk leaves behind:

1. Files that a deletion or a replacement left half done are removed; copies that compaction had decided for take the
   place of what they were made of, and others go (`compaction/swap`).
2. What a summary describes is believed if the summary says that it was flushed, and after a crash if the last of it is
   what it was; the rest of it is verified before it is first read (`blocks`). What lies after it is scanned, and any
   other segment from its start: every batch is verified, and the indexes come out as if the batches had just been
   appended. A summary that is not true is replaced, durably, before the log takes an append. What Kafka has written,
   and flushed by its own checkpoint, is opened by the last entries of its indexes (`last_entries`), and scanned when
   it is first read.
3. An empty segment that begins within another is a roll that was never finished: it is removed. Where both hold batches
   nobody can say which are right: such a log is refused.
4. A flush covers all that was appended before it. So what is damaged or missing where no flush is known to have been is
   what a crash took of the last appends: it is cut, and all that is after it, which cannot have been acknowledged as
   being on disk. In a log that came from elsewhere, or was closed, or whose writer ended while the system ran on, so
   that all it wrote is there, only an incomplete batch at the end is cut. The same holds where a summary is of
   another version: it may record a flush that nothing else records.
5. Any other damage is kept, named in the log and in the segment's summary, and answered as corrupt; the rest is served.
6. So are offsets that are known to have been on disk and are not: an empty segment begins where they did, its summary
   says up to where they are lost, and what is appended comes after them. No offset is given out twice.
7. Append times that nobody wrote down: batches of LogAppendTime tell them. Otherwise the time of the file stands in, as
   retention needs one, but never one that is yet to come. It says nothing of times that a client was given, as only
   batches of LogAppendTime have such.
8. What a full disk has no room for stays pending: the log is read, and takes no append before it is written. After any
   other failure of the disk it takes none at all, and is read.

Doing all this twice gives what doing it once gives.
"""

import errno
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from tidelog.config.kinds import INT_MAX
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.batch import BatchHeader
from tidelog.storage import (
    append_index,
    continuity,
    files,
    last_entries,
    layout,
    sidecars,
    time_index,
    verification,
)
from tidelog.storage.compaction import swap
from tidelog.storage.continuity import Opened, PendingWrites
from tidelog.storage.deleted_files import DELETED
from tidelog.storage.disk_space import is_passing
from tidelog.storage.errors import OffsetOutOfRange
from tidelog.storage.group_sync import GroupSync
from tidelog.storage.layout import APPEND_INDEX, INDEX, LOG, SUFFIXES, SUMMARY, TIME_INDEX
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.producer_snapshots import SUFFIX as SNAPSHOT
from tidelog.storage.segment import Mismatch, Segment, State
from tidelog.storage.shared import Shared
from tidelog.storage.sidecars import Sidecars
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import NONE, Damage, Summary
from tidelog.storage.time_index import TimeIndex

# Marks of a file that is not in force: deleted, half written.
_LEFTOVERS = (DELETED, ".tmp")
_DIGITS = 20
# Does something to each of many, as `map` does.
_Each = Callable[[Callable[[Log], None], list[Log]], Iterable[None]]
# Of a log that is put on disk alone: where it ends, its leader epochs, their name. Its append times mostly are there.
_SYNCS_ALONE = 3

_log = logging.getLogger(__name__)


class Known(NamedTuple):
    """What the data folder remembers of a log; nothing, for one that came from elsewhere and is not `ours`.

    `was_cut_off` unless the system has run on since the log was last opened, and the disk refused nothing.
    `is_start_noted` where a checkpoint names the log start offset, and not for want of one.
    No client has seen a leader epoch above `first_epoch`. An epoch that begins now is not below it.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    ours: bool = False
    was_cut_off: bool = True
    is_start_noted: bool = False
    first_epoch: int = 0

    @property
    def vouches_for_files(self) -> bool:
        """Whether what lies beside the logs can tell how far they had come, and the checkpoint does not.

        A power cut keeps files that were written after batches that it takes.
        """
        return self.ours and not (self.recovery_point if self.clean else self.was_cut_off)


class _Found(NamedTuple):
    """What is in a folder, in order: `lost` are the bases of segments whose log is gone and was not deleted."""

    bases: list[int]
    snapshots: list[int]
    lost: list[int]


def load(
    folder: Path, topic: str, partition: int, config: TopicConfig, shared: Shared, known: Known, now_ms: int
) -> Log:
    """Open the log in a folder; on return it can be read and appended to.

    CorruptLog if two segments hold the same offsets.
    """
    log = find(folder, topic, partition, config, shared, known, now_ms)
    put_on_disk([log])
    return log


def make(
    folder: Path,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: TopicConfig,
    shared: Shared,
    known: Known,
    now_ms: int,
) -> Log:
    """Make the log of a partition that has no folder; what the disk does not take comes before the first append."""
    pending = PendingWrites(shared, "its folder, which is missing,")
    pending.write(partial(_make_folder, folder, topic_id))
    log = find(folder, topic, partition, config, shared, known, now_ms, pending)
    put_on_disk([log])
    return log


def _make_folder(folder: Path, topic_id: bytes) -> None:
    files.make_folder(folder)
    layout.save_topic_id(folder, topic_id)
    files.sync_folder(folder.parent)


def find(
    folder: Path,
    topic: str,
    partition: int,
    config: TopicConfig,
    shared: Shared,
    known: Known,
    now_ms: int,
    pending: PendingWrites | None = None,
) -> Log:
    """Open a log as `load` does, to be read, and to be appended to after `put_on_disk`. `pending` comes first."""
    pending = pending or PendingWrites(shared, "what its start has found")
    found = _sort_out(folder, known.ours, pending)
    last = len(found.bases) - 1
    known_end = 0
    if known.vouches_for_files:  # asked before a segment is opened, which mends them
        known_end = continuity.known_end(folder, found.bases, found.snapshots)
    maker = continuity.Maker(folder, config, shared, now_ms, pending)
    ends = [*found.bases[1:], known.recovery_point]
    opened = [
        _open_segment(maker, known, base, end, n == last)
        for n, (base, end) in enumerate(zip(found.bases, ends, strict=False))
    ]
    continuity.drop_half_made(opened, pending)
    segments = [each.segment for each in opened]
    flushed = {each.segment: each.flushed_to for each in opened}
    flushed_to = max([known.recovery_point, known_end, *flushed.values()])
    others = sum(each.is_other_version for each in opened)
    if others:
        _log.warning(
            "rebuilt from the log log=%s-%d segments=%d: their summaries and append indexes are of another "
            "version; append times are bounds",
            topic, partition, others,
        )  # fmt: skip
    is_flush_unknown = any(each.has_other_summary for each in opened)
    if known.ours and known.was_cut_off and not known.clean and not is_flush_unknown:
        continuity.cut_unflushed(segments, known.log_start_offset, flushed_to, pending)
    continuity.cut_torn_tail(segments, flushed_to, pending)
    continuity.mark_lost_within(segments, known.log_start_offset, flushed, found.lost, maker)
    if known.clean and known.is_start_noted:  # else retention may have come after the checkpoint
        continuity.mark_lost_before(segments, known.log_start_offset, maker)
    continuity.begin_segment_if_needed(segments, known.log_start_offset, flushed_to, maker)
    continuity.bound_damage(segments)
    for segment in segments[:-1]:
        if segment.is_active:
            _seal(segment, pending)
        elif segment.next_offset >= known.recovery_point and not segment.is_known_by_index:
            _finish(segment, pending)
    segments[-1].become(State.ACTIVE)
    for segment in segments:
        verification.log_damage(segment)
    verification.log_transactions(segments)
    log = Log(
        folder,
        topic,
        partition,
        config,
        shared,
        segments,
        log_start_offset=max(known.log_start_offset, segments[0].base_offset),
        recovery_point=min(known.recovery_point, segments[-1].next_offset),
    )
    nameless = list(takewhile(last_entries.begins_with_messages, segments))
    since = max(log.log_start_offset, *(segment.next_offset for segment in nameless), 0)
    _load_epochs(log, known, since)
    log.load_producers(found.snapshots, since, pending.write)
    _hold_writes(log, pending)
    return log


def _hold_writes(log: Log, pending: PendingWrites) -> None:
    """Have a log take no append before the pending writes, nor any, where the disk has failed."""
    if log.health.is_final:
        return  # That was said.
    if pending.failure is not None:
        _flush_failed(log, pending.failure)
    elif pending.writes:
        why = f"{pending.what} could not be saved ({pending.error}); free space in {log.directory}"
        if log.health.failure is None:
            _log.warning("takes no writes yet log=%s error=%r", log, why)
        log.health.fail(why, *(partial(_write_pending, log, write) for write in pending.writes))


def _write_pending(log: Log, write: Callable[[], object]) -> None:
    """Do a pending write; where the disk fails, and not for want of space, a second try would prove nothing."""
    try:
        write()
    except OSError as error:
        log.shared.disk.refused(error)
        if not is_passing(error):
            _flush_failed(log, error)
        raise


def _flush_failed(log: Log, error: OSError) -> None:
    _log.error("flush failed log=%s error=%r", log, str(log.health.flush_failed(error)))


def put_on_disk(logs: Iterable[Log], group_sync: GroupSync | None = None, each: _Each = map) -> None:
    """Put on disk what must be there before an append: where logs end after a crash, and their new leader epochs.

    Two syncs of everything do for all logs, where there is a `group_sync` and that is cheaper: a crash leaves them all
    to be synced, and most of them had nothing appended. `each` is how others are put there one by one, or at once.
    """
    left = [log for log in logs if not log.epochs.is_saved]
    done = set() if group_sync is None else _put_together(group_sync.reached(left), group_sync)
    for _ in each(_put_alone, [log for log in left if log not in done]):
        pass
    if group_sync is not None and group_sync.trust.is_lost:
        # The sync of each log says whether that one gave up any of its pages.
        group_sync.flush([log for log in left if log.health.failure is None])


def _put_together(logs: list[Log], group_sync: GroupSync) -> set[Log]:
    """Return those that are on disk: all that have room for their epochs, or none."""
    if not group_sync.is_cheaper_than(_SYNCS_ALONE * len(logs)):
        return set()
    written = [log for log in logs if _could(log.epochs.write_aside)]
    _log.info("syncing the file system, with all that anybody has written to it, for logs=%d", len(written))
    if not group_sync.sync():
        return set()
    placed = {log for log in written if _could(log.epochs.put_in_place)}
    return placed if group_sync.sync() else set()


def _could(write: Callable[[], None]) -> bool:
    """Tell whether a write succeeds; of what does not the log that is then put on disk alone says why."""
    with suppress(OSError):
        write()
        return True
    return False


def _put_alone(log: Log) -> None:
    pending = PendingWrites(log.shared, "its leader epochs", waits=log.health.failure is not None)
    if log.log_end_offset == log.recovery_point:
        # No flush would find anything to do, and a cut that the crash came upon may not be on disk.
        pending.write(partial(files.sync, log.active.path(LOG)))
    # Nor may one of its append times, by a start before this one, that was refused: what it cut is of no batch to come.
    pending.write(partial(files.sync, log.active.path(APPEND_INDEX)))
    # Records of an epoch that a crash would begin again could not be distinguished from those that it took.
    pending.write(partial(log.epochs.save, durably=True))
    _hold_writes(log, pending)


def _sort_out(folder: Path, ours: bool, pending: PendingWrites) -> _Found:
    """Finish compaction and deletions, remove other leftovers and sidecars without a log; return what is there."""
    names = _names(folder)
    if swap.has_copies(names):
        swap.settle(folder)
        names = _names(folder)
    bases: set[int] = set()
    deleted: set[int] = set()
    snapshots: list[int] = []
    leftovers: list[str] = []
    sidecars: list[str] = []
    for name in names:
        stem, dot, suffix = name.partition(".")
        suffix = dot + suffix
        is_segment = len(stem) == _DIGITS and stem.isdecimal()
        if name.endswith(_LEFTOVERS):
            leftovers.append(name)
            if is_segment and suffix == LOG + DELETED:
                deleted.add(int(stem))
        elif not is_segment:
            continue
        elif suffix == LOG:
            bases.add(int(stem))
        elif suffix == SNAPSHOT:
            snapshots.append(int(stem))
        elif suffix in SUFFIXES:
            sidecars.append(name)
    if ours and deleted:
        # We delete from the front: what a crash brought back of older segments was deleted with the others.
        for base in [base for base in bases if base < max(deleted)]:
            pending.write(partial(files.remove, folder / f"{base:020d}{LOG}"))
            bases.remove(base)
            deleted.add(base)
    orphans = {name: base for name in sidecars if (base := int(name[:_DIGITS])) not in bases}
    for name in orphans:
        pending.write(partial(files.remove, folder / name))
    # The logs that are marked as deleted tell so of the others, and that nothing is lost, until that is on disk.
    if deleted and not pending.write(partial(files.sync_folder, folder)):
        leftovers.clear()
    for name in leftovers:
        pending.write(partial(files.remove, folder / name))
    return _Found(sorted(bases), snapshots, sorted(set(orphans.values()) - deleted))


def _names(folder: Path) -> list[str]:
    """Return what is in a folder; nothing, if a full disk has kept it from being made.

    OSError for what must not be there.
    """
    try:
        names, misplaced = layout.look_through(folder)
    except FileNotFoundError:
        return []
    for name, what in misplaced:
        raise OSError(errno.EINVAL, f"{what}; move it away", str(folder / name))
    return names


def _open_segment(
    maker: continuity.Maker, known: Known, base_offset: int, end_offset: int, is_last: bool
) -> Opened:
    """Open a segment and know its batches: from its summary, from the log, or from both.

    `end_offset` is where it should end: a summary that says otherwise is looked at more closely.
    """
    size, modified_ms = files.status(maker.folder / f"{base_offset:020d}{LOG}") or (0, maker.now_ms)
    unread = Summary(0, 0, base_offset, NONE, maker.config.index_interval_bytes)
    segment = Segment(maker.folder, base_offset, size, unread, maker.config.segment_index_bytes, maker.shared)
    beside = sidecars.load(segment)
    summary = beside.summary
    opening = _Opening(segment, maker, modified_ms, end_offset, known, is_last)
    if summary is None:
        segment.summary = opening.unknown(beside)
        return opening.without_summary(beside)
    # Times are not in the log: they are good wherever the rest ends.
    segment.summary = summary.only_times(base_offset)
    if not summary.flushed:
        return opening.by_log(NONE)
    if verification.is_surely_of_another_log(segment, summary):
        return opening.with_false_summary()
    # No flush of it can have come further than the segment after it begins.
    flushed_to = summary.next_offset if is_last else min(summary.next_offset, end_offset)
    if summary.log_bytes > size:
        data = segment.summary.encode()
        maker.pending.write(partial(files.write_atomically, segment.path(SUMMARY), data))
        return opening.by_log(flushed_to)
    return opening.by_summary(summary, flushed_to)


class _Opening(NamedTuple):
    """A segment on its way from files to what is known of them, and what is known of the log around it."""

    segment: Segment
    maker: continuity.Maker
    modified_ms: int
    end_offset: int
    known: Known
    is_last: bool

    def by_log(self, flushed_to: int) -> Opened:
        """Read all of the log; a summary said that it was flushed up to an offset."""
        segment, known = self.segment, self.known
        segment.become(State.ACTIVE)
        if segment.size:
            _begin_to_read(segment, 0, segment.size)
            segment.rebuild(partial(verification.leaves_gap, segment), _epoch_at(segment.folder))
        self._date(segment)
        if self.is_last and known.clean and segment.next_offset == known.recovery_point:
            flushed_to = segment.next_offset  # A clean stop has noted the end: nothing is missing.
        return Opened(segment, flushed_to)

    def unknown(self, beside: Sidecars) -> Summary:
        """Return what is known of the segment without its summary, before its log is read."""
        segment, maker = self.segment, self.maker
        created_ms = min(self.modified_ms, maker.now_ms)
        interval = maker.config.index_interval_bytes
        return beside.unknown(segment.base_offset, segment.size, created_ms, interval)

    def without_summary(self, beside: Sidecars) -> Opened:
        """Open a segment that has no summary, or none that counts."""
        segment, maker, known = self.segment, self.maker, self.known
        if beside.has_other_summary:
            return self._with_other_summary()
        if known.ours and self.is_last and beside.header is None:
            # It was appended to here, and has lost its append index as well.
            segment.summary.appended_from = 0
        if segment.size == 0 and known.clean:
            segment.use_summary(segment.summary, finished=_ends_as_closed(segment, segment.summary))
            return Opened(segment, NONE)
        # A power cut may have taken the other files, and names with them, of what was appended here and not by Kafka.
        is_cut = known.ours and not known.clean
        by_ms = files.latest_ms(self.modified_ms) if is_cut else self.modified_ms
        if last_entries.open_by_index(segment, by_ms, maker.now_ms, known.recovery_point):
            return Opened(segment, segment.next_offset)
        return self.by_log(NONE)._replace(is_other_version=beside.is_other_version and segment.size > 0)

    def _with_other_summary(self) -> Opened:
        """Read all of the log; an empty segment that is not the last one stands for lost offsets.

        Only such a segment has a summary and no batches.
        """
        segment = self.segment
        if segment.size or self.is_last:
            self.by_log(NONE)
            self.maker.pending.write(partial(files.remove, segment.path(SUMMARY)))
        else:
            segment.summary.damage = (Damage(0, 0, self.end_offset),)
            self.maker.pending.write(partial(segment.replace_summary, finished=True))
        return Opened(segment, NONE, is_other_version=True, has_other_summary=True)

    def with_false_summary(self) -> Opened:
        """Read all of the log, and remove the summary: it is of another log."""
        segment = self.segment
        _log.warning("rebuilt from the log file=%s reason=summary-not-of-this-log", segment.path(LOG))
        self.maker.pending.write(partial(files.remove, segment.path(SUMMARY)))
        segment.summary = self.unknown(sidecars.without_summary(segment))
        return self.by_log(NONE)

    def by_summary(self, summary: Summary, flushed_to: int) -> Opened:
        """Believe a summary of what was flushed as far as it is true, and read the rest."""
        segment, known, size = self.segment, self.known, self.segment.size
        is_whole = summary.log_bytes == size
        # After a crash the last one, whichever that will be, is saved again: an index may hold more than the summary
        # says. So is one whose files a power cut has taken after a clean stop.
        segment.use_summary(summary, finished=is_whole and known.clean and _ends_as_closed(segment, summary))
        if is_whole and known.clean and summary.next_offset == self.end_offset:
            return Opened(segment, flushed_to)
        if not is_whole:
            segment.become(State.ACTIVE)
        if not _is_as_described(segment):
            segment.shared.tally.read(size)
            if verification.is_of_another_log(segment, summary):
                return self.with_false_summary()
            segment = verification.recheck(segment, _epoch_at(segment.folder))
            if not segment.summary.damage:
                flushed_to = min(flushed_to, segment.next_offset)  # The summary was of another log.
            save = partial(segment.save, final=not self.is_last, flushed=is_whole, durably=True)
            self.maker.pending.write(partial(_unless_gone, save))
        if not is_whole:
            segment.size = size
            _begin_to_read(segment, summary.log_bytes, size)
            segment.scan(partial(verification.leaves_gap, segment), _epoch_at(segment.folder))
            self._date(segment)
        return Opened(segment, flushed_to)

    def _date(self, segment: Segment) -> None:
        """Find out when what was scanned was appended; the time by which all of it was stands in where nothing tells.

        That is the time of the file, or the first append to the segment after it, if that came before. What tells of
        batches that are not there goes, before others get their offsets.
        """
        # For what came from elsewhere no append time was given to anybody: the time of the file stands.
        latest_ms = files.latest_ms(self.modified_ms) if self.known.ours else self.modified_ms
        bound_ms = append_index.bound_ms(segment.summary, latest_ms, self.maker.now_ms)
        if not self.is_last:
            following = segment.folder / f"{self.end_offset:020d}{APPEND_INDEX}"
            next_ms = append_index.first_ms(following, self.end_offset)
            bound_ms = bound_ms if next_ms is None else min(bound_ms, next_ms)
        mended = segment.mend_append_index(bound_ms, is_tail_lost=self.known.was_cut_off)
        if mended is not None:
            self.maker.pending.write(mended.replace_file)


def _begin_to_read(segment: Segment, start: int, end: int) -> None:
    segment.file.forget_clean(start)
    segment.shared.tally.read(end - start)


def _ends_as_closed(segment: Segment, summary: Summary) -> bool:
    """Tell whether the time index ends with the largest timestamp, as sealing and closing leave it.

    And whether both are as long as the summary says: what a power cut has undone may be a cut.
    """
    times = files.map_readonly(segment.path(TIME_INDEX))
    offsets = files.status(segment.path(INDEX))
    return (
        time_index.last_entry(times)[0] == summary.max_timestamp
        and len(times) == summary.time_entries * TimeIndex.entry_bytes
        and (offsets.size if offsets else 0) == summary.offset_entries * OffsetIndex.entry_bytes
    )


def _seal(segment: Segment, pending: PendingWrites) -> None:
    """Save what a scan of a segment has found; where there is no room for that, it is found again when it is needed."""
    try:
        if segment.summary.damage:
            # Once it is not the last segment, only its summary may tell that a whole batch is not to be believed.
            segment.file.sync()
            segment.replace_summary(finished=True)
        segment.finish()
    except OSError as error:
        pending.refused(error)
        segment.replace_files(flushed=False)
    else:
        segment.seal()


def _finish(segment: Segment, pending: PendingWrites) -> None:
    """Add the last time entry where the summary is of before the segment was sealed: a power cut took what came after.

    A flush of anything behind it would have put that on disk.
    """
    if not _ends_as_closed(segment, segment.summary) and segment.load_indexes() is not None:
        pending.write(partial(_unless_gone, segment.finish, flushed=True))
        segment.release()


def _unless_gone(save: Callable[..., object], **how: bool) -> None:
    """Save what is known of a segment, unless it was let go meanwhile and its files are not as far, or were deleted.

    Then the next read rebuilds them.
    """
    with suppress(Mismatch, OffsetOutOfRange):
        save(**how)


def _is_as_described(segment: Segment) -> bool:
    """Tell whether the last block that a summary describes is there, and the indexes if the log goes on after it."""
    try:
        segment.verify(segment.summary.log_bytes - 1, segment.summary.log_bytes, PATIENT)
    except Mismatch:
        return False
    return not segment.is_active or segment.load_indexes() is not None


def _epoch_at(folder: Path) -> Callable[[int], int]:
    epochs = LeaderEpochs.load(folder)
    return LeaderEpochs(folder).at if epochs is None else epochs.at


def _load_epochs(log: Log, known: Known, since: int) -> None:
    """Load the leader epochs, or make them from the batches; begin a new one after an unclean stop (KIP-101).

    No batch before the offset `since` bears one. What has changed is yet to be put on disk.
    """
    end = log.log_end_offset
    epochs = LeaderEpochs.load(log.directory) or LeaderEpochs(log.directory)
    log.epochs = epochs  # A segment that is checked again below needs them.
    # The file is written without waiting for the disk: after an unclean stop the last batch may know better.
    last = None if known.clean else _last_batch(log)
    latest = max(epochs.latest, NONE if last is None else last.leader_epoch)
    is_wrong = last is not None and epochs.at(last.last_offset) != last.leader_epoch != NONE
    changed = False
    if not epochs.entries or is_wrong or epochs.entries[0][1] > since:
        changed = True
        epochs = LeaderEpochs(log.directory)
        for _, _, header in log.headers(since):
            epochs.begin(header.leader_epoch, header.base_offset)
    if epochs.entries and epochs.entries[-1][1] > end:
        epochs.keep(end + 1)
        changed = True
    latest = max(latest, known.first_epoch)
    if not known.clean:
        # Records that a client read may be gone.
        epochs.begin(min(latest + 1, INT_MAX), end)
        changed = True
    elif changed:
        epochs.begin(latest, end)  # The file that named it may be gone.
    epochs.drop_before(log.log_start_offset)
    log.epochs = epochs
    log.leader_epoch = epochs.latest
    if changed:
        epochs.is_saved = False


def _last_batch(log: Log) -> BatchHeader | None:
    """Return the header of the last batch that can be read, if there is one."""
    for segment in reversed(log.segments):
        if segment.summary.batch_count:
            return max((header for _, _, header in log.headers(segment.next_offset - 1)), default=None)
    return None
