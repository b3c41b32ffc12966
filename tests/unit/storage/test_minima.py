"""The smallest record time of each stretch of a log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage import minima
from tidelog.storage.minima import BEYOND, STRETCH_BYTES, STRETCHES_MAX, UNKNOWN, Minima, Stretch


@given(
    st.lists(st.tuples(st.integers(1, 9000), st.integers(-1, 50) | st.just(UNKNOWN)), max_size=40),
    st.integers(-1, 60),
)
def test_a_stretch_is_left_out_exactly_if_no_batch_in_it_is_older(
    batches: list[tuple[int, int]], time_ms: int
) -> None:
    """However often two became one: eight of them hold what here are more than twenty at times."""
    known = Minima()
    positions, position = [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minima, "STRETCHES_MAX", 8)
        for size, least in batches:
            known.note(position, least)
            positions.append((position, least))
            position += size
        assert len(known.stretches.times) <= 8
        assert Minima.decode(b"?" + known.encode() + b"!", 1, position) == (known, 1 + len(known.encode()))
    length = known.stretches.stretch_bytes
    expected = sorted({at // length for at, least in positions if least < time_ms})
    assert known.stretches.below(time_ms, position) == [
        Stretch(n, n * length, min((n + 1) * length, position)) for n in expected
    ]


def test_what_is_not_published_is_in_no_stretch() -> None:
    known = Minima()
    for position in (0, STRETCH_BYTES, 2 * STRETCH_BYTES):
        known.note(position, 5)
    assert known.stretches.below(6, STRETCH_BYTES) == [(0, 0, STRETCH_BYTES)]
    assert known.stretches.below(6, STRETCH_BYTES + 1)[1:] == [(1, STRETCH_BYTES, STRETCH_BYTES + 1)]
    assert known.stretches.below(5, STRETCH_BYTES) == []


def test_what_is_taken_stays_as_the_log_grows() -> None:
    known = Minima(times=[3] * STRETCHES_MAX)
    before = known.stretches
    known.note(STRETCHES_MAX * STRETCH_BYTES, 4)
    assert before.stretch_bytes == STRETCH_BYTES
    assert list(before.times) == [3] * STRETCHES_MAX
    after = known.stretches
    assert after.stretch_bytes == 2 * STRETCH_BYTES
    assert list(after.times) == [3] * (STRETCHES_MAX // 2) + [4]


def test_a_last_stretch_without_a_neighbour_keeps_its_minimum() -> None:
    """As where a batch is so large that it passes over the last one that there is room for."""
    known = Minima(times=[3] * (STRETCHES_MAX - 1))
    known.note(STRETCHES_MAX * STRETCH_BYTES, 4)
    assert list(known.stretches.times) == [3] * (STRETCHES_MAX // 2) + [4]


@pytest.mark.parametrize(
    ("log_bytes", "length", "count"),
    [
        (0, 1, 0),
        (1, 1, 1),
        (STRETCH_BYTES, 1, 1),
        (STRETCH_BYTES + 1, 1, 2),
        (STRETCHES_MAX * STRETCH_BYTES, 1, STRETCHES_MAX),
        (STRETCHES_MAX * STRETCH_BYTES + 1, 2, STRETCHES_MAX // 2 + 1),
        ((1 << 31) - 1, 256, STRETCHES_MAX),
    ],
)
def test_of_a_log_that_nobody_looked_at_nothing_is_known(log_bytes: int, length: int, count: int) -> None:
    assert Minima.unknown(log_bytes) == Minima(length * STRETCH_BYTES, [UNKNOWN] * count)


@pytest.mark.parametrize(
    ("length", "count", "log_bytes"),
    [
        (STRETCH_BYTES, 2, STRETCH_BYTES),
        (STRETCH_BYTES, 2, 0),
        (STRETCH_BYTES, STRETCHES_MAX + 1, 1 << 31),
        (STRETCH_BYTES, -1, 1 << 20),
        (STRETCH_BYTES // 2, 1, 1 << 20),
        (STRETCH_BYTES + 1, 1, 1 << 20),
        (0, 1, 1 << 20),
    ],
)
def test_what_is_no_minima_of_such_a_log_is_refused(length: int, count: int, log_bytes: int) -> None:
    data = length.to_bytes(8, "big") + count.to_bytes(8, "big", signed=True) + bytes(8 * max(count, 0))
    with pytest.raises(ValueError, match="stretches of"):
        Minima.decode(data, 0, log_bytes)


def test_what_is_cut_short_is_refused() -> None:
    data = Minima(times=[1, 2]).encode()
    assert Minima.decode(data, 0, 2 * STRETCH_BYTES) == (Minima(times=[1, 2]), len(data))
    with pytest.raises(ValueError, match="2 stretches in 15 bytes"):
        Minima.decode(data[:-1], 0, 2 * STRETCH_BYTES)


def test_equal_is_what_knows_the_same() -> None:
    assert Minima(times=[1]) == Minima(times=[1])
    assert Minima(times=[1]) != Minima(times=[2])
    assert Minima(times=[1]) != Minima(2 * STRETCH_BYTES, [1])
    assert Minima() != ()
    assert repr(Minima(8192, [1, BEYOND])) == f"Minima(8192, [1, {BEYOND}])"
