"""How far each key was delivered, on logs of a few batches, against a count by hand."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline import key_audit
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.key_audit import COMPACTED, DELETED, Behind, Bounds
from tidelog.protocol.records import entries, key_hashes, message_set, tally
from tidelog.protocol.records.batch import HEADER_BYTES
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.steps import at_once
from tidelog.storage.compaction.reading import Entry

TIME = 1_700_000_000_000
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


class Log(NamedTuple):
    """Batches, as a broker that hands out few at a time gives them."""

    batches: list[bytes]

    def read(self, start: int, end: int) -> Iterator[list[Entry]]:
        for data in self.batches:
            view = memoryview(data)
            header = entries.read(view, 0, 1 << 20)
            if start <= header.last_offset and header.base_offset < end:
                yield [Entry(header, view)]


def keyed(offset: int, *names: bytes | None, **options: Any) -> bytes:
    """A batch of records with these keys, a second apart."""
    records = [Record(offset + n, TIME + (offset + n) * 1000, key, b"v") for n, key in enumerate(names)]
    return build_batch(records, **options)


def marker(offset: int, key: bytes, producer_id: int = 1) -> bytes:
    return build_batch(
        [Record(offset, TIME, key, b"\0\0\0\0\0\0")],
        transactional=True,
        control=True,
        producer_id=producer_id,
    )


def audited(
    batches: list[bytes], committed: int, end: int, start: int = 0, table_bytes: int = 1 << 16
) -> list[Behind]:
    return list(key_audit.behind(Log(batches).read, Bounds(start, end, committed), table_bytes))


def test_S101_of_each_key_that_is_behind_the_last_produced_and_the_last_delivered_offset_are_told() -> None:
    batches = [keyed(0, b"a", b"b", b"a"), keyed(3, b"a", None, b"", b"c")]
    assert audited(batches, 2, 7) == [
        Behind(b"a", 3, 0, None, 2, TIME + 2000),
        Behind(None, 4, None, None, 1, TIME + 4000),
        Behind(b"", 5, None, None, 1, TIME + 5000),
        Behind(b"c", 6, None, None, 1, TIME + 6000),
    ]
    assert audited(batches, 0, 7)[0] == Behind(b"a", 3, None, None, 3, TIME)
    assert audited(batches, 7, 7) == []


def test_S101_a_group_that_passed_everything_or_nothing_has_one_offset_for_all_keys() -> None:
    batches = [keyed(n, b"k%d" % n) for n in range(5)]
    assert audited(batches, 5, 5) == []
    assert {(each.delivered_offset, each.gone) for each in audited(batches, 0, 5)} == {(None, None)}


def test_a_tombstone_is_a_record() -> None:
    (found,) = audited([keyed(0, b"a"), build_batch([Record(1, TIME, b"a", None)])], 1, 2)
    assert (found.produced_offset, found.delivered_offset, found.records) == (1, 0, 1)


def test_what_lies_before_a_hole_may_have_been_delivered() -> None:
    hole = [keyed(0, b"x"), keyed(4, b"a", b"x")]
    assert audited(hole, 3, 6) == [
        Behind(b"a", 4, None, COMPACTED, 1, TIME + 4000),
        Behind(b"x", 5, 0, None, 1, TIME + 5000),
    ]
    # What is missing behind the committed offset was not delivered.
    assert [each.gone for each in audited(hole, 1, 6)] == [None, None]


def test_what_lay_before_the_start_may_have_been_delivered_if_something_was() -> None:
    batches = [keyed(5, b"a", b"b"), keyed(7, b"c")]
    assert [each.gone for each in audited(batches, 7, 8, start=5)] == [DELETED]
    assert [each.gone for each in audited(batches, 2, 8, start=5)] == [DELETED] * 3
    assert [each.gone for each in audited(batches, 0, 8, start=5)] == [None] * 3
    # The start lies amid a batch: what is before it is not read.
    assert audited(batches, 7, 8, start=6) == [Behind(b"c", 7, None, DELETED, 1, TIME + 7000)]


def test_records_of_aborted_and_open_transactions_and_markers_are_none() -> None:
    of = {"transactional": True, "producer_id": 1}
    batches = [
        keyed(0, b"a", b"a", **of),
        marker(2, ABORT),
        keyed(3, b"a", **of),
        marker(4, COMMIT),
        keyed(5, b"a", b"a", **of),
        marker(7, ABORT),
        keyed(8, b"b"),
        keyed(9, b"a", **of),
        keyed(10, b"b"),
    ]
    assert audited(batches, 0, 11) == [
        Behind(b"a", 3, None, None, 1, TIME + 3000),
        Behind(b"b", 8, None, None, 1, TIME + 8000),
    ]
    # Aborted records and markers are there: they are no hole, neither whole nor in part.
    for committed in (1, 3, 6, 8):
        assert {each.gone for each in audited(batches, committed, 11)} == {None}
    assert audited(batches, 8, 11) == [Behind(b"b", 8, None, None, 1, TIME + 8000)]


def test_older_formats_codecs_and_append_times_are_read() -> None:
    found = [(0, TIME, b"a", b"v"), (1, TIME + 5, None, b"v"), (2, TIME + 7, b"a", None)]
    for magic, codec in ((0, 0), (1, 0), (1, 1)):
        times = [-1, -1] if magic == 0 else [TIME, TIME + 5]
        data = at_once(message_set.write(found, magic, codec, log_append_time=False))
        batches, at = [], 0
        while at < len(data):
            size = entries.peek(data, at).size_bytes
            batches.append(bytes(data[at : at + size]))
            at += size
        assert audited(batches, 0, 3) == [
            Behind(b"a", 2, None, None, 2, times[0]),
            Behind(None, 1, None, None, 1, times[1]),
        ]
    (stamped,) = audited([keyed(0, b"a", b"a", codec=1, log_append_time=True)], 0, 2)
    assert stamped == Behind(b"a", 1, None, None, 2, TIME + 1000)


def test_what_cannot_be_read_is_said() -> None:
    torn = bytearray(keyed(0, b"a", b"b"))
    torn[HEADER_BYTES] = 0x7F
    with pytest.raises(PipelineError, match="the batch at offset 0 cannot be read: record 0"):
        audited([bytes(torn)], 0, 2)


@given(
    st.lists(
        st.lists(st.sampled_from([None, *(b"k%d" % n for n in range(9))]), min_size=1, max_size=6), max_size=8
    ),
    st.data(),
)
def test_S101_it_is_what_a_look_at_every_record_finds_however_little_memory_there_is(
    batches: Sequence[Sequence[bytes | None]], data: st.DataObject
) -> None:
    offset, made, records = 0, [], []
    for names in batches:
        offset += data.draw(st.integers(0, 2))
        made.append(keyed(offset, *names))
        records += [(offset + n, key) for n, key in enumerate(names)]
        offset += len(names)
    committed = data.draw(st.integers(0, offset))
    start = data.draw(st.integers(0, offset))
    table_bytes = tally.ENTRY_BYTES * data.draw(st.integers(2, 20))
    expected = {}
    for at, key in records:
        if at >= max(committed, start):
            first, count = expected.get(key, (at, 0))[:2]
            delivered = max((o for o, k in records if k == key and start <= o < committed), default=None)
            expected[key] = (first, count + 1, at, delivered)
    found = audited(made, committed, offset, start, table_bytes)
    assert len(found) == len(expected)
    assert {
        each.key: ((each.first_ms - TIME) // 1000, each.records, each.produced_offset, each.delivered_offset)
        for each in found
    } == expected


def test_it_ends_where_no_table_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_audit, "_SPLIT_BITS_MAX", 1)
    with pytest.raises(PipelineError, match="no room for the keys"):
        audited([keyed(0, *(b"k%d" % n for n in range(40)))], 0, 40, table_bytes=2 * tally.ENTRY_BYTES)


def test_the_hash_of_no_key_is_zero_and_that_of_an_empty_one_is_not() -> None:
    assert key_hashes.HASH_BYTES == 16
    (found,) = audited([keyed(0, None, None)], 1, 2)
    assert found == Behind(None, 1, 0, None, 1, TIME + 1000)
