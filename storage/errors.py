"""The few exceptions of this room.

Owns what can be wrong with a log or its folder. Knows no error code of the protocol: the broker maps each class
to one. That a segment is not what its summary says is for `segment` to tell (`Mismatch`). Every message says what is
wrong, where, and what to do.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """Return an error that is to be kept, without traceback, cause and context.

    These keep the frames that the error passed, with all their variables: a log, the bytes of a request, and as a rule
    the error itself, in a cycle that only the collector frees. Raise another error for it later, not this one.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class OnError(Generic[E]):
    """Handle the errors of some types that a block raises: `with OnError(OSError, handle): ...`.

    `handle` raises another error; where it returns, the block counts as done. A generator under `contextmanager` would
    keep each error in a cycle with its frames, which only the collector frees: from Python 3.13 on the generator's
    frame refers to the frame of its caller, which holds the error.
    """

    __slots__ = ("_handle", "_types")

    def __init__(self, types: type[E] | tuple[type[E], ...], handle: Callable[[E], object]) -> None:
        self._types = types
        self._handle = handle

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool | None:
        if not isinstance(error, self._types):
            return False
        self._handle(error)
        return True


class StorageError(Exception):
    """Anything that the log on disk cannot do for its caller."""


class NotInMemory(Exception):
    """What was to be read without waiting is on the disk; no error, but a reason to read it on another thread."""


class OffsetOutOfRange(StorageError):
    """The offset lies before the log's start or beyond its end."""


class LogOffline(StorageError):
    """The disk refused a write or a flush; reads go on."""


class LogDeleted(LogOffline):
    """The log's topic was deleted; what was written to it nobody will read."""


class FlushPostponed(StorageError):
    """A flush could not begin for want of descriptors or memory: nothing is lost, and the next one may succeed."""


class CorruptLog(StorageError):
    """The bytes asked for are damaged; the rest of the log is served."""


class ReadFailed(StorageError):
    """The disk did not give the bytes asked for; nothing is known to be lost."""


class OutOfOrderSequence(StorageError):
    """An idempotent producer skipped a sequence number, or sent again one too old to be remembered."""


class InvalidProducerEpoch(StorageError):
    """A producer with a newer epoch has taken this producer id over."""


class FormatNotServed(StorageError):
    """A reader of an older message format asked for what is not to be converted to it."""


class DataDirLocked(StorageError):
    """Another process uses the data folder."""


class ForeignDataDir(StorageError):
    """The folder holds something that is not this broker's data."""


class TakesLong(Exception):
    """What is asked for takes more than some milliseconds, which its caller has not got; no error, as NotInMemory."""
