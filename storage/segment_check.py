"""Checks the files of one segment, and rebuilds those that are a function of its log.

Owns the comparison: the log is walked by the rules of a recovery, and the result (indexes, summary, damage) is compared
with the files. Knows nothing of other segments, of locks, or of whether the segment is being written (`fsck`): the
caller says how far the files may lag. A check writes nothing, and a repair writes no byte of a log.

No checksum of a batch covers its base offset and its leader epoch. In blocks that match the digests of the summary both
are as they were written, gaps included, which compaction and imports leave. Elsewhere the offset must follow if the
segment's batches were appended here (`summary.Origin`), and must rise in any case.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records import message_set
from tidelog.protocol.records.batch import MAGIC, BatchHeader
from tidelog.protocol.records.build import read_records
from tidelog.protocol.records.checksum import crc32c
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage import (
    append_index,
    blocks,
    files,
    offset_index,
    sidecars,
    time_index,
    verification,
    walk,
)
from tidelog.storage.append_index import AppendIndex
from tidelog.storage.continuity import has_torn_tail
from tidelog.storage.errors import CorruptLog
from tidelog.storage.layout import APPEND_INDEX, INDEX, LOG, SUMMARY, TIME_INDEX
from tidelog.storage.minima import UNKNOWN
from tidelog.storage.read_only import ReadOnlySegment, ReadOnlyShared
from tidelog.storage.segment import Segment
from tidelog.storage.summary import NONE, OFFSET_MAX, Summary

DEFAULT_INTERVAL: Final = TopicConfig().index_interval_bytes
# The fields of a summary that follow from the log and the index interval alone.
_COUNTED: Final = (
    "next_offset",
    "record_count",
    "batch_count",
    "first_timestamp",
    "max_timestamp",
    "max_timestamp_last_offset",
    "indexed_position",
)


class Finding(NamedTuple):
    """Something wrong in a file, and where; `offset` is the first one that cannot be read for it, if there is one."""

    path: Path
    position: int
    what: str
    offset: int | None = None


class Around(NamedTuple):
    """What other files tell of a segment.

    `lags` is true for the last segment of a log that is being written, or whose writer was killed: its files may lag
    behind its log, and a batch after `flushed_to` may be incomplete. `closed_at` is the end that a clean stop noted.
    """

    epoch_at: Callable[[int], int]
    lags: bool = False
    flushed_to: int = 0
    next_base: int | None = None
    closed_at: int | None = None


class Contents(NamedTuple):
    """The files beside a log, read before it. A missing one is None; a missing append index is empty."""

    offsets: bytes | None
    times: bytes | None
    append_index: bytes
    summary: bytes | None


class _Described(NamedTuple):
    """What a walk has found up to a position; `final` is the time entry that sealing there would add."""

    summary: Summary
    offsets: bytes
    times: bytes
    final: bytes


class SegmentCheck:
    """The check of one segment. `check` fills `findings`; `repair` may follow.

    `beside` is what its summary and its append index are, `found` the segment as the walk found it. `flushed_to` is the
    offset before which its summary proves a flush, or NONE. `has_bounds` tells whether a repair put bounds in the place
    of append times.
    """

    def __init__(self, folder: Path, base_offset: int, around: Around, mark: str = "") -> None:
        """Read the files beside the log, then the log's size: a writer has written what they describe by then."""
        fresh = Summary(0, 0, base_offset, NONE, DEFAULT_INTERVAL)
        self._segment = ReadOnlySegment(folder, base_offset, 0, fresh, 0, ReadOnlyShared(folder))
        self._segment.mark = mark
        path = self._segment.path
        self.contents = Contents(
            files.load(path(INDEX)),
            files.load(path(TIME_INDEX)),
            files.load(path(APPEND_INDEX)) or b"",
            files.load(path(SUMMARY)),
        )
        status = files.status(path(LOG))
        if status is None:
            raise FileNotFoundError(2, "No such file or directory", str(path(LOG)))
        self.findings: list[Finding] = []
        self.beside = sidecars.parsed(self._segment, self.contents.summary, self.contents.append_index)
        self.flushed_to = NONE
        self.has_bounds = False
        self._segment.summary = self.beside.unknown(
            base_offset, status.size, status.modified_ms, DEFAULT_INTERVAL
        )
        self._segment.size = status.size
        self.found: Segment = self._segment
        self._around = around
        self._header = self.beside.header
        self._summary = self.beside.summary  # None once it is known not to count
        self._is_cut_short = False  # the log ends before what its summary describes

    @property
    def base_offset(self) -> int:
        """The offset in the segment's name."""
        return self._segment.base_offset

    @property
    def path(self) -> Path:
        """The path of its log."""
        return self._segment.path(LOG)

    @property
    def size(self) -> int:
        """The size of its log in bytes, before a repair."""
        return self._segment.size

    @property
    def next_offset(self) -> int:
        """The offset after the last sound batch, or after damage whose end is known."""
        damage = self.found.summary.damage
        after = damage[-1].next_offset if damage and damage[-1].next_offset != OFFSET_MAX else 0
        return max(self.found.next_offset, after)

    @property
    def ends_in_damage(self) -> bool:
        """Whether no sound batch follows the last damage."""
        damage = self.found.summary.damage
        return bool(damage) and damage[-1].end == self.found.size

    def check(self, *, deep: bool) -> list[Finding]:
        """Check all files; with `deep` decode every record too. CorruptLog, OSError."""
        described = self._walk()
        self._check_damage()
        self._check_indexes(described)
        self._check_summary(described)
        self._check_append_index()
        if not described.summary.log_bytes:
            self._check_epochs()
        if deep:
            self._check_records()
        self._close_files()
        return self.findings

    def _say(self, suffix: str, position: int, what: str, offset: int | None = None) -> None:
        self.findings.append(Finding(self._segment.path(suffix), position, what, offset))

    @property
    def is_described(self) -> bool:
        """Whether a summary vouches for the indexes: no start believes them without."""
        return self._summary is not None and 0 < self._summary.log_bytes <= self._segment.size

    # The walk.

    def _walk(self) -> _Described:
        """Walk over what the summary describes, then over the rest."""
        segment, summary = self._segment, self._summary_to_go_by()
        segment.use_summary(summary, finished=False)
        found, mismatches = verification.walked(segment, self._around.epoch_at)
        self.found = found
        is_other = bool(mismatches) and verification.is_of_another_log(segment, summary)
        if is_other or (mismatches and not found.summary.damage):
            position = min(mismatches) * blocks.BLOCK_BYTES
            self._say(
                SUMMARY,
                0,
                f"not of this log: {len(mismatches)} blocks differ from its digests, the first one at {position}",
            )
            self._summary = None
            self.flushed_to = NONE if is_other else min(self.flushed_to, found.next_offset)
        described = _state(found)
        is_ours = self._header is not None or (bool(summary.log_bytes) and self._summary is not None)
        found.size = segment.size
        found.scan(self._refuses(is_ours=is_ours), self._around.epoch_at)
        self._leave_torn_tail(found)
        if self._is_cut_short and found.next_offset == self._around.closed_at:
            self._say(SUMMARY, 0, f"not of this log, which a clean stop closed at offset {found.next_offset}")
            self._is_cut_short, self._summary = False, None
        elif self._is_cut_short and self.flushed_to == NONE and found.next_offset == self._around.next_base:
            # A start has cut the log here, and a power cut took the summary that it wrote then.
            self._say(SUMMARY, 0, "describes more than the log, which the next segment continues")
            self._is_cut_short, self._summary = False, None
        if self._is_cut_short and self._summary is not None:
            lost, end = self._summary.log_bytes - segment.size, self._summary.next_offset
            what = (
                f"ends here; {lost} bytes that the summary describes are gone, offsets before {end} with them"
            )
            self._say(LOG, segment.size, what, found.next_offset)
        return described

    def _summary_to_go_by(self) -> Summary:
        """Return the summary that the walk begins with; if none counts, one that describes no batch."""
        segment, summary, size = self._segment, self._summary, self._segment.size
        if summary is None and not self._around.lags:
            if self.contents.summary is None:
                if self._header is not None:
                    self._say(SUMMARY, 0, "missing")
            elif not self.beside.is_other_version:
                self._say(SUMMARY, 0, "not a whole summary of a known version")
        if summary is not None and verification.is_surely_of_another_log(segment, summary):
            self._say(SUMMARY, 0, "not of this log: it describes other batches")
            self._summary = summary = None
        if summary is None:
            if (interval := _fitting_interval(self.contents.offsets or b"")) is not None:
                segment.summary.index_interval_bytes = interval
            return segment.summary
        self.flushed_to = summary.flushed_to(self._around.next_base)
        if summary.log_bytes <= size:
            return summary
        self._is_cut_short = bool(summary.flushed) or not self._around.lags
        if not size and not self._is_cut_short:
            self._summary = None  # It was never flushed: a start does not believe it.
        return summary.only_times(segment.base_offset)

    def _refuses(self, *, is_ours: bool) -> walk.Refuses:
        """Return what refuses a batch that no digest covers; `is_ours` if the segment was written here."""
        found, epoch_at = self.found, self._around.epoch_at

        def refuses(
            position: int, header: BatchHeader, expected: int | None, following: walk.Following
        ) -> bool:
            if verification.leaves_gap(found, position, header, expected, following):
                return True
            if header.magic != MAGIC:
                return False  # It carries no epoch.
            epoch = epoch_at(header.base_offset)
            # Kafka writes its file of epochs later than its log, so a batch of Kafka's may have a newer epoch.
            return epoch >= 0 and (header.leader_epoch != epoch if is_ours else header.leader_epoch < epoch)

        return refuses

    def as_a_start_finds_it(self) -> Segment:
        """Return the segment as an unclean start finds it, with a torn tail; to be called before a repair.

        A start believes no summary that was not flushed, and it believes the leader epochs of batches.
        """
        if not self.found.summary.damage:
            return self.found
        segment, summary, epoch_at = self._segment, self._summary, self._around.epoch_at
        if summary is not None and summary.flushed and summary.log_bytes <= segment.size:
            found, _ = verification.walked(segment, epoch_at)
        else:
            found = segment.unread(segment.size)
        found.size = segment.size
        found.scan(partial(verification.leaves_gap, found), epoch_at)
        found.close()
        self._close_files()
        return found

    def release(self) -> None:
        """Free what only a repair needs."""
        self._close_files()
        self.found.seal()
        self.contents = Contents(None, None, b"", None)

    def _close_files(self) -> None:
        """Close the files of the segment; they open again when they are read."""
        self._segment.close()
        self.found.close()

    def _leave_torn_tail(self, found: Segment) -> None:
        """Forget an incomplete batch that is being written at the end, or was when the writer was killed."""
        damage, next_base = found.summary.damage, self._around.next_base
        if next_base is None:
            is_torn = has_torn_tail(found, max(self._around.flushed_to, self.flushed_to))
            if is_torn and self._around.lags:
                _leave_tail(found)
        elif damage and damage[-1].next_offset == OFFSET_MAX:
            found.summary.damage = (*damage[:-1], damage[-1]._replace(next_offset=next_base))

    def _check_damage(self) -> None:
        found, file = self.found, self.found.file
        offset = found.base_offset
        for start, end, next_offset in found.summary.damage:
            what = f"{end - start} bytes without a batch whose checksum is right"
            for batch in walk.verified(file, start, end, found.base_offset, 0):
                if batch.position == start and batch.header is not None:
                    header = batch.header
                    what = (
                        f"{end - start} bytes, which begin with a batch whose checksum is right, but not its base "
                        f"offset {header.base_offset} or its leader epoch {header.leader_epoch}"
                    )
                break
            for _, header in _sound(found, end=start):
                offset = header.last_offset + 1
            upto = "the log's end" if next_offset == OFFSET_MAX else f"offset {next_offset - 1}"
            self._say(LOG, start, f"{what}: nothing from offset {offset} to {upto} can be read", offset)
            offset = next_offset
        known = self._summary.damage if self._summary is not None else ()
        for _, _, next_offset in known if not found.size else ():
            what = f"offsets {found.base_offset} to {next_offset - 1} were on disk and are lost"
            self._say(LOG, 0, what, found.base_offset)

    # Files that are a function of the log.

    def _check_indexes(self, described: _Described) -> None:
        if self._around.lags and not self.is_described:
            return  # They are replaced when the segment is next saved.
        offsets, times = self.contents.offsets, self.contents.times
        full, summary = _state(self.found), self._summary
        if (
            summary is not None
            and self.found.summary.damage
            and (crc32c(offsets or b""), crc32c(times or b""))
            == (
                summary.offset_crc,
                summary.time_crc,
            )
        ):
            return  # They belong to the log as it was before the damage.
        if _are_right(offsets, times, full, described if self._around.lags else None):
            return
        interval = _fitting_interval(offsets or b"")
        if interval is not None and interval != self.found.summary.index_interval_bytes:
            other = self._segment.unread(self.found.size)
            other.summary.index_interval_bytes = interval
            other.scan(self._in_damage, self._around.epoch_at)
            if _are_right(offsets, times, _state(other), None):
                return  # They are right for another index interval.
        self._compare(INDEX, offsets, full.offsets, offset_index.ENTRY)
        self._compare(TIME_INDEX, times, full.times + full.final, time_index.ENTRY)

    def _in_damage(self, position: int, *_: Any) -> bool:
        return any(start <= position < end for start, end, _ in self.found.summary.damage)

    def _compare(self, suffix: str, data: bytes | None, expected: bytes, layout: Struct) -> None:
        """Report where an index begins to differ from what the log and the interval give."""
        size = layout.size
        if data is None:
            if expected:
                self._say(suffix, 0, "missing")
            return
        if data == expected or (self._around.lags and expected.startswith(data)):
            return
        same = next((at for at, (a, b) in enumerate(zip(data, expected, strict=False)) if a != b), None)
        position = min(len(data), len(expected)) if same is None else same
        position -= position % size
        count, most = len(data) // size, len(expected) // size
        if same is not None:
            entry = layout.unpack_from(expected, position)
            what = f"entry {position // size} is not {entry}, as the log and its index interval say"
        elif len(data) < len(expected):
            what = f"ends after {count} of {most} entries"
        else:
            what = f"{len(data) - len(expected)} bytes after the last of its {most} entries"
        self._say(suffix, position, what)

    def _check_summary(self, described: _Described) -> None:
        """Compare a summary with the walk over what it describes, unless that found damage."""
        summary, found = self._summary, described.summary
        if summary is None or not summary.log_bytes or summary.log_bytes != found.log_bytes or found.damage:
            return
        if any(finding.path.suffix == SUMMARY for finding in self.findings):
            return
        if summary.damage:
            self._say(SUMMARY, 0, "names damage where the log has none")
            return
        for name in _COUNTED:
            said, is_so = getattr(summary, name), getattr(found, name)
            if said != is_so:
                self._say(SUMMARY, 0, f"says {name}={said}, the log {is_so}")
        entries, crc = len(described.offsets) // offset_index.ENTRY.size, crc32c(described.offsets)
        if (summary.offset_entries, summary.offset_crc) != (entries, crc):
            self._say(
                SUMMARY, 0, f"vouches for an offset index that is not that of the log ({entries} entries)"
            )
        with_final = described.times + described.final
        said_times = (summary.time_entries, summary.time_crc)
        if said_times not in [
            (len(t) // time_index.ENTRY.size, crc32c(t)) for t in (described.times, with_final)
        ]:
            self._say(SUMMARY, 0, "vouches for a time index that is not that of the log")

    # Files that are not.

    def _check_append_index(self) -> None:
        if self.beside.is_other_version:
            return
        data = append_index.parsed(self.contents.append_index).entries
        size, start = append_index.ENTRY_BYTES, append_index.HEADER_BYTES
        if self.contents.append_index and self._header is None:
            if not self.found.size:
                return  # A full disk took a part of the first entry; the next one replaces it.
            self._say(APPEND_INDEX, 0, "its header is damaged, or names another segment")
            return
        base_offset, end = self._segment.base_offset, self.found.next_offset - self._segment.base_offset
        lags, is_sound = self._around.lags, True
        for number, entry in enumerate(append_index.sound_entries(data)):
            what = ""
            if entry is None:
                what = "its checksum is not right, or it does not rise"
            elif number == 0 and entry.relative_offset:
                what = f"begins at offset {base_offset + entry.relative_offset}, not with its segment"
            elif entry.relative_offset >= end and not lags and not self.found.summary.damage:
                what = f"offset {base_offset + entry.relative_offset} is not in the log"
            if what:
                is_sound = False
                self._say(APPEND_INDEX, start + number * size, f"entry {number}: {what}")
        if len(data) % size and not lags:
            is_sound = False
            self._say(APPEND_INDEX, start + len(data) - len(data) % size, "its last entry is not whole")
        summary = self._summary
        if not is_sound or summary is None:
            return
        vouched = summary.append_entries * size
        if len(data) < vouched:
            self._say(
                APPEND_INDEX,
                start + len(data),
                f"ends after {len(data) // size} of {summary.append_entries} entries",
            )
        elif crc32c(data[:vouched]) != summary.append_crc:
            self._say(APPEND_INDEX, 0, "its entries are not those that the summary vouches for")

    def _check_epochs(self) -> None:
        """Find leader epochs that fall. Called where no summary vouches for them."""
        last, last_position = NONE, 0
        for position, header in _sound(self.found):
            if header.magic == MAGIC and header.leader_epoch < last:
                self._say(
                    LOG, last_position, f"leader epoch {last}, but {header.leader_epoch} in the batch after it, at "
                    f"{position}: epochs never fall", header.base_offset
                )  # fmt: skip
            if header.magic == MAGIC:
                last, last_position = header.leader_epoch, position

    def _check_records(self) -> None:
        """Decode every record, and compare the summary's times with theirs."""
        found, smallest, largest, offset = self.found, None, NONE, NONE
        for position, header in _sound(found):
            try:
                data = found.file.pread(header.size_bytes, position)
                read = read_records if header.magic == MAGIC else message_set.read_records
                for record in read(data):
                    if record.offset > header.last_offset:
                        raise CorruptLog(f"offset {record.offset} is not of this batch")
                    smallest = record.timestamp if smallest is None else min(smallest, record.timestamp)
                    if record.timestamp > largest:
                        largest, offset = record.timestamp, record.offset
            except (RecordsError, CorruptLog) as error:
                self._say(
                    LOG, position, f"the records of a batch cannot be read: {error}", header.base_offset
                )
                return
        summary = self._summary
        if summary is None or summary.log_bytes != found.size or found.summary.damage or smallest is None:
            return
        if summary.min_timestamp not in (UNKNOWN, smallest):
            self._say(SUMMARY, 0, f"says min_timestamp={summary.min_timestamp}, the log {smallest}")
        if summary.max_timestamp_offset not in (NONE, offset):
            self._say(
                SUMMARY, 0, f"says max_timestamp_offset={summary.max_timestamp_offset}, the log {offset}"
            )  # fmt: skip

    # Mending.

    def repair(self) -> set[str]:
        """Rewrite indexes and summary from the log, durably; return the suffixes of the files that are right now.

        Damage of the log goes into its summary, so that reads of it are refused. Lost append times become bounds. If
        only the summary knows of lost offsets, nothing is written: the offsets would be given out again.
        """
        found, contents = self.found, self.contents
        if self._is_cut_short:
            return set()
        if not found.size and (
            self.beside.is_other_version or (self._summary is not None and self._summary.damage)
        ):
            return set()
        files.sync(found.path(LOG))
        if contents.summary is None and not contents.append_index:
            found.offset_index.save()
            found.time_index.save(_state(found).final)
        else:
            if found.summary.damage and found.summary.damage[-1].next_offset == OFFSET_MAX:
                _leave_tail(found)
            self._mend_append_index()
            was_flushed = self._summary is not None and bool(self._summary.flushed)
            found.save(final=True, flushed=was_flushed or not self._around.lags, durably=True)
        for suffix in (INDEX, TIME_INDEX, APPEND_INDEX):
            files.sync(found.path(suffix))
        files.sync_folder(found.folder)
        return {INDEX, TIME_INDEX, SUMMARY} | (set() if self.has_bounds else {APPEND_INDEX})

    def _mend_append_index(self) -> None:
        """Replace lost append times by bounds, unless batches carry them; `has_bounds` tells whether some remain."""
        is_wrong = self.beside.is_other_version or any(f.path.suffix == APPEND_INDEX for f in self.findings)
        found = self.found
        if not is_wrong and self._summary is not None:
            return  # The summary vouches for it.
        bound_ms = max(found.summary.last_append_ms, self._segment.summary.created_ms)
        unsaved = found.mend_append_index(bound_ms, is_tail_lost=is_wrong)
        if unsaved is not None:
            AppendIndex.replace_file(unsaved)  # the method of a read-only index does nothing
        entries = found.append_index
        self.has_bounds = any(entries.entry(number).is_bound for number in range(len(entries)))


def _leave_tail(found: Segment) -> None:
    """Forget what comes after the last batch: the next start cuts it, or finds more of it."""
    found.size = found.summary.forget_tail()
    found.digests.cut(found.file, found.size)


def _state(found: Segment) -> _Described:
    """Return what a walk has found so far."""
    summary, times = found.summary, found.time_index
    final = times.next_entry(summary.max_timestamp, summary.max_timestamp_last_offset - found.base_offset)
    return _Described(replace(summary), bytes(found.offset_index.data), bytes(times.data), final)


def _are_right(
    offsets: bytes | None, times: bytes | None, full: _Described, described: _Described | None
) -> bool:
    """Tell whether index files are those of a log; while it is written, of as much as was `described` or more."""
    offsets, times = offsets or b"", times or b""
    if (offsets, times) == (full.offsets, full.times + full.final):
        return True
    if described is None or not offsets.startswith(described.offsets):
        return False
    if not full.offsets.startswith(offsets) or len(offsets) % offset_index.ENTRY.size:
        return False
    is_prefix = full.times.startswith(times) and times.startswith(described.times)
    return (is_prefix and not len(times) % time_index.ENTRY.size) or times in (
        described.times + described.final,
        full.times + full.final,
    )


def _fitting_interval(offsets: bytes) -> int | None:
    """Return the largest interval that the entries of an offset index allow; None if they tell nothing."""
    size = offset_index.ENTRY.size
    if not offsets or len(offsets) % size:
        return None
    positions = [0, *(position for _, position in offset_index.ENTRY.iter_unpack(offsets))]
    least = min(after - before for before, after in pairwise(positions))
    return least - 1 if least > 0 else None


def _sound(found: Segment, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches outside of damage, up to a position."""
    end = found.size if end is None else end
    start = 0
    for damage in found.summary.damage:
        if damage.start >= end:
            break
        yield from walk.headers(found.file, start, damage.start)
        start = damage.end
    if start < end:
        yield from walk.headers(found.file, start, end)
