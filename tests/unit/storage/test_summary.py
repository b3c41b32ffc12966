"""The summary of a segment as a file."""

from dataclasses import replace
from pathlib import Path
from struct import Struct

import pytest
from crc32c import crc32c

from tidelog.storage import summary
from tidelog.storage.blocks import BLOCK_BYTES
from tidelog.storage.minima import UNKNOWN, Minima
from tidelog.storage.summary import NONE, Damage, Origin, Summary

ALL = Summary(
    flushed=1,
    log_bytes=2 * BLOCK_BYTES + 1,
    next_offset=1 << 40,
    created_ms=3,
    index_interval_bytes=4,
    record_count=5,
    batch_count=6,
    first_timestamp=7,
    min_timestamp=UNKNOWN,
    max_timestamp=9,
    max_timestamp_offset=NONE,
    max_timestamp_last_offset=11,
    first_append_ms=12,
    last_append_ms=13,
    indexed_position=14,
    offset_entries=15,
    time_entries=16,
    offset_crc=(1 << 32) - 1,
    time_crc=18,
    append_entries=19,
    append_crc=20,
    is_created_bound=1,
    transactional=1,
    horizon_ms=22,
    cleaned_to=23,
    cleaned_ms=24,
    source_bytes=25,
    seen_to=26,
    seen_ms=27,
    origin=Origin.IMPORTED,
    appended_from=29,
    damage=(Damage(1, 2, 3), Damage(4, 5, 1 << 62)),
    minima=Minima(8192, [UNKNOWN, -1, 7]),
    digests=b"abcdefghijkl",
)


def signed(data: bytes) -> bytes:
    return data[:-4] + crc32c(data[:-4]).to_bytes(4, "big")


@pytest.mark.parametrize("damages", [0, 1, 2])
@pytest.mark.parametrize(("log_bytes", "digests"), [(0, b""), (1, b"abcd"), (BLOCK_BYTES + 1, b"abcdefgh")])
def test_what_is_written_is_read(tmp_path: Path, damages: int, log_bytes: int, digests: bytes) -> None:
    minima = Minima(4096, [5] if log_bytes else [])
    written = replace(ALL, damage=ALL.damage[:damages], log_bytes=log_bytes, digests=digests, minima=minima)
    assert Summary.decode(written.encode()) == written
    (tmp_path / "file").write_bytes(written.encode())
    assert Summary.load(tmp_path / "file") == written


def test_a_new_one_knows_nothing() -> None:
    new = Summary(0, 0, 5, 6, 7)
    assert (new.batch_count, new.record_count, new.indexed_position) == (0, 0, 0)
    assert new.first_timestamp == new.max_timestamp == new.max_timestamp_offset == NONE
    assert new.first_append_ms == new.last_append_ms == NONE
    assert new.min_timestamp == UNKNOWN == -(1 << 63)
    assert (new.offset_entries, new.time_entries) == (0, 0)
    assert new.offset_crc == new.time_crc == crc32c(b"")


def test_what_a_log_does_not_hold_is_its_times_and_interval() -> None:
    times = {"first_append_ms": 12, "last_append_ms": 13, "append_entries": 19, "append_crc": 20}
    times |= {"is_created_bound": 1, "origin": Origin.IMPORTED, "appended_from": 29}
    assert ALL.only_times(77) == Summary(0, 0, 77, 3, 4, **times)


def test_what_is_torn_or_changed_anywhere_is_not_read(tmp_path: Path) -> None:
    data = ALL.encode()
    for size in range(len(data)):
        assert Summary.decode(data[:size]) is None
    for at in range(len(data)):
        assert Summary.decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None
    assert Summary.load(tmp_path / "missing") is None


@pytest.mark.parametrize(
    "change", ["magic", "version", "few digests", "many digests", "no room for the damage"]
)
def test_what_is_whole_but_of_another_kind_is_not_read(change: str) -> None:
    data = bytearray(ALL.encode())
    if change == "magic":
        data[0] ^= 1
    elif change == "version":
        data[5] = summary.VERSION + 1
    elif change == "no room for the damage":
        data[7] = 200
    else:
        digests = b"abcdefgh" if change.startswith("few") else b"abcdefghijklmnop"
        data = bytearray(replace(ALL, digests=digests).encode())
    assert Summary.decode(signed(bytes(data))) is None
    assert Summary.decode(signed(ALL.encode())) == ALL


def test_the_bytes_of_a_summary() -> None:
    """As docs/formats.md has them; read by hand, so that no release changes them unnoticed."""
    numbers = (
        1, 131073, 1 << 40, 3, 4, 5, 6, 7, UNKNOWN, 9, NONE, 11, 12, 13, 14, 15, 16,
        (1 << 32) - 1, 18, 19, 20, 1, 1, *range(22, 28), 2, 29,
    )  # fmt: skip
    body = b"TLSM\0\7\0\2" + Struct(">17qIIqI10q").pack(*numbers) + Struct(">6q").pack(1, 2, 3, 4, 5, 1 << 62)
    body += Struct(">5q").pack(8192, 3, UNKNOWN, -1, 7)
    assert ALL.encode() == signed(body + b"abcdefghijkl" + bytes(4))


@pytest.mark.parametrize(
    ("origin", "expected", "offset", "may_skip"),
    [
        (Origin.APPENDED, 5, 9, False),
        (Origin.APPENDED, 0, 0, False),
        (Origin.IMPORTED, 5, 9, True),
        (Origin.COMPACTED, 12, 20, True),
        (Origin.IMPORTED, 12, 21, False),  # the batch that begins at 20 is missing
        (Origin.IMPORTED, 20, 21, False),
    ],
)
def test_offsets_may_be_missing_before_what_was_appended_here(
    origin: Origin, expected: int, offset: int, may_skip: bool
) -> None:
    summary = Summary(0, 0, 0, 0, 0, origin=origin, appended_from=0 if origin == Origin.APPENDED else 20)
    assert summary.may_skip(expected, offset) == may_skip
