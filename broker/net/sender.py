"""Sends the large answers of one connection, read and written piece by piece as the client takes them.

A slice of a file is read when there is room for it: on the event loop if it is in memory, else on a reader thread. So a
client that does not read its answers makes us hold one piece, and what the transport keeps of the last, however much it
requested. Knows nothing of requests.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from tidelog.broker.answers import MAX_UNSENT_BYTES, MOST_PARTS, Later, Part
from tidelog.broker.running import Running
from tidelog.broker.session import Session
from tidelog.broker.work import SHORT, Stopping, reader
from tidelog.storage.files import FileSlice, Readable

# What the transport buffers before it pauses us; one piece may exceed it.
TRANSPORT_BYTES: Final = 64 * 1024
# One piece a turn of the loop: the others wait some 100 us for its reading and sending. Half as much took a third more
# CPU; twice as much takes little less. Two pieces hold an answer of 1 MiB with its head: half of MAX_UNSENT_BYTES.
PIECE_BYTES: Final = (512 + 8) * 1024
# A read from the disk must be worth the way to a reader thread and back.
COLD_PIECE_BYTES: Final = 1024 * 1024
# The piece while all clients together leave too much unread.
SMALL_PIECE_BYTES: Final = 16 * 1024


class Sender:
    """The parts that wait for the transport of one connection. Invariant: they leave in order."""

    __slots__ = (
        "_counted_bytes",
        "_failed",
        "_held_bytes",
        "_is_busy",
        "_parts",
        "_quota",
        "_session",
        "_transport",
        "_went_on",
        "is_full",
        "is_paused",
        "queued_bytes",
    )

    def __init__(
        self,
        session: Session,
        transport: asyncio.Transport,
        went_on: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Send to a session's client. `went_on` is called after progress, `failed` with what ends the sending."""
        self._session = session
        self._quota = session.broker.queued_answers
        self._transport = transport
        self._went_on = went_on
        self._failed = failed
        transport.set_write_buffer_limits(high=TRANSPORT_BYTES)
        self._parts: deque[Part] = deque()
        self._is_busy = False  # a turn is scheduled, or a piece is being read
        self._held_bytes = 0  # of parts in memory
        self._counted_bytes = 0  # charged to the quota
        self.queued_bytes = 0
        self.is_paused = False  # the transport's buffer is full
        self.is_full = False  # the client gets no further answers

    @property
    def is_empty(self) -> bool:
        """Tell whether everything is with the transport."""
        return not self.queued_bytes

    def send(self, parts: Sequence[Part]) -> None:
        """Send parts after the others, from a later turn of the loop on."""
        self._parts += parts
        self.queued_bytes += sum(map(len, parts))
        self._held_bytes += sum(len(part) for part in parts if not isinstance(part, FileSlice))
        self._count()
        self._go_on()

    def pause(self) -> None:
        """Stop writing: the client does not take what was written."""
        self.is_paused = True
        self._count()

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False
        self._count()
        self._go_on()

    def drop(self) -> None:
        """Forget what was not sent: the client has gone."""
        self._parts.clear()
        self.queued_bytes = self._held_bytes = 0
        self.is_paused = False
        self._count()

    def end(self) -> None:
        """Forget what was not sent, and the connection."""
        self.drop()
        self._went_on = self._failed = _ignore

    def _count(self) -> None:
        """Update `is_full` and the quota."""
        self.is_full = self.is_paused or self.queued_bytes >= MAX_UNSENT_BYTES
        held = self._held_bytes + (self._transport.get_write_buffer_size() if self.is_paused else 0)
        if held != self._counted_bytes:
            self._quota.add(self._session, held - self._counted_bytes)
            self._counted_bytes = held

    def _go_on(self) -> None:
        if self.queued_bytes and not self._is_busy and not self.is_paused:
            self._is_busy = True
            # Not now: until the end of this turn, the outbox may hold answers that come before.
            self._session.broker.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Write the next piece; parts that are not in memory are read first."""
        self._is_busy = False
        if not self.queued_bytes or self.is_paused:
            return
        ready: list[Readable] = []
        try:
            parts = self._take(SMALL_PIECE_BYTES if self._quota.is_full else PIECE_BYTES)
            for number, part in enumerate(parts):
                data = part.read_nowait() if isinstance(part, FileSlice) else part
                if data is None:
                    self._read_cold(parts[number:])
                    break
                ready.append(data)
            self._write(ready)
        except Exception as fault:
            self._failed(fault)
            return
        self._go_on()
        self._went_on()

    def _take(self, size_bytes: int) -> list[Part]:
        """Take parts of `size_bytes` from the queue; a part in memory is taken whole."""
        taken: list[Part] = []
        parts = self._parts
        while parts and size_bytes > 0:
            part = parts.popleft()
            if not isinstance(part, FileSlice):
                self._held_bytes -= len(part)
            elif part.length > size_bytes:
                parts.appendleft(part.after(size_bytes))
                part = part.first(size_bytes)
            taken.append(part)
            size_bytes -= len(part)
        return taken

    def _write(self, pieces: list[Readable]) -> None:
        if len(pieces) > MOST_PARTS:
            pieces = [b"".join(pieces)]
        self.queued_bytes -= sum(map(len, pieces))
        if pieces:
            self._transport.writelines(pieces)
        self._count()

    def _read_cold(self, parts: list[Part]) -> None:
        """Read parts on a reader thread, with some of the following ones."""
        if not self._quota.is_full:
            parts += self._take(COLD_PIECE_BYTES - sum(map(len, parts)))
        self._is_busy = True
        running = Running(self._session.broker, self._session, _read_all(parts))
        running.begin()
        running.ready = partial(self._came, running)

    def _came(self, later: Later) -> None:
        """Write what was read."""
        self._is_busy = False
        if not self.queued_bytes:  # dropped
            return
        if isinstance(later.response, Exception):
            self._failed(later.response)
            return
        self._write(later.response)
        self._go_on()
        self._went_on()


def _ignore(*_: object) -> None:
    """Do nothing."""


async def _read_all(parts: list[Part]) -> list[Readable]:
    """Return the bytes of all parts."""
    with suppress(Stopping):
        await reader(SHORT)
    pieces: list[Readable] = []
    for part in parts:
        data = part.read() if isinstance(part, FileSlice) else part
        if len(data) != len(part):
            raise OSError(errno.EIO, f"{len(data)} bytes of {len(part)} are left")
        pieces.append(data)
    return pieces
