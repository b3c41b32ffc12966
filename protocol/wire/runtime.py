"""The few functions that compiled codecs call when the common case does not hold.

A reader gets a view that ends where its frame ends, so that fixed-width reads cannot cross it; whatever moves
by a length from the wire is checked here or in the compiled code before it is used.
"""

from collections.abc import Callable
from typing import Any

from tidelog.protocol.wire.errors import EncodeError, TooManyElements, WireError

__all__ = [
    "MAX_ELEMENTS",
    "SHORT_UVARINTS",
    "misfit",
    "read_text_length",
    "read_uvarint",
    "skip_tagged_fields",
    "text_prefix",
    "too_many",
    "uvarint",
    "write_tagged_fields",
]

# Kafka's limit for a string, whichever way its length is written.
MAX_STRING_BYTES = 0x7FFF
# What one message may hold, over all its arrays and tags. Two bytes of a frame can become an object, at 60 bytes and
# 2 us: without a bound, a frame of 100 MiB takes gigabytes and stops the event loop for minutes. Our own.
MAX_ELEMENTS = 1 << 18
_MAX_UVARINT_BYTES = 5

SHORT_UVARINTS = tuple(bytes((value,)) for value in range(128))


def read_uvarint(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint whose first byte is given; return it and the position after."""
    value = first & 0x7F
    shift = 7
    for position in range(position, position + _MAX_UVARINT_BYTES - 1):  # noqa: B020
        byte = view[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, position + 1
        shift += 7
    raise WireError(f"varint at position {position} is wider than 32 bits")


def read_text_length(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a compact string's length, as `read_uvarint` does."""
    value, position = read_uvarint(view, position, first)
    if value > MAX_STRING_BYTES + 1:
        raise WireError(
            f"string of {value - 1} bytes at position {position}: at most {MAX_STRING_BYTES} are allowed"
        )
    return value, position


def skip_tagged_fields(view: memoryview, position: int, count: int) -> int:
    """Pass over as many unknown tagged fields; return the position after."""
    for _ in range(count):
        position = skip_uvarint(view, position)
        size = view[position]
        position += 1
        if size > 127:
            size, position = read_uvarint(view, position, size)
        if size > len(view) - position:
            raise misfit("tagged field", size, position, len(view))
        position += size
    return position


def skip_uvarint(view: memoryview, position: int) -> int:
    """Return the position after a varint."""
    first = view[position]
    return position + 1 if first < 128 else read_uvarint(view, position + 1, first)[1]


def misfit(what: str, length: int, position: int, end: int) -> WireError:
    """Make the error for a length or count that its frame cannot hold."""
    return WireError(
        f"{what}: length {length} at position {position} does not fit the {end - position} bytes left"
    )


def too_many(most: int, position: int) -> WireError:
    """Make the error for a message with more elements than it may have."""
    return TooManyElements(f"more than {most} elements and tags in one message, at position {position}")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text_prefix(length: int) -> bytes:
    """Encode the length of a compact string, given one more than its bytes."""
    if length > MAX_STRING_BYTES + 1:
        raise EncodeError(f"string of {length - 1} bytes: at most {MAX_STRING_BYTES} are allowed")
    return uvarint(length)


def write_tagged_fields(put: Callable[[Any], object], fields: list[tuple[int, list[Any]]]) -> None:
    """Write a section of tagged fields, each given as its tag and the parts of its value."""
    put(uvarint(len(fields)))
    for tag, parts in fields:
        put(uvarint(tag))
        put(uvarint(sum(map(len, parts))))
        for part in parts:
            put(part)
