"""What can go wrong between bytes and messages, and whose fault it was.

`WireError` is the peer's fault: log it and close the connection. `EncodeError` and `CompileError` are ours.
"""

__all__ = ["CompileError", "EncodeError", "TooManyElements", "WireError", "misfit", "too_many"]


class WireError(Exception):
    """The bytes of a frame are not the message that they claim to be."""


class TooManyElements(WireError):
    """A message has more elements and tags than its reader was told to take."""


class EncodeError(Exception):
    """A message holds a value that its version cannot carry: a mistake in our own code."""


class CompileError(Exception):
    """A declaration uses something that readers and writers do not know."""


def misfit(what: str, length: int, position: int, end: int) -> WireError:
    """Make the error for a length or count that its frame cannot hold."""
    return WireError(
        f"{what}: length {length} at position {position} does not fit the {end - position} bytes left"
    )


def too_many(most: int, position: int) -> WireError:
    """Make the error for a message with more elements than it may have."""
    return TooManyElements(f"more than {most} elements and tags in one message, at position {position}")
