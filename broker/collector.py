"""The cyclic garbage collector, held off while a large request is served.

It walks over all that is alive once so much is new; a request of 250,000 elements is a million new objects, none
of them garbage, and with each walk all threads stand still for a second. What it is made of is freed without the
collector, as soon as its answer is encoded.
"""

import gc
from time import monotonic

# It runs all the same where large requests come without end.
LONGEST_S = 30.0


class Collector:
    """Counts who holds the collector off. Event loop only."""

    def __init__(self) -> None:
        self._holders = 0
        self._since_s = 0.0

    def hold_off(self) -> None:
        """Let the collector wait until `let_go` was called as often."""
        if not self._holders:
            self._since_s = monotonic()
        self._holders += 1
        if monotonic() - self._since_s < LONGEST_S:
            gc.disable()

    def let_go(self) -> None:
        """Let it run again, if nobody else holds it off."""
        self._holders -= 1
        if not self._holders or monotonic() - self._since_s >= LONGEST_S:
            gc.enable()
