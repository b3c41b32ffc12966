"""From a message and a version to its compiled codec, made when it is first asked for.

The Struct of `structs` says what the bytes are; the emitters walk it and write one flat Python function that reads
the message and one that writes it. Invariant: the functions do to bytes what the Struct does.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from tidelog.protocol.wire.emit_reader import ReaderEmitter
from tidelog.protocol.wire.emit_writer import WriterEmitter
from tidelog.protocol.wire.structs import struct_of

__all__ = ["Reader", "Writer", "reader_of", "reader_source", "writer_of", "writer_source"]


class Reader(Protocol):
    """Read a message from a buffer; give it and the position after it, or raise `WireError`.

    Nothing at or after `end` is touched. The views in the message keep the buffer alive. With more than `most`
    elements and tags over all its arrays it is TooManyElements.
    """

    def __call__(self, buffer: Any, position: int, end: int, most: int = ...) -> tuple[Any, int]:
        """Read one message."""


class Writer(Protocol):
    """Hand the parts of an encoded message to `put`, in order, or raise `EncodeError`."""

    def __call__(self, message: Any, put: Callable[[Any], object]) -> None:
        """Write one message."""


@cache
def reader_of(message: type, version: int, flexible: bool) -> Reader:
    """Compile the reader of a message in a version."""
    reader: Reader = ReaderEmitter(struct_of(message, version, flexible=flexible)).compile()
    return reader


@cache
def writer_of(message: type, version: int, flexible: bool) -> Writer:
    """Compile the writer of a message in a version."""
    writer: Writer = WriterEmitter(struct_of(message, version, flexible=flexible)).compile()
    return writer


def reader_source(message: type, version: int, flexible: bool) -> str:
    """Give the source of a reader, to be read."""
    return ReaderEmitter(struct_of(message, version, flexible=flexible)).source.text()


def writer_source(message: type, version: int, flexible: bool) -> str:
    """Give the source of a writer, to be read."""
    return WriterEmitter(struct_of(message, version, flexible=flexible)).source.text()
