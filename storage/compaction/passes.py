"""A pass over a log: maps the keys of new records, and copies segments without the records that these replace.

Owns the order of a pass (S87 to S91, S94). One thread runs it, in steps of a few milliseconds; the thread that owns the
structure of logs makes the changes. A pass that is given up keeps what it has replaced so far, and leaves nothing else.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from tidelog.storage.compaction.swap import Outdated, swap, sweep
from tidelog.storage.compaction.transactions import Transactions
from tidelog.storage.errors import Mismatch, OffsetOutOfRange
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT

# Errors after which the next pass may succeed: the log was truncated, or a segment was rebuilt.
OVERTAKEN = (Outdated, Mismatch)

# Runs a function on the thread that owns the structure of logs, waits for it, and returns its result.
Structural = Callable[[Callable[[], Any]], Any]


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


def clean(
    log: Log, plan: Plan, *, buffer_bytes: int, load_factor: float, structural: Structural
) -> Generator[int, None, Cleaned]:
    """Make a pass; each step yields how many bytes it has read and written.

    Damaged segments are left out. If retention deletes a segment that the pass needs, the pass ends with what it has
    done so far. Raise OSError or StorageError.
    """
    cuts = log.durability.cuts
    sweep(log.directory)
    if any(not each.summary.flushed for each in plan.candidates):
        structural(log.flush)
    plan = yield from _all_known(log, plan)
    keys = KeyMap(buffer_bytes, load_factor, plan.end)
    one = _Pass(log, keys, plan.now_ms, structural, cuts)
    try:
        yield from one.run(plan)
    except OffsetOutOfRange:
        pass  # Retention has deleted a segment; the next plan is made without it.
    except Mismatch as mismatch:
        log.recheck(mismatch.segment, PATIENT)
        raise
    finally:
        keys.close()
    return one.done


def _all_known(log: Log, plan: Plan) -> Generator[int, None, Plan]:
    """Check the segments that Kafka wrote and that nobody has read yet; return the plan with their replacements."""
    unread = [each for each in plan.candidates if each.is_known_by_index]
    if not unread:
        return plan
    for each in unread:
        log.recheck(each, PATIENT)
        yield each.size
    by_base = {each.base_offset: each for each in log.segments[:-1]}
    found = {each: by_base.get(each.base_offset, each) for each in plan.candidates}
    candidates = tuple(each for each in found.values() if not each.summary.damage)
    return plan._replace(
        candidates=candidates, must=frozenset(found[each] for each in plan.must).intersection(candidates)
    )


class _Pass:
    """One pass: its map and its results."""

    def __init__(self, log: Log, keys: KeyMap, now_ms: int, structural: Structural, cuts: int) -> None:
        self._log = log
        self._keys = keys
        self._now_ms = now_ms
        self._structural = structural
        self._cuts = cuts
        self._transactions = Transactions()
        self._columns = Columns()
        self._holes: list[int] = []
        self.done = Cleaned()

    def run(self, plan: Plan) -> Generator[int, None, None]:
        sealed = self._log.segments[:-1]
        # Retention may have deleted some since the plan was made.
        plan = plan._replace(
            candidates=tuple(each for each in plan.candidates if each in sealed),
            must=plan.must.intersection(sealed),
        )
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
            chosen |= plans.worth_it(plan.candidates, self._log.config)
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
            for group in plans.groups(copied, sealed, self._log.config):
                yield from self._copy(group, rules)
            self.done.records, self.done.records_dropped = rules.records, rules.dropped
            self.done.tombstones_dropped = rules.tombstones_dropped
            survey.estimate(self._log.segments[:-1], end)  # Garbage that the map did not reach is left.
        self.done.cleaned_to = self._keys.end

    def _reaches(self, mapped_from: int | None, start: int, end: int) -> bool:
        """Tell whether the map that was made from `mapped_from` on serves as one from `start` on."""
        return mapped_from == start or (
            mapped_from is not None and mapped_from < start and self._keys.end == end
        )

    def _filter(self) -> BatchFilter:
        senders = self._log.producers.senders()
        return BatchFilter(
            self._keys,
            self._transactions,
            {sender.producer_id: sender.last.last_offset for sender in senders},
            self._log.epochs.at,
            self._now_ms,
            self._log.config.delete_retention_ms,
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
            sampler = Sampler(self._log.shared.sampling_secret) if segment in unknown else None
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
        log, changed = self._log, rules.changed
        safe_end = min(
            (each.summary.cleaned_to for each in log.segments if each.base_offset < group[0].base_offset),
            default=self._keys.end,
        )
        copy = Copy(group, log.config, log.shared, self._now_ms)
        try:
            yield from copy.fill(rules, safe_end)
            copy.segment.sample = survey.merged(group, log.segments, self._keys.end)
            # Segments were not compared with damaged ones after them, which may be readable later.
            clean_to = min([self._keys.end, *(each for each in self._holes if each > group[-1].base_offset)])
            if len(group) == 1 and rules.changed == changed:
                copy.drop()
                tombstones = seen(group, rules, clean_to, self._now_ms)
                self._structural(partial(self._note_clean, group[0], copy.segment, clean_to, tombstones))
            else:
                copy.finish(rules, clean_to)
                if not self._structural(partial(swap, log, copy, self._cuts)):
                    copy.drop()  # Retention has deleted some of the group; the rest is due in the next pass.
                    return
        except BaseException:
            copy.drop()
            raise
        read, written = sum(each.size for each in group), copy.segment.size
        self.done.read_bytes += read
        self.done.written_bytes += written
        self.done.freed_bytes += read - written
        self.done.segments += len(group)

    def _note_clean(
        self, segment: Segment, copied: Segment, clean_to: int, tombstones: tuple[int, int]
    ) -> None:
        """Record in a segment's summary that it is clean, instead of replacing it by an equal copy.

        Does nothing if the log was truncated since the pass began.
        """
        log, summary = self._log, segment.summary
        with log.lock:
            if segment in log.segments and log.durability.cuts == self._cuts:
                segment.sample = copied.sample
                summary.cleaned_to = max(clean_to, summary.cleaned_to)
                summary.cleaned_ms, summary.source_bytes = self._now_ms, segment.size
                summary.seen_to, summary.seen_ms = tombstones
                summary.horizon_ms = copied.summary.horizon_ms
                segment.write_summary(summary.encode())
