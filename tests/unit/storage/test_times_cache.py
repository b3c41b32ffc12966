"""The times of a batch that are kept, against its records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import changed, records
from tidelog.protocol.records import kernel
from tidelog.protocol.records.batch import HEADER_BYTES, read_header
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.search import times_cache
from tidelog.storage.search.times_cache import Found, TimesCache

NOW = 1_700_000_000_000
BASE = (1 << 40) + 5


def packed(batch: bytes) -> bytes:
    return times_cache.pack(read_header(batch), batch, HEADER_BYTES)


def agrees(found: bytes, expected: list[Found]) -> None:
    """Compare what is found at, just before and just after each record's time with a walk over all records."""
    for wanted in {record.timestamp + step for record in expected for step in (-1, 0, 1)}:
        if wanted >= 0:
            first = next((record for record in expected if record.timestamp >= wanted), None)
            assert times_cache.find(found, wanted) == first


@pytest.mark.parametrize("gaps", [False, True])
@settings(max_examples=30)
@given(st.data())
def test_the_first_record_at_or_after_a_time_is_found(gaps: bool, data: st.DataObject) -> None:
    sent = data.draw(records(gaps=gaps))
    batch = build_batch([Record(BASE + r.offset, *list_of(r)) for r in sent], leader_epoch=7)
    agrees(packed(batch), [Found(r.timestamp, BASE + r.offset, 7) for r in sent])
    assert times_cache.place_of(packed(batch)) == (BASE, len(batch))
    assert times_cache.find(packed(batch), (1 << 63) - 1) is None


def list_of(record: Record) -> tuple[int, bytes | None, bytes | None]:
    return record.timestamp, record.key, record.value


@pytest.mark.parametrize("first", [0, 3, 70_000])
def test_with_append_times_the_first_record_has_the_time_of_the_batch(first: int) -> None:
    sent = [Record(BASE + first + n, NOW - 5 * n, None, b"v") for n in range(3)]
    batch = build_batch(sent, base_offset=BASE, log_append_time=True, leader_epoch=7)
    batch = bytes(changed(batch, max_timestamp=NOW + 9))
    agrees(packed(batch), [Found(NOW + 9, BASE + first, 7)])


def test_of_an_empty_batch_nothing_is_found() -> None:
    for log_append_time in (False, True):
        batch = build_batch([Record(BASE, NOW, None, b"v")], log_append_time=log_append_time)
        empty = bytes(changed(batch[:HEADER_BYTES], record_count=0, batch_length=HEADER_BYTES - 12))
        assert times_cache.find(packed(empty), 0) is None


@pytest.mark.parametrize(
    "spread", [0, 1, 127, 128, 255, 256, 32767, 32768, 1 << 31, 1 << 55, (1 << 62) - NOW]
)
@pytest.mark.parametrize("claimed", [None, -1, NOW, NOW + 1, (1 << 63) - 1])
def test_what_the_header_says_of_the_largest_time_is_only_a_guess(spread: int, claimed: int | None) -> None:
    sent = [
        Record(BASE + n, at, None, b"v") for n, at in enumerate((NOW, NOW + spread // 2, NOW + spread, NOW))
    ]
    batch = build_batch(sent)
    if claimed is not None:
        batch = bytes(changed(batch, max_timestamp=claimed))
    agrees(packed(batch), [Found(r.timestamp, r.offset, -1) for r in sent])


def test_times_take_no_more_bytes_than_they_need() -> None:
    def bytes_of(spread: int, step: int = 1) -> float:
        sent = [Record(BASE + n * step, NOW + n * spread // 100, None, b"v") for n in range(100)]
        return (len(packed(build_batch(sent))) - 26) / 100

    assert [bytes_of(spread) for spread in (1, 100, 20_000, 1 << 22, 1 << 30)] == [1, 1, 2, 3, 4]
    assert bytes_of(1, step=2) == 5  # offsets with gaps take four more


def test_a_batch_that_was_just_written_is_kept_under_the_offset_that_it_got() -> None:
    cache = TimesCache()
    sent = [Record(n, NOW + n, None, b"v") for n in range(10)]
    batch = build_batch(sent)
    times, time_bytes, offset_bytes = kernel.times(batch, HEADER_BYTES, len(batch), 10, 2, 0)
    assert (time_bytes, offset_bytes) == (2, 0)
    cache.keep_appended(3, 500, read_header(batch), times, BASE, 7)
    found = cache.get(times_cache.key_of(3, 500))
    assert found is not None
    agrees(found, [Found(r.timestamp, BASE + r.offset, 7) for r in sent])


def test_keys_of_segments_and_positions_are_all_different() -> None:
    places = [(identity, position) for identity in range(4) for position in (0, 1, (1 << 31) - 1, 1 << 31)]
    assert len({times_cache.key_of(*place) for place in places}) == len(places)


def test_the_first_search_of_a_batch_is_told_from_the_next_ones() -> None:
    times = TimesCache()
    keys = [times_cache.key_of(identity, position) for identity in range(20) for position in (0, 61, 1 << 20)]
    firsts = [times.is_first_search(key) for key in keys]
    again = [times.is_first_search(key) for key in keys]
    # Two that share a place may forget each other; of sixty in a quarter of a million hardly any do.
    assert sum(firsts) >= 58
    assert sum(again) <= 2


def test_times_that_lie_as_far_apart_as_times_can_are_found() -> None:
    last = (1 << 63) - 2
    sent = [Record(BASE, -1, None, b"v"), Record(BASE + 1, last, None, b"v")]
    batch = bytes(changed(build_batch(sent), max_timestamp=last + 1))
    found = packed(batch)
    assert times_cache.find(found, 0) == times_cache.find(found, last) == (last, BASE + 1, -1)
    assert times_cache.find(found, last + 1) is None
