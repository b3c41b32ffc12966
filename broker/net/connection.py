"""One client connection: bytes in, frames out of them, responses back in the order of the requests.

Requests are dispatched as they come, many of them before the first is answered: a produce that waits for its fsync does
not hold up the next one. Responses leave strictly in order. The memory of a client is bounded: its frame, its requests
in flight, and its unread answers. At a bound the connection stops taking requests, and TCP tells the client. The work
of a client in one turn of the loop is bounded too: the rest waits until others had their turn.

A connection is not read from while it has any of these reasons. It begins without one. These come and go:

    TURN       its time in this turn of the loop is used up     until its next turn
    UNSENT     too many of its answers are unread               until the client has taken some
    PENDING    too many answers are pending                     until some have left, or weigh less
    MEMORY     its frame waits for a larger buffer              until others return theirs

These two stay. They come in this order, though the first may be skipped, and `connection_lost` may come at any time:

    FINISHING  the client or the broker has come to an end: pending requests are answered, then it is CLOSING
    CLOSING    nothing more is answered: it closes as soon as its answers have been sent

A refusal, a bad request, a fault and silence lead to CLOSING at once. To close a CLOSING connection is to abort it.
"""

import asyncio
import logging
import socket  # noqa: TID251  (here is where sockets are asked)
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from fcntl import ioctl
from struct import Struct
from time import monotonic
from typing import Final, cast

from tidelog.broker.answers import (
    HOLDS_UP,
    MAX_UNSENT_BYTES,
    BadRequest,
    ClosesConnection,
    CutShort,
    Later,
    Part,
    Parts,
    Streamed,
)
from tidelog.broker.broker import Broker
from tidelog.broker.dispatch import UNKNOWN, name_of
from tidelog.broker.net.admission import Admission
from tidelog.broker.net.busy_poll import BusyPoll
from tidelog.broker.net.frame_memory import FrameMemory
from tidelog.broker.net.outbox import Outbox
from tidelog.broker.net.pending import PendingAnswers
from tidelog.broker.net.receive_buffer import SMALL_BUFFER_BYTES, ReceiveBuffer
from tidelog.broker.net.sender import Sender
from tidelog.broker.repeated_lines import lines
from tidelog.broker.session import Session
from tidelog.broker.tallies import Dispatch
from tidelog.broker.turns import TURN_S
from tidelog.protocol.wire.errors import WireError

_log = logging.getLogger(__name__)

_SIZE: Final = Struct(">i").unpack_from

# A client whose requests usually take less than this continues even if the time of the turn is used up.
QUICK_S: Final = 0.0002
# One measurement raises the usual time at most to twice itself and this much more.
MORE_S: Final = 0.00005
# If no connection takes longer than this in a turn of the loop, none waits for others: measuring costs as much as two
# small requests.
BRIEF_S: Final = 0.0001

# Linux's TCP states: the connection is closed; the other side sends no more.
TCP_CLOSED: Final = 7
TCP_CLOSE_WAIT: Final = 8
# Linux's tcp_info: bytes that the other side has acknowledged, and bytes received, since the connection began.
_TCP_BYTES: Final = Struct("=QQ")
_TCP_BYTES_AT: Final = 120


# The reasons not to read, as bits.
TURN: Final = 1
UNSENT: Final = 2
PENDING: Final = 4
MEMORY: Final = 8
FINISHING: Final = 16
CLOSING: Final = 32


class Reading:
    """The reasons not to read from a connection. Invariant: its transport is paused exactly while there are any."""

    __slots__ = ("_transport", "reasons")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.reasons = 0  # bits

    def pause(self, reason: int) -> None:
        """Stop reading, for this reason too."""
        if not self.reasons:
            self._transport.pause_reading()
        self.reasons |= reason

    def resume(self, reasons: int) -> bool:
        """Remove reasons, and read on if none is left; tell whether that is so."""
        self.reasons &= ~reasons
        if not self.reasons:
            self._transport.resume_reading()
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a server share."""

    admission: "Admission[Connection]"
    outbox: Outbox
    busy_poll: BusyPoll
    frame_memory: FrameMemory
    dispatch: Dispatch


class Connection(asyncio.BufferedProtocol):  # noqa: TID251  (here is where sockets are read)
    """A client, from accept to close."""

    def __init__(self, broker: Broker, shared: Shared, listener_name: str) -> None:
        self._broker = broker
        self._turns = broker.turns
        self._max_frame_bytes = broker.config.socket_request_max_bytes
        self._admission, self._outbox = shared.admission, shared.outbox
        self._busy_poll, self._frame_memory = shared.busy_poll, shared.frame_memory
        self._dispatch = shared.dispatch
        self._listener_name = listener_name
        self.session: Session
        self._transport: asyncio.Transport
        self._reading: Reading
        self._sender: Sender
        self._received: ReceiveBuffer
        self._pending: PendingAnswers
        self._sweeps_idle = 0
        self._usual_s = TURN_S  # the usual time of its requests; unknown at first
        self._has_left = False  # the client: it sends nothing more
        self._requests = 0  # since the connection began

    # -- asyncio's side --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection, unless a limit is reached."""
        self._transport = cast(asyncio.Transport, transport)
        address, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        reached_host, reached_port = transport.get_extra_info("sockname")[:2]
        session = Session(self._broker, self._listener_name, (address, port), (reached_host, reached_port))
        self.session = session
        self._reading = Reading(self._transport)
        self._sender = Sender(session, self._transport, self.went_on, self._fail_sending)
        self._received = ReceiveBuffer(self._frame_memory, address, self._memory_came)
        self._pending = PendingAnswers(session, self._answer, self._lighter)
        refusal = self._admission.admit(self, address)
        if refusal is not None:
            template = "connection refused peer=%s reason=%r"
            lines.log(_log, logging.WARNING, address, template, session.peer, refusal, cause=refusal)
            self._reading.reasons |= CLOSING
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget everything about the client."""
        self._reading.reasons |= CLOSING
        self._admission.forget(self, self.session.address)
        # These forget the connection, which refers to them: a cycle would stay until the collector runs, which in an
        # idle broker is never.
        self._pending.cancel()
        self._sender.end()
        self._received.drop()
        if error is not None:
            # Clients may disconnect at any time; anything else is our fault or the system's.
            level = logging.DEBUG if isinstance(error, ConnectionError | TimeoutError) else logging.ERROR
            _log.log(level, "connection lost peer=%s error=%r", self.session.peer, str(error), exc_info=error)

    def eof_received(self) -> bool:
        """Close once earlier requests are answered: a client may shut down its sending side and still read."""
        if self._hurry():
            self.finish()
        else:
            self.close()
        return not self._transport.is_closing()

    def get_buffer(self, _hint: int) -> memoryview:
        """Return where the next bytes go: up to the end of a large frame, or of the small buffer."""
        received = self._received
        return received.view[received.filled : received.frame_end or SMALL_BUFFER_BYTES]

    def buffer_updated(self, size_bytes: int) -> None:
        """Process received bytes."""
        self._sweeps_idle = 0
        received = self._received
        received.filled += size_bytes
        if received.filled >= received.frame_end:
            self._process()
            # A client that waits for an answer sends no request before it comes.
            if not self._pending.answers:
                self._busy_poll.request_came()
        elif received.filled == len(received.view) and not received.grow():
            self._reading.pause(MEMORY)

    def pause_writing(self) -> None:
        """Stop taking requests: the client does not read its answers."""
        self._sender.pause()
        self._reading.pause(UNSENT)

    def resume_writing(self) -> None:
        """Go on."""
        self._sweeps_idle = 0
        self._sender.resume()
        self.went_on()

    # -- requests --------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Dispatch the complete frames in the buffer, as many as a turn allows, and send the answers that are ready."""
        turns, began_s = self._turns, monotonic()
        if turns.ends_s and began_s > turns.ends_s and self._usual_s >= QUICK_S:
            self._wait_for_turn()
            return
        out: Parts = []
        try:
            start = self._dispatch_frames(out, began_s)
        except Exception as fault:
            self._send(out)
            self._fail(fault)
        else:
            if out:
                self._send(out)
            reasons = self._reading.reasons
            if not reasons & CLOSING and not self._received.keep(start, not reasons):
                self._reading.pause(MEMORY)
        took_s = monotonic() - began_s
        if took_s >= BRIEF_S:
            turns.begin(began_s)
        # Another thread may have had the processor: one measurement is not enough to count as slow.
        usual_s = 2 * self._usual_s + MORE_S
        if took_s < usual_s:
            usual_s = took_s
        self._usual_s = usual_s

    def _dispatch_frames(self, out: Parts, began_s: float) -> int:
        """Dispatch frames until one is incomplete or a bound is reached; return where the rest starts."""
        received, pending, reading, turns = self._received, self._pending, self._reading, self._turns
        view, filled, start = received.view, received.filled, 0
        dispatch = self._dispatch
        out_bytes, turn_ends = 0, 0.0
        while filled - start >= 4:
            size: int = _SIZE(view, start)[0]
            end = start + 4 + size
            if not 0 < size <= self._max_frame_bytes:
                raise self._bad_size(size)
            if end > filled:
                break
            if start:
                # not the first in this packet: check the client's share of the turn
                now_s = monotonic()
                if not turn_ends and (turns.ends_s or now_s - began_s >= BRIEF_S):
                    turn_ends = turns.share_ends_s()
                if out_bytes + pending.size_bytes >= MAX_UNSENT_BYTES or 0 < turn_ends < now_s:
                    self._wait_for_turn()
                    break
            try:
                answer = dispatch(self.session, view, start + 4, end)
            except (WireError, ClosesConnection) as why:
                raise BadRequest(name_of(view, start + 4, end), why) from why
            start = end
            self._requests += 1
            if answer is None:
                pass
            elif isinstance(answer, Later) or pending.answers:
                if isinstance(answer, Later) and answer.keeps_request:
                    received.lend()
                if pending.put(answer):
                    reading.pause(PENDING)
            elif type(answer) is Streamed:
                self._send_large(out, answer)
                out_bytes = 0
            else:
                parts, answer_bytes = answer
                out += parts
                out_bytes += answer_bytes
            if reading.reasons:
                break
        return start

    def _bad_size(self, size_bytes: int) -> BadRequest:
        limit = self._max_frame_bytes
        return BadRequest(
            UNKNOWN,
            WireError(f"a request of {size_bytes} bytes; socket.request.max.bytes allows 1 to {limit}"),
        )

    def _wait_for_turn(self) -> None:
        """Process the received requests in a later turn of the loop."""
        self._reading.pause(TURN)
        self._turns.wait(self._take_turn)

    def _take_turn(self) -> None:
        if self._reading.resume(TURN):
            self._process()

    def _memory_came(self) -> None:
        self._reading.resume(MEMORY)

    def _fail(self, fault: Exception) -> None:
        """Close the connection. Log the peer's fault in one line, our own with its traceback."""
        session = self.session
        if isinstance(fault, CutShort):
            self._send([fault.sent])
            _log.info("connection closed peer=%s reason=%r", session.peer, str(fault))
        elif isinstance(fault, BadRequest):
            self._admission.bad_requests += 1
            template = "bad request, connection closed peer=%s request=%r error=%r"
            values = session.peer, fault.request, str(fault)
            lines.log(_log, logging.WARNING, session.address, template, *values, cause=fault.request)
        else:
            _log.error("request failed, connection closed peer=%s", session.peer, exc_info=fault)
        self.close()

    # -- clients that are silent, slow or gone -----------------------------------------------------------------

    def idle_sweeps(self) -> int:
        """Return for how many sweeps nothing was received; after the first, return a large buffer."""
        if self._sweeps_idle == 1 and not self._received.filled:
            self._received.shrink()
        self._sweeps_idle += 1
        return self._sweeps_idle - 1

    def look_after(self, now_s: float, others_wait: bool) -> None:
        """Detect a frame that comes too slowly, and a client that left while its connection is not read from."""
        if self._reading.reasons:
            self._received.forget_pace()
            self._check_client()
        elif self._received.filled:
            self._check_pace(now_s, others_wait)

    def _check_pace(self, now_s: float, others_wait: bool) -> None:
        """Abort the connection if its frame comes too slowly."""
        if (too_slow := self._received.too_slow(now_s, others_wait)) is not None:
            came_bytes, took_s = too_slow
            _log.warning(
                "a request comes too slowly, connection closed peer=%s bytes=%d seconds=%.0f held=%d",
                self.session.peer, came_bytes, took_s, len(self._received.view),
            )  # fmt: skip
            self._transport.abort()

    def _check_client(self) -> None:
        """Detect that the client has left while the connection is not read from: asyncio does not report that.

        What it sent before is served, but its fetches wait no longer. A frame that can no longer be completed ends the
        connection, as does work that takes too long for a client that may be gone.
        """
        if self._reading.reasons == CLOSING or self._transport.is_closing():
            return
        its_socket = self._transport.get_extra_info("socket")
        state = _tcp_state(its_socket)
        if state == TCP_CLOSED:
            self._transport.abort()
        elif state == TCP_CLOSE_WAIT and not self._has_left:
            if not self._hurry():
                self.close()
            elif not self._received.can_become_whole(_unread_bytes(its_socket)):
                self._transport.abort()

    def _hurry(self) -> bool:
        """Complete pending answers soon: the client sends no more, but may read. Tell whether that pays."""
        self._has_left = True
        return self._pending.hurry()

    # -- responses -------------------------------------------------------------------------------------------

    def _send(self, out: Parts) -> None:
        """Send small answers, after the large ones in progress."""
        if self._sender.queued_bytes:
            self._stream(out)
        elif out:
            self._outbox.send(self._transport, out)

    def _send_large(self, out: Parts, answer: Streamed) -> None:
        """Send a large answer after the small ones, and clear their list."""
        self._send(out[:])
        out.clear()
        self._stream(answer.parts)

    def _stream(self, parts: Sequence[Part]) -> None:
        """Send parts as the client takes them."""
        self._sender.send(parts)
        if self._sender.is_full:
            self._reading.pause(UNSENT)

    def _lighter(self) -> None:
        """Continue soon: a pending answer no longer holds up the requests after it."""
        self._broker.loop.call_soon(self.went_on)

    def _answer(self) -> None:
        """Send every answer that is ready and not behind one that is not; then process further requests."""
        if self._reading.reasons & CLOSING or self._transport.is_closing():
            return
        out: Parts = []
        try:
            while not self._sender.is_full and (large := self._pending.collect(out)) is not None:
                self._send_large(out, large)
        except Exception as fault:
            self._send(out)
            self._fail(fault)
            return
        if out:
            self._send(out)
        if self._pending.size_bytes >= MAX_UNSENT_BYTES:
            self._reading.pause(PENDING)
        if self._reading.reasons:
            self._go_on()

    def went_on(self) -> None:
        """Continue what had to wait: there may be room for it now."""
        if self._reading.reasons & CLOSING:
            if self._sender.is_empty:
                self._transport.close()
        elif self._pending.answers:
            self._answer()
        elif self._reading.reasons:
            self._go_on()

    def _go_on(self) -> None:
        """Process further requests, or finish, if nothing holds them up any more."""
        if self._reading.reasons & FINISHING and not self._pending.answers:
            self.close()
            return
        if self._pending.size_bytes < HOLDS_UP:
            self._received.take_back()
        over = 0 if self._sender.is_full else UNSENT
        if not self._pending.is_much:
            over |= PENDING
        if self._reading.reasons & over and self._reading.resume(over):
            self._process()

    def _fail_sending(self, fault: Exception) -> None:
        """End the connection in the middle of an answer that cannot be read or written."""
        _log.error("answer cut short, connection closed peer=%s", self.session.peer, exc_info=fault)
        self._sender.drop()
        self.close()

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Take no further request, and close once all pending requests are answered."""
        self._reading.pause(FINISHING)
        if not self._pending.answers:
            self.close()

    def close(self) -> None:
        """Close once the answers have been sent; the second time, at once."""
        if self._reading.reasons & CLOSING:
            self._transport.abort()
            return
        self._reading.pause(CLOSING)
        self._outbox.flush()
        if self._sender.is_empty:
            self._transport.close()

    def abort(self) -> None:
        """Close without sending what the client has not taken."""
        self._transport.abort()

    @property
    def is_closing(self) -> bool:
        """Tell whether nothing more is sent."""
        return self._transport.is_closing()

    def figures(self) -> dict[str, object]:
        """Return who the client is, what it has done since it connected, and the memory held for it.

        The system counts the bytes, so a request pays for the count of requests only. Not while `is_closing`.
        """
        session, broker = self.session, self._broker
        quotas = broker.queued_topics, broker.queued_fetches, broker.queued_answers
        sent_bytes, received_bytes = _tcp_bytes(self._transport.get_extra_info("socket"))
        return {
            "client_id": session.client_id,
            "address": session.address,
            "requests": self._requests,
            "received_bytes": received_bytes,
            "sent_bytes": sent_bytes,
            "held_bytes": len(self._received.view) + sum(quota.held_bytes(session) for quota in quotas),
        }

    @property
    def has_pending_answers(self) -> bool:
        """Tell whether answers are pending, and the client reads its answers."""
        return bool(self._pending.answers) and not self._sender.is_full


def _tcp_state(its_socket: "socket.socket") -> int:
    """Return the TCP state of a connection; asyncio does not report it while reading is paused."""
    return its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def _tcp_bytes(its_socket: "socket.socket") -> tuple[int, int]:
    """Return the numbers of bytes that the other side has acknowledged, and that were received."""
    size = _TCP_BYTES_AT + _TCP_BYTES.size
    info = its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    sent_bytes, received_bytes = _TCP_BYTES.unpack_from(info, _TCP_BYTES_AT)
    return sent_bytes, received_bytes


def _unread_bytes(its_socket: "socket.socket") -> int:
    """Return the number of received bytes that were not read."""
    return int.from_bytes(ioctl(its_socket.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)
