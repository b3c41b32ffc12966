"""The broker's threads: none of them dies silently.

Owns what becomes of a thread that was ended by what nobody expected: it is logged with everything, and the broker is
told, which stops in order and ends with a status that is not 0. What a thread does about errors that can be expected,
and about those of a single piece of work, is its own affair: such errors answer that piece of work, and the thread
lives on.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

_log = logging.getLogger(__name__)

# Is told why, by the thread that ends.
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
    """Return what tells the CPU seconds of the thread that calls this, to any thread, while it lives."""
    return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))
