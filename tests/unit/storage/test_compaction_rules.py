"""The rules of a pass: which keys are looked at, what goes, with how much memory, and when a log is due."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.compaction import COMPACTED, clean, finished, keyed, rows_of, steps_of
from tests.support.logs import NOW, open_log
from tidelog.storage.compaction import plan, reading
from tidelog.storage.compaction.key_map import ENTRY_BYTES, KeyMap
from tidelog.storage.log import Log

MERGING = {**COMPACTED, "segment_bytes": 1 << 20}


def put(log: Log, *pairs: tuple[bytes, bytes | None]) -> None:
    log.append(keyed(*pairs), NOW)
    log.roll(NOW)


@pytest.mark.parametrize("policy", [("delete",), ("compact",), ("compact", "delete")])
def test_S86_a_log_is_compacted_where_its_policy_says_so(tmp_path: Path, policy: tuple[str, ...]) -> None:
    log = open_log(tmp_path, **{**MERGING, "cleanup_policy": policy})
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    clean(log, NOW)
    assert [row.offset for row in rows_of(log)] == ([1] if "compact" in policy else [0, 1])


def test_S87_S88_S89_a_pass_maps_the_head_alone_and_what_it_has_replaced_goes_from_the_tail(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, **MERGING)
    put(log, *((b"k%d" % n, b"old") for n in range(100)))
    clean(log, NOW)
    put(log, (b"k7", b"1"), (b"k9", b"1"), (b"k7", b"2"))
    # There is room for the two keys of the head, and not for those of the tail.
    done = clean(log, NOW, buffer_bytes=3 * ENTRY_BYTES)
    assert done is not None
    assert done.cleaned_to == log.log_end_offset
    rows = rows_of(log)
    assert [row.offset for row in rows if row.key in (b"k7", b"k9")] == [101, 102]
    assert len(rows) == 100


def test_all_there_is_to_compact_is_what_a_pass_by_yield_or_ratio_may_leave(tmp_path: Path) -> None:
    log = open_log(tmp_path, **{**MERGING, "min_cleanable_dirty_ratio": 0.9})
    for n in range(3):
        put(log, *((b"k%d" % key, b"%d" % n) for key in range(n, 3)))
        if n < 2:
            clean(log, NOW)
    everything = plan.everything(log, NOW)
    assert everything is not None
    assert everything.must == frozenset(log.segments[:-1])
    finished(steps_of(log, everything))
    assert [row.key for row in rows_of(log)] == [b"k0", b"k1", b"k2"]
    assert plan.everything(log, NOW) is None


def test_S91_S94_the_map_takes_as_much_memory_as_it_is_given_and_says_how_far_it_reaches() -> None:
    keys = KeyMap(10 * ENTRY_BYTES, 0.5, end=1000)
    assert [keys.put(b"k%d" % n, n) for n in range(7)] == [True] * 5 + [False] * 2
    assert keys.end == 5
    assert [keys.has_later(b"k%d" % n, n - 1) for n in range(7)] == [True] * 5 + [False] * 2
    assert keys.put(b"k3", 9), "a key that is there takes no room"
    keys.close()


def test_S93_each_pass_hashes_by_a_secret_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def draw(size: int) -> bytes:
        drawn.append(real(size))
        return drawn[-1]

    real = os.urandom
    log = open_log(tmp_path, **MERGING)
    monkeypatch.setattr("os.urandom", draw)
    for n in range(3):
        put(log, (b"a", b"%d" % n))
        clean(log, NOW)
    assert len(drawn) == len(set(drawn)) == 3


def test_S92_a_collision_of_hashes_keeps_what_it_would_replace() -> None:
    """The place of a key in the map is by half of its hash; known it is by all of it."""
    from tidelog.protocol.records import keys

    table, secret = bytearray(ENTRY_BYTES * 8), bytes(16)
    assert keys.put(table, secret, b"a", 5, room=8, slot_mask=0) == (1, 1)
    assert keys.latest(table, secret, b"b", slot_mask=0) == -1
    assert keys.put(table, secret, b"b", 7, room=8, slot_mask=0) == (1, 1)
    assert [keys.latest(table, secret, key, slot_mask=0) for key in (b"a", b"b", b"c")] == [5, 7, -1]


@pytest.mark.parametrize(
    ("options", "is_due"),
    [
        ({"min_cleanable_dirty_ratio": 0.6}, False),
        ({"min_cleanable_dirty_ratio": 0.4}, True),
        ({"min_cleanable_dirty_ratio": 0.6, "max_compaction_lag_ms": 99}, True),
        ({"min_cleanable_dirty_ratio": 0.6, "max_compaction_lag_ms": 101}, False),
        ({"min_cleanable_dirty_ratio": 0.4, "min_compaction_lag_ms": 101}, False),
    ],
)
def test_S95_a_log_is_due_once_its_head_is_large_or_old_enough(
    tmp_path: Path, options: dict[str, Any], is_due: bool
) -> None:
    log = open_log(tmp_path, **MERGING)
    put(log, (b"a", b"1"))
    clean(log, NOW)
    put(log, (b"b", b"1"))
    log.update_config(type(log.config)(**{**MERGING, **options}))
    assert (plan.due(log, NOW + 100, by_yield=False) is not None) == is_due


def test_S90_S97_S98_what_is_in_the_active_segment_stays_and_keeps_its_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, **MERGING)
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.append(keyed((b"a", b"3"), (b"a", b"4"), (b"b", None)), NOW)
    before = rows_of(log)
    clean(log, NOW)
    # What a record of the active segment has replaced may still be read.
    assert rows_of(log) == before[1:]


def test_P13_damage_makes_no_pass_due_again_and_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, **MERGING)
    for n in range(3):
        put(log, (b"a", b"%d" % n))
    log.flush()
    segment = log.segments[1]
    data = bytearray(segment.path(".log").read_bytes())
    data[-2] ^= 1
    segment.path(".log").write_bytes(data)
    from contextlib import suppress

    from tidelog.storage.errors import Mismatch

    with suppress(Mismatch):
        clean(log, NOW)
    clean(log, NOW)
    assert log.damaged
    lagging = {**MERGING, "max_compaction_lag_ms": 1}
    log.update_config(type(log.config)(**lagging))
    assert plan.due(log, NOW + 100, by_yield=False) is None


@pytest.mark.parametrize("records", [0, 1, 100])
def test_a_step_of_a_pass_is_short_whatever_is_in_the_batches(tmp_path: Path, records: int) -> None:
    """A step has so many records and batches as take a tenth of a millisecond: the others have their turn."""
    log = open_log(tmp_path, **MERGING)
    for number in range(400):
        pairs = [(b"%d" % key, b"") for key in range(max(records, 1))]
        log.append(keyed(*pairs, producer_id=number, producer_epoch=0, base_sequence=0), NOW)
    log.roll(NOW)
    if not records:  # Only the last one keeps its record; the others stay, as the last of their producers.
        clean(log, NOW)
    found = [len(entries) for entries in reading.chunks(log.segments[0])]
    assert sum(found) == 400
    assert max(found) == {0: 8, 1: 8, 100: 2}[records]
    assert len(found) >= 400 / max(found)
