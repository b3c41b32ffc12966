"""The listeners: their start and stop, and the watchers of their connections."""

import asyncio
import errno
import logging
import math
import os
import signal
import socket  # noqa: TID251  (here is where sockets are bound)
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from ipaddress import ip_address
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.admin import Admin
from tidelog.broker.broker import Broker
from tidelog.broker.control_protocol import ADMIN, CONTROL
from tidelog.broker.dispatch import Routes, dispatch
from tidelog.broker.net import freed_memory
from tidelog.broker.net.admission import Admission
from tidelog.broker.net.busy_poll import BusyPoll
from tidelog.broker.net.connection import Connection, Shared
from tidelog.broker.net.control_socket import ControlSocket
from tidelog.broker.net.frame_memory import FrameMemory
from tidelog.broker.net.outbox import Outbox
from tidelog.broker.session import Session
from tidelog.broker.tallies import Dispatch, Net, Tallies
from tidelog.config.kinds import Listener, host_and_port
from tidelog.config.options import BrokerConfig
from tidelog.protocol import frame
from tidelog.protocol.wire.api import Api

if TYPE_CHECKING:
    from tidelog.broker.faults import Faults
    from tidelog.broker.net.http import Http

_log = logging.getLogger(__name__)

# How long a stop waits for pending answers before it closes the connections anyway, and for clients that do not read
# their answers.
STOP_TIMEOUT_S: Final = 30.0
UNREAD_TIMEOUT_S: Final = 5.0
# How often incomplete requests are checked for progress, and connections that are not read from for clients that left.
PACE_INTERVAL_S: Final = 2.0
# How often silent connections are looked for within connections.max.idle.ms.
SWEEPS_PER_IDLE_TIME: Final = 10
# The longest time between the sweeps that release unused large buffers.
LONGEST_SWEEP_S: Final = 10.0
BACKLOG: Final = 1024
# The most connections in an answer of the admin socket: the event loop is busy with it for a few milliseconds.
FIGURES_AT_ONCE: Final = 200
_ADDRESSES: Final = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))
# Errors of a machine without such a protocol, or with the protocol turned off.
_MISSING: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
# A port that is free for IPv4 may be taken for IPv6.
BIND_TRIES: Final = 20


class CannotListen(Exception):
    """A listener cannot bind to its address; `error` is the system's reason."""

    def __init__(self, listener: Listener, error: OSError) -> None:
        # The error of an unresolvable name has a negative number of its own.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or error
        super().__init__(f"cannot listen on {listener}: {reason}")
        self.listener, self.error = listener, error


class Server:
    """Listens, admits connections, and closes them."""

    def __init__(self, broker: Broker, *, test_control: bool = False) -> None:
        """Serve a broker, which a test may control."""
        config = broker.config
        self.broker = broker
        self._faults = _no_faults(broker) if test_control else None
        self._sockets: list[ControlSocket] = []
        self.shared = Shared(
            Admission(lambda: broker.config),
            Outbox(broker.loop),
            BusyPoll(broker.loop),
            FrameMemory(config.queued_max_request_bytes),
            self._dispatch(broker.tallies),
        )
        self.connections = self.shared.admission.connections
        self.addresses: list[tuple[str, int]] = []
        self.http_address: tuple[str, int] | None = None
        self._http: Http | None = None
        self._servers: list[asyncio.Server] = []
        self._stop = asyncio.Event()
        broker.on_failure = self.stop
        if broker.failure is not None:
            self.stop()

    def _dispatch(self, tallies: Tallies | None) -> Dispatch:
        """Return the function that dispatches requests, with fault injection and counting if either is wanted."""
        encoder_of = frame.response_encoder if tallies is None else tallies.encoder_of
        faults = self._faults
        if faults is None:
            return dispatch if tallies is None else tallies.timed_dispatch(dispatch, Routes(encoder_of))

        def faulty_encoder(api: Api, version: int) -> frame.ResponseEncoder:
            return faults.encoder_of(api, encoder_of(api, version))

        routes, clock, parked = (
            Routes(faulty_encoder, faults.handle_of),
            self.broker.clock,
            self.broker.parked,
        )
        faults.changed = routes.clear

        def controlled(
            session: Session, view: memoryview, position: int, end: int, routes: Routes = routes
        ) -> Any:
            if clock.is_held:
                parked.make_way(session)
            return dispatch(session, view, position, end, routes)

        return controlled if tallies is None else tallies.timed_dispatch(controlled, routes)

    async def run(self, ready: Callable[[list[tuple[str, int]]], None]) -> None:
        """Serve until SIGTERM, SIGINT, SIGHUP or `stop`; `ready` gets the bound addresses once they answer."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # A process under `nohup` must outlive its terminal.
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self.stop)
        try:
            for listener in self.broker.config.listeners:
                await self._listen(listener)
            self._warn_if_public()
            if self.broker.tallies is not None:
                await self._listen_http(self.broker.tallies)
            await self._listen_to_admin()
            if self._faults is not None:
                await self._listen_to_test(self._faults)
            watchers = [
                asyncio.create_task(watch(), name=watch.__name__) for watch in (self._sweep, self._watch_pace)
            ]
            for watcher in watchers:
                watcher.add_done_callback(self._watcher_ended)
            ready(self.addresses)
            await self._stop.wait()
            for watcher in watchers:
                watcher.cancel()
        finally:
            await self._shut_down()
            if self._http is not None:
                await self._http.stop()
            for each in self._sockets:
                await each.stop()

    def stop(self) -> None:
        """Begin an orderly stop."""
        self.shared.admission.is_stopping = True
        self._stop.set()

    def _watcher_ended(self, watcher: asyncio.Task[None]) -> None:
        """Stop the broker if a watcher ended with an exception: like a thread, it must not die silently."""
        if not watcher.cancelled():
            fault = watcher.exception()
            _log.critical("task ended by a fault task=%s", watcher.get_name(), exc_info=fault)
            self.broker.fail(f"task {watcher.get_name()} was ended by {fault!r}")

    async def _listen(self, listener: Listener) -> None:
        """Listen at an address, or on every interface by IPv4 and IPv6. `addresses` gets the first."""
        create = partial(
            asyncio.get_running_loop().create_server,
            partial(Connection, self.broker, self.shared, listener.name),
            backlog=BACKLOG,
        )
        try:
            if not listener.host:
                servers = [await create(sock=bound) for bound in bind_everywhere(listener.port)]
            elif (family := _family_of(listener.host)) is not None:
                # The loop would start four threads to resolve an address as if it were a name.
                servers = [await create(sock=_bind_one(family, listener.host, listener.port))]
            else:
                servers = [await create(listener.host, listener.port)]
        except OSError as error:
            raise CannotListen(listener, error) from error
        self._servers += servers
        bound_to: list[tuple[str, int]] = [server.sockets[0].getsockname()[:2] for server in servers]
        self.addresses.append(bound_to[0])
        for address in bound_to:
            _log.info("listening name=%s address=%s", listener.name, host_and_port(*address))

    def _warn_if_public(self) -> None:
        """Warn if other machines may connect."""
        public = [address for address in self.addresses if not ip_address(address[0]).is_loopback]
        if public:
            _log.warning(
                "no authentication: every client that can connect to %s can read, write and delete all topics; "
                "let a firewall choose the clients, or listen on this machine only: "
                "listeners=PLAINTEXT://127.0.0.1:%d",
                ", ".join(host_and_port(*address) for address in public),
                public[0][1],
            )

    async def _listen_http(self, tallies: Tallies) -> None:
        from tidelog.broker.net.http import Http  # 8 MB, which most brokers do not need

        listener = Listener("HTTP", self.broker.config.listeners[0].host, self.broker.config.http_port)
        http = Http(self.broker, tallies, self._figures, lambda: self.shared.admission.is_stopping)
        try:
            self.http_address = await http.listen(listener.host or None, listener.port)
        except OSError as error:
            raise CannotListen(listener, error) from error
        self._http = http
        _log.info("listening name=%s address=%s", listener.name, host_and_port(*self.http_address))

    async def _listen_to_admin(self) -> None:
        """Listen in the data folder; some file systems and systems have no such sockets."""
        admin = ControlSocket(Admin(self.broker, self._clients), self.broker.logs.directory, ADMIN)
        try:
            await admin.listen()
        except OSError as error:
            why = error.strerror or error
            _log.warning(
                "no socket in the data folder, so commands of this machine that need it are refused path=%s error=%r",
                admin.path,
                str(why),
            )
        else:
            self._sockets.append(admin)

    async def _listen_to_test(self, faults: "Faults") -> None:
        from tidelog.broker.control import Control

        control = Control(self.broker, faults, lambda: {each.session.peer for each in self.connections})
        control.addresses = self.addresses
        controlled = ControlSocket(control, self.broker.logs.directory, CONTROL)
        await controlled.listen()
        self._sockets.append(controlled)
        _log.warning("under control of a test socket=%s", controlled.path)

    def _clients(self, after: int) -> list[dict[str, Any]]:
        """Return the figures of the next connections after a number."""
        found = (
            {"connection": number, **connection.figures()}
            for connection, number in self.connections.items()
            if number > after and not connection.is_closing
        )
        return list(islice(found, FIGURES_AT_ONCE))

    def _figures(self) -> Net:
        admission = self.shared.admission
        return Net(
            connections=len(admission.connections),
            connections_max=admission.most,
            admitted=admission.admitted,
            refused=admission.refused,
            bad_requests=admission.bad_requests,
            request_bytes=self.shared.frame_memory.total_bytes,
        )

    async def _shut_down(self) -> None:
        """Stop accepting, let every pending answer go out, and close."""
        for server in self._servers:
            server.close()
        if self._faults is not None:
            self._faults.clear()  # a disk that only a fault has filled takes what is left
        for connection in list(self.connections):
            connection.finish()
        self.broker.release()
        if await self.shared.admission.all_left(UNREAD_TIMEOUT_S):
            return
        for connection in list(self.connections):
            if not connection.has_pending_answers:
                _log.warning("stopped with unread answers peer=%s", connection.session.peer)
                connection.abort()
        if not await self.shared.admission.all_left(STOP_TIMEOUT_S - UNREAD_TIMEOUT_S):
            _log.warning("stopped with pending answers connections=%d", len(self.connections))

    async def _sweep(self) -> None:
        """Close silent connections and release large buffers, again and again."""
        max_idle_ms = self.broker.config.connections_max_idle_ms
        max_idle_s = max_idle_ms / 1000 if max_idle_ms > 0 else math.inf
        interval_s = min(max_idle_s / SWEEPS_PER_IDLE_TIME, LONGEST_SWEEP_S)
        sweeps_to_close = max_idle_s / interval_s
        while True:
            await asyncio.sleep(interval_s)
            for connection in list(self.connections):
                if connection.idle_sweeps() >= sweeps_to_close:
                    _log.info("idle connection closed peer=%s", connection.session.peer)
                    connection.close()

    async def _watch_pace(self) -> None:
        """Close connections whose requests come too slowly, or whose clients left, and return freed memory to the
        system.
        """
        loop, frame_memory = asyncio.get_running_loop(), self.shared.frame_memory
        freed = freed_memory.FreedMemory(freed_memory.meter())
        while True:
            await asyncio.sleep(PACE_INTERVAL_S)
            freed.look()
            now_s, others_wait = loop.time(), frame_memory.is_waited_for
            for connection in self.connections.copy():
                connection.look_after(now_s, others_wait)


def _no_faults(broker: Broker) -> "Faults":
    """Return fault injection without any fault yet."""
    from tidelog.broker.faults import Faults  # only a broker under a test's control needs it

    return Faults(broker.loop, broker.clock, broker.timers)


def check_listeners(config: BrokerConfig) -> None:
    """Listen for a moment at each address of a configuration. CannotListen."""
    listeners = list(config.listeners)
    if config.http_port:
        listeners.append(Listener("HTTP", config.listeners[0].host, config.http_port))
    with ExitStack() as closed:
        for listener in listeners:
            try:
                for bound in _bind(listener):
                    closed.callback(bound.close)
                    bound.listen()
            except OSError as error:
                raise CannotListen(listener, error) from error


def _bind(listener: Listener) -> list[socket.socket]:
    if not listener.host:
        return bind_everywhere(listener.port)
    found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    return [_bind_one(family, host, listener.port) for family, host in addresses]


def _family_of(host: str) -> socket.AddressFamily | None:
    """Return the family of an address; None for a name."""
    for family, _ in _ADDRESSES:
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None


def bind_everywhere(port: int) -> list[socket.socket]:
    """Bind to a port on every interface, by IPv4 and then IPv6; 0 takes one that is free for both. Raises OSError.

    `create_server` would choose a port for each. There are two sockets, because on one for both protocols an IPv4
    client has an address in IPv6's form, also in quotas and in the log. If the machine lacks a protocol there is one
    socket.
    """
    for _ in range(1 if port else BIND_TRIES):
        try:
            return _bind_all(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port:
                raise
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _bind_all(port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    with ExitStack() as closed:  # on failure
        for family, host in _ADDRESSES:
            try:
                bound = _bind_one(family, host, port)
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                continue
            closed.callback(bound.close)
            sockets.append(bound)
            port = bound.getsockname()[1]
        closed.pop_all()
    if not sockets:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return sockets


def _bind_one(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
