"""The types of fields, by Kafka's names.

The layout of a value (legacy or compact length, nullable or not) depends on the version of the message; see `compiler`.
"""

from typing import NamedTuple

ZERO_UUID = bytes(16)


class Fixed(NamedTuple):
    """A type of fixed width, big-endian; `kind` is its letter in `struct`, U for a UUID."""

    name: str
    kind: str
    size_bytes: int
    zero: object


class Variable(NamedTuple):
    """A type with a length before it; `length_bytes` is the size of that if it is not a varint."""

    name: str
    kind: str
    length_bytes: int
    zero: object


class Array(NamedTuple):
    """An array of one type; elements are never null."""

    element: "Fixed | Variable | type"


# A message class is a type too: a nested struct.
WireType = Fixed | Variable | Array | type

BOOL = Fixed("bool", "?", 1, False)
INT8 = Fixed("int8", "b", 1, 0)
INT16 = Fixed("int16", "h", 2, 0)
UINT16 = Fixed("uint16", "H", 2, 0)
INT32 = Fixed("int32", "l", 4, 0)
INT64 = Fixed("int64", "q", 8, 0)
FLOAT64 = Fixed("float64", "d", 8, 0.0)
# 16 raw bytes: ids are only compared, and uuid.UUID takes 1.5 us to make.
UUID = Fixed("uuid", "U", 16, ZERO_UUID)

STRING = Variable("string", "T", 2, "")
# Decoded to a copy, which outlives its frame.
BYTES = Variable("bytes", "B", 4, b"")
# Decoded to a view of the frame, and encoded without a copy.
RECORDS = Variable("records", "V", 4, None)

# The input of a reader; Python 3.11 has no collections.abc.Buffer.
Buffer = bytes | bytearray | memoryview
