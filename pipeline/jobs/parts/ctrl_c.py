"""Ctrl-C in a job: it interrupts Python code at once, and a call to Spark by cancelling the jobs of Spark.

Interrupting the call itself would leave the Py4J connection in the middle of a message. Instead the call fails with the
error of a cancelled job, which is reported as KeyboardInterrupt. Streams end in another way: see `following`.
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

EVERY_S: Final = 0.2  # cancel again: a call may start more jobs
RELEASE_S: Final = 2.0  # a cancel takes milliseconds, unless Java hangs


class CtrlC:
    """Handles Ctrl-C while a job runs. A second Ctrl-C always raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.is_asked = False
        self._context: SparkContext | None = None
        self._over = threading.Event()
        self._cancels: threading.Thread | None = None

    def install(self, spark: "SparkSession | None" = None) -> None:
        """Handle SIGINT: when it arrives, cancel the jobs of this session.

        A new session of Spark installs a handler of its own, so call this again afterwards. KeyboardInterrupt if
        Ctrl-C was pressed before.
        """
        if spark is not None:
            self._context = spark.sparkContext
        signal.signal(signal.SIGINT, self)
        if self.is_asked:
            raise KeyboardInterrupt

    def release(self) -> None:
        """Stop cancelling, so that no later job is cancelled; do not wait for a Java that hangs."""
        self._over.set()
        if self._cancels is not None:
            self._cancels.join(RELEASE_S)

    def __call__(self, _number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C; `frame` is where the main thread is."""
        is_first, self.is_asked = not self.is_asked, True
        if not is_first or not _is_in_spark(frame):
            raise KeyboardInterrupt
        self._cancels = threading.Thread(target=self._cancel, name="ctrl-c", daemon=True)
        self._cancels.start()

    def _cancel(self) -> None:
        while not self._over.is_set():
            if self._context is not None:
                with suppress(Exception):  # the call that waits for the jobs reports errors
                    self._context.cancelAllJobs()
            self._over.wait(EVERY_S)


def _is_in_spark(frame: FrameType | None) -> bool:
    """Return whether a call to Spark is running."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "py4j":
            return True
        frame = frame.f_back
    return False


def installed() -> CtrlC | None:
    """Return the installed handler; None if there is none."""
    found = signal.getsignal(signal.SIGINT)
    return found if isinstance(found, CtrlC) else None


@contextmanager
def handled() -> Iterator[None]:
    """Handle Ctrl-C while a job runs, and turn the error of a cancelled Spark job into KeyboardInterrupt.

    Does nothing if Ctrl-C is ignored, as in the background of a shell, or outside the main thread.
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
        signal.signal(signal.SIGINT, before)
        made.release()
