"""How much may be read and written in a second, by all threads that share one of these.

Owns what was done beyond the rate: whoever has done something waits until the time for it is over. Time in which
nothing is done gives nobody more later. Reads no clock, and has no lock: whoever shares it has one.
"""


class Throttle:
    """What was done and is not paid for by time; rates are in bytes a second, and may be another each time."""

    __slots__ = ("_at_ms", "_owed_bytes")

    def __init__(self) -> None:
        """Owe nothing."""
        self._owed_bytes = 0.0
        self._at_ms = 0

    def took(self, size_bytes: int, rate: float, now_ms: int) -> None:
        """Take note of what was done."""
        self._pay(rate, now_ms)
        self._owed_bytes += size_bytes

    def wait_ms(self, rate: float, now_ms: int) -> int:
        """Return for how long nothing is to be done; less than a millisecond is left for the next time."""
        self._pay(rate, now_ms)
        return int(self._owed_bytes * 1000 / rate)

    def _pay(self, rate: float, now_ms: int) -> None:
        self._owed_bytes = max(0.0, self._owed_bytes - rate * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
