"""The records that the installed and the interpreted encoder write, read by the scan that the broker uses."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernels import load_source
from tidelog.protocol.records import encode, kernel
from tidelog.protocol.records.build import Record, build_batch, build_rows, encode_headers, read_records

INTERPRETED = load_source(encode)
BOTH = pytest.mark.parametrize("module", [encode, INTERPRETED], ids=["installed", "interpreted"])
DATA = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=9), DATA), max_size=3).map(tuple)
TIMES = st.integers(-1, 1 << 40) | st.sampled_from([-(1 << 62), (1 << 62) - 1])


@given(st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), min_size=1, max_size=200))
def test_rows_are_the_records_that_are_read(given_rows: list) -> None:  # type: ignore[type-arg]
    rows = [(at, key, value, encode_headers(headers)) for at, key, value, headers in given_rows]
    records = [Record(number, *row) for number, row in enumerate(given_rows)]
    made = build_rows(rows, 0, 5, 6, 7)
    assert list(read_records(made)) == records
    assert made == build_batch(records, producer_id=5, producer_epoch=6, base_sequence=7)
    assert encode.encode(rows, rows[0][0]) == INTERPRETED.encode(rows, rows[0][0])


@BOTH
def test_times_of_every_length(module: ModuleType) -> None:
    for bits in range(64):
        for delta in (1 << bits) - 1, -(1 << bits):
            data = module.encode([(delta, b"k", None, b"\0")], 0)
            assert kernel.scan(data, 0, len(data), 1) == (delta, 0, delta)


@BOTH
def test_a_time_that_is_too_far_from_the_base_is_refused(module: ModuleType) -> None:
    for time, base in ((1 << 63) - 1, -1), (-(1 << 63), 1):
        with pytest.raises(OverflowError):
            module.encode([(time, None, b"", b"\0")], base)
