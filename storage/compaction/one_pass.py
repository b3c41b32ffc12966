"""The work of a pass: maps the keys of new records, and copies segments without the records that these replace.

Owns the order of a pass (S87 to S91, S94). It reads sealed segments and writes the files of copies. It changes a log
only through `Changes`, so it can run in another process (`worker`).
"""

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.batch import MAGIC
from tidelog.protocol.records.columns import Columns
from tidelog.storage.compaction import plan as plans
from tidelog.storage.compaction import survey
from tidelog.storage.compaction.batch_filter import BatchFilter
from tidelog.storage.compaction.copying import Copy, seen
from tidelog.storage.compaction.key_map import KeyMap
from tidelog.storage.compaction.plan import Plan
from tidelog.storage.compaction.reading import UNREADABLE, Entry, chunks, messages, scanned, size_of
from tidelog.storage.compaction.survey import Sampler
from tidelog.storage.compaction.transactions import Transactions
from tidelog.storage.errors import OffsetOutOfRange
from tidelog.storage.key_sample import KeySample
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.segment import Segment
from tidelog.storage.shared import Shared


@dataclass(slots=True)
class Cleaned:
    """The results of a pass."""

    read_bytes: int = 0
    written_bytes: int = 0
    freed_bytes: int = 0
    segments: int = 0
    records: int = 0
    records_dropped: int = 0
    tombstones_dropped: int = 0
    cleaned_to: int = 0


@dataclass(slots=True)
class View:
    """What a pass knows of a log: its state when the pass began."""

    folder: Path
    config: TopicConfig
    shared: Shared
    sealed: tuple[Segment, ...]  # oldest first; a copy takes the place of its group
    epochs: LeaderEpochs
    senders: dict[int, int]  # the last offset of each remembered producer


class Clean(NamedTuple):
    """What a pass has found out about a segment that it does not replace; the fields are those of its summary."""

    cleaned_to: int
    cleaned_ms: int
    seen_to: int
    seen_ms: int
    horizon_ms: int
    sample: KeySample | None

    def note(self, segment: Segment) -> None:
        """Set these fields in the segment and its summary, not on disk."""
        summary = segment.summary
        segment.sample = self.sample
        # An earlier pass may have reached a later offset.
        summary.cleaned_to = max(self.cleaned_to, summary.cleaned_to)
        summary.cleaned_ms, summary.source_bytes = self.cleaned_ms, segment.size
        summary.seen_to, summary.seen_ms = self.seen_to, self.seen_ms
        summary.horizon_ms = self.horizon_ms


class Changes(Protocol):
    """The changes of a pass to its log."""

    def replace(self, group: Sequence[Segment], copied: Segment) -> bool:
        """Replace a group by its copy, which is on disk; return False if retention has deleted a segment of it."""

    def note_clean(self, segment: Segment, found: Clean) -> None:
        """Record that a segment is clean, instead of replacing it by an equal copy."""


class Pass:
    """One pass: its view of the log, its map and its results."""

    def __init__(self, view: View, plan: Plan, keys: KeyMap, changes: Changes) -> None:
        """Begin a pass."""
        self.view = view
        self._plan = plan
        self._keys = keys
        self._now_ms = plan.now_ms
        self._changes = changes
        self._transactions = Transactions()
        self._columns = Columns()
        self._holes: list[int] = []
        self.done = Cleaned()

    def run(self) -> Generator[int, None, None]:
        """Make the pass; each step yields how many bytes it has read and written. Raise OSError or StorageError."""
        with suppress(OffsetOutOfRange):  # Retention has deleted a segment; the next plan is made without it.
            yield from self._steps()

    def _steps(self) -> Generator[int, None, None]:
        view, plan = self.view, self._plan
        sealed = view.sealed
        self._holes = [each.base_offset for each in sealed if each.summary.damage]
        yield from self._find_markers([each for each in sealed if each.base_offset < plan.end])
        end = self._keys.end = min(plan.end, self._transactions.first_open)
        chosen, mapped_from = set(plan.must), None
        if plan.by_yield:
            unknown = [each for each in plan.candidates if each.sample is None]
            if unknown:
                mapped_from = min(map(plans.clean_to, unknown))
                yield from self._map(sealed, mapped_from, unknown)
            survey.estimate(plan.candidates, end)
            chosen |= plans.worth_it(plan.candidates, view.config)
        if chosen:
            start = min(map(plans.clean_to, chosen))
            if not self._reaches(mapped_from, start, end):
                if mapped_from is not None:
                    self._keys.restart(end)
                yield from self._map(sealed, start)
            rules = self._filter()
            copied = [
                each for each in plan.candidates if each in chosen and each.base_offset < self._keys.end
            ]
            for group in plans.groups(copied, sealed, view.config):
                yield from self._copy(group, rules)
            self.done.records, self.done.records_dropped = rules.records, rules.dropped
            self.done.tombstones_dropped = rules.tombstones_dropped
            survey.estimate(view.sealed, end)  # Garbage beyond the end of the map is left.
        self.done.cleaned_to = self._keys.end

    def _reaches(self, mapped_from: int | None, start: int, end: int) -> bool:
        """Tell whether a map of the keys from `mapped_from` on has all that one from `start` on would have."""
        return mapped_from == start or (
            mapped_from is not None and mapped_from < start and self._keys.end == end
        )

    def _filter(self) -> BatchFilter:
        view = self.view
        return BatchFilter(
            self._keys,
            self._transactions,
            view.senders,
            view.epochs.at,
            self._now_ms,
            view.config.delete_retention_ms,
        )

    # The map.

    def _find_markers(self, segments: Sequence[Segment]) -> Generator[int, None, None]:
        for segment in segments:
            if segment.summary.damage:
                self._transactions.note_hole(segment.base_offset)
            elif segment.summary.transactional:
                for found in chunks(segment):
                    for entry in found:
                        self._transactions.note(entry)
                    yield self._read(found)

    def _map(
        self, segments: Sequence[Segment], start: int, unknown: Sequence[Segment] = ()
    ) -> Generator[int, None, None]:
        """Map the keys from `start` on, oldest first, until the map is full (S88, S94).

        Segments in `unknown` are read as a whole, for their samples.
        """
        for segment in segments:
            sampler = Sampler(self.view.shared.sampling_secret) if segment in unknown else None
            # Damaged segments replace nothing: the lost part is unknown.
            is_mapped = segment.next_offset > start and segment.base_offset < self._keys.end
            if sampler is not None or (is_mapped and not segment.summary.damage):
                yield from self._map_segment(segment, start, sampler)
                if sampler is not None:
                    segment.sample = sampler.end()

    def _map_segment(
        self, segment: Segment, start: int, sampler: Sampler | None
    ) -> Generator[int, None, None]:
        for found in chunks(segment):
            for entry in found:
                if sampler is not None or start <= entry.header.last_offset:
                    # A batch that cannot be decoded stays as it is, and replaces nothing.
                    with suppress(*UNREADABLE):
                        self._map_entry(entry, start, sampler)
            yield self._read(found)
            if sampler is None and found and found[-1].header.last_offset >= self._keys.end:
                return

    def _map_entry(self, entry: Entry, start: int, sampler: Sampler | None) -> None:
        """Map the keys of an entry from `start` on, and sample all of them. Raise UNREADABLE."""
        header = entry.header
        is_mapped = header.base_offset < self._keys.end
        if header.magic != MAGIC:
            for offset, _, key, value in list(messages(entry)):
                if sampler is not None:
                    sampler.add_record(key, value)
                if key is not None and offset >= start:
                    is_mapped = is_mapped and self._keys.put(key, offset)
        elif header.record_count and not header.is_control:
            data, _ = scanned(entry, self._columns)
            if sampler is not None:
                sampler.add_batch(data, self._columns, self._transactions.is_aborted(header))
            if is_mapped and self._transactions.may_replace(header):
                self._keys.note(data, self._columns, header.base_offset, start)

    def _read(self, found: list[Entry]) -> int:
        size = size_of(found)
        self.done.read_bytes += size
        return size

    # The copies.

    def _copy(self, group: list[Segment], rules: BatchFilter) -> Generator[int, None, None]:
        view, changed = self.view, rules.changed
        safe_end = min(
            (each.summary.cleaned_to for each in view.sealed if each.base_offset < group[0].base_offset),
            default=self._keys.end,
        )
        copy = Copy(group, view.config, view.shared, self._now_ms)
        try:
            yield from copy.fill(rules, safe_end)
            copy.segment.sample = survey.merged(group, view.sealed, self._keys.end)
            # Segments were not compared with damaged ones after them, which may be readable later.
            clean_to = min([self._keys.end, *(each for each in self._holes if each > group[-1].base_offset)])
            if len(group) == 1 and rules.changed == changed:
                copy.drop()
                tombstones = seen(group, rules, clean_to, self._now_ms)
                copied = copy.segment
                found = Clean(clean_to, self._now_ms, *tombstones, copied.summary.horizon_ms, copied.sample)
                self._changes.note_clean(group[0], found)
            else:
                copy.finish(rules, clean_to)
                if not self._changes.replace(group, copy.segment):
                    copy.drop()  # Retention has deleted some of the group; the rest is due in the next pass.
                    return
                first = view.sealed.index(group[0])
                view.sealed = (*view.sealed[:first], copy.segment, *view.sealed[first + len(group) :])
        except BaseException:
            copy.drop()
            raise
        read, written = sum(each.size for each in group), copy.segment.size
        self.done.read_bytes += read
        self.done.written_bytes += written
        self.done.freed_bytes += read - written
        self.done.segments += len(group)
