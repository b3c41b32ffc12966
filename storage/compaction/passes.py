"""A pass over a log: the keys of its head are mapped, and segments are copied without what these have replaced.

Owns the order of a pass (S87 to S91, S94). One thread makes it, a few milliseconds a step; what changes the log is done
on the thread that owns that. A pass that is given up leaves nothing behind but what it has put in place so far.
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
from tidelog.storage.errors import OffsetOutOfRange
from tidelog.storage.log import Log
from tidelog.storage.segment import Mismatch, Segment
from tidelog.storage.sources import PATIENT

# The log has changed since the pass began, or is known better now: the next pass may succeed.
OVERTAKEN = (Outdated, Mismatch)

# Does something on the thread that owns the structure of logs, and returns when that is done.
Structural = Callable[[Callable[[], Any]], Any]


@dataclass(slots=True)
class Cleaned:
    """What a pass came to."""

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
    """Make a pass; yield how many bytes were read or written since the last time, often.

    What is found damaged is left alone, and the pass is made without it. Where retention takes a segment away that the
    pass wants to read, the pass ends, with what it has done so far. OSError, StorageError.
    """
    cuts = log.durability.cuts
    sweep(log.directory)
    if any(not each.summary.flushed for each in plan.candidates):
        structural(log.durability.flush)
    plan = yield from _all_known(log, plan)
    keys = KeyMap(buffer_bytes, load_factor, plan.end)
    one = _Pass(log, keys, plan.now_ms, structural, cuts)
    try:
        yield from one.run(plan)
    except OffsetOutOfRange:
        pass  # Retention was here: the next pass is planned without that segment.
    except Mismatch as mismatch:
        log.recheck(mismatch.segment, PATIENT)
        raise
    finally:
        keys.close()
    return one.done


def _all_known(log: Log, plan: Plan) -> Generator[int, None, Plan]:
    """Return a plan of segments that were read: those that Kafka has left are, when somebody first wants them."""
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
    """One pass: its map, and what it has come to."""

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
        # Retention may have taken some since they were planned.
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
            what_stays = self._filter()
            copied = [
                each for each in plan.candidates if each in chosen and each.base_offset < self._keys.end
            ]
            for group in plans.groups(copied, sealed, self._log.config):
                yield from self._copy(group, what_stays)
            self.done.records, self.done.records_dropped = what_stays.records, what_stays.dropped
            self.done.tombstones_dropped = what_stays.tombstones_dropped
            survey.estimate(self._log.segments[:-1], end)  # What the map did not reach is left.
        self.done.cleaned_to = self._keys.end

    def _reaches(self, mapped_from: int | None, start: int, end: int) -> bool:
        """Tell whether the map, made from some offset on, is one from `start` on, as far as there is room."""
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
        """Take note of the keys from `start` on, oldest first, as far as there is room (S88, S94).

        Of segments that are unknown all keys are looked at, for their samples.
        """
        for segment in segments:
            sampler = Sampler(self._log.shared.sampling_secret) if segment in unknown else None
            # What is damaged replaces nothing: what is lost of it cannot be known.
            is_mapped = segment.next_offset > start and segment.base_offset < self._keys.end
            if sampler is not None or (is_mapped and not segment.summary.damage):
                yield from self._look_through(segment, start, sampler)
                if sampler is not None:
                    segment.sample = sampler.end()

    def _look_through(
        self, segment: Segment, start: int, sampler: Sampler | None
    ) -> Generator[int, None, None]:
        for found in chunks(segment):
            for entry in found:
                if sampler is not None or start <= entry.header.last_offset:
                    # What nobody can read stays as it is, and replaces nothing.
                    with suppress(*UNREADABLE):
                        self._look_at(entry, start, sampler)
            yield self._read(found)
            if sampler is None and found and found[-1].header.last_offset >= self._keys.end:
                return

    def _look_at(self, entry: Entry, start: int, sampler: Sampler | None) -> None:
        """Take note of the keys of an entry from `start` on, and of all for a sample. UNREADABLE."""
        header = entry.header
        is_mapped = header.base_offset < self._keys.end
        if header.magic != MAGIC:
            for offset, _, key, value in list(messages(entry)):
                if sampler is not None:
                    sampler.look_at(key, value)
                if key is not None and offset >= start:
                    is_mapped = is_mapped and self._keys.put(key, offset)
        elif header.record_count and not header.is_control:
            data, _ = scanned(entry, self._columns)
            if sampler is not None:
                sampler.look(data, self._columns, self._transactions.is_aborted(header))
            if is_mapped and self._transactions.may_replace(header):
                self._keys.note(data, self._columns, header.base_offset, start)

    def _read(self, found: list[Entry]) -> int:
        size = size_of(found)
        self.done.read_bytes += size
        return size

    # The copies.

    def _copy(self, group: list[Segment], what_stays: BatchFilter) -> Generator[int, None, None]:
        log, changed = self._log, what_stays.changed
        safe_end = min(
            (each.summary.cleaned_to for each in log.segments if each.base_offset < group[0].base_offset),
            default=self._keys.end,
        )
        copy = Copy(group, log.config, log.shared, self._now_ms)
        try:
            yield from copy.fill(what_stays, safe_end)
            copy.segment.sample = survey.merged(group, log.segments, self._keys.end)
            # What a segment that cannot be read has, older ones were not compared with: it may be read some day.
            clean_to = min([self._keys.end, *(each for each in self._holes if each > group[-1].base_offset)])
            if len(group) == 1 and what_stays.changed == changed:
                copy.drop()
                met = seen(group, what_stays, clean_to, self._now_ms)
                self._structural(partial(self._note_clean, group[0], copy.segment, clean_to, met))
            else:
                copy.finish(what_stays, clean_to)
                if not self._structural(partial(swap, log, copy, self._cuts)):
                    copy.drop()  # Retention took some of it; what is left is due in the next pass.
                    return
        except BaseException:
            copy.drop()
            raise
        read, written = sum(each.size for each in group), copy.segment.size
        self.done.read_bytes += read
        self.done.written_bytes += written
        self.done.freed_bytes += read - written
        self.done.segments += len(group)

    def _note_clean(self, segment: Segment, copied: Segment, clean_to: int, met: tuple[int, int]) -> None:
        """Take note that a segment is clean, and as its copy would be, unless the log was cut meanwhile."""
        log, summary = self._log, segment.summary
        with log.lock:
            if segment in log.segments and log.durability.cuts == self._cuts:
                segment.sample = copied.sample
                summary.cleaned_to = max(clean_to, summary.cleaned_to)
                summary.cleaned_ms, summary.source_bytes = self._now_ms, segment.size
                summary.seen_to, summary.seen_ms = met
                summary.horizon_ms = copied.summary.horizon_ms
                segment.write_summary(summary.encode())
