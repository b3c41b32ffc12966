"""Logs that Kafka has written transactions to: what was aborted replaces nothing, and a marker outlives its data."""

from pathlib import Path
from struct import pack
from typing import Any

import pytest

from tests.support.compaction import COMPACTED, clean, clean_all, rows_of, spoil
from tests.support.logs import NOW, open_log
from tidelog.protocol.records.batch import DELETE_HORIZON, HEADER_BYTES, read_header
from tidelog.protocol.records.build import Record, build_batch, signed
from tidelog.storage.compaction.reading import chunks
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT

ABORT, COMMIT = 0, 1
PRODUCER = {"producer_id": 7, "producer_epoch": 0, "transactional": True}


def data(offset: int, key: bytes, value: bytes | None, **options: Any) -> bytes:
    return build_batch([Record(offset, NOW, key, value)], **options)


def sent(offset: int, key: bytes, value: bytes | None = b"v") -> bytes:
    return data(offset, key, value, **PRODUCER, base_sequence=offset)


def marker(offset: int, said: int) -> bytes:
    return data(offset, pack(">hh", 0, said), b"\0" * 6, **PRODUCER, base_sequence=-1, control=True)


def kafka_log(folder: Path, *segments: list[bytes], **options: Any) -> Log:
    """Return a log of segments, each of batches of one record, whose offsets follow one another."""
    folder.mkdir(parents=True)
    offset = 0
    for batches in segments:
        (folder / f"{offset:020d}.log").write_bytes(b"".join(batches))
        offset += len(batches)
    (folder / f"{offset:020d}.log").touch()
    log = open_log(folder, recovery_point=0, **{**COMPACTED, "segment_bytes": 100, **options})
    log.flush()
    return log


def there(log: Log) -> list[int]:
    return [row.offset for row in rows_of(log)]


def test_P15_what_was_aborted_goes_and_replaces_nothing(tmp_path: Path) -> None:
    log = kafka_log(
        tmp_path / "t-0",
        [data(0, b"a", b"1"), sent(1, b"a", b"aborted")],
        [marker(2, ABORT), data(3, b"z", b"1")],
    )
    clean(log, NOW)
    assert there(log) == [0, 2, 3]


def test_P15_what_was_committed_replaces_what_came_before(tmp_path: Path) -> None:
    log = kafka_log(
        tmp_path / "t-0",
        [data(0, b"a", b"1"), sent(1, b"a", b"2")],
        [marker(2, COMMIT), data(3, b"z", b"1")],
    )
    clean(log, NOW)
    assert there(log) == [1, 2, 3]


@pytest.mark.parametrize("horizon", [None, 1], ids=["none", "Kafka's"])
def test_P15_a_tombstone_stays_while_nobody_knows_whether_it_was_committed(
    tmp_path: Path, horizon: int | None
) -> None:
    """Its marker may be where the log is damaged: it replaces nothing, so what it would delete is there still."""
    tombstone = sent(2, b"a", None)
    if horizon is not None:
        header = read_header(tombstone)
        changed = header._replace(
            attributes=header.attributes | DELETE_HORIZON, base_timestamp=NOW + horizon, max_timestamp=NOW
        )
        tombstone = bytes(signed(changed, tombstone[HEADER_BYTES:]))
    log = kafka_log(
        tmp_path / "t-0",
        [data(0, b"a", b"old"), data(1, b"x", b"1")],
        [tombstone, data(3, b"y", b"1")],
        [data(4, b"z", b"1"), data(5, b"w", b"1")],
        [marker(6, COMMIT), data(7, b"v", b"1")],
        [data(8, b"u", b"1")],
    )
    damage(log, 2)
    late_ms = log.config.delete_retention_ms + 1
    for at_ms in (NOW, NOW + late_ms, NOW + 2 * late_ms):
        clean(log, at_ms)
    assert readable(log) == [0, 1, 2, 3, 6, 7, 8]


def test_P15_a_marker_stays_while_what_is_damaged_may_be_of_its_transaction(tmp_path: Path) -> None:
    log = kafka_log(
        tmp_path / "t-0",
        [data(0, b"a", b"1"), data(1, b"x", b"1")],
        [sent(2, b"a"), data(3, b"y", b"1")],
        [marker(4, COMMIT), data(5, b"z", b"1")],
        [data(6, b"u", b"1")],
    )
    damage(log, 1)
    late_ms = log.config.delete_retention_ms + 1
    for number in range(3):
        log.append(bytearray(data(0, b"u", b"2")), NOW + number * late_ms)
        log.roll(NOW + number * late_ms)
        clean(log, NOW + number * late_ms)
    assert 4 in readable(log)


def damage(log: Log, number: int) -> None:
    """Spoil the first record of a segment, and have that found."""
    segment = log.segments[number]
    spoil(log, number, segment.base_offset)
    log.recheck(segment, PATIENT)


def readable(log: Log) -> list[int]:
    """Return the base offset of each batch with records in the sealed segments without damage."""
    whole = [each for each in log.segments[:-1] if not each.summary.damage]
    entries = [entry for each in whole for found in chunks(each) for entry in found]
    return [entry.header.base_offset for entry in entries if entry.header.record_count]


def test_P15_nothing_is_compacted_from_where_a_transaction_is_open_on(tmp_path: Path) -> None:
    log = kafka_log(
        tmp_path / "t-0",
        [data(0, b"a", b"1"), data(1, b"a", b"2")],
        [sent(2, b"a", b"open"), data(3, b"b", b"1")],
        [data(4, b"b", b"2")],
    )
    clean(log, NOW)
    assert there(log) == [1, 2, 3, 4]


@pytest.mark.parametrize("said", [ABORT, COMMIT])
def test_P15_a_marker_goes_when_its_data_and_its_time_are_gone(tmp_path: Path, said: int) -> None:
    log = kafka_log(
        tmp_path / "t-0", [sent(0, b"a"), data(1, b"b", b"1")], [marker(2, said), data(3, b"a", b"2")]
    )
    late_ms = log.config.delete_retention_ms
    clean(log, NOW)
    assert 2 in there(log)
    log.append(bytearray(data(0, b"new", b"1")), NOW)
    log.roll(NOW)
    clean(log, NOW + 1)  # sees that nothing is left of its transaction
    assert 2 in there(log)
    clean_all(log, NOW + late_ms)
    assert 2 in there(log)
    clean_all(log, NOW + late_ms + 1)
    assert 2 not in there(log)
    assert {1, 3} <= set(there(log))


def test_P15_a_marker_stays_while_its_data_is_there_though_a_pass_does_not_copy_that(tmp_path: Path) -> None:
    log = kafka_log(
        tmp_path / "t-0", [sent(0, b"a"), data(1, b"b", b"1")], [marker(2, COMMIT), data(3, b"c", None)]
    )
    late_ms = log.config.delete_retention_ms
    for at_ms in (0, late_ms + 1, 2 * late_ms + 2, 3 * late_ms + 3):
        clean_all(log, NOW + at_ms)
        assert {0, 2} <= set(there(log))
        log.append(bytearray(data(0, b"c", None)), NOW)
        log.roll(NOW)


def test_a_marker_that_nobody_can_read_stays(tmp_path: Path) -> None:
    broken = bytearray(marker(1, COMMIT))
    broken[61] = 0xFF  # the length of its record
    from tests.support.batches import resign

    log = kafka_log(tmp_path / "t-0", [data(0, b"a", b"1"), bytes(resign(broken))], [data(2, b"a", b"2")])
    clean(log, NOW)
    assert log.segments[0].summary.batch_count == 1
    assert log.segments[0].next_offset == 2
