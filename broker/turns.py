"""A turn for everybody: how long what one connection asks for is worked on before the others go on.

Owns the sharing of a turn of the event loop among the connections that have much to ask: forty of them must not make it
forty times as long. Knows nothing of requests.
"""

import asyncio
from time import monotonic

# Of all of them together, in a turn of the loop.
TURN_S = 0.005


class Turns:
    """The connections that ask for time within a turn of the loop, and how many did in the one before."""

    __slots__ = ("_asked", "_call_soon", "_shared_by")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._asked = 0
        self._shared_by = 1

    def ends(self) -> float:
        """Return until when, by `time.monotonic`, a connection may go on in this turn."""
        if not self._asked:
            self._call_soon(self._next)
        self._asked += 1
        return monotonic() + TURN_S / max(self._asked, self._shared_by)

    def _next(self) -> None:
        self._shared_by, self._asked = self._asked, 0
