"""Why a connection is not read from. Its states and their transitions, all of them:

A connection begins without a reason to hold, and is read from exactly while it has none. It may have any number of
these, again and again:

    TURN       its time in this turn of the loop is used up     until its next turn
    UNSENT     its client has left as much as it may            until it has taken some
    OWED       as much is to be answered as may be              until some of it has left, or turned out to be less
    MEMORY     its frame has to wait for a larger buffer        until others give back theirs

Two it never loses. It comes to them in this order, if to the first at all; `connection_lost` may come at any time:

    FINISHING  its client, or the broker, has come to an end: what is owed is answered, and then it is CLOSING
    CLOSING    nothing is answered any more: it closes as soon as what was answered has been sent

A refusal, a bad request, a fault and silence lead to CLOSING at once; to close what is CLOSING is to abort it.
"""

import asyncio
from enum import IntFlag, auto


class Hold(IntFlag):
    """A reason to hold."""

    TURN = auto()
    UNSENT = auto()
    OWED = auto()
    MEMORY = auto()
    FINISHING = auto()
    CLOSING = auto()


# As plain numbers: arithmetic with an IntFlag takes a microsecond.
TURN, UNSENT, OWED, MEMORY, FINISHING, CLOSING = (reason.value for reason in Hold)


class Reading:
    """The reasons of one connection to hold. Invariant: its transport is paused exactly while there are some."""

    __slots__ = ("_transport", "hold")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.hold = 0  # the reasons, as a number

    def __repr__(self) -> str:
        return f"<Reading {Hold(self.hold)!r}>"

    def hold_for(self, reason: int) -> None:
        """Read no more, for this reason too."""
        if not self.hold:
            self._transport.pause_reading()
        self.hold |= reason

    def let_go(self, reasons: int) -> bool:
        """Read on if no other reasons are left; tell whether that is so."""
        self.hold &= ~reasons
        if not self.hold:
            self._transport.resume_reading()
        return not self.hold
