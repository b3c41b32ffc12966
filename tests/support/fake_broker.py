"""A broker on a real socket whose answers a test chooses: what our broker never sends, and leaders that move.

Use it as a context manager; then it leaves no thread and no socket behind.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from tidelog.protocol.frame import response_encoder
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.registry import APIS

FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, DESCRIBE_CONFIGS = 1, 2, 3, 18, 32

# Takes an API key and a request; returns a message, bytes to send as they are, or None to close the connection.
Answer = Callable[[int, Any], Any]


class FakeBroker:
    """Listens on a free port; `address`."""

    def __init__(self, answer: Answer, versions: dict[int, int] | None = None) -> None:
        """Speak each API up to its newest version, or up to the one in `versions`."""
        self._answer = answer
        self._versions = versions or {}
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]
        self.asked: list[tuple[int, int]] = []  # keys and versions

    @property
    def port(self) -> int:
        port: int = self._server.getsockname()[1]
        return port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                self._sockets.append(peer)
                self._threads.append(threading.Thread(target=self._talk, args=(peer,)))
                self._threads[-1].start()

    def _talk(self, peer: socket.socket) -> None:
        with suppress(OSError), peer, peer.makefile("rb") as stream:
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head, "big"))
                key, version, number, length = struct.unpack_from(">hhih", frame)
                self.asked.append((key, version))
                api = APIS[key]
                at = 10 + max(length, 0) + api.is_flexible(version)
                request, _ = api.reader(version)(frame, at, len(frame), len(frame))
                answer = self._answer(key, request)
                if answer is None and key == API_VERSIONS:
                    answer = self._table()
                if answer is None and key == DESCRIBE_CONFIGS:
                    answer = configs({"cleanup.policy": "delete"})
                if answer is None:
                    return
                if not isinstance(answer, bytes):
                    answer = b"".join(response_encoder(api, version)(number, answer)[0])
                peer.sendall(answer)

    def _table(self) -> ApiVersionsResponse:
        rows = [
            ApiVersion(api_key=key, min_version=0, max_version=self._versions.get(key, api.max_version))
            for key, api in APIS.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=rows)


def one_broker(
    end: int,
    fetch: Callable[[int], Any],
    versions: dict[int, int] | None = None,
    answers: dict[int, Callable[[Any], Any]] | None = None,
) -> FakeBroker:
    """A broker of one topic with one partition, from 0 to an end; `fetch` takes the offset that is asked for."""
    by_key: dict[int, Callable[[Any], Any]] = {
        METADATA: lambda _: metadata(fake.port),
        LIST_OFFSETS: lambda request: offsets(0, end, request),
        FETCH: lambda request: fetch(request.topics[0].partitions[0].fetch_offset),
        **(answers or {}),
    }
    fake = FakeBroker(lambda key, request: by_key[key](request) if key in by_key else None, versions)
    return fake


def metadata(*ports: int, leader: int = 0, code: int = 0, topic_id: bytes = bytes(16)) -> MetadataResponse:
    """Topic `t` of one partition, and brokers 0, 1, ... on ports."""
    brokers = [MetadataResponseBroker(node_id=n, host="127.0.0.1", port=port) for n, port in enumerate(ports)]
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, replica_nodes=[], isr_nodes=[]
    )
    named = MetadataResponseTopic(error_code=code, name="t", topic_id=topic_id, partitions=[partition])
    return MetadataResponse(brokers=brokers, topics=[named])


def configs(values: dict[str, str]) -> DescribeConfigsResponse:
    """The options of topic `t`."""
    options = [
        DescribeConfigsResourceResult(name=name, value=value, read_only=False, is_sensitive=False)
        for name, value in values.items()
    ]
    result = DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=2, resource_name="t", configs=options
    )
    return DescribeConfigsResponse(results=[result])


def offsets(start: int, end: int, request: Any) -> ListOffsetsResponse:
    """Where partition 0 of topic `t` starts, for timestamp -2, or ends."""
    value = start if request.topics[0].partitions[0].timestamp == -2 else end
    found = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=value)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


def records(data: bytes, code: int = 0, high_watermark: int = 100) -> FetchResponse:
    """The bytes of partition 0 of topic `t`."""
    part = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=high_watermark,
        aborted_transactions=None,
        records=memoryview(data),
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])])
