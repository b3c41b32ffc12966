"""Retention against a second writing of its rules, from what was appended and not from what the log says of itself."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs import NOW, batch, open_log
from tidelog.storage.upkeep import enforce_retention

UNLIMITED = -1


class Group(NamedTuple):
    """What one segment holds."""

    base_offset: int
    end_offset: int
    size_bytes: int
    latest: int
    last_append_ms: int

    def age_begins(self, clock: str) -> int:
        """The largest timestamp if there is one, by default never later than the last append (S24, S26, P1, P2, P3)."""
        if self.latest <= 0:
            return self.last_append_ms
        bounded = min(self.latest, self.last_append_ms)
        return {"bounded": bounded, "record": self.latest, "append": self.last_append_ms}[clock]


def judge(
    groups: list[Group], start: int, retention_bytes: int, retention_ms: int, clock: str, now_ms: int
) -> list[Group]:
    """Return what may stay: the oldest go first for lying before the start, then for size, then for time."""
    left = list(groups)
    while len(left) > 1 and left[1].base_offset <= start:
        left.pop(0)
    if retention_bytes != UNLIMITED:
        while len(left) > 1 and sum(group.size_bytes for group in left[1:]) >= retention_bytes:
            left.pop(0)
    if retention_ms != UNLIMITED:
        while left and now_ms - left[0].age_begins(clock) > retention_ms:
            left.pop(0)
    return left


timestamps = st.sampled_from([-1, 0, 1]) | st.integers(NOW - 20, NOW + 30)


@given(
    contents=st.lists(st.lists(timestamps, min_size=1, max_size=2), min_size=1, max_size=5),
    passing=st.lists(st.integers(0, 15), min_size=6, max_size=6),
    start_share=st.just(0.0) | st.floats(0, 1),
    room=st.none() | st.tuples(st.integers(0, 3), st.sampled_from([0, -1, 1])),
    retention_ms=st.just(UNLIMITED) | st.integers(0, 40),
    clock=st.sampled_from(["bounded", "record", "append"]),
)
def test_I8_retention_removes_what_has_expired_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[list[int]],
    passing: list[int],
    start_share: float,
    room: tuple[int, int] | None,
    retention_ms: int,
    clock: str,
) -> None:
    folder: Path = tmp_path_factory.mktemp("retention") / "topic-0"
    log = open_log(folder, retention_bytes=UNLIMITED, retention_ms=UNLIMITED)
    now_ms, groups = NOW, list[Group]()
    for number, stamps in enumerate(contents):
        now_ms += passing[number]
        if number:
            log.roll(now_ms)
        data = batch(stamps)
        appended = log.append(data, now_ms)
        groups.append(Group(appended.base_offset, appended.last_offset + 1, len(data), max(stamps), now_ms))
    now_ms += passing[-1]
    end = groups[-1].end_offset
    start = int(start_share * end)
    log.advance_start(start)
    retention_bytes = UNLIMITED
    if room is not None:  # for so many of the newest segments, or a byte less or more
        newest, more = room
        retention_bytes = max(sum(group.size_bytes for group in groups[-newest:] if newest) + more, 0)
    log.config = log.config.override(
        {"retention.bytes": str(retention_bytes), "retention.ms": str(retention_ms), "retention.clock": clock}
    )
    enforce_retention(log, now_ms)
    left = judge(groups, start, retention_bytes, retention_ms, clock, now_ms)
    assert [segment.base_offset for segment in log.segments] == [group.base_offset for group in left] or (
        not left and [segment.base_offset for segment in log.segments] == [end]
    )
    assert log.log_start_offset == max(start, left[0].base_offset if left else end)
    assert log.log_end_offset == end
    log.close()
