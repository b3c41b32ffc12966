"""Opens the log in a partition's folder: decides what to believe, to verify and to cut, and what is lost.

Owns the rules for what a crash or a bad disk leaves:

1. What was interrupted is finished: leftovers of deletions and replacements are removed, and copies that compaction had
   decided on get the places of their sources (`compaction/swap`).
2. A summary that says that its part of the log was flushed is believed. Its last block must match, unless a clean stop
   closed the log at the end that the summary says; the other blocks are verified before they are first read
   (`blocks`). What comes after that part is scanned, and so is all of a segment without such a summary: every batch is
   verified, and the indexes come out as if the batches had just been appended. A false summary is replaced, durably,
   before the log takes an append. A segment that Kafka wrote, and flushed by its own checkpoint, is opened by the last
   entries of its indexes (`last_entries`), and scanned when it is first read.
3. An empty segment that begins within another is an unfinished roll: it is removed. If both hold batches, nothing tells
   which are right: the log is refused.
4. A flush covers everything that was appended before it. So damage or a gap that no known flush covers is the part of
   the last appends that a crash destroyed. It is cut, with everything after it: none of that was acknowledged as on
   disk. Only an incomplete batch at the end is cut from a log that came from elsewhere, that was closed, or whose
   system ran on after the writer ended: all that was written is there. The same holds beside a summary of another
   version, which may record a flush that nothing else records.
5. Other damage is kept, named in the broker's log and in the segment's summary, and answered as corrupt. The rest is
   served.
6. Offsets that are known to have been on disk and are gone are marked as lost: an empty segment begins with the first
   of them, its summary has the offset after the last, and appends continue there. No offset is given out twice.
7. Where the append times of batches are lost, those with LogAppendTime carry theirs. For others the time of the file
   stands in, because retention needs one, but never a time in the future. No client has seen those times: only
   LogAppendTime shows them.
8. A write that a full disk refuses stays pending: the log is read, and takes no append before the write is done. After
   any other failure of the disk the log is read, and takes no appends at all.

Recovery is idempotent.
"""

import errno
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

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
    walk,
)
from tidelog.storage.compaction import swap
from tidelog.storage.continuity import Opened, PendingWrites
from tidelog.storage.deleted_files import DELETED
from tidelog.storage.disk_space import is_passing
from tidelog.storage.errors import CorruptLog, Mismatch, OffsetOutOfRange
from tidelog.storage.group_sync import GroupSync
from tidelog.storage.layout import APPEND_INDEX, INDEX, LOG, SUFFIXES, SUMMARY, TIME_INDEX
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.producer_snapshots import SUFFIX as SNAPSHOT
from tidelog.storage.segment import Segment, State
from tidelog.storage.shared import Shared
from tidelog.storage.sidecars import Sidecars
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import NONE, Damage, Summary
from tidelog.storage.time_index import TimeIndex

# Suffixes of files that do not count: deleted, half written.
_LEFTOVERS: Final = (DELETED, ".tmp")
# Calls a function for each log, as `map` does.
_Each = Callable[[Callable[[Log], None], list[Log]], Iterable[None]]
# The syncs that a log takes on its own: its end, its leader epochs, and their name. Append times are mostly on disk.
_SYNCS_ALONE: Final = 3

_log = logging.getLogger(__name__)


class Known(NamedTuple):
    """What the data folder remembers of a log; nothing of a log from elsewhere, which is not `ours`.

    `was_cut_off` is false if the system has run on since the log was last opened, and no write or sync failed, except
    for lack of space. `is_start_noted` tells whether a checkpoint names the log start offset. No client has seen a
    leader epoch above `first_epoch`, and an epoch that begins now is not below it.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    ours: bool = False
    was_cut_off: bool = True
    is_start_noted: bool = False
    first_epoch: int = 0

    @property
    def may_lack_unflushed(self) -> bool:
        """Whether a power cut may have taken what no flush covers."""
        return self.ours and self.was_cut_off and not self.clean

    @property
    def vouches_for_files(self) -> bool:
        """Whether to take the ends of the logs from the files beside them, because no checkpoint records them.

        They cannot after a power cut, which may keep files that were written after batches that it takes.
        """
        return self.ours and not (self.recovery_point if self.clean else self.was_cut_off)


class _Found(NamedTuple):
    """What a folder holds; `lost` are the base offsets of segments whose log is gone and was not deleted."""

    bases: list[int]
    snapshots: list[int]
    lost: list[int]


def load(
    folder: Path, topic: str, partition: int, config: TopicConfig, shared: Shared, known: Known, now_ms: int
) -> Log:
    """Open the log in a folder to be read and appended to. CorruptLog if two segments hold the same offsets."""
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
    """Make the log of a partition that has no folder; writes that the disk refuses come before the first append."""
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
    """Open a log to be read, and after `put_on_disk` to be appended to; `pending` are writes that come first."""
    pending = pending or PendingWrites(shared, "what its start has found")
    found = _sort_out(folder, known.ours, pending)
    last = len(found.bases) - 1
    known_end = 0
    if known.vouches_for_files:  # before segments are opened: that mends the files
        known_end = continuity.known_end(folder, found.bases, found.snapshots)
    maker = continuity.Maker(folder, config, shared, now_ms, pending)
    epochs = LeaderEpochs.load(folder) or LeaderEpochs(folder)
    ends = [*found.bases[1:], known.recovery_point]
    opened = [
        _open_segment(maker, known, epochs, base, end, n == last)
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
    if known.may_lack_unflushed and not any(each.has_other_summary for each in opened):
        continuity.cut_unflushed(segments, known.log_start_offset, flushed_to, pending)
    continuity.cut_torn_tail(segments, flushed_to, pending)
    continuity.mark_lost_within(segments, known.log_start_offset, flushed, found.lost, maker)
    if (
        known.clean and known.is_start_noted
    ):  # else retention may have deleted after the checkpoint was written
        continuity.mark_lost_before(segments, known.log_start_offset, maker)
    continuity.begin_segment_if_needed(segments, known.log_start_offset, flushed_to, maker)
    continuity.bound_damage(segments)
    for segment in segments[:-1]:
        if segment.is_active:
            _seal(segment, pending)
        elif segment.next_offset >= known.recovery_point and not segment.is_known_by_index:
            _finish(segment, pending)
    segments[-1].become(State.ACTIVE)
    pending.write(segments[-1].own_log)  # if a crash took the newer segment, this one may have links
    if known.was_cut_off:
        pending.write(partial(_cut_append_times, segments[-1]))
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
    since = max((segment.next_offset for segment in nameless), default=0)
    _settle_epochs(log, epochs, known, max(since, log.log_start_offset))
    log.load_producers(found.snapshots, since, pending.write)
    _hold_writes(log, pending)
    return log


def _hold_writes(log: Log, pending: PendingWrites) -> None:
    """Refuse appends until the pending writes are done, or for good if the disk has failed."""
    if log.health.is_final:
        return  # That was logged.
    if pending.failure is not None:
        _flush_failed(log, pending.failure)
    elif pending.writes:
        why = f"{pending.what} could not be saved ({pending.error}); free space in {log.directory}"
        if log.health.failure is None:
            _log.warning("takes no writes yet log=%s error=%r", log, why)
        log.health.fail(why, *(partial(_write_pending, log, write) for write in pending.writes))


def _write_pending(log: Log, write: Callable[[], object]) -> None:
    """Do a pending write. Any failure but a lack of space is final: a second try would prove nothing."""
    try:
        write()
    except OSError as error:
        log.shared.disk.refused(error)
        if not is_passing(error):
            _flush_failed(log, error)
        raise


def _flush_failed(log: Log, error: OSError) -> None:
    _log.error("flush failed log=%s error=%r", log, str(log.health.flush_failed(error)))


def put_on_disk(
    logs: Iterable[Log], group_sync: GroupSync | None = None, each: _Each = map, first_epoch: int = 0
) -> None:
    """Sync what must be on disk before an append: where logs end after a crash, and their new leader epochs.

    With a `group_sync`, one sync of the file system serves all logs if that is cheaper: after a crash all of them need
    a sync, though most had no appends. `each` syncs the others, one by one or at once. `first_epoch` is that of new
    logs (`Known`).
    """
    left = [log for log in logs if not log.epochs.is_saved]
    done: set[Log] = set()
    if group_sync is not None:
        # A power cut may tear a file that is overwritten. Then it is rebuilt: batches carry their epochs, and
        # `first_epoch` is not below any epoch without batches. Replacing thousands of files takes seconds.
        noted = [log for log in group_sync.reached(left) if log.epochs.latest_in_file <= first_epoch]
        done = _put_together(noted, group_sync)
    for _ in each(_put_alone, [log for log in left if log not in done]):
        pass
    if group_sync is not None and group_sync.trust.is_lost:
        # The sync of each log tells whether the system dropped pages of that log.
        group_sync.flush([log for log in left if log.health.failure is None])


def _put_together(logs: list[Log], group_sync: GroupSync) -> set[Log]:
    """Sync logs together; return those that are on disk: all whose epochs could be written, or none."""
    if not group_sync.is_cheaper_than(_SYNCS_ALONE * len(logs)):
        return set()
    written = {log for log in logs if _could_save(log.epochs)}
    _log.info("syncing the whole file system for logs=%d", len(written))
    return written if group_sync.sync() else set()


def _could_save(epochs: LeaderEpochs) -> bool:
    """Try to save leader epochs; tell whether they are saved. If not, `_put_alone` tries again and logs the reason."""
    with suppress(OSError):
        epochs.save()
    return epochs.is_saved


def _put_alone(log: Log) -> None:
    pending = PendingWrites(log.shared, "its leader epochs", waits=log.health.failure is not None)
    if log.log_end_offset == log.recovery_point:
        # A flush would find nothing to do, and a cut that a crash interrupted may not be on disk.
        pending.write(partial(files.sync, log.active.path(LOG)))
    # An earlier start may have cut append times without a sync. They must not come back for batches to come.
    pending.write(partial(files.sync, log.active.path(APPEND_INDEX)))
    # If a crash took the epoch, the next start would use it again for other records.
    pending.write(partial(log.epochs.save, durably=True))
    _hold_writes(log, pending)


def _sort_out(folder: Path, ours: bool, pending: PendingWrites) -> _Found:
    """Finish compactions and deletions, remove other leftovers and sidecars without a log; return what is left."""
    names = _names(folder)
    if swap.has_copies(names):
        swap.settle(folder)
        names = _names(folder)
    bases: set[int] = set()
    deleted: set[int] = set()
    snapshots: list[int] = []
    leftovers: list[str] = []
    sidecars: dict[str, int] = {}
    for name in names:
        base, suffix = layout.of_segment(name) or (NONE, "")
        if name.endswith(_LEFTOVERS):
            leftovers.append(name)
            if suffix == LOG + DELETED:
                deleted.add(base)
        elif suffix == LOG:
            bases.add(base)
        elif suffix == SNAPSHOT:
            snapshots.append(base)
        elif suffix in SUFFIXES:
            sidecars[name] = base
    if ours and deleted:
        # Deletion goes from the front: older segments were deleted too, and a crash has brought them back.
        for base in [base for base in bases if base < max(deleted)]:
            pending.write(partial(files.remove, folder / f"{base:020d}{LOG}"))
            bases.remove(base)
            deleted.add(base)
    orphans = {name: base for name, base in sidecars.items() if base not in bases}
    for name in orphans:
        pending.write(partial(files.remove, folder / name))
    # Until these removals are on disk, the logs marked as deleted stay: they prove that nothing is lost.
    if deleted and not pending.write(partial(files.sync_folder, folder)):
        leftovers.clear()
    for name in leftovers:
        pending.write(partial(files.remove, folder / name))
    return _Found(sorted(bases), snapshots, sorted(set(orphans.values()) - deleted))


def _names(folder: Path) -> list[str]:
    """Return the names in a folder; none if it is missing, because the disk was full. OSError for a misplaced file."""
    try:
        names, misplaced = layout.look_through(folder)
    except FileNotFoundError:
        return []
    for name, what in misplaced:
        raise OSError(errno.EINVAL, f"{what}; move it away", str(folder / name))
    return names


def _open_segment(
    maker: continuity.Maker,
    known: Known,
    epochs: LeaderEpochs,
    base_offset: int,
    end_offset: int,
    is_last: bool,
) -> Opened:
    """Open a segment by its summary, by its log, or by both.

    `end_offset` is where it should end. A summary that says otherwise is checked against the log.
    """
    size, modified_ms = files.status(maker.folder / f"{base_offset:020d}{LOG}") or (0, maker.now_ms)
    unread = Summary(0, 0, base_offset, NONE, maker.config.index_interval_bytes)
    segment = Segment(maker.folder, base_offset, size, unread, maker.config.segment_index_bytes, maker.shared)
    beside = sidecars.load(segment)
    summary = beside.summary
    opening = _Opening(segment, maker, epochs.at, modified_ms, end_offset, known, is_last)
    if summary is None:
        segment.summary = opening.unknown(beside)
        return opening.without_summary(beside)
    # The log does not hold these times, so they count whatever else of the summary does not.
    segment.summary = summary.only_times(base_offset)
    flushed_to = summary.flushed_to(None if is_last else end_offset)
    if not summary.flushed:
        return opening.by_log(flushed_to)
    if verification.is_surely_of_another_log(segment, summary):
        return opening.with_false_summary()
    if summary.log_bytes > size:
        data = segment.summary.encode()
        maker.pending.write(partial(files.write_atomically, segment.path(SUMMARY), data))
        return opening.by_log(flushed_to)
    return opening.by_summary(summary, flushed_to)


class _Opening(NamedTuple):
    """The opening of one segment, with what is known of the log around it."""

    segment: Segment
    maker: continuity.Maker
    epoch_at: walk.EpochAt
    modified_ms: int
    end_offset: int
    known: Known
    is_last: bool

    def by_log(self, flushed_to: int) -> Opened:
        """Scan all of the log; `flushed_to` is what its summary proved to be on disk."""
        segment, known = self.segment, self.known
        segment.become(State.ACTIVE)
        if segment.size:
            _begin_to_read(segment, 0, segment.size)
            segment.rebuild(partial(verification.leaves_gap, segment), self.epoch_at)
        self._date(segment)
        if self.is_last and known.clean and segment.next_offset == known.recovery_point:
            flushed_to = segment.next_offset  # A clean stop noted this end: nothing is missing.
        return Opened(segment, flushed_to)

    def unknown(self, beside: Sidecars) -> Summary:
        """Return what is known of the segment without a summary, before its log is read."""
        segment, maker = self.segment, self.maker
        created_ms = min(self.modified_ms, maker.now_ms)
        interval = maker.config.index_interval_bytes
        return beside.unknown(segment.base_offset, segment.size, created_ms, interval)

    def without_summary(self, beside: Sidecars) -> Opened:
        """Open a segment that has no summary, or one that does not count."""
        segment, maker, known = self.segment, self.maker, self.known
        if beside.has_other_summary:
            return self._with_other_summary()
        if known.ours and self.is_last and beside.header is None:
            # It was appended to here, and its append index is lost as well.
            segment.summary.appended_from = 0
        if segment.size == 0 and known.clean:
            segment.use_summary(segment.summary, finished=_ends_as_closed(segment, segment.summary))
            return Opened(segment, NONE)
        # A power cut may have taken the other files of a segment that was written here, so that it looks like Kafka's.
        is_cut = known.ours and not known.clean
        by_ms = files.latest_ms(self.modified_ms) if is_cut else self.modified_ms
        if last_entries.open_by_index(segment, by_ms, maker.now_ms, known.recovery_point):
            return Opened(segment, segment.next_offset)
        return self.by_log(NONE)._replace(is_other_version=beside.are_rebuilt(segment.size))

    def _with_other_summary(self) -> Opened:
        """Scan all of the log. An empty segment before the last one stands for lost offsets: no other has a summary."""
        segment = self.segment
        if segment.size or self.is_last:
            self.by_log(NONE)
            self.maker.pending.write(partial(files.remove, segment.path(SUMMARY)))
        else:
            segment.summary.damage = (Damage(0, 0, self.end_offset),)
            self.maker.pending.write(partial(segment.replace_summary, finished=True))
        return Opened(segment, NONE, is_other_version=True, has_other_summary=True)

    def with_false_summary(self) -> Opened:
        """Scan all of the log and remove the summary: it is of another log."""
        segment = self.segment
        _log.warning("rebuilt from the log file=%s reason=summary-not-of-this-log", segment.path(LOG))
        self.maker.pending.write(partial(files.remove, segment.path(SUMMARY)))
        segment.summary = self.unknown(sidecars.without_summary(segment))
        return self.by_log(NONE)

    def by_summary(self, summary: Summary, flushed_to: int) -> Opened:
        """Believe a summary of flushed batches as far as it is true, and scan the rest."""
        segment, known, size = self.segment, self.known, self.segment.size
        is_whole = summary.log_bytes == size
        # It is saved again when it is sealed or closed, unless a clean stop has left all its files: after a crash an
        # index may hold more than the summary says.
        segment.use_summary(summary, finished=is_whole and known.clean and _ends_as_closed(segment, summary))
        if is_whole and known.clean and summary.next_offset == self.end_offset:
            return Opened(segment, flushed_to)
        if not is_whole:
            segment.become(State.ACTIVE)
        if not _is_as_described(segment):
            segment.shared.tally.read(size)
            if verification.is_of_another_log(segment, summary):
                return self.with_false_summary()
            segment = verification.recheck(segment, self.epoch_at)
            if not segment.summary.damage:
                flushed_to = min(flushed_to, segment.next_offset)  # The summary is of another log.
            save = partial(segment.save, final=not self.is_last, flushed=is_whole, durably=True)
            self.maker.pending.write(partial(_unless_gone, save))
        if not is_whole:
            segment.size = size
            _begin_to_read(segment, summary.log_bytes, size)
            segment.scan(partial(verification.leaves_gap, segment), self.epoch_at)
            self._date(segment)
        return Opened(segment, flushed_to)

    def _date(self, segment: Segment) -> None:
        """Find the append times of the batches that were scanned, or bounds for them.

        The bound is the time of the file, or that of the first append to the next segment if it came earlier. Entries
        of batches that are gone are removed, before other batches get their offsets.
        """
        # No client was given append times of a log from elsewhere: the time of the file will do as it is.
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
    """Tell whether the indexes are as sealing or closing leaves them.

    The time index ends with the largest timestamp, and both are as long as the summary says. A power cut may have
    undone a cut of them.
    """
    times = files.map_readonly(segment.path(TIME_INDEX))
    offsets = files.status(segment.path(INDEX))
    return (
        time_index.last_entry(times)[0] == summary.max_timestamp
        and len(times) == summary.time_entries * TimeIndex.entry_bytes
        and (offsets.size if offsets else 0) == summary.offset_entries * OffsetIndex.entry_bytes
    )


def _seal(segment: Segment, pending: PendingWrites) -> None:
    """Save what a scan of a segment has found. If the disk is full, a later read finds it again."""
    try:
        if segment.summary.damage:
            # In a segment that is not the last, only the summary can tell that a whole batch is damage.
            segment.file.sync()
            segment.replace_summary(finished=True)
        segment.finish()
    except OSError as error:
        pending.refused(error)
        segment.replace_files(flushed=False)
    else:
        segment.seal()


def _cut_append_times(segment: Segment) -> None:
    """Remove append times of batches that a power cut took: a later start would take them for proof of a loss."""
    with suppress(CorruptLog):  # the first append will say it
        segment.append_index.cut(segment.next_offset - segment.base_offset)


def _finish(segment: Segment, pending: PendingWrites) -> None:
    """Add the last time entry if the summary is from before the segment was sealed.

    A power cut took the later summary: nothing after this segment was flushed, or it would be on disk.
    """
    if not _ends_as_closed(segment, segment.summary) and segment.load_indexes() is not None:
        pending.write(partial(_unless_gone, segment.finish, flushed=True))
        segment.release()


def _unless_gone(save: Callable[..., object], **how: bool) -> None:
    """Save what is known of a segment, unless its indexes are no longer in memory and its files lag or are gone.

    Then the next read rebuilds them.
    """
    with suppress(Mismatch, OffsetOutOfRange):
        save(**how)


def _is_as_described(segment: Segment) -> bool:
    """Tell whether the last block of the summary matches the log; and its indexes, if the log goes on after it."""
    try:
        segment.verify(segment.summary.log_bytes - 1, segment.summary.log_bytes, PATIENT)
    except Mismatch:
        return False
    return not segment.is_active or segment.load_indexes() is not None


def _settle_epochs(log: Log, epochs: LeaderEpochs, known: Known, since: int) -> None:
    """Give a log its leader epochs, or make them from the batches; begin one after an unclean stop (KIP-101).

    No batch before `since` carries an epoch. Changes are not on disk yet.
    """
    end = log.log_end_offset
    log.epochs = epochs  # `log.headers` may check a segment again, which needs them.
    # Nobody waits for the disk to have the file: after an unclean stop the last batch may be newer.
    last = None if known.clean else _last_batch(log)
    latest = max(epochs.latest, NONE if last is None else last.leader_epoch)
    is_wrong = last is not None and epochs.at(last.last_offset) != last.leader_epoch != NONE
    changed = False
    if not epochs.entries or is_wrong or epochs.entries[0][1] > since:
        changed = True
        made = LeaderEpochs(log.directory)
        for _, _, header in log.headers(since):
            made.begin(header.leader_epoch, header.base_offset)
        epochs.entries = made.entries
    if epochs.entries and epochs.entries[-1][1] > end:
        epochs.keep(end + 1)
        changed = True
    latest = max(latest, known.first_epoch)
    if not known.clean:
        # Records that a client has read may be gone.
        epochs.begin(min(latest + 1, INT_MAX), end)
        changed = True
    elif changed:
        epochs.begin(latest, end)  # The file that named it may have been lost.
    epochs.drop_before(log.log_start_offset)
    log.leader_epoch = epochs.latest
    if changed:
        epochs.is_saved = False


def _last_batch(log: Log) -> BatchHeader | None:
    """Return the header of the last batch that can be read; None if there is none."""
    for segment in reversed(log.segments):
        if segment.summary.batch_count:
            return max((header for _, _, header in log.headers(segment.next_offset - 1)), default=None)
    return None
