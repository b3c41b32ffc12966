"""The smallest record time in each stretch of a segment's log, which tells where a range of times can end.

Owns what a stretch is, and its bytes in the summary. A stretch is so many bytes of the log, and the batches that begin
in them are its own: 4 KiB, the usual index interval, until there would be more of them than `STRETCHES_MAX`; then two
become one. Knows nothing of records or files. Invariant: no record of a stretch is older than its minimum; what is not
known is `UNKNOWN`, below every time, and a stretch in which no batch begins has a time beyond all.

One thread adds to it while others read: these take what there is once (`taken`).
"""

import sys
from array import array
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tidelog.protocol.records.record_times import BEYOND, UNKNOWN

__all__ = ["BEYOND", "STRETCHES_MAX", "STRETCH_BYTES", "UNKNOWN", "Minima", "Stretch", "Taken"]

STRETCH_BYTES: Final = 4 << 10
STRETCHES_MAX: Final = 2048
_HEAD = Struct(">qq")
_TIME_BYTES = 8


class Stretch(NamedTuple):
    """The batches that begin from a position on and before another."""

    number: int
    start: int
    end: int


class Taken(NamedTuple):
    """What is known of the stretches of a log at one moment; what is learned of one may be set in `times`."""

    stretch_bytes: int
    times: "array[int]"

    def below(self, time_ms: int, size: int) -> list[Stretch]:
        """Return the stretches of a log of a size that may have a record before a time."""
        length = self.stretch_bytes
        return [
            Stretch(number, number * length, min((number + 1) * length, size))
            for number, least in enumerate(self.times[:])
            if least < time_ms and number * length < size
        ]


class Minima:
    """The minima of a log that grows."""

    __slots__ = ("_taken",)

    def __init__(self, stretch_bytes: int = STRETCH_BYTES, times: Iterable[int] = ()) -> None:
        """Know of no batch, or go on from what was known."""
        self._taken = Taken(stretch_bytes, array("q", times))

    def __eq__(self, other: object) -> bool:
        """Tell whether the same is known."""
        return isinstance(other, Minima) and self._taken == other._taken

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        """Return it as a call."""
        return f"Minima({self._taken.stretch_bytes}, {self._taken.times.tolist()})"

    @classmethod
    def unknown(cls, log_bytes: int) -> "Minima":
        """Return those of a log whose records nobody has looked at."""
        length = STRETCH_BYTES
        while log_bytes > length * STRETCHES_MAX:
            length *= 2
        return cls(length, [UNKNOWN] * -(-log_bytes // length))

    def taken(self) -> Taken:
        """Return what is known now."""
        return self._taken

    def stretch_end(self, position: int) -> int:
        """Return where the stretch ends that a position lies in."""
        length = self._taken.stretch_bytes
        return position - position % length + length

    def note(self, position: int, time_ms: int) -> None:
        """Take note of the smallest time in a batch that begins at a position, the last one in the log."""
        length, times = self._taken
        number = position // length
        if number != len(times) - 1:
            self._begin(position, time_ms)
        elif time_ms < times[-1]:
            times[-1] = time_ms

    def _begin(self, position: int, time_ms: int) -> None:
        """Begin the stretch that a position lies in; none may have begun in some before it."""
        length, times = self._taken
        while position >= length * STRETCHES_MAX:
            times = array("q", map(min, times[::2], [*times[1::2], BEYOND]))
            length *= 2
        times.extend([BEYOND] * (position // length + 1 - len(times)))
        times[-1] = min(times[-1], time_ms)
        if length != self._taken.stretch_bytes:
            self._taken = Taken(length, times)

    # In the summary.

    def encode(self) -> bytes:
        """Return the length of a stretch, how many there are, and their minima."""
        length, times = self._taken
        return _HEAD.pack(length, len(times)) + _swapped(times).tobytes()

    @classmethod
    def decode(cls, data: bytes, at: int, log_bytes: int) -> "tuple[Minima, int]":
        """Return what `encode` made, of a log of that size, and the position after it. ValueError if it is not such."""
        length, count = _HEAD.unpack_from(data, at)
        start, end = at + _HEAD.size, at + _HEAD.size + count * _TIME_BYTES
        is_length = length >= STRETCH_BYTES and not length & (length - 1)
        if not (is_length and 0 <= count <= STRETCHES_MAX and (count - 1) * length < max(log_bytes, 1)):
            raise ValueError(f"{count} stretches of {length} bytes in a log of {log_bytes}")
        if end > len(data):
            raise ValueError(f"{count} stretches in {len(data) - start} bytes")
        times = array("q", data[start:end])
        return cls(length, _swapped(times)), end


def _swapped(times: "array[int]") -> "array[int]":
    """Return times as they are in a file, or the other way round."""
    swapped = times[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped
