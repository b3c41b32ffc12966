"""The HTTP port: `/metrics` and `/health`, on the broker's own event loop.

There are few connections, each for a short time. uvicorn's protocol reads and writes HTTP. Its server is not used: it
would take over the signals, and wake the loop ten times a second. This module is imported only if `http.port` is set,
because its dependencies take 8 MB.
"""

import asyncio
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tidelog.broker.answers import Later
from tidelog.broker.broker import Broker
from tidelog.broker.metrics.collect import Collector
from tidelog.broker.metrics.exposition import CONTENT_TYPE
from tidelog.broker.metrics.health import health
from tidelog.broker.running import Running
from tidelog.broker.tallies import Net, Tallies

_log = logging.getLogger(__name__)

# Enough for two scrapers and some probes. A further connection takes the place of another.
MOST_CONNECTIONS: Final = 16
# The longest life of a connection, whatever it does: clients that read no answer are closed, too.
LONGEST_S: Final = 30.0
# The longest wait for the first request.
REQUEST_S: Final = 5.0
# The longest silence after an answer.
KEPT_ALIVE_S: Final = 5
MOST_HEADER_BYTES: Final = 16 * 1024
# How long a stop waits for answers in progress.
STOP_S: Final = 1.0
STOPPING: Final = "the broker is stopping\n"
_numbers: Final = itertools.count()


class _Connection(H11Protocol):
    """One connection, within its bounds."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._number = next(_numbers)
        self._ends = self.loop.call_later(REQUEST_S, self._request_is_due)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ends.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _request_is_due(self) -> None:
        if self.cycle is None:
            self.transport.abort()
        else:
            self._ends = self.loop.call_later(LONGEST_S - REQUEST_S, self.transport.abort)

    def _make_room(self) -> None:
        """Close another connection if there are too many: slow clients must not shut out a probe.

        The victim is of the address with most connections. Connections without an answer in progress go first, the
        oldest of them before the others.
        """
        connections = [
            each for each in self.connections
            if isinstance(each, _Connection) and not each.transport.is_closing()
        ]  # fmt: skip
        if len(connections) <= MOST_CONNECTIONS:
            return
        of_address = Counter(each.address for each in connections)
        connections.remove(self)
        victim = max(
            connections, key=lambda each: (of_address[each.address], not each.is_answered, -each._number)
        )
        victim.transport.abort()

    @property
    def address(self) -> str:
        """The address of the client."""
        return self.client[0] if self.client is not None else ""

    @property
    def is_answered(self) -> bool:
        """Whether an answer is in progress."""
        return self.cycle is not None and not self.cycle.response_complete


class _Pieces(Response):
    """A scrape, sent piece by piece as the client takes it.

    Starlette's StreamingResponse imports its dependencies with its first answer, which blocks the event loop for 30 ms.
    """

    def __init__(self, pieces: list[bytes]) -> None:
        size_bytes = sum(map(len, pieces))
        super().__init__(headers={"content-length": str(size_bytes)}, media_type=CONTENT_TYPE)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})


class Http:
    """Serves HTTP. Event loop only."""

    def __init__(
        self, broker: Broker, tallies: Tallies, net: Callable[[], Net], is_stopping: Callable[[], bool]
    ) -> None:
        self._broker = broker
        self._is_stopping = is_stopping
        self._collector = Collector(broker, tallies, net)
        self._under_way: asyncio.Future[list[bytes] | None] | None = None
        self._state = ServerState()
        routes = [Route("/metrics", self._metrics), Route("/health", self._health)]
        self._config = Config(
            Starlette(routes=routes),
            http=_Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # not the invalid requests of strangers
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEPT_ALIVE_S,
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        )
        self._server: asyncio.Server

    async def listen(self, host: str | None, port: int) -> tuple[str, int]:
        """Begin to serve; return the address. Raises OSError."""
        self._config.load()
        self._server = await asyncio.get_running_loop().create_server(
            partial(_Connection, self._config, self._state, {}), host, port
        )
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return bound

    async def stop(self) -> None:
        """Close once answers in progress were sent, but soon."""
        self._server.close()
        self._finish_scrape(None)
        for connection in list(self._state.connections):
            connection.shutdown()
        if tasks := list(self._state.tasks):
            await asyncio.wait(tasks, timeout=STOP_S)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()

    async def _metrics(self, _request: Request) -> Response:
        pieces = None if self._is_stopping() else await self._scrape()
        if pieces is None:
            return PlainTextResponse(STOPPING, 503)
        return _Pieces(pieces)

    async def _scrape(self) -> list[bytes] | None:
        """Return the scrape in progress, or else start one."""
        if self._under_way is None:
            running = Running(self._broker, self, self._collector.scrape())
            running.begin()
            running.ready = partial(self._scraped, running)
            self._under_way = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._under_way)

    def _scraped(self, later: Later) -> None:
        outcome = later.response
        if isinstance(outcome, Exception):
            _log.error("a scrape was ended by a fault", exc_info=outcome)
        self._finish_scrape(outcome if isinstance(outcome, list) else None)

    def _finish_scrape(self, pieces: list[bytes] | None) -> None:
        """Answer the requests that wait for a scrape; None if there is none."""
        if self._under_way is not None:
            self._under_way.set_result(pieces)
            self._under_way = None

    async def _health(self, _request: Request) -> Response:
        looking = health(self._broker, self._is_stopping())
        while True:
            try:
                next(looking)
            except StopIteration as end:
                status, report = end.value
                break
            await asyncio.sleep(0)
        return Response(json.dumps(report, indent=2) + "\n", status, media_type="application/json")
