"""One client connection: bytes in, frames out of them, responses back in the order of the requests.

Requests are dispatched as they come, many of them before the first is answered: a produce that waits for its
fsync does not hold up the next one. Responses leave strictly in order. What a client can make us hold is bounded:
its frame, its requests in flight, and what it has not yet read of our answers. At a bound the connection stops
reading, and TCP tells the client.
"""

import asyncio
import logging
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, cast

from tidelog.broker.dispatch import Answer, Deferred, dispatch
from tidelog.broker.handlers.produce import ProduceFailed
from tidelog.broker.repeated.requests import RepeatedRequests
from tidelog.broker.repeated_lines import lines
from tidelog.protocol.wire.errors import WireError

if TYPE_CHECKING:
    from tidelog.broker.server import Server

_log = logging.getLogger(__name__)

_SIZE = Struct(">i").unpack_from

# Most connections never need another buffer. A frame that does not fit gets a larger one, and is received to its
# exact end, so that nothing behind it has to be moved.
SMALL_BUFFER_BYTES = 16 * 1024
# That much is taken on the word of a client. A frame that says it is larger gets its buffer as its bytes come, each
# twice as large as the last: announcing 100 MB costs a client 14 bytes, and must not cost us 100 MB.
TRUSTED_FRAME_BYTES = 1024 * 1024
# Clients send 5 (Java) to a million (librdkafka's default) ahead; beyond this TCP holds them back.
MAX_REQUESTS_IN_FLIGHT = 1000
# Unsent answers above this stop the reading of further requests.
MAX_UNSENT_BYTES = 1024 * 1024


class Connection(asyncio.BufferedProtocol):  # noqa: TID251  (here is where sockets are read)
    """A client, from accept to close."""

    def __init__(self, server: "Server", listener_name: str) -> None:
        self.server = server
        self.broker = server.broker
        self.listener_name = listener_name
        self._outbox = server.broker.outbox
        self.repeated = RepeatedRequests(server.known_requests)
        self.peer = "?"
        self.address = "?"
        self.advertised = ("?", 0)
        self._sweeps_idle = 0
        self._transport: asyncio.Transport
        self._buffer = bytearray(SMALL_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._frame_end = 0
        self._wanted_bytes = 0  # of a buffer that is waited for
        self._owed: deque[Answer | Deferred] = deque()
        self._unsent_full = False
        self._blocked = False
        self._finishing = False
        self._closing = False

    # -- asyncio's side --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection in, unless the server is full."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        self.address, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self.peer = f"{self.address}:{port}"
        reached_host, reached_port = transport.get_extra_info("sockname")[:2]
        self.advertised = self.broker.config.advertised(self.listener_name, reached_host, reached_port)
        refusal = self.server.admit(self)
        if refusal is not None:
            template = "connection refused peer=%s reason=%r"
            lines.log(_log, logging.WARNING, self.address, template, self.peer, refusal)
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
        self.server.memory.give_back(self)
        if error is not None:
            _log.debug("connection lost peer=%s error=%r", self.peer, str(error))

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
        self._unsent_full = True

    def resume_writing(self) -> None:
        """Go on."""
        self._unsent_full = False
        self._unblock()

    # -- requests --------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Dispatch every whole frame in the buffer, and send the answers that are ready."""
        out: Answer = []
        try:
            start = self._dispatch_frames(out)
        except Exception as fault:
            self._outbox.send(self._transport, out)
            self._fail(fault)
            return
        if out:
            self._outbox.send(self._transport, out)
        if not self._closing:
            self._keep(start)

    def _dispatch_frames(self, out: Answer) -> int:
        """Dispatch frames until one is not whole or a bound is met; return where the rest starts."""
        view, filled, start = self._view, self._filled, 0
        while filled - start >= 4:
            (size,) = _SIZE(view, start)
            end = start + 4 + size
            if not 0 < size <= self.server.max_frame_bytes:
                limit = self.server.max_frame_bytes
                raise WireError(f"a request of {size} bytes; socket.request.max.bytes allows 1 to {limit}")
            if end > filled:
                break
            answer = dispatch(self, view, start + 4, end)
            start = end
            if type(answer) is list and not self._owed:
                out += answer
            elif answer is not None:
                self._in_order(answer)
            if self._unsent_full or len(self._owed) >= MAX_REQUESTS_IN_FLIGHT:
                self._blocked = True
                self._transport.pause_reading()
                break
        return start

    def _fail(self, fault: Exception) -> None:
        """Close the connection: the peer's fault in a line, ours with everything."""
        if isinstance(fault, WireError | ProduceFailed):
            template = "bad request, connection closed peer=%s error=%r"
            lines.log(_log, logging.WARNING, self.address, template, self.peer, str(fault))
        else:
            _log.error("request failed, connection closed peer=%s", self.peer, exc_info=fault)
        self.close()

    def _keep(self, start: int) -> None:
        """Move what is left of the buffer to its front, and make room for the frame that it begins."""
        left = self._filled - start
        if start:
            if left:
                self._buffer[:left] = self._buffer[start : self._filled]
            self._filled = left
        self._frame_end = 0
        if left >= 4 and not self._blocked:
            end = 4 + _SIZE(self._buffer, 0)[0]
            if end > SMALL_BUFFER_BYTES:
                self._frame_end = end
                if end > len(self._buffer):
                    self._grow()
        elif self.server.memory.waiting:
            self._give_back()

    def _grow(self) -> None:
        """Take a larger buffer for the frame, or wait until other connections give back theirs."""
        size = min(self._frame_end, max(TRUSTED_FRAME_BYTES, 2 * len(self._buffer)))
        if self.server.memory.take(self, size):
            self._use_buffer(size)
        else:
            self._wanted_bytes = size
            self._transport.pause_reading()

    def memory_granted(self) -> None:
        """Go on receiving the frame that had to wait."""
        self._use_buffer(self._wanted_bytes)
        self._wanted_bytes = 0
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
            self._use_buffer(SMALL_BUFFER_BYTES)
            self.server.memory.give_back(self)

    def idle_sweeps(self) -> int:
        """Return for how many sweeps nothing has come; a large buffer is given back after the first."""
        if self._sweeps_idle == 1 and not self._filled:
            self._give_back()
        self._sweeps_idle += 1
        return self._sweeps_idle - 1

    def _unblock(self) -> None:
        """Go on with the requests, if what held them up is over."""
        if self._unsent_full or self._finishing or len(self._owed) >= MAX_REQUESTS_IN_FLIGHT:
            return
        if self._blocked:
            self._blocked = False
            self._process()
            self._resume_reading()

    # -- responses -------------------------------------------------------------------------------------------

    def _in_order(self, answer: Answer | Deferred) -> None:
        """Queue an answer that is not ready, or that stands behind one."""
        self._owed.append(answer)
        if isinstance(answer, Deferred):
            answer.later.ready = self._answer
            answer.later.charge(self)

    def _answer(self) -> None:
        """Send every answer that is ready and stands behind none that is not."""
        if self._closing:
            return
        out: Answer = []
        try:
            self._collect(out)
        except Exception as fault:
            self._outbox.send(self._transport, out)
            self._fail(fault)
            return
        if out:
            self._outbox.send(self._transport, out)
        self._unblock()
        if self._finishing and not self._owed:
            self.close()

    def _collect(self, out: Answer) -> None:
        """Take the answers that can go from the queue."""
        owed = self._owed
        while owed:
            answer = owed[0]
            if isinstance(answer, Deferred):
                response = answer.later.response
                if response is None:
                    break
                if isinstance(response, Exception):
                    raise response
                if type(response) is list:  # encoded already
                    out += response
                else:
                    out += answer.route.encode(answer.correlation_id, response)
            else:
                out += answer
            owed.popleft()

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Take no further request, and close once what is owed has been answered."""
        self._blocked = self._finishing = True
        self._transport.pause_reading()
        if not self._owed:
            self.close()

    def close(self) -> None:
        """Close once what was answered has been sent."""
        self._closing = True
        self._outbox.flush()
        self._transport.close()
