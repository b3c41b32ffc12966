"""The wall clock: the one place of the pipeline that reads it, for times such as "2 hours ago"."""

import time


def now_ms() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
