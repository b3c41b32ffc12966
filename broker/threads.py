"""The broker's threads: none of them dies silently.

An unexpected exception that ends a thread is logged with its traceback. The broker then stops in order and exits with a
status other than 0. Each thread handles expected errors, and those of a single piece of work, itself: they become the
answer to that piece of work, and the thread goes on.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

_log = logging.getLogger(__name__)

# Called by the thread that ends, with the reason.
Ended = Callable[[str], None]


def new_thread(name: str, run: Callable[[], None], ended: Ended) -> threading.Thread:
    """Return a thread, not started, that calls `ended` if `run` raises anything."""

    def guarded() -> None:
        try:
            run()
        except BaseException as fault:
            _log.critical("thread ended by a fault thread=%s", name, exc_info=fault)
            ended(f"thread {name} was ended by {fault!r}")

    return threading.Thread(target=guarded, name=name, daemon=True)


def cpu_clock() -> Callable[[], float]:
    """Return a function that returns the CPU seconds of the calling thread, from any thread, while it lives."""
    return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))
