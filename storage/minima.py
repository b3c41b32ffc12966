"""The smallest record time in each stretch of a segment's log: it tells where a range of times can end.

Owns what a stretch is, and its bytes in the summary. A stretch is a range of the log of fixed length and has the
batches that begin in it. Its length is 4 KiB, the usual index interval; when a log would need more than
`STRETCHES_MAX`, two become one. Knows nothing of records or files. Invariant: no record of a stretch is older than its
minimum. `UNKNOWN` is below every time, and a stretch in which no batch begins has a time above all.

One thread adds to it while others read: a reader takes `stretches` once.
"""

import sys
from array import array
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tidelog.protocol.records.record_times import BEYOND, UNKNOWN

__all__ = ["BEYOND", "STRETCHES_MAX", "STRETCH_BYTES", "UNKNOWN", "Minima", "Stretch", "Stretches"]

STRETCH_BYTES: Final = 4 << 10
STRETCHES_MAX: Final = 2048
_HEAD: Final = Struct(">qq")
_TIME_BYTES: Final = 8


class Stretch(NamedTuple):
    """The batches that begin at or after `start` and before `end`."""

    number: int
    start: int
    end: int


class Stretches(NamedTuple):
    """The stretches of a log at one moment. A reader that learns the minimum of one may set it in `times`."""

    stretch_bytes: int
    times: "array[int]"

    def below(self, time_ms: int, size: int) -> list[Stretch]:
        """Return the stretches that may have a record before a time, in a log of a size."""
        length = self.stretch_bytes
        return [
            Stretch(number, number * length, min((number + 1) * length, size))
            for number, least in enumerate(self.times[:])
            if least < time_ms and number * length < size
        ]


class Minima:
    """The minima of a log that grows; `stretches` is replaced when their length changes."""

    __slots__ = ("stretches",)

    def __init__(self, stretch_bytes: int = STRETCH_BYTES, times: Iterable[int] = ()) -> None:
        """Begin without batches, or with known minima."""
        self.stretches = Stretches(stretch_bytes, array("q", times))

    def __eq__(self, other: object) -> bool:
        """Tell whether both have the same minima."""
        return isinstance(other, Minima) and self.stretches == other.stretches

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        """Return the call that makes an equal one."""
        return f"Minima({self.stretches.stretch_bytes}, {self.stretches.times.tolist()})"

    @classmethod
    def unknown(cls, log_bytes: int) -> "Minima":
        """Return the minima of a log whose records have not been read."""
        length = STRETCH_BYTES
        while log_bytes > length * STRETCHES_MAX:
            length *= 2
        return cls(length, [UNKNOWN] * -(-log_bytes // length))

    def stretch_end(self, position: int) -> int:
        """Return the end of the stretch that has a position."""
        length = self.stretches.stretch_bytes
        return position - position % length + length

    def note(self, position: int, time_ms: int) -> None:
        """Note the smallest time of the batch at the end of the log, which begins at a position."""
        length, times = self.stretches
        number = position // length
        if number != len(times) - 1:
            self._begin(position, time_ms)
        elif time_ms < times[-1]:
            times[-1] = time_ms

    def _begin(self, position: int, time_ms: int) -> None:
        """Begin the stretch that has a position; no batch may have begun in some of those before it."""
        length, times = self.stretches
        while position >= length * STRETCHES_MAX:
            times = array("q", map(min, times[::2], [*times[1::2], BEYOND]))
            length *= 2
        times.extend([BEYOND] * (position // length + 1 - len(times)))
        times[-1] = min(times[-1], time_ms)
        if length != self.stretches.stretch_bytes:
            self.stretches = Stretches(length, times)

    # In the summary.

    def encode(self) -> bytes:
        """Return the length of a stretch, the count of stretches, and their minima as bytes."""
        length, times = self.stretches
        return _HEAD.pack(length, len(times)) + _swapped(times).tobytes()

    @classmethod
    def decode(cls, data: bytes, at: int, log_bytes: int) -> "tuple[Minima, int]":
        """Decode the minima of a log of a size; return them and the position after them. ValueError if that fails."""
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
    """Convert times between the machine's byte order and that of a file."""
    swapped = times[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped
