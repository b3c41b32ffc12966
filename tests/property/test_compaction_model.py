"""F14, P15: A compacted log against a list of records, under whatever can happen to it.

I2 offsets rise, and are those that were given; I3 what an offset holds never changes; I5 indexes are a function of the
log; I6 every lookup by time is what a scan says; I7 of each key the latest record stays, nothing that went comes back,
and a tombstone stays as long as it should; I8 retention takes what has expired; I9 recovering twice is recovering once.

Between passes the log holds exactly what it held; what a pass takes away is to be accounted for, record by record.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.compaction import KeyedRow, append_ms_of, keyed, latest_of, rows_of, steps_of
from tests.support.logs import NOW, crash, first_at, new_shared, open_log, read_records
from tests.support.reference_index import rebuilt
from tidelog.protocol.records.batch import MAGIC, set_base
from tidelog.protocol.records.steps import at_once
from tidelog.storage import fsck
from tidelog.storage.compaction import plan as plans
from tidelog.storage.compaction.plan import Plan
from tidelog.storage.log import Appended, Log
from tidelog.storage.search import by_time
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.search.time_range import between
from tidelog.storage.sources import PATIENT
from tidelog.storage.upkeep import enforce_retention

KEYS = [b"a", b"b", b"c", b"dd", b"", b"\x00" * 40]
PAIRS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([b"v", b"w" * 30, b"", None, None])),
    min_size=1,
    max_size=4,
)
FORMATS = ["3.0-IV1", "3.0-IV1", "3.0-IV1", "1", "0"]
ZSTD = 4


class CompactionModel(RuleBasedStateMachine):
    """`rows` is what the log holds; `seen` when the first pass may have met a tombstone, by its offset."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="compaction-"))
        self.generation = 0
        self.now_ms = NOW
        self.rows: list[KeyedRow] = []
        self.appended: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        self.sent: dict[
            int, tuple[bytes, int, int]
        ] = {}  # by producer: its last batch, where it is, next sequence
        self.end = self.start = self.recovery_point = 0
        self.era = 0  # producers of before a cut are others
        self.is_exact = True  # a crash may have lost the time of an append

    @initialize(
        interval=st.sampled_from([0, 150, 1 << 20]),
        segment_bytes=st.sampled_from([500, 1000, 3000]),
        log_append_time=st.booleans(),
        delete_retention_ms=st.sampled_from([0, 10, 40]),
        lag_ms=st.sampled_from([0, 0, 15]),
        ratio=st.sampled_from([0.0, 0.0, 0.5]),
        version=st.sampled_from(FORMATS),
    )
    def create(
        self,
        interval: int,
        segment_bytes: int,
        log_append_time: bool,
        delete_retention_ms: int,
        lag_ms: int,
        ratio: float,
        version: str,
    ) -> None:
        self.options: dict[str, Any] = {
            "cleanup_policy": ("compact",),
            "index_interval_bytes": interval,
            "segment_bytes": segment_bytes,
            "message_timestamp_type": "LogAppendTime" if log_append_time else "CreateTime",
            "delete_retention_ms": delete_retention_ms,
            "min_compaction_lag_ms": lag_ms,
            "min_cleanable_dirty_ratio": ratio,
            "message_format_version": version,
            "file_delete_delay_ms": 0,
        }
        self.log: Log = open_log(self.root / "0", **self.options)

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # What is done to it.

    @rule(
        pairs=PAIRS,
        step=st.integers(-20, 20),
        codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
        producer=st.sampled_from([None, None, 1, 2]),
        keyless=st.sampled_from([False] * 7 + [True]),  # from before the topic was a compacted one
    )
    def append(
        self,
        pairs: list[tuple[bytes, bytes | None]],
        step: int,
        codec: int,
        producer: int | None,
        keyless: bool,
    ) -> None:
        self.now_ms += len(pairs) - 1
        is_old = self.log.magic != MAGIC
        codec = 1 if is_old and codec == ZSTD else codec
        options: dict[str, int] = {}
        if producer is not None and not is_old:
            producer += self.era
            _, _, sequence = self.sent.get(producer, (b"", 0, 0))
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        made = [(None if keyless else key, value) for key, value in pairs]
        data = keyed(*made, at=self.now_ms + step, codec=codec, **options)
        appended = self.store(bytearray(data))
        assert appended.base_offset == self.end
        self.end = appended.last_offset + 1
        got = rows_of(self.log, start=appended.base_offset)
        assert [(row.offset, row.key, row.value) for row in got] == [
            (appended.base_offset + n, key, value) for n, (key, value) in enumerate(made)
        ]
        self.rows += got
        self.appended |= {row.offset: self.log.last_append_ms for row in got}
        if options:
            assert producer is not None
            self.sent[producer] = bytes(data), appended.base_offset, options["base_sequence"] + len(made)
        elif is_old:
            self.forget_producers()  # as a start does

    def store(self, data: bytearray) -> Appended:
        self.log.update_config(self.log.config.override({"cleanup.policy": "delete"}))
        try:
            checked = at_once(self.log.check(data, self.now_ms))
            return self.log.append(bytearray(checked[0]), self.now_ms, checked)
        finally:
            self.log.update_config(self.log.config.override({"cleanup.policy": "compact"}))

    @rule(step=st.integers(-5, 25))
    def pass_time(self, step: int) -> None:
        self.now_ms += step

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.recovery_point = self.log.flush()

    @rule(version=st.sampled_from(FORMATS))
    def alter_format(self, version: str) -> None:
        self.options["message_format_version"] = version
        self.log.update_config(self.log.config.override({"message.format.version": version}))

    @rule(share=st.floats(0, 1))
    def advance_start(self, share: float) -> None:
        self.start += int(share * share * (self.end - self.start))
        self.log.advance_start(self.start)
        self.rows = [row for row in self.rows if row.offset >= self.start]

    @rule(retention_ms=st.integers(0, 60))
    def expire(self, retention_ms: int) -> None:
        settings_ = {"retention.ms": str(retention_ms), "cleanup.policy": "compact,delete"}
        self.log.update_config(self.log.config.override(settings_))
        enforce_retention(self.log, self.now_ms)
        self.log.update_config(self.log.config.override({"retention.ms": "-1", "cleanup.policy": "compact"}))
        assert self.log.log_start_offset >= self.start
        for row in self.rows:
            if row.offset < self.log.log_start_offset:
                # By the largest time of its segment, which is no older, and no later than the last append.
                assert self.now_ms - min(row.timestamp, self.appended[row.offset]) > retention_ms or (
                    row.timestamp <= 0
                )
        self.start = self.log.log_start_offset
        self.rows = [row for row in self.rows if row.offset >= self.start]

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int(share * (self.end - self.start))
        self.log.truncate(offset)
        self.cut_to(self.log.log_end_offset)
        assert self.end <= offset

    def cut_to(self, end: int) -> None:
        self.end, self.start = end, min(self.start, end)
        self.recovery_point = min(self.recovery_point, end)
        self.is_exact = False
        self.forget_producers()
        self.rows = [row for row in self.rows if row.offset < end]
        self.seen = {offset: at for offset, at in self.seen.items() if offset < end}
        self.appended = {offset: at for offset, at in self.appended.items() if offset < end}

    def forget_producers(self) -> None:
        self.sent.clear()
        self.era += 2

    # Compaction.

    @rule(buffer_bytes=st.sampled_from([1 << 14, 1 << 14, 72]), by_yield=st.booleans())
    def compact(self, buffer_bytes: int, by_yield: bool) -> None:
        self.begin(by_yield, buffer_bytes, steps=None)

    @rule(buffer_bytes=st.sampled_from([1 << 14, 96]), by_yield=st.booleans(), steps=st.integers(0, 6))
    def compact_in_part(self, buffer_bytes: int, by_yield: bool, steps: int) -> None:
        self.begin(by_yield, buffer_bytes, steps)

    @rule(steps=st.integers(0, 6))
    def crash_amid_a_pass(self, steps: int) -> None:
        self.begin(False, 1 << 14, steps, crashes=True)

    def begin(self, by_yield: bool, buffer_bytes: int, steps: int | None, crashes: bool = False) -> None:
        due = plans.due(self.log, self.now_ms, by_yield=by_yield)
        if due is None:
            return
        places = [(each.base_offset, each.next_offset) for each in due.candidates]
        lag_ms = self.options["min_compaction_lag_ms"]
        for segment in due.candidates:
            assert not segment.is_active
            youngest = max((r.timestamp for r in self.rows if r.offset < segment.next_offset), default=0)
            assert not lag_ms or youngest <= self.now_ms - lag_ms or youngest <= 0
        self.recovery_point = self.log.flush()
        going = steps_of(self.log, due, buffer_bytes=buffer_bytes)
        done = None
        try:
            while steps is None or steps > 0:
                next(going)
                steps = None if steps is None else steps - 1
        except StopIteration as end:
            done = end.value
        if crashes:
            self.reopen(clean=False)
        going.close()
        self.account(due, places, due.end if done is None else done.cleaned_to)
        if done is not None and done.cleaned_to == due.end and due.must == frozenset(due.candidates):
            self.whole(due, places)
        assert not [path for path in self.log.directory.iterdir() if path.suffix in (".cleaned", ".swap")]

    def account(self, due: Plan, places: list[tuple[int, int]], end: int) -> None:
        """I7: hold what a pass has taken away against what it may."""
        before, self.rows = self.rows, rows_of(self.log)
        left = set(self.rows)
        assert left <= set(before)
        latest, retention_ms = latest_of(before, end), self.options["delete_retention_ms"]
        for row in before:
            if row in left:
                continue
            assert any(base <= row.offset < after for base, after in places)
            assert row.key is not None
            assert row.offset < end
            if latest[row.key].offset == row.offset:
                assert row.value is None, f"the latest of its key is gone: {row}"
                assert self.now_ms >= self.seen[row.offset] + retention_ms, "P16: it died early"
                older = [each for each in self.rows if each.key == row.key and each.offset < row.offset]
                assert not older, f"what {row} has replaced is there"
        for row in self.rows:
            if row.value is None and row.offset < due.end:
                self.seen.setdefault(row.offset, self.now_ms)

    def whole(self, due: Plan, places: list[tuple[int, int]]) -> None:
        """Of what a whole pass has copied each key has one record before its end."""
        inside = [
            row
            for row in self.rows
            if row.key is not None
            and row.offset < due.end
            and any(base <= row.offset < after for base, after in places)
        ]
        latest = latest_of([*self.rows], due.end)
        assert [row for row in inside if latest[row.key or b""] != row] == []

    # A restart.

    @rule()
    def restart(self) -> None:
        self.log.close()
        problems = fsck.Fsck(self.log.directory, deep=True, repair=False).problems()
        assert [
            f"{each.path.name}@{each.position}: {each.what}" for each in problems if not each.is_note
        ] == []
        self.reopen(clean=True)

    @rule()
    def crash_and_recover(self) -> None:
        self.reopen(clean=False)

    def reopen(self, clean: bool) -> None:
        """Open a copy of the folder as it is now; the log that has it open is dropped."""
        self.generation += 1
        folder = crash(self.log, self.root / "t" / str(self.generation) / "topic-0")
        shutil.rmtree(self.log.directory)
        self.log = open_log(
            folder,
            clean=clean,
            recovery_point=self.recovery_point if not clean else self.end,
            log_start_offset=self.start,
            now_ms=self.now_ms,
            was_cut_off=False,
            shared=new_shared(folder),
            **self.options,
        )
        self.recovery_point = self.log.recovery_point

    @precondition(lambda self: self.sent)
    @rule(producer=st.sampled_from([1, 2]))
    def resend(self, producer: int) -> None:
        if producer + self.era in self.sent and self.log.magic == MAGIC:
            data, base, _ = self.sent[producer + self.era]
            again = bytearray(data)
            set_base(again, 0, 0, -1)
            appended = self.store(again)
            assert appended.duplicate
            assert appended.base_offset == base

    # What holds at any time.

    @invariant()
    def records_agree(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert not self.log.damaged
        assert rows_of(self.log) == self.rows
        assert rows_of(self.log, 200) == self.rows
        offsets = [row.offset for row in self.rows]
        assert offsets == sorted(set(offsets))
        for before, after in zip(self.log.segments, self.log.segments[1:], strict=False):
            assert before.next_offset == after.base_offset

    @invariant()
    def every_offset_is_found(self) -> None:
        for row in self.rows[:: 1 + len(self.rows) // 8]:
            data = self.log.read(row.offset, 1, True, PATIENT).read()
            assert row.offset in [each.offset for each in read_records(data)]

    @invariant()
    def every_time_is_found(self) -> None:
        stamps = sorted({row.timestamp for row in self.rows if row.timestamp >= 0})
        for wanted in {at + step for at in stamps[:: 1 + len(stamps) // 6] for step in (0, 1)} | {0}:
            found = first_at(self.log, wanted, PATIENT)
            expected = next((row for row in self.rows if row.timestamp >= wanted), None)
            assert (found and (found.offset, found.timestamp)) == (expected and expected[:2])
        for from_ms, to_ms in {(at, at + width) for at in stamps[::3] for width in (1, 7)} | {(0, NOW * 2)}:
            span = between(self.log, from_ms, to_ms, RECORD_TIME, PATIENT)
            inside = [row.offset for row in self.rows if from_ms <= row.timestamp < to_ms]
            assert span == (range(inside[0], inside[-1] + 1) if inside else range(0))
        largest = by_time.largest_timestamp(self.log, PATIENT)
        timed = [row for row in self.rows if row.timestamp >= 0]
        most = max(timed, key=lambda row: (row.timestamp, -row.offset), default=None)
        assert (largest and (largest.offset, largest.timestamp)) == (most and most[:2])

    @invariant()
    def append_times_stay(self) -> None:
        for row in self.rows:
            time_ms, is_bound = append_ms_of(self.log, row.offset)
            assert time_ms == self.appended[row.offset] or (not self.is_exact and is_bound)
        if not self.is_exact:
            return
        stamps = sorted({self.appended[row.offset] for row in self.rows})
        for wanted in stamps[:: 1 + len(stamps) // 4]:
            found = by_time.first_at_or_after(self.log, wanted, APPEND_TIME, PATIENT)
            expected = next(row for row in self.rows if self.appended[row.offset] >= wanted)
            assert found is not None
            assert (found.offset, found.timestamp) == (expected.offset, self.appended[expected.offset])

    @invariant()
    def indexes_follow_from_the_log(self) -> None:
        interval = self.options["index_interval_bytes"]
        for segment in self.log.segments:
            offsets, times = rebuilt(segment.path(".log").read_bytes(), segment.base_offset, interval)
            assert bytes(segment.offset_index.data) == offsets
            expected = times if not segment.is_active else times[: len(segment.time_index.data)]
            assert segment.time_index.data[:] == expected


SETTINGS: dict[str, Any] = {
    "phases": [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much],
}
TestCompactionModel = CompactionModel.TestCase
TestCompactionModel.settings = settings(max_examples=40, stateful_step_count=30, **SETTINGS)


class LongCompactionModel(CompactionModel):
    """The same for longer."""


@pytest.mark.all
@pytest.mark.timeout(1800)
class TestLongCompactionModel(LongCompactionModel.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(max_examples=2000, stateful_step_count=60, **SETTINGS)
