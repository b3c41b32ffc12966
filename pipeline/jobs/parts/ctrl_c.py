"""Ctrl-C in a job: it ends at once while Python runs, and when its jobs are cancelled while Spark does.

An interrupted call to Spark would leave the Py4J connection in the middle of a message. So the call is left to return,
with the error of a cancelled job, which is then taken for Ctrl-C. Streams end otherwise: see `following`.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

EVERY_S: Final = 0.2  # a call may begin other jobs yet


class CtrlC:
    """What Ctrl-C does while a job runs; a second one ends it as it would any process."""

    def __init__(self) -> None:
        """Go on."""
        self.is_asked = False
        self._context: SparkContext | None = None
        self._over = threading.Event()

    def install(self, spark: "SparkSession | None" = None) -> None:
        """Take the signal, which a session takes as it is made; cancel the jobs of this one from now on.

        KeyboardInterrupt where it came meanwhile.
        """
        if spark is not None:
            self._context = spark.sparkContext
        signal.signal(signal.SIGINT, self)
        if self.is_asked:
            raise KeyboardInterrupt

    def release(self) -> None:
        """Cancel nothing any more."""
        self._over.set()

    def __call__(self, _number: int, frame: FrameType | None) -> None:
        """Take a Ctrl-C, in what the main thread is at."""
        is_first, self.is_asked = not self.is_asked, True
        if not is_first or not _is_in_spark(frame):
            raise KeyboardInterrupt
        threading.Thread(target=self._cancel, name="ctrl-c", daemon=True).start()

    def _cancel(self) -> None:
        while not self._over.is_set():
            if self._context is not None:
                with suppress(Exception):  # who waits for the jobs says what is wrong
                    self._context.cancelAllJobs()
            self._over.wait(EVERY_S)


def _is_in_spark(frame: FrameType | None) -> bool:
    """Tell whether a call to Spark is under way."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "py4j":
            return True
        frame = frame.f_back
    return False


def installed() -> CtrlC | None:
    """Return the handler of Ctrl-C of the job that runs; None without one."""
    found = signal.getsignal(signal.SIGINT)
    return found if isinstance(found, CtrlC) else None


@contextmanager
def handled() -> Iterator[None]:
    """Handle Ctrl-C while a job runs, and raise KeyboardInterrupt for an error of Spark's that comes from it.

    Where nobody is to hear it, as in the background of a shell, or nobody can, in another thread, this does nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    made = CtrlC()
    made.install()
    try:
        yield
    except Exception:
        if made.is_asked:
            raise KeyboardInterrupt from None
        raise
    finally:
        made.release()
        signal.signal(signal.SIGINT, before)
