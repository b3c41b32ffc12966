"""Errors of decoding and encoding.

WireError is the peer's fault; its connection is closed. EncodeError and CompileError are faults of this code.
"""


class WireError(Exception):
    """The bytes are not a valid message."""


class TooManyElements(WireError):
    """A message has more elements and tags than the reader's limit."""


class EncodeError(Exception):
    """A message has a value that its version cannot express."""


class CompileError(Exception):
    """A declaration cannot be compiled."""


def misfit(what: str, length: int, position: int, end: int) -> WireError:
    """Return the error for a length or count that is larger than the rest of its frame."""
    return WireError(
        f"{what}: length {length} at position {position} does not fit the {end - position} bytes left"
    )


def too_many(most: int, position: int) -> WireError:
    """Return the error for a message with too many elements."""
    return TooManyElements(f"more than {most} elements and tags in one message, at position {position}")
