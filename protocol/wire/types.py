"""The types that a field can have, by Kafka's names.

A type says what a value is; how it is laid out (legacy or compact length, nullable or not) depends on the
message's version and is decided in `structs`. These are plain values rather than constructs so that declaring
messages does not import construct, which costs a broker 50 ms of its start.
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
    """A type of fixed width; `code` is its `struct` format, big-endian."""

    name: str
    code: str
    zero: object


class Variable(NamedTuple):
    """A type that is written after its length."""

    name: str
    zero: object


class Array(NamedTuple):
    """A counted list of one element type; elements are never null."""

    element: "Fixed | Variable | type"


# A message class is a type too: the nested struct.
WireType = Fixed | Variable | Array | type

BOOL = Fixed("bool", "?", False)
INT8 = Fixed("int8", "b", 0)
INT16 = Fixed("int16", "h", 0)
UINT16 = Fixed("uint16", "H", 0)
INT32 = Fixed("int32", "l", 0)
INT64 = Fixed("int64", "q", 0)
FLOAT64 = Fixed("float64", "d", 0.0)
# 16 raw bytes: a topic id is only ever compared and looked up, and uuid.UUID costs 1.5 us to build.
UUID = Fixed("uuid", "16s", ZERO_UUID)

STRING = Variable("string", "")
# Decoded to a copy: the value outlives its frame.
BYTES = Variable("bytes", b"")
# Decoded to a view of the frame, encoded by handing the value on untouched.
RECORDS = Variable("records", None)

# What a reader reads from; spelt out because collections.abc.Buffer is not in Python 3.11.
Buffer = bytes | bytearray | memoryview
