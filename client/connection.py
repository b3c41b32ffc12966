"""One connection to a broker: it sends requests, and reads the answers in order.

It knows the frames and the versions of each API that both sides speak, but no topics, leaders or retries. It blocks;
use it from one thread. After ConnectionLost or KeyboardInterrupt it cannot be used again. Any other ClientError means
that retrying does not help.
"""

import itertools
import socket
from collections import deque
from typing import Any, Final, Self

from tidelog import __version__
from tidelog.client.errors import CannotConnect, ClientError, ConnectionLost, UnknownHost
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.frame import SIZE_BYTES, decode_response, encode_request
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.errors import WireError

CONNECT_S: Final = 5.0
# A broker answers ApiVersions at once.
VERSIONS_S: Final = 10.0
# The longest wait is that of a Fetch, which is shorter.
ANSWER_S: Final = 30.0
_LARGEST_BYTES: Final = 1 << 30
# The start of a TLS alert, with which a TLS listener answers plain text.
_TLS_ALERT: Final = b"\x15\x03"


class Connection:
    """A connection whose peer has named the versions that it speaks."""

    def __init__(self, host: str, port: int, client_id: str, answer_s: float = ANSWER_S) -> None:
        """Connect, and ask for the versions; ConnectionLost, ClientError."""
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._ids = itertools.count()
        self._sent: deque[tuple[Api, int, int]] = deque()
        self._answers = 0
        try:
            self._socket = socket.create_connection((host, port), CONNECT_S)
        except socket.gaierror as error:
            raise UnknownHost(host, error.strerror or str(error)) from None
        except OSError as error:
            raise CannotConnect(self.address, error.strerror or str(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(min(answer_s, VERSIONS_S))
        try:
            self._versions = self._ask_versions()
        except BaseException:
            self.close()
            raise
        self._socket.settimeout(answer_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the file descriptor, to wait for an answer with `select`."""
        return self._socket.fileno()

    def version(self, api: Api, at_most: int | None = None) -> int:
        """Return the highest version that both sides speak; ClientError if there is none."""
        low, high = self._versions.get(api.key, (0, -1))
        highest = min(high, api.max_version if at_most is None else at_most)
        if highest < max(low, api.min_version):
            raise ClientError(
                f"{self.address} speaks {api.name} {low}-{high}, and this client {api.min_version}-{api.max_version}"
                if high >= 0
                else f"{self.address} does not speak {api.name}"
            )
        return highest

    def ask(self, api: Api, request: object, at_most: int | None = None) -> Any:
        """Return the answer to a request; ConnectionLost, ClientError."""
        self.send(api, request, at_most)
        return self.receive()

    def send(self, api: Api, request: object, at_most: int | None = None) -> None:
        """Send a request; `receive` returns the answers in order."""
        self._send(api, self.version(api, at_most), request)

    def receive(self) -> Any:
        """Return the answer to the oldest unanswered request."""
        api, version, number = self._sent.popleft()
        found, answer = self._decoded(api, version, self._frame())
        if found != number:
            raise self._lost(f"it answered request {found} instead of {number}")
        self._answers += 1
        return answer

    def _send(self, api: Api, version: int, request: object) -> None:
        number = next(self._ids)
        data = encode_request(api, version, number, self._client_id, request)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(str(error)) from None
        self._sent.append((api, version, number))

    def _frame(self) -> memoryview:
        head = self._read(SIZE_BYTES)
        size = int.from_bytes(head, "big", signed=True)
        if bytes(head[:2]) == _TLS_ALERT:
            raise ClientError(
                f"{self.address} asks for TLS, which this client does not speak; name a plain listener"
            )
        if not SIZE_BYTES <= size <= _LARGEST_BYTES:
            raise ClientError(f"{self.address} is not a Kafka broker: it answered {bytes(head)!r}")
        return self._read(size)

    def _read(self, count: int) -> memoryview:
        data = memoryview(bytearray(count))
        done = 0
        while done < count:
            try:
                got = self._socket.recv_into(data[done:])
            except OSError as error:
                raise self._lost(str(error)) from None
            if not got:
                raise self._lost("it closed the connection")
            done += got
        return data

    def _lost(self, why: str) -> ConnectionLost:
        self.close()
        # A listener that requires SASL answers ApiVersions, and closes the connection on any other request.
        if self._answers == 1:
            why += " on the first request; does it ask for a login (SASL), which this client does not speak?"
        return ConnectionLost(f"{self.address}: {why}")

    def _decoded(self, api: Api, version: int, frame: memoryview) -> tuple[int, Any]:
        try:
            return decode_response(api, version, frame)
        except WireError as error:
            self.close()
            raise ClientError(f"{self.address}: its answer to {api.name} cannot be read: {error}") from None

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and the highest version of each API. An older peer answers in version 0 (KIP-511)."""
        request = ApiVersionsRequest(
            client_software_name=self._client_id, client_software_version=__version__
        )
        for version in (3, 0):
            self._send(API_VERSIONS, version, request)
            _, _, number = self._sent.pop()
            frame = self._frame()
            code = int.from_bytes(frame[SIZE_BYTES : SIZE_BYTES + 2], "big", signed=True)
            if code == ErrorCode.UNSUPPORTED_VERSION and version:
                continue
            found, answer = self._decoded(API_VERSIONS, version, frame)
            if code or found != number:
                raise ClientError(
                    f"{self.address} is not a Kafka broker: it answered ApiVersions with error {code}"
                )
            self._answers = 1
            return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        raise AssertionError("unreachable: version 0 returns or raises")
