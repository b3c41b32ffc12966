"""One client connection: bytes in, frames out of them, responses back in the order of the requests.

Requests are dispatched as they come, many of them before the first is answered: a produce that waits for its
fsync does not hold up the next one. Responses leave strictly in order. What a client can make us hold is bounded:
its frame, its requests in flight, and what it has not yet read of our answers. At a bound the connection stops
taking requests, and TCP tells the client. What it can make us do in one turn of the loop is bounded too: it goes on
after the others had theirs.
"""

import asyncio
import logging
import socket  # noqa: TID251  (here is where sockets are read)
import sys
import termios
from collections import deque
from fcntl import ioctl
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, cast

from tidelog.broker.answers import Answer, Streamed
from tidelog.broker.dispatch import UNKNOWN, BadRequest, Deferred, dispatch, name_of
from tidelog.broker.handlers.produce import ProduceFailed
from tidelog.broker.net.sender import MAX_UNSENT_BYTES, Sender
from tidelog.broker.repeated_lines import lines
from tidelog.broker.turns import TURN_S
from tidelog.broker.waiting import HOLDS_UP
from tidelog.protocol.wire.errors import WireError

if TYPE_CHECKING:
    from tidelog.broker.net.server import Server

_log = logging.getLogger(__name__)

_SIZE = Struct(">i").unpack_from

# Most connections never need another buffer. A frame that does not fit gets larger ones as its bytes come, each twice
# as large as the last: to announce 100 MB costs a client 14 bytes, and must not cost us more. Such a frame is received
# to its exact end, so that nothing behind it has to be moved.
SMALL_BUFFER_BYTES = 16 * 1024
# What a byte of a request takes at the most, about: of twenty that name a partition, 4 us. And whoever is expected to
# take less than that goes on where the time of a turn is used up.
BYTE_S = 0.2e-6
QUICK_S = 0.0002
# Where no connection takes longer in a turn of the loop, none waits for others: to keep time costs as much as two small
# requests.
BRIEF_S = 0.0001
# Clients send 5 (Java) to a million (librdkafka's default) ahead; beyond this TCP holds them back.
MAX_REQUESTS_IN_FLIGHT = 1000
# A frame that comes more slowly than this is cut off: over so many seconds always, over fewer where others wait.
SLOWEST_BYTES_PER_S, SLOWEST_OVER_S = 1024, 10.0
PRESSED_BYTES_PER_S, PRESSED_OVER_S = 32 * 1024, 2.0
_NO_BUFFER = bytearray()
# Of Linux' states of a TCP connection: it is over; its client has said that it sends no more.
_TCP_CLOSE, _TCP_CLOSE_WAIT = 7, 8


class Connection(asyncio.BufferedProtocol):  # noqa: TID251  (here is where sockets are read)
    """A client, from accept to close."""

    def __init__(self, server: "Server", listener_name: str) -> None:
        self.server = server
        self.broker = server.broker
        self.listener_name = listener_name
        self._outbox = server.broker.outbox
        self.peer = "?"
        self.address = "?"
        self.advertised = ("?", 0)
        self._sweeps_idle = 0
        self._transport: asyncio.Transport
        self._sender: Sender
        self._buffer = bytearray(SMALL_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._is_lent = False  # the buffer, to a request that is served in several turns
        self._holds_lent = False  # memory for a buffer that was lent
        self._filled = 0
        self._frame_end = 0
        self._wanted_bytes = 0  # of a buffer that is waited for
        self._pace: tuple[float, int] | None = None  # when how much of an unfinished frame was there
        self._owed: deque[Answer | Streamed | Deferred] = deque()
        self._owed_bytes = 0
        self._blocked = False
        self._awaits_turn = False
        self._usual_s = TURN_S  # that what it asks for takes; of a new one nothing is known
        self._has_left = False  # the client: it sends no more than has come
        self._finishing = False
        self._closing = False

    # -- asyncio's side --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection in, unless the server is full."""
        self._transport = cast(asyncio.Transport, transport)
        self.address, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self.peer = f"{self.address}:{port}"
        self._sender = Sender(self, self._transport)
        reached_host, reached_port = transport.get_extra_info("sockname")[:2]
        self.advertised = self.broker.config.advertised(self.listener_name, reached_host, reached_port)
        refusal = self.server.admit(self)
        if refusal is not None:
            template = "connection refused peer=%s reason=%r"
            lines.log(_log, logging.WARNING, self.address, template, self.peer, refusal, cause=refusal)
            self._closing = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget everything about the client."""
        self._closing = True
        self.server.forget(self)
        for answer in self._owed:
            if isinstance(answer, Deferred):
                answer.later.cancel()
        self._owed.clear()
        self._sender.drop()
        self.broker.frame_memory.give_back(self)
        # Connection, transport and sender refer to one another: what is left of them waits for the collector, which may
        # not come for long.
        self._buffer, self._view = _NO_BUFFER, memoryview(_NO_BUFFER)
        if error is not None:
            # Clients go as they please; anything else is a fault of ours or of the system.
            level = logging.DEBUG if isinstance(error, ConnectionError | TimeoutError) else logging.ERROR
            _log.log(level, "connection lost peer=%s error=%r", self.peer, str(error), exc_info=error)

    def eof_received(self) -> bool:
        """Take no more, and close once what came before is answered: a client may say all it has to say, and listen."""
        if self._hurry():
            self.finish()
        else:
            self.close()
        return not self._transport.is_closing()

    def get_buffer(self, _hint: int) -> memoryview:
        """Return where the next bytes go: up to the end of a large frame, or of the small buffer."""
        return self._view[self._filled : self._frame_end or SMALL_BUFFER_BYTES]

    def buffer_updated(self, size_bytes: int) -> None:
        """Take note of received bytes."""
        self._sweeps_idle = 0
        self._filled += size_bytes
        if self._filled >= self._frame_end:
            self._process()
            self.broker.busy_poll.request_came()
        elif self._filled == len(self._buffer):
            self._grow()

    def pause_writing(self) -> None:
        """Stop taking requests: the client does not read its answers."""
        self._sender.pause()
        self._block()

    def resume_writing(self) -> None:
        """Go on."""
        self._sweeps_idle = 0
        self._sender.resume()
        self.went_on()

    # -- requests --------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Dispatch the whole frames in the buffer, as many as a turn allows, and send the answers that are ready."""
        turns, began_s = self.broker.turns, monotonic()
        if turns.ends_s and began_s > turns.ends_s and self._expected_s() >= QUICK_S:
            self._wait_for_turn()
            return
        out: Answer = []
        try:
            start = self._dispatch_frames(out, began_s)
        except Exception as fault:
            self._send(out)
            self._fail(fault)
        else:
            if out:
                self._send(out)
            if not self._closing:
                self._keep(start)
        took_s = monotonic() - began_s
        if took_s >= BRIEF_S:
            turns.begin(began_s)
        # Other threads may have had the processor meanwhile: once is not enough to count as slow.
        self._usual_s = min(took_s, 2 * self._usual_s + QUICK_S / 4)

    def _dispatch_frames(self, out: Answer, began_s: float) -> int:
        """Dispatch frames until one is not whole or a bound is met; return where the rest starts."""
        view, filled, start = self._view, self._filled, 0
        out_bytes, turns, turn_ends = 0, self.broker.turns, 0.0
        while filled - start >= 4:
            (size,) = _SIZE(view, start)
            end = start + 4 + size
            if not 0 < size <= self.server.max_frame_bytes:
                limit = self.server.max_frame_bytes
                why = WireError(f"a request of {size} bytes; socket.request.max.bytes allows 1 to {limit}")
                raise BadRequest(UNKNOWN, why)
            if end > filled:
                break
            if start:
                # Not the only one in this packet: has this client had its turn?
                now_s = monotonic()
                if not turn_ends and (turns.ends_s or now_s - began_s >= BRIEF_S):
                    turn_ends = turns.share_ends_s()
                if out_bytes + self._owed_bytes >= MAX_UNSENT_BYTES or 0 < turn_ends < now_s:
                    self._wait_for_turn()
                    break
            try:
                answer = dispatch(self, view, start + 4, end)
            except (WireError, ProduceFailed) as why:
                raise BadRequest(name_of(view, start + 4, end), why) from why
            start = end
            if type(answer) is list and not self._owed:
                out += answer
                for part in answer:
                    out_bytes += len(part)
            elif type(answer) is Streamed and not self._owed:
                self._send(out[:])
                out.clear()
                out_bytes = 0
                self._stream(answer)
            elif answer is not None:
                self._in_order(answer)
            if self._blocked:
                break
        return start

    def _block(self) -> None:
        """Take no further requests, until a bound is met no more."""
        self._blocked = True
        self._transport.pause_reading()

    def _wait_for_turn(self) -> None:
        """Go on with the requests that have come in a later turn of the loop."""
        self._block()
        self._awaits_turn = True
        self.broker.turns.wait(self._take_turn, self._expected_s())

    def _expected_s(self) -> float:
        """Return how long it may take to deal with what has come, in seconds."""
        return max(self._usual_s, self._filled * BYTE_S)

    def _take_turn(self) -> None:
        self._awaits_turn = False
        self.went_on()

    def lend_buffer(self) -> None:
        """Let the request that is being dispatched keep the bytes that it lies in."""
        self._is_lent = True

    def _fail(self, fault: Exception) -> None:
        """Close the connection: the peer's fault in a line, ours with everything."""
        if isinstance(fault, BadRequest):
            template = "bad request, connection closed peer=%s request=%r error=%r"
            values = self.peer, fault.request, str(fault)
            lines.log(_log, logging.WARNING, self.address, template, *values, cause=fault.request)
        else:
            _log.error("request failed, connection closed peer=%s", self.peer, exc_info=fault)
        self.close()

    def _keep(self, start: int) -> None:
        """Move what is left of the buffer to its front, and make room for the frame that it begins."""
        self._pace = None
        left = self._filled - start
        if self._is_lent:
            self._is_lent = False
            self._holds_lent = True
            self._view, self._filled = self._view[start : self._filled], left
            self._use_buffer(max(left, SMALL_BUFFER_BYTES))
        elif start:
            if left:
                self._buffer[:left] = self._buffer[start : self._filled]
            self._filled = left
        self._frame_end = 0
        if left >= 4 and not self._blocked:
            end = 4 + _SIZE(self._buffer, 0)[0]
            if end > SMALL_BUFFER_BYTES:
                self._frame_end = end
                if self._filled == len(self._buffer):
                    self._grow()
        elif self.broker.frame_memory.is_waited_for:
            self._give_back()

    def _grow(self) -> None:
        """Take a buffer twice as large for the frame, or wait until other connections give back theirs."""
        size = min(self._frame_end, 2 * len(self._buffer))
        if self.broker.frame_memory.take(self, size, self._frame_end):
            self._wanted_bytes = 0
            self._use_buffer(size)
        else:
            self._wanted_bytes = size
            self._transport.pause_reading()

    def memory_granted(self) -> None:
        """Go on receiving the frame that had to wait."""
        self._use_buffer(self._wanted_bytes)
        self._wanted_bytes = 0
        self._pace = None
        self._resume_reading()

    def _resume_reading(self) -> None:
        if not (self._blocked or self._wanted_bytes or self._closing):
            self._transport.resume_reading()

    def _use_buffer(self, size_bytes: int) -> None:
        kept = self._view[: self._filled]
        self._buffer = bytearray(size_bytes)
        self._buffer[: self._filled] = kept
        self._view = memoryview(self._buffer)

    def _give_back(self) -> None:
        """Return to a small buffer. Between large frames no more than that is filled."""
        if len(self._buffer) > SMALL_BUFFER_BYTES:
            self._use_buffer(max(SMALL_BUFFER_BYTES, self._filled))
            self.broker.frame_memory.give_back(self)

    def idle_sweeps(self) -> int:
        """Return for how many sweeps nothing has come; a large buffer is given back after the first."""
        if self._sweeps_idle == 1 and not self._filled:
            self._give_back()
        self._sweeps_idle += 1
        return self._sweeps_idle - 1

    def check_pace(self, now_s: float, others_wait: bool) -> None:
        """Cut the connection off if the frame that is under way comes too slowly."""
        if not self._filled or self._blocked or self._wanted_bytes or self._closing:
            self._pace = None
            return
        since_s, had_bytes = self._pace = self._pace or (now_s, self._filled)
        came, took_s = self._filled - had_bytes, now_s - since_s
        is_slow = took_s >= SLOWEST_OVER_S and came < took_s * SLOWEST_BYTES_PER_S
        is_in_the_way = others_wait and took_s >= PRESSED_OVER_S and came < took_s * PRESSED_BYTES_PER_S
        if is_slow or is_in_the_way:
            _log.warning(
                "a request comes too slowly, connection closed peer=%s bytes=%d seconds=%.0f held=%d",
                self.peer, came, took_s, len(self._buffer),
            )  # fmt: skip
            self._transport.abort()
        elif took_s >= SLOWEST_OVER_S:
            self._pace = now_s, self._filled

    def look_after_client(self) -> None:
        """Notice that the client of a connection that is not read from has left, of which asyncio tells nothing.

        What it had sent by then is served, but fetches wait no longer. A frame that cannot become whole any more ends
        the connection, as does what takes too long to be done for nobody.
        """
        if not (self._blocked or self._wanted_bytes) or self._transport.is_closing():
            return
        its_socket = self._transport.get_extra_info("socket")
        state = its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state == _TCP_CLOSE:
            self._transport.abort()
        elif state == _TCP_CLOSE_WAIT and not self._has_left:
            if not self._hurry():
                self.close()
            elif self._wanted_bytes and self._filled + _unread_bytes(its_socket) < self._frame_end:
                self._transport.abort()

    def _hurry(self) -> bool:
        """Have what is owed wait for nothing that need not be waited for: the client sends no more. Tell if it pays."""
        self._has_left = True
        pays = True
        for answer in self._owed:
            if isinstance(answer, Deferred):
                pays &= answer.later.hurry()
        return pays

    # -- responses -------------------------------------------------------------------------------------------

    def _send(self, out: Answer) -> None:
        """Send small answers, behind the large ones that are still being sent."""
        if self._sender.queued_bytes:
            self._sender.send(out)
        elif out:
            self._outbox.send(self._transport, out)

    def _stream(self, answer: Streamed) -> None:
        self._sender.send(answer.parts)
        if self._sender.is_full:
            self._block()

    def _in_order(self, answer: Answer | Streamed | Deferred) -> None:
        """Queue an answer that is not ready, or that stands behind one."""
        self._owed.append(answer)
        if isinstance(answer, Deferred):
            answer.later.ready = self._answer
            answer.later.charge(self)
            if self._has_left:
                answer.later.hurry()
        self._owed_bytes += _size_of(answer)
        if self._owed_bytes >= MAX_UNSENT_BYTES or len(self._owed) >= MAX_REQUESTS_IN_FLIGHT:
            self._block()

    def lighten(self, size_bytes: int) -> None:
        """Count so much less for an answer to come: it no longer holds up the requests behind it."""
        self._owed_bytes -= size_bytes
        self.broker.loop.call_soon(self.went_on)

    def _answer(self) -> None:
        """Send every answer that is ready and stands behind none that is not; then go on with the requests."""
        if self._closing or self._transport.is_closing():
            return
        out: Answer = []
        try:
            self._collect(out)
        except Exception as fault:
            self._send(out)
            self._fail(fault)
            return
        if out:
            self._send(out)
        if self._finishing and not self._owed:
            self.close()
        elif self._blocked:
            self._unblock()

    def _collect(self, out: Answer) -> None:
        """Take the answers that can go from the queue."""
        owed = self._owed
        while owed and not self._sender.is_full:
            ready = answer = owed[0]
            if isinstance(answer, Deferred):
                if answer.later.response is None:
                    break
                ready = answer.encoded()
            if isinstance(ready, Deferred):
                self._owed_bytes += _size_of(ready) - _size_of(answer)
                owed[0] = ready
                ready.later.ready = self._answer
                break
            if isinstance(ready, Streamed):
                self._send(out[:])
                out.clear()
                self._sender.send(ready.parts)
            else:
                out += ready
            self._owed_bytes -= _size_of(owed.popleft())

    def went_on(self) -> None:
        """Send and take what had to wait: there may be room for it now."""
        if self._closing:
            if self._sender.is_empty:
                self._transport.close()
        elif self._owed:
            self._answer()
        elif self._finishing:
            self.close()
        elif self._blocked:
            self._unblock()

    def _unblock(self) -> None:
        """Go on with the requests, if what held them up is over."""
        if self._holds_lent and self._owed_bytes < HOLDS_UP:
            self._holds_lent = False
            self.broker.frame_memory.give_back(self)
        if (
            self._awaits_turn
            or self._finishing
            or self._sender.is_full
            or self._owed_bytes >= MAX_UNSENT_BYTES
            or len(self._owed) >= MAX_REQUESTS_IN_FLIGHT
        ):
            return
        self._blocked = False
        self._process()
        self._resume_reading()

    def fail_sending(self, fault: Exception) -> None:
        """End the connection in the middle of an answer, which cannot be read or written."""
        _log.error("answer cut short, connection closed peer=%s", self.peer, exc_info=fault)
        self._sender.drop()
        self.close()

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Take no further request, and close once what is owed has been answered."""
        self._finishing = True
        self._block()
        if not self._owed:
            self.close()

    def close(self) -> None:
        """Close once what was answered has been sent; the second time, at once."""
        if self._closing:
            self._transport.abort()
            return
        self._closing = True
        self._outbox.flush()
        if self._sender.is_empty:
            self._transport.close()
        else:
            self._transport.pause_reading()

    def abort(self) -> None:
        """Close without sending what the client has not taken."""
        self._transport.abort()

    @property
    def owes_answers(self) -> bool:
        """Tell whether a client that reads its answers waits for some."""
        return bool(self._owed) and not self._sender.is_full


def _unread_bytes(its_socket: "socket.socket") -> int:
    """Return how much the system holds that was not read."""
    return int.from_bytes(ioctl(its_socket.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def _size_of(answer: Answer | Streamed | Deferred) -> int:
    """Return what an answer counts for while it waits for its turn; one that is to come, for what it may hold."""
    if isinstance(answer, Deferred):
        return answer.later.weight_bytes
    return answer.size_bytes if isinstance(answer, Streamed) else sum(map(len, answer))
