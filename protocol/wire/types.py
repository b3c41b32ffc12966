"""The types that a field can have, by Kafka's names.

A type says what a value is; how it is laid out (legacy or compact length, nullable or not) depends on the
message's version and is decided in `compiler`.
"""

from typing import NamedTuple

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "RECORDS",
    "STRING",
    "UINT16",
    "UUID",
    "ZERO_UUID",
    "Array",
    "Buffer",
    "Fixed",
    "Variable",
    "WireType",
]

ZERO_UUID = bytes(16)


class Fixed(NamedTuple):
    """A type of fixed width, big-endian; `kind` is its letter in `struct`, or U for a UUID."""

    name: str
    kind: str
    size_bytes: int
    zero: object


class Variable(NamedTuple):
    """A type that is written after its length; `length_bytes` is what that takes where it is not a varint."""

    name: str
    kind: str
    length_bytes: int
    zero: object


class Array(NamedTuple):
    """A counted list of one element type; elements are never null."""

    element: "Fixed | Variable | type"


# A message class is a type too: the nested struct.
WireType = Fixed | Variable | Array | type

BOOL = Fixed("bool", "?", 1, False)
INT8 = Fixed("int8", "b", 1, 0)
INT16 = Fixed("int16", "h", 2, 0)
UINT16 = Fixed("uint16", "H", 2, 0)
INT32 = Fixed("int32", "l", 4, 0)
INT64 = Fixed("int64", "q", 8, 0)
FLOAT64 = Fixed("float64", "d", 8, 0.0)
# 16 raw bytes: a topic id is only ever compared and looked up, and uuid.UUID costs 1.5 us to build.
UUID = Fixed("uuid", "U", 16, ZERO_UUID)

STRING = Variable("string", "T", 2, "")
# Decoded to a copy: the value outlives its frame.
BYTES = Variable("bytes", "B", 4, b"")
# Decoded to a view of the frame, encoded by handing the value on untouched.
RECORDS = Variable("records", "V", 4, None)

# What a reader reads from; spelt out because collections.abc.Buffer is not in Python 3.11.
Buffer = bytes | bytearray | memoryview
