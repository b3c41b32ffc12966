"""Access to buffers for the interpreted loops over records; `buffers.pxd` is the same in C.

Keep a view from `view_of` as long as the results of the other functions are used. `acquire` makes no view, which is
faster for a search in a few bytes; its result is valid until `release`.
"""

from array import array
from mmap import mmap
from typing import Any

__all__ = [
    "Buffer",
    "Py_buffer",
    "acquire",
    "copy",
    "integers_of",
    "octets_of",
    "prefetch",
    "release",
    "size_of",
    "view_of",
    "words_of",
    "writable",
]

Buffer = bytes | bytearray | memoryview | mmap


Py_buffer = object


def acquire(buffer: Buffer, _held: Any) -> memoryview:
    """Return the bytes of a buffer; BufferError where they do not lie one after another."""
    return memoryview(buffer)


def release(held: Any) -> None:
    """Let a buffer go."""


def view_of(buffer: Buffer) -> memoryview:
    """Return a view of the bytes of a buffer; BufferError or TypeError where they do not lie one after another."""
    return memoryview(buffer).cast("B")


def size_of(view: memoryview) -> int:
    """Return how many bytes a view has."""
    return view.nbytes


def copy(octets: memoryview, at: int, data: bytes) -> None:
    """Copy bytes to a position; in C, the caller has made sure that there is room."""
    octets[at : at + len(data)] = data


def _itself(view: memoryview) -> memoryview:
    return view


# Return what an index is applied to: bytes, signed integers of 64 bits, unsigned ones.
octets_of = integers_of = words_of = _itself


def prefetch(words: memoryview, at: int) -> None:
    """Have the processor fetch what will be looked at soon."""


def writable(buffer: "Buffer | array[int]") -> memoryview:
    """Return a view of the bytes of a buffer; TypeError where they cannot be written."""
    view = memoryview(buffer).cast("B")
    if view.readonly:
        raise TypeError("a buffer that is written into cannot be read-only")
    return view
