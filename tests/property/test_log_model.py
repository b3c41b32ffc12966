"""F14: The log against a list of records, under whatever can happen to it.

I2 no gap, duplicate or reordering; I3 an offset's bytes never change; I4 what a crash takes is a tail; I5 indexes are
a function of the log; I6 every lookup by time is what a scan says; I8 retention removes what has expired and nothing
else; I9 recovering twice is recovering once.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.logs import NOW, Row, batch, crash, fetch_all, first_at, open_log, scan
from tests.support.reference_index import differences, rebuilt
from tidelog.storage.search import by_offset, by_time
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.search.time_range import between
from tidelog.storage.sources import PATIENT
from tidelog.storage.upkeep import enforce_retention

TIMESTAMPS = st.lists(st.integers(-1, 30), min_size=1, max_size=4)


class LogModel(RuleBasedStateMachine):
    """`rows` is what the log must hold, `stored` all that its files do: timestamp and time of append by offset."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="model-"))
        self.generation = 0
        self.now_ms = NOW
        self.rows: list[Row] = []
        self.stored: dict[int, tuple[int, int]] = {}
        self.appended: dict[int, int] = {}  # when, by a clock that never goes back
        self.certain_from = 0  # Of what was stored before, a crash may have lost the time of append.
        self.end = self.start = self.recovery_point = 0

    @initialize(
        interval=st.sampled_from([0, 1, 150, 1 << 20]),
        segment_bytes=st.sampled_from([100, 400, 1 << 20]),
        log_append_time=st.booleans(),
    )
    def create(self, interval: int, segment_bytes: int, log_append_time: bool) -> None:
        self.options = {
            "index_interval_bytes": interval,
            "segment_bytes": segment_bytes,
            "message_timestamp_type": "LogAppendTime" if log_append_time else "CreateTime",
            "file_delete_delay_ms": 0,
        }
        self.log = open_log(self.root / "0", **self.options)

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @rule(timestamps=TIMESTAMPS, codec=st.sampled_from([0, 0, 1, 4]))
    def append(self, timestamps: list[int], codec: int) -> None:
        stamps = [NOW + at if at >= 0 else -1 for at in timestamps]
        appended = self.log.append(batch(stamps, b"%d-" % self.end, codec=codec), self.now_ms)
        assert (appended.base_offset, appended.last_offset) == (self.end, self.end + len(stamps) - 1)
        if self.options["message_timestamp_type"] == "LogAppendTime":
            stamps = [appended.append_time_ms] * len(stamps)
        append_ms = appended.append_time_ms if appended.append_time_ms >= 0 else self.now_ms
        self.appended |= {self.end + n: self.log.last_append_ms for n in range(len(stamps))}
        self.stored |= {self.end + n: (at, append_ms) for n, at in enumerate(stamps)}
        value = b"%d-" % self.end
        self.rows += [Row(self.end + n, at, value + b"%d" % n) for n, at in enumerate(stamps)]
        self.end += len(stamps)

    @rule(step=st.integers(-5, 20))
    def pass_time(self, step: int) -> None:
        self.now_ms += step

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.recovery_point = self.log.flush()
        assert self.recovery_point == self.end

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int(share * (self.end - self.start))
        self.log.truncate(offset)
        self.cut_to(self.log.log_end_offset)
        assert self.end <= offset or offset <= self.start

    @rule(share=st.floats(0, 1))
    def advance_start(self, share: float) -> None:
        self.start += int(share * (self.end - self.start))
        self.log.advance_start(self.start)
        self.rows = [row for row in self.rows if row.offset >= self.start]

    @rule(retention_ms=st.integers(0, 40))
    def expire(self, retention_ms: int) -> None:
        before = [(segment.base_offset, segment.next_offset) for segment in self.log.segments]
        self.log.config = self.log.config.override({"retention.ms": str(retention_ms)})
        enforce_retention(self.log, self.now_ms)
        self.log.config = self.log.config.override({"retention.ms": "-1"})
        left = self.log.segments[0].base_offset
        for base, end in before:
            if base >= left and base < end:
                # The first that is left has not expired, whatever those behind it have.
                if base >= self.certain_from:
                    appended_ms = max(self.stored[offset][1] for offset in range(base, end))
                    # Where the clock went back, it has to reach the append again.
                    is_ahead = self.now_ms < appended_ms
                    assert is_ahead or self.now_ms - max(self.age_begins(base, end)) <= retention_ms
                break
            if base < left and end > self.start:
                assert self.now_ms - min(self.age_begins(base, end)) > retention_ms
        self.start = self.log.log_start_offset
        self.rows = [row for row in self.rows if row.offset >= self.start]

    def age_begins(self, base: int, end: int) -> list[int]:
        """Return when the age of the records from `base` to `end` begins, as docs/time.md and S24, S26, P1 say.

        The largest timestamp, and where there is none the last append; never later than that. Where the clock went
        back, the last append is the last or the latest.
        """
        stored = [self.stored[offset] for offset in range(base, end)]
        latest = max(timestamp for timestamp, _ in stored)
        appends = [append_ms for _, append_ms in stored]
        return [
            min(latest, append_ms) if latest > 0 else append_ms for append_ms in (appends[-1], max(appends))
        ]

    @rule()
    def restart(self) -> None:
        self.log.close()
        assert differences(self.log.directory, self.interval()) == []
        self.reopen(clean=True)

    @rule()
    def crash_and_recover(self) -> None:
        self.reopen(clean=False)

    @precondition(lambda self: self.log.active.size and self.end > self.recovery_point)
    @rule(cut=st.integers(1, 400), garbage=st.binary(max_size=80))
    def crash_with_torn_tail(self, cut: int, garbage: bytes) -> None:
        active = self.log.active
        flushed = active.base_offset < self.recovery_point
        least = by_offset.locate(active, self.recovery_point, PATIENT)[0] if flushed else 0
        path = active.path(".log")
        with open(path, "r+b") as file:
            file.truncate(max(least, active.size - cut))
            file.seek(0, 2)
            file.write(garbage)
        self.reopen(clean=False)
        assert self.log.log_end_offset >= self.recovery_point
        self.cut_to(self.log.log_end_offset)

    def reopen(self, clean: bool) -> None:
        """Open a copy of the folder as it is now; the log that has it open is dropped."""
        if not clean:
            self.certain_from = self.end
        self.generation += 1
        folder = crash(self.log, self.root / str(self.generation))
        shutil.rmtree(self.log.directory)
        self.log = open_log(
            folder,
            clean=clean,
            recovery_point=self.recovery_point if not clean else self.end,
            log_start_offset=self.start,
            now_ms=self.now_ms,
            **self.options,
        )
        self.recovery_point = self.log.recovery_point

    def cut_to(self, end: int) -> None:
        self.end = end
        self.start = min(self.start, end)
        self.recovery_point = min(self.recovery_point, end)
        self.certain_from = end  # What is left of a segment may have been appended before what was cut.
        self.stored = {offset: what for offset, what in self.stored.items() if offset < end}
        self.rows = [row for row in self.rows if row.offset < end]

    def interval(self) -> int:
        return int(str(self.options["index_interval_bytes"]))

    @invariant()
    def offsets_agree(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert not self.log.damaged

    @invariant()
    def records_agree(self) -> None:
        assert scan(self.log) == self.rows
        assert fetch_all(self.log, 300) == self.rows

    @invariant()
    def every_offset_is_found(self) -> None:
        for row in self.rows:
            data = self.log.read(row.offset, 1, True, PATIENT).read()
            header = data[:27]
            first = int.from_bytes(header[:8], "big")
            assert first <= row.offset <= first + int.from_bytes(header[23:27], "big")
        assert len(self.log.read(self.end, 1000, True, PATIENT)) == 0

    @invariant()
    def every_time_is_found(self) -> None:
        stamps = sorted({row.timestamp for row in self.rows})
        for wanted in {at + step for at in stamps for step in (-1, 0, 1)} | {0}:
            if wanted >= 0:
                found = first_at(self.log, wanted, PATIENT)
                expected = next((row for row in self.rows if row.timestamp >= wanted), None)
                assert (found and (found.offset, found.timestamp)) == (expected and expected[:2])

    @invariant()
    def every_range_of_times_is_found(self) -> None:
        stamps = sorted({row.timestamp for row in self.rows})
        for from_ms, to_ms in {(at, at + width) for at in stamps[::3] for width in (-1, 1, 7)} | {
            (0, NOW * 2)
        }:
            found = between(self.log, from_ms, to_ms, RECORD_TIME, PATIENT)
            offsets = [row.offset for row in self.rows if max(from_ms, 0) <= row.timestamp < to_ms]
            assert found == (range(offsets[0], offsets[-1] + 1) if offsets else range(0))

    @invariant()
    def every_range_of_append_times_is_found(self) -> None:
        """But where a bound may stand for the time of an append."""
        if self.certain_from > self.start:
            return
        appends = [(offset, at) for offset, at in self.appended.items() if self.start <= offset < self.end]
        for from_ms, to_ms in {(at, at + width) for _, at in appends[::3] for width in (1, 9)}:
            found = between(self.log, from_ms, to_ms, APPEND_TIME, PATIENT)
            offsets = [offset for offset, at in appends if from_ms <= at < to_ms]
            assert found == (range(offsets[0], offsets[-1] + 1) if offsets else range(0))

    @invariant()
    def the_largest_time_is_found(self) -> None:
        found = by_time.largest_timestamp(self.log, PATIENT)
        timed = [row for row in self.rows if row.timestamp >= 0]
        expected = max(timed, key=lambda row: (row.timestamp, -row.offset), default=None)
        assert (found and (found.offset, found.timestamp)) == (expected and expected[:2])

    @invariant()
    def indexes_follow_from_the_log(self) -> None:
        for segment in self.log.segments:
            offsets, times = rebuilt(segment.path(".log").read_bytes(), segment.base_offset, self.interval())
            assert bytes(segment.offset_index.data) == offsets
            # The final entry of the time index comes with the sealing.
            expected = times if not segment.is_active else times[: len(segment.time_index.data)]
            assert segment.time_index.data[:] == expected
            assert len(times) - len(segment.time_index.data) in (0, 12)


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=100,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
