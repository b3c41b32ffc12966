"""The exceptions of storage.

The broker maps each class to an error code of the protocol. Every message says what is wrong, where, and what to do.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """Strip an error of traceback, cause and context, so that it can be stored; return it.

    These keep the frames that the error passed, with their variables: a log, the bytes of a request, and usually the
    error itself, in a cycle that only the collector frees. To raise it later, raise a new error.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def logged(error: BaseException) -> tuple[str, BaseException | None]:
    """Return what to log of an error: its text, and as `exc_info` itself if nothing here raises it on purpose."""
    if isinstance(error, StorageError | OSError):
        return str(error), None
    return f"{type(error).__name__}: {error}", error


class OnError(Generic[E]):
    """Handle errors of some types that a block raises: `with OnError(OSError, handle): ...`.

    `handle` may raise another error; if it returns, the error is suppressed. Not a `contextmanager`: from Python 3.13
    on, its generator's frame refers to the caller's frame, which holds the error, in a cycle that only the collector
    frees.
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
    """An operation on a log or a data folder failed."""


class NotInMemory(Exception):
    """The bytes are not in memory: read them on a thread that may wait for the disk. Not an error."""


class OffsetOutOfRange(StorageError):
    """The offset lies before the log's start or beyond its end."""


class LogOffline(StorageError):
    """The disk refused a write or a flush; reads go on."""


class LogDeleted(LogOffline):
    """The log's topic was deleted."""


class FlushPostponed(StorageError):
    """A flush could not begin as descriptors or memory ran out: nothing is lost, and the next one may succeed."""


class CorruptLog(StorageError):
    """The requested bytes are damaged; the rest of the log is served."""


class Mismatch(CorruptLog):
    """The files of a segment do not match its summary: call `Log.recheck` with it, and try again."""

    def __init__(self, message: str, segment: Any) -> None:
        """Name the segment."""
        super().__init__(message)
        self.segment = segment


class ReadFailed(StorageError):
    """The requested bytes could not be read; nothing is known to be lost."""


class OutOfOrderSequence(StorageError):
    """An idempotent producer skipped a sequence number, or repeated one that is no longer remembered."""


class InvalidProducerEpoch(StorageError):
    """A producer with a newer epoch has taken over this producer id."""


class FormatNotServed(StorageError):
    """The reader needs an older record format, and the topic does not allow the conversion."""


class DataDirLocked(StorageError):
    """Another process uses the data folder."""


class ForeignDataDir(StorageError):
    """The folder is not a data folder of this broker, or cannot be used as one."""


class TakesLong(Exception):
    """The operation takes more than some milliseconds: run it on another thread. Not an error."""
