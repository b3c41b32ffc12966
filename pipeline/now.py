"""The wall clock. No other module of the pipeline reads it."""

import time


def now_ms() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
