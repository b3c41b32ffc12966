"""Logs that are compacted, and what is promised of them: the latest of each key, and that nothing comes back.

Owns: the pass as a step of a scenario, and the judgement of I7. A pass may take what was replaced before its end, and
tombstones whose time has come; what it has taken, once it has returned, is gone for good. Refuses to know: how.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from tests.fault.crash.ledger import Judge, LogState, Sent, last_of
from tests.fault.crash.world import World
from tests.support.compaction import steps_of
from tests.support.logs import read_records
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import MAGIC, BatchHeader
from tidelog.protocol.records.build import Record
from tidelog.storage.compaction import plan
from tidelog.storage.errors import StorageError

KEYS = (b"a", b"b", b"c", b"d", b"e")
RETENTION_MS = 30


class CompactedJudge(Judge):
    """Holds one log against what its passes may have taken."""

    def judge(self) -> LogState:
        """Return what is promised from now on."""
        state, end = super().judge(), self.log.log_end_offset
        start, sent = self.log.log_start_offset, self._records(state.sent)
        gone = {offset for offset in sent if offset >= start and offset not in self._present}
        return state._replace(
            gone=frozenset(gone | {offset for offset in state.gone if offset < end}),
            clean_end=min(state.clean_end, end),
            met=tuple(each for each in state.met if each[0] < end),
            may_go=frozenset(offset for offset in state.may_go if offset < end),
        )

    @staticmethod
    def _records(sent: tuple[Sent, ...]) -> dict[int, Record]:
        return {record.offset: record for each in sent for record in records_of(each.data)}

    def _history(self, found: list[tuple[int, bytes]], end: int) -> tuple[Sent, ...]:
        """Every record is one that was sent; those that are missing may be."""
        sent, start = self.state.sent, self.log.log_start_offset
        all_sent = self._records(sent)
        self._batches(found, {each.base: each for each in sent})
        self._present: set[int] = set()
        for base, data in found:
            for record in records_of(data):
                if all_sent.get(record.offset) != record:
                    self.fail("I3", f"the record at {record.offset} is not what was sent")
                self._present.add(record.offset)
            if base in self.state.gone and base in self._present:
                self.fail("I7", f"the record at {base} came back")
        if back := self._present & self.state.gone:
            self.fail("I7", f"the records at {sorted(back)} came back")
        here = {offset: record for offset, record in all_sent.items() if start <= offset < end}
        latest = {record.key: offset for offset, record in here.items() if offset < self.state.clean_end}
        for offset, record in here.items():
            if offset not in self._present:
                self._may_be_missing(record, latest.get(record.key, -1))
        return sent

    def _batches(self, found: list[tuple[int, bytes]], by_base: dict[int, Sent]) -> None:
        due = 0
        for base, data in found:
            header = entries.peek(data)
            if base < due:
                self.fail("I2", f"the batch at {base} comes where {due} is due")
            due = last_of(data) + 1
            expected = by_base.get(base)
            if header.magic != MAGIC or (expected is None and not header.record_count):
                continue  # of a log of an older format
            was = None if expected is None else entries.peek(expected.data)
            if was is not None and was.magic != MAGIC:
                continue
            if was is None or _lasting(was) != _lasting(header):
                self.fail("I3", f"the batch at {base} is not that which was sent")

    def _may_be_missing(self, record: Record, latest: int) -> None:
        offset, state = record.offset, self.state
        if any(start <= offset < end for start, end in self.holes):
            return
        if offset >= state.clean_end:
            self.fail("S98", f"the record at {offset} is gone, and no pass was there")
        if latest > offset:
            return
        if record.value is not None or offset not in state.may_go:
            self.fail("I7", f"the record at {offset} is gone, the latest of {record.key!r}")
        start = self.log.log_start_offset
        older = [
            each.offset
            for each in self._records(state.sent).values()
            if each.key == record.key and start <= each.offset < offset and each.offset in self._present
        ]
        if older:
            self.fail("I7", f"the tombstone at {offset} is gone, and what it has replaced at {older} is not")

    def _timed(
        self, found: list[tuple[int, bytes]], start: int, sent: tuple[Sent, ...]
    ) -> list[tuple[int, int]]:
        return [
            (record.timestamp, record.offset)
            for _, data in found
            for record in records_of(data)
            if record.offset >= start and record.timestamp >= 0
        ]

    def _offsets(self, base: int, data: bytes) -> list[int]:
        return [record.offset for record in records_of(data)]


def _lasting(header: BatchHeader) -> tuple[int, ...]:
    """Return what of a batch stays, whatever it loses."""
    return header.last_offset, header.producer_id, header.base_sequence, header.leader_epoch


def records_of(data: bytes) -> list[Record]:
    """Return the records of all entries that a batch was stored as."""
    found, at = [], 0
    while at < len(data):
        size = entries.peek(data, at).size_bytes
        found += read_records(data[at : at + size])
        at += size
    return found


class CompactedWorld(World):
    """A life in which logs are compacted."""

    def records(self, times: Any, size: int) -> list[Record]:
        """Return records of few keys, some of them tombstones."""
        made = super().records(times, size)
        return [
            dataclasses.replace(
                record, key=self.rng.choice(KEYS), value=None if self.rng.random() < 0.25 else record.value
            )
            for record in made
        ]

    def judge_of(self, log: Any, state: LogState) -> Judge:
        """Return who holds a log against what is promised of it."""
        return CompactedJudge(log, state, self.level)

    def is_remembered(self, topic: str, index: int, sent: Sent, all_sent: list[Sent]) -> bool:
        """Of those that a pass may have taken only the last one, if it is there still."""
        if self.log(topic, index).magic != MAGIC:
            return False  # A batch is not stored as it was sent.
        with self._well():
            there = [header.base_offset for _, _, header in self.log(topic, index).headers(sent.base)]
        return sent is all_sent[-1] and sent.base in there

    def compact(self, topic: str, index: int) -> None:
        """Make the pass that is due, or a part of it."""
        target, state = self.log(topic, index), self.state(topic, index)
        due = plan.due(target, self.now_ms, by_yield=self.rng.random() < 0.3)
        if due is None:
            return
        steps = self.rng.choice((1 << 30, 1 << 30, 1 << 30, self.rng.randrange(6)))
        buffer_bytes = self.rng.choice((1 << 12, 1 << 12, 120))
        self.steps.append(f"compact {topic}-{index} to {due.end}" + (f" in {steps}" * (steps < 100)))
        place = len(self.disk.journal)
        self.put(topic, index, self._going(state, due.end))
        self.mark(place)
        going = steps_of(target, due, buffer_bytes=buffer_bytes)
        try:
            for _ in range(steps):
                if next(going, None) is None:
                    break
            going.close()
        except (StorageError, OSError) as error:
            self.failed(f"compact {topic}-{index}", StorageError(str(error)))
            return
        if target.health.failure is None:
            self._done(topic, index)

    def _going(self, state: LogState, end: int) -> LogState:
        """Return what is promised while a pass goes on."""
        met = {
            record.offset: self.now_ms
            for each in state.sent
            for record in records_of(each.data)
            if record.value is None and record.offset < end
        }
        met |= dict(state.met)
        may_go = {offset for offset, at in met.items() if at + RETENTION_MS <= self.now_ms}
        return state._replace(
            clean_end=max(state.clean_end, end), met=tuple(met.items()), may_go=state.may_go | may_go
        )

    def _done(self, topic: str, index: int) -> None:
        """Promise that what a pass has taken is gone."""
        with self._well():
            state = self.judge_of(self.log(topic, index), self.state(topic, index)).judge()
        before = self.state(topic, index)
        self.put(topic, index, before._replace(gone=state.gone))
        self.mark()

    @contextlib.contextmanager
    def _well(self) -> Iterator[None]:
        """Let no call fail meanwhile: it is the judge that looks."""
        fault, self.disk.fault = self.disk.fault, None
        try:
            yield
        finally:
            self.disk.fault = fault

    def _check_retention(self, topic: str, index: int, old: int, new: int) -> None:
        """Know nothing of it: what is the newest record of a segment passes may have changed."""
