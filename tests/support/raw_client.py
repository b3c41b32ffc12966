"""A blocking client of one socket: whole requests by their classes, or any bytes at all.

Owns: one connection, framing, correlation ids, and short forms of the requests that tests send most.
Refuses to know: retries, metadata, batching. What the broker answers is what the test sees.
"""

import itertools
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.support.broker import Running
from tests.support.builders import (
    creatable,
    create_request,
    fetch_request,
    list_offsets_request,
    metadata_request,
    produce_request,
)
from tidelog.protocol.frame import decode_response, encode_request
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.fetch import PartitionData
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.list_offsets import ListOffsetsPartitionResponse
from tidelog.protocol.messages.produce import PartitionProduceResponse
from tidelog.protocol.records import entries
from tidelog.protocol.registry import APIS

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 19, 22
DELETE_TOPICS, DESCRIBE_CONFIGS = 20, 32


class PeerClosedError(ConnectionError):
    """The broker ended the connection where an answer was due."""


class RawClient:
    """One connection; not for use by several threads at once."""

    def __init__(self, broker: Running, timeout_s: float = 20) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb", buffering=1 << 16)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._stream.close()
        self._socket.close()

    # -- bytes -----------------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are, framing included."""
        self._socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        """Send a frame of any content."""
        self.send_bytes(len(body).to_bytes(4, "big") + body)

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def receive_frame(self) -> bytes:
        """Return the next frame without its size; PeerClosedError if there is none to come."""
        try:
            head = self._stream.read(4)
            body = self._stream.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
        except ConnectionResetError as error:
            raise PeerClosedError("connection reset") from error
        if len(head) < 4 or len(body) < int.from_bytes(head, "big"):
            raise PeerClosedError("connection closed")
        return body

    def is_closed_by_peer(self) -> bool:
        """Wait for what comes next: the end of the connection, or a frame."""
        try:
            self.receive_frame()
        except PeerClosedError:
            return True
        return False

    def is_answered(self, timeout_s: float) -> bool:
        """Wait so long for anything that comes, and tell whether it did."""
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    # -- requests --------------------------------------------------------------------------------------------

    def send(self, key: int, version: int, request: object) -> int:
        """Send a request and return its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_bytes(encode_request(APIS[key], version, correlation_id, "raw", request))
        return correlation_id

    def receive(self, key: int, version: int) -> tuple[int, Any]:
        """Return the correlation id and the response that come next."""
        return decode_response(APIS[key], version, self.receive_frame())

    def ask(self, key: int, version: int, request: object) -> Any:
        """Send a request and return its response."""
        sent = self.send(key, version, request)
        answered, response = self.receive(key, version)
        assert answered == sent, f"correlation id {answered} in answer to {sent}"
        return response

    # -- short forms -----------------------------------------------------------------------------------------

    def api_versions(self, version: int = 3) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        response = self.ask(API_VERSIONS, version, request)
        assert response.error_code == 0
        return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    def metadata(self, *topics: str, create: bool = True, version: int = 12) -> Any:
        return self.ask(METADATA, version, metadata_request(*topics, create=create))

    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, version: int = 7
    ) -> Any:
        """Create a topic and return the broker's result for it; the caller judges its code."""
        request = create_request(creatable(topic, partitions, configs))
        response = self.ask(CREATE_TOPICS, version, request)
        return response.topics[0]

    def produce(
        self, topic: str, records: bytes, partition: int = 0, *, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        """Produce to one partition and return its result."""
        response = self.ask(PRODUCE, version, produce_request(topic, records, partition, acks=acks))
        return response.responses[0].partition_responses[0]

    def fetch(
        self,
        topic: str,
        offset: int,
        partition: int = 0,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        version: int = 12,
    ) -> PartitionData:
        """Fetch from one partition and return its part of the answer."""
        request = fetch_request(topic, offset, partition, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        response = self.ask(FETCH, version, request)
        assert response.error_code == 0
        return response.responses[0].partitions[0]

    def batches(self, topic: str, partition: int = 0, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the base offset and the bytes of every batch from `offset` to the end of the log."""
        while True:
            part = self.fetch(topic, offset, partition, max_bytes=8 << 20)
            assert part.error_code == 0, f"{topic}-{partition} at {offset}: error {part.error_code}"
            data, position = bytes(part.records or b""), 0
            if not data:
                assert offset == part.high_watermark, f"nothing at {offset} of {part.high_watermark}"
                return
            while position + entries.BYTES_MIN <= len(data):
                header = entries.peek(data.ljust(position + entries.HEAD_BYTES), position)
                if position + header.size_bytes > len(data):
                    break
                yield header.base_offset, data[position : position + header.size_bytes]
                position += header.size_bytes
                offset = header.last_offset + 1

    def list_offsets(
        self, topic: str, timestamp: int, partition: int = 0, *, version: int = 7, isolation_level: int = 0
    ) -> ListOffsetsPartitionResponse:
        """Look one timestamp up in one partition."""
        request = list_offsets_request(topic, timestamp, partition, isolation_level=isolation_level)
        response = self.ask(LIST_OFFSETS, version, request)
        return response.topics[0].partitions[0]

    def init_producer_id(self) -> Any:
        """Ask for a producer id of its own; the caller judges the answer's code."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        return self.ask(INIT_PRODUCER_ID, 3, request)
