"""What a broker on a disk in memory has promised, and whether a start after a crash keeps it.

Owns: the promises by topic, partition and batch, and the judgement of I1 to I6. Refuses to know: how the crash came
about, and how storage keeps its promises: it reads by offset and by time, as clients do.

A promise grows by steps: a batch may be there while its append runs; once that returns it survives a kill; once a flush
returns it survives a power cut. What is there is a prefix of what was sent, always.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, NamedTuple

from tests.support.disk.system import stamped
from tests.support.logs import first_at
from tidelog.protocol.records import entries
from tidelog.storage.errors import StorageError
from tidelog.storage.search import by_time, time_range
from tidelog.storage.search.by_offset import segment_number
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import OFFSET_MAX

PAYLOAD_BYTES_MAX = 1 << 20
_prefix = Struct(">qi").unpack_from


class Violation(Exception):
    """A promise that was not kept: `what` is the invariant, and `words` say where."""

    def __init__(self, what: str, words: str) -> None:
        super().__init__(f"{what}: {words}")
        self.what = what


class Sent(NamedTuple):
    """A batch as the log stored it."""

    base: int
    last: int
    data: bytes
    times: tuple[int, ...]  # of its records, as stored
    append_ms: int
    producer: tuple[int, int] | None  # id and first sequence

    @property
    def epoch(self) -> int:
        """The leader epoch that it was written under."""
        return entries.peek(self.data).leader_epoch


class LogState(NamedTuple):
    """What is promised of one log. Counts are of `sent`, from its first batch on, deleted ones included."""

    sent: tuple[Sent, ...] = ()
    written: int = 0
    durable: int = 0
    end: int = 0  # the offset that comes next
    start: int = 0  # the log may begin here or before
    certain_start: int = 0  # but not before this
    append_ms: int = 0  # append times are not before this
    bounded: int = 0  # how many of `sent` may have a bound in place of their append time, after a power cut
    of_kafka: int = (
        0  # how many of `sent` have such a bound by the system's tick: nobody was told when Kafka appended
    )
    seen: int = 0  # how many of `sent` a consumer may have read
    lost_epoch: int = -1  # the newest of batches that are gone
    former: tuple[
        tuple[Sent, ...], ...
    ] = ()  # what a truncation that failed may give back, until the next flush
    # Of a log that is compacted (`compacted`).
    gone: frozenset[int] = frozenset()  # offsets whose records do not come back
    clean_end: int = 0  # no record from here on was in a pass
    met: tuple[tuple[int, int], ...] = ()  # tombstones that a pass has met, and when
    may_go: frozenset[int] = frozenset()  # those whose time has come


class TopicState(NamedTuple):
    """What is promised of a topic; one that is `maybe` there is there whole or not at all."""

    id: bytes
    options: dict[str, str]
    logs: tuple[LogState, ...]
    maybe: bool = False


Ledger = dict[str, TopicState]


def batches(data: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the base offset and the bytes of the whole batches at the beginning of a slice."""
    position = 0
    while position + 12 <= len(data):
        _, length = _prefix(data, position)
        end = position + 12 + length
        if end < position + entries.BYTES_MIN or end > len(data):
            return
        yield entries.read(data, position, PAYLOAD_BYTES_MAX).base_offset, bytes(data[position:end])
        position = end


def last_of(data: bytes) -> int:
    """Return the last offset of a batch, or of an entry of an older format."""
    return entries.peek(data).last_offset


class Judge:
    """Holds one log against its promises; `level` is kill, cut or lost: what a crash was allowed to take.

    Where a failed sync has lost what the process, killed at once, could not say any more, damage may have come of it:
    `holes`, offsets from one to another, none of them durable.
    """

    def __init__(self, log: Any, state: LogState, level: str) -> None:
        self.log, self.state, self.level = log, state, level
        self.holes: list[tuple[int, int]] = []

    def fail(self, what: str, words: str) -> None:
        """Say what is broken, and where."""
        raise Violation(what, f"{self.log}: {words}")

    def judge(self) -> LogState:
        """Return what is promised from now on."""
        log, state = self.log, self.state
        start, end = log.log_start_offset, log.log_end_offset
        least = state.written if self.level == "kill" else state.durable
        due = state.sent[least - 1].last + 1 if least else 0
        if not state.certain_start <= start:
            self.fail("I8", f"starts at {start}, a checkpoint said {state.certain_start}")
        if start > state.start:
            lost = any(state.start <= each.last < start for each in state.sent[:least])
            # Where a cut took everything, a start that was written down before may be behind all that there is.
            if lost or start != end:
                self.fail(
                    "I1" if lost else "I4", f"starts at {start}, all from {state.start} on is to be there"
                )
        if end < due:
            self.fail("I1", f"ends at {end}, acknowledged was all up to {due}")
        found = self._read(start, end)
        sent = self._history(found, end)
        count = sum(1 for each in sent if each.last < end)
        # A log start that was written down may outlive the records around it: the log goes on from there.
        if end != (sent[count - 1].last + 1 if count else 0) and not (
            start == end and (end <= state.start or not least)
        ):
            self.fail("I4", f"ends at {end}, within or behind what was sent")
        self._by_offset(found, start)
        self._by_time(found, start, sent)
        bounded = min(state.bounded, count)
        self._by_append_time(found, start, sent, bounded)
        gone = state.sent[count : state.seen] if sent is state.sent else ()
        lost_epoch = max(state.lost_epoch, *(each.epoch for each in gone), -1)
        self._epochs(found, start, lost_epoch)
        kept = sent[:count]
        return state._replace(
            seen=count,
            lost_epoch=lost_epoch,
            sent=kept,
            written=count,
            durable=min(count, state.durable),
            end=end,
            start=max(start, state.certain_start),
            append_ms=max((each.append_ms for each in kept), default=0),
            bounded=bounded,
            of_kafka=min(state.of_kafka, count),
        )

    def _read(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """Fetch everything from the start on, as a consumer would."""
        found: list[tuple[int, bytes]] = []
        offset = start
        while offset < end:
            try:
                got = list(batches(self.log.read(offset, 1 << 20, True, PATIENT).read()))
            except StorageError as error:
                behind = self._damage_end(offset)
                if self.level != "lost" or self._loss(offset, behind) or behind <= offset:
                    self.fail(self._loss(offset) or "I4", f"offset {offset} of {start}-{end}: {error}")
                self.holes.append((offset, behind))
                offset = behind
                continue
            if not got:
                self.fail(self._loss(offset) or "I2", f"nothing at {offset}, and the end is {end}")
            found += got
            last = found[-1]
            behind = last_of(last[1]) + 1
            if behind <= offset:
                self.fail("I2", f"a fetch from {offset} gave up to {behind}")
            offset = behind
        return found

    def _loss(self, offset: int, end: int = OFFSET_MAX) -> str:
        """Return I1 if something at or behind an offset, and before an end, was acknowledged as being on disk."""
        durable = self.state.sent[: self.state.durable]
        return "I1" if any(each.last >= offset and each.base < end for each in durable) else ""

    def _damage_end(self, offset: int) -> int:
        """Return the first offset behind the damage that holds one; that offset itself if none does."""
        segment = self.log.segments[segment_number(self.log.segments, offset)]
        return next(
            (each.next_offset for each in segment.summary.damage if offset < each.next_offset), offset
        )

    def _history(self, found: list[tuple[int, bytes]], end: int) -> tuple[Sent, ...]:
        """Return the history that the log holds a part of."""
        problem = ""
        for sent in (self.state.sent, *self.state.former):
            by_base = {each.base: each for each in sent}
            due = found[0][0] if found else end
            for base, data in found:
                expected = by_base.get(base)
                if base != due and (due, base) not in self.holes:
                    problem = problem or f"I2: the batch at {base} comes where {due} is due"
                elif expected is None:
                    problem = problem or f"I2: nobody sent the batch at {base}"
                elif expected.data != data:
                    problem = problem or f"I3: the batch at {base} is not what was sent"
                else:
                    due = expected.last + 1
                    continue
                break
            else:
                return sent
        self.fail(problem[:2], problem[4:])
        raise AssertionError

    def _by_offset(self, found: list[tuple[int, bytes]], start: int) -> None:
        for base, data in found:
            last = last_of(data)
            if last >= start:
                piece = bytes(self.log.read(last, 1, True, PATIENT).read())
                if piece != data:
                    self.fail("I5", f"offset {last} is looked up at another batch than the one at {base}")

    def _by_time(self, found: list[tuple[int, bytes]], start: int, sent: tuple[Sent, ...]) -> None:
        rows = self._timed(found, start, sent)
        stamps = sorted({at for at, _ in rows})
        for wanted in {0, *stamps[:: 1 + len(stamps) // 4], *[at + 1 for at in stamps[-2:]]}:
            answer = first_at(self.log, wanted, PATIENT)
            expected = next(((at, offset) for at, offset in rows if at >= wanted), None)
            if (answer and (answer.timestamp, answer.offset)) != expected:
                self.fail("I6", f"at or after {wanted} is {answer}, a scan says {expected}")
        for first, last in zip([0, *stamps[:: 1 + len(stamps) // 3]], [*stamps[1::2], 1 << 62], strict=False):
            span = time_range.between(self.log, first, last, by_time.RECORD_TIME, PATIENT)
            inside = [offset for at, offset in rows if first <= at < last]
            if span != (range(inside[0], inside[-1] + 1) if inside else range(0)):
                self.fail("I6", f"from {first} to before {last} is {span}, a scan says {inside}")
        largest = by_time.largest_timestamp(self.log, PATIENT)
        most = max(rows, key=lambda row: (row[0], -row[1]), default=None)
        if (largest and (largest.timestamp, largest.offset)) != most:
            self.fail("I6", f"the largest time is {largest}, a scan says {most}")

    def _timed(
        self, found: list[tuple[int, bytes]], start: int, sent: tuple[Sent, ...]
    ) -> list[tuple[int, int]]:
        """Return (time, offset) of each record that has a time."""
        by_base = {each.base: each for each in sent}
        return [
            (at, base + n)
            for base, _ in found
            for n, at in enumerate(by_base[base].times)
            if base + n >= start and at >= 0
        ]

    def _by_append_time(
        self, found: list[tuple[int, bytes]], start: int, sent: tuple[Sent, ...], bounded: int
    ) -> None:
        """Append times are exact after a kill; what a power cut took of them is bounded from above, and said to be."""
        bases = [each.base for each in sent]
        segments = self.log.segments
        truth = []
        for base, data in found:
            segment = segments[segment_number(segments, base)]
            time_ms, _, is_bound = segment.append_index.time_at(base - segment.base_offset)
            number = bisect_right(bases, base) - 1
            append_ms = sent[number].append_ms
            if is_bound and number < self.state.of_kafka:
                append_ms = stamped(append_ms)
            if time_ms != append_ms and not (is_bound and time_ms > append_ms):
                self.fail("append", f"{base} was appended at {append_ms}, and {time_ms} is what is known")
            if is_bound and number >= bounded:
                self.fail("append", f"{base}: of its append time {append_ms} a bound is left, {time_ms}")
            offsets = [offset for offset in self._offsets(base, data) if offset >= start]
            if offsets:
                truth.append((append_ms, offsets[0]))
        stamps = sorted({append_ms for append_ms, _ in truth})
        for wanted in {0, *stamps[:: 1 + len(stamps) // 4], *[at + 1 for at in stamps[-2:]]}:
            answer = by_time.first_at_or_after(self.log, wanted, by_time.APPEND_TIME, PATIENT)
            expected = next((offset for at, offset in truth if at >= wanted), None)
            if expected is None:
                continue
            if answer is None or (answer.offset > expected if bounded else answer.offset != expected):
                self.fail("append", f"at or after {wanted} is {answer}, a scan says {expected}")

    def _offsets(self, base: int, data: bytes) -> Iterable[int]:
        """Return the offsets of a batch that have a record."""
        return range(base, last_of(data) + 1)

    def _epochs(self, found: list[tuple[int, bytes]], start: int, lost_epoch: int) -> None:
        """A batch's epoch is found by its offset, and after records were lost there is one that they did not have."""
        log = self.log
        # What was deleted and came back has no epoch that anybody was promised.
        for base, data in found:
            if base >= max(start, self.state.start):
                epoch = entries.peek(data).leader_epoch
                if epoch >= 0 and log.epochs.at(base) != epoch:
                    self.fail("epochs", f"{base} has epoch {epoch}, the log says {log.epochs.at(base)}")
        if log.leader_epoch <= lost_epoch:
            self.fail("lost epoch", f"epoch {log.leader_epoch} goes on, a lost batch had {lost_epoch}")


def cut(ledger: Ledger) -> Ledger:
    """Return what is promised once the power was cut."""
    ledger = maybe_cut(ledger)
    return {
        name: topic._replace(
            logs=tuple(log._replace(written=min(log.written, log.durable)) for log in topic.logs)
        )
        for name, topic in ledger.items()
    }


def maybe_cut(ledger: Ledger) -> Ledger:
    """Return what is promised where a start cannot tell a kill from a power cut: another, or a sync, has failed."""
    return {
        name: topic._replace(
            logs=tuple(
                # What was to be cut off may come back.
                log._replace(bounded=max(len(sent) for sent in (log.sent, *log.former)))
                for log in topic.logs
            )
        )
        for name, topic in ledger.items()
    }
