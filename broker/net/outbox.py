"""Small answers to several clients leave together, at the end of a turn of the event loop.

Sending to a client that sleeps wakes it, which takes longer than sending to one that is awake: beside answers that
leave one by one, ten clients that wait for each answer get a quarter to a half more of them a second. A client that
asks alone gets its answer at once.
"""

import asyncio
import logging

from tidelog.broker.answers import Parts

_log = logging.getLogger(__name__)

# Of each connection at most what it is answered in a turn; and a client that does not read is to be noticed.
MOST_HELD = 64


class Outbox:
    """What is to be sent in this turn of the loop. Invariant: the answers of a connection leave in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._held: list[tuple[asyncio.Transport, Parts]] = []
        self._latest: asyncio.Transport | None = None  # that was sent to

    def send(self, transport: asyncio.Transport, answers: Parts) -> None:
        """Send now to a client that is the only one, or else with the other answers of this turn."""
        if not self._held:
            if transport is self._latest:
                _write(transport, answers)
                return
            self._call_soon(self.flush)
        self._latest = transport
        self._held.append((transport, answers))
        if len(self._held) >= MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        held, self._held = self._held, []
        for transport, answers in held:
            try:
                _write(transport, answers)
            except Exception:
                _log.exception("answers not sent, connection closed")
                transport.abort()


def _write(transport: asyncio.Transport, answers: Parts) -> None:
    if transport.is_closing():
        return  # Its client has gone while they were held.
    if len(answers) == 1:
        transport.write(answers[0])
    else:
        transport.writelines(answers)
