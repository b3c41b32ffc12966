"""What can go wrong between bytes and messages, and whose fault it was.

`WireError` is the peer's fault: log it and close the connection. `EncodeError` and `CompileError` are ours.
"""

__all__ = ["CompileError", "EncodeError", "WireError"]


class WireError(Exception):
    """The bytes of a frame are not the message that they claim to be."""


class TooManyElements(WireError):
    """A message has more elements and tags than its reader was told to take."""


class EncodeError(Exception):
    """A message holds a value that its version cannot carry: a mistake in our own code."""


class CompileError(Exception):
    """A declaration uses something that the codec compiler does not know."""
