"""The two indexes and the rule by which they grow."""

import random
from pathlib import Path

import pytest

from tests.support.logs import NOW, batch, fill, index_bytes, log_bytes, open_log, scan
from tests.support.reference_index import differences, rebuilt
from tidelog.protocol.records.build import Record
from tidelog.protocol.records.message_set import build_message_set
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.time_index import BEYOND, TimeIndex

PLENTY = [[NOW + n * 7 % 50, NOW + n] for n in range(40)]


def test_S1_S40_a_segment_begins_with_a_log_an_offset_index_and_a_time_index(tmp_path: Path) -> None:
    open_log(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    base = "0" * 20
    assert {f"{base}.log", f"{base}.index", f"{base}.timeindex"} <= names
    assert not any(name.endswith(".txnindex") for name in names)


def test_S2_S5_a_time_entry_is_int64_timestamp_and_int32_last_offset_of_its_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW], [NOW + 5, NOW + 9, NOW + 1], [NOW + 9]])
    log.close()
    data = (tmp_path / f"{0:020d}.timeindex").read_bytes()
    assert data == (NOW + 9).to_bytes(8, "big") + (3).to_bytes(4, "big")


def test_S82_an_offset_entry_is_int32_last_offset_and_int32_position(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    first, second = batch([NOW]), batch([NOW, NOW])
    log.append(first, NOW)
    log.append(second, NOW)
    log.close()
    assert (tmp_path / f"{0:020d}.index").read_bytes() == (2).to_bytes(4, "big") + len(first).to_bytes(
        4, "big"
    )


def test_S42_the_offset_index_has_no_column_for_time() -> None:
    assert (OffsetIndex.entry_bytes, TimeIndex.entry_bytes) == (8, 12)


@pytest.mark.parametrize("interval", [0, 100, 300, 5000])
def test_S3_S4_S6_S7_S14_what_holds_between_the_entries(tmp_path: Path, interval: int) -> None:
    log = open_log(tmp_path, index_interval_bytes=interval)
    fill(log, PLENTY)
    rows = scan(log)
    log.close()
    segment = open_log(tmp_path, clean=True, index_interval_bytes=interval).active
    segment.seal()
    times = [segment.time_index.entry(n) for n in range(len(segment.time_index))]
    assert len(times) <= len(segment.offset_index) + 1
    assert len(times) * 12 <= 1.5 * (len(segment.offset_index) + 1) * 8
    assert times == sorted(set(times))
    for timestamp, offset in times:
        assert max(row.timestamp for row in rows if row.offset <= offset) == timestamp
        assert all(row.offset > offset for row in rows if row.timestamp > timestamp)


def test_S8_an_equal_timestamp_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.active.summary.max_timestamp == -1
    fill(log, [[NOW + 3], [NOW + 3], [NOW + 2]])
    assert log.active.summary.max_timestamp_last_offset == 0


def test_S10_S39_entries_come_when_more_than_the_interval_lies_before_the_batch(tmp_path: Path) -> None:
    size = len(batch([NOW]))
    log = open_log(tmp_path, index_interval_bytes=2 * size)
    entries = []
    for n in range(8):
        log.append(batch([NOW + n]), NOW)
        entries.append((len(log.active.offset_index), len(log.active.time_index)))
    # Three batches are more than the interval, so the fourth gets an entry, and so does every third behind it.
    assert entries == [(0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (1, 1), (2, 2), (2, 2)]
    log.append(batch([NOW]), NOW)
    log.append(batch([NOW]), NOW)
    assert (len(log.active.offset_index), len(log.active.time_index)) == (3, 3)
    for _ in range(3):
        log.append(batch([NOW]), NOW)
    assert (len(log.active.offset_index), len(log.active.time_index)) == (4, 3)


@pytest.mark.parametrize("how", ["roll", "close"])
def test_S12_the_last_entry_has_the_largest_timestamp(tmp_path: Path, how: str) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 20)
    fill(log, [[NOW], [NOW + 50], [NOW + 2]])
    if how == "roll":
        log.roll(NOW)
    else:
        log.close()
    assert (tmp_path / f"{0:020d}.timeindex").read_bytes() == (NOW + 50).to_bytes(8, "big") + (1).to_bytes(
        4, "big"
    )


def test_V4_the_final_entry_has_an_offset_that_is_in_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 20)
    fill(log, [[NOW, NOW + 1], [NOW + 1]])
    log.roll(NOW)
    segment = log.segments[0]
    assert segment.time_index.entry(0) == (NOW + 1, 1)


def test_S13_S26_without_timestamps_the_time_index_is_empty_and_the_append_time_counts(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[-1], [-1], [-1]], now_ms=NOW + 7)
    log.roll(NOW + 7)
    segment = log.segments[0]
    assert len(segment.offset_index) == 2
    assert len(segment.time_index) == 0
    assert segment.changed_ms == NOW + 7


def test_S15_S16_a_clean_restart_knows_the_largest_timestamp_and_scans_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW + 9], [NOW + 1]])
    log.close()
    monkeypatch.delattr("tidelog.storage.walk.verified")
    again = open_log(tmp_path, clean=True, recovery_point=2)
    assert again.active.summary.max_timestamp == NOW + 9
    assert index_bytes(tmp_path)[f"{0:020d}.timeindex"][:8] == (NOW + 9).to_bytes(8, "big")


@pytest.mark.parametrize("interval", [0, 100, 1 << 20])
@pytest.mark.parametrize("cut", [1, 13, 40, 79])
def test_S22_S23_V2_truncation_leaves_the_indexes_of_what_is_left(
    tmp_path: Path, interval: int, cut: int
) -> None:
    log = open_log(tmp_path, index_interval_bytes=interval)
    fill(log, PLENTY)
    log.truncate(cut)
    rows = scan(log)
    assert all(row.offset < cut for row in rows)
    assert log.active.summary.max_timestamp == max((row.timestamp for row in rows), default=-1)
    log.close()
    assert differences(tmp_path, interval) == []


def test_V2_indexes_do_not_tell_how_often_the_log_was_closed(tmp_path: Path) -> None:
    often, never = tmp_path / "often", tmp_path / "never"
    options = {"index_interval_bytes": 250, "segment_bytes": 1500}
    log = open_log(often, **options)
    for each in PLENTY:
        fill(log, [each])
        log.close()
        log = open_log(often, clean=True, recovery_point=log.log_end_offset, **options)
    straight = open_log(never, **options)
    fill(straight, PLENTY)
    straight.close()
    log.close()
    assert log_bytes(often) == log_bytes(never)
    assert index_bytes(often) == index_bytes(never)


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "padded", "zeroed", "shuffled", "another's"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("sealed", [True, False])
def test_S18_S19_S21_V9_an_index_that_is_not_of_the_log_is_rebuilt(
    tmp_path: Path, damage: str, suffix: str, sealed: bool
) -> None:
    options = {"index_interval_bytes": 100}
    log = open_log(tmp_path, **options)
    fill(log, PLENTY)
    if sealed:
        log.roll(NOW)
    log.close()
    good = index_bytes(tmp_path)
    path = tmp_path / f"{0:020d}{suffix}"
    data = path.read_bytes()
    entry = 8 if suffix == ".index" else 12
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "short": data[:-entry],
                # 10 MiB of zeros behind the entries are what Kafka's pre-allocation leaves after a kill.
                "padded": data + bytes((10 << 20) - len(data)),
                "zeroed": bytes(len(data)),
                "shuffled": data[entry : 2 * entry] + data[:entry] + data[2 * entry :],
                "another's": data[:-1] + bytes([data[-1] ^ 1]),
            }[damage]
        )
    again = open_log(tmp_path, clean=True, recovery_point=80, **options)
    newest = max(row.timestamp for row in scan(again))
    segment = again.segments[0]
    assert len(segment.offset_index) == len(good[f"{0:020d}.index"]) // 8
    assert segment.summary.max_timestamp == newest
    fill(again, [[NOW + 999]])
    again.close()
    assert differences(tmp_path, 100) == []


def test_S19_S20_a_missing_time_index_stays_empty_only_if_there_are_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[-1], [-1]])
    log.roll(NOW)
    log.close()
    (tmp_path / f"{0:020d}.timeindex").unlink()
    assert len(open_log(tmp_path, clean=True, recovery_point=2).segments[0].time_index) == 0


def test_S18_a_missing_summary_is_made_again_from_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    fill(log, PLENTY)
    log.roll(NOW)
    before = log.segments[0].summary
    log.close()
    for path in tmp_path.glob("*.summary"):
        path.unlink()
    after = open_log(tmp_path, clean=True, index_interval_bytes=100).segments[0].summary
    for name in (
        "record_count",
        "batch_count",
        "max_timestamp",
        "max_timestamp_last_offset",
        "first_timestamp",
    ):
        assert getattr(after, name) == getattr(before, name)


def test_S83_S84_S85_a_lookup_finds_the_greatest_entry_at_or_before(tmp_path: Path) -> None:
    rng = random.Random(1)
    offsets = sorted(rng.sample(range(1, 1000), 60))
    offset_index = OffsetIndex(tmp_path / "index", bytearray())
    time_index = TimeIndex(tmp_path / "timeindex", bytearray())
    for offset in offsets:
        offset_index.append(offset, offset * 10)
        time_index.append_if_larger(NOW + offset, offset)
    for wanted in range(1001):
        before = [offset * 10 for offset in offsets if offset <= wanted]
        behind = [offset * 10 for offset in offsets if offset > wanted]
        next_offset = before[-1] // 10 + 1 if before else 0
        assert offset_index.around(wanted) == ((before or [0])[-1], (behind or [-1])[0], next_offset)
        later = [offset for offset in offsets if offset >= wanted]
        assert time_index.offset_from(NOW + wanted) == (later or [BEYOND])[0]


def test_I5_every_interval_gives_what_a_second_writing_of_the_rule_gives(tmp_path: Path) -> None:
    for interval in (0, 1, 77, 200, 1000, 10**6):
        folder = tmp_path / str(interval)
        log = open_log(folder, index_interval_bytes=interval, segment_bytes=1200)
        fill(log, PLENTY)
        log.close()
        assert differences(folder, interval) == []
        first = folder / f"{0:020d}.log"
        assert rebuilt(first.read_bytes(), 0, interval)[0] == first.with_suffix(".index").read_bytes()


def test_P20_every_batch_counts_however_many_come_in_one_append(tmp_path: Path) -> None:
    """As they do in message sets of the older formats; Kafka makes one entry of an append."""
    rows = [Record(n, NOW + n, None, b"v" * 40) for n in range(50)]
    found = []
    for name, sets in (("together", [rows]), ("alone", [[row] for row in rows])):
        log = open_log(tmp_path / name, index_interval_bytes=200, message_format_version="1")
        for each in sets:
            log.append(bytearray(build_message_set(each, magic=1)), NOW, any_format=True)
        log.close()
        found.append(index_bytes(tmp_path / name))
    assert found[0] == found[1]
    assert len(found[0][f"{0:020d}.index"]) // 8 > 10


def test_the_interval_of_a_segment_that_has_batches_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, PLENTY[:10])
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=20, index_interval_bytes=1 << 20)
    fill(again, PLENTY[10:20])
    again.roll(NOW)
    fill(again, PLENTY[20:])
    again.close()
    first = tmp_path / f"{0:020d}.index"
    assert len(first.read_bytes()) == 19 * 8
    assert (tmp_path / f"{40:020d}.index").read_bytes() == b""
