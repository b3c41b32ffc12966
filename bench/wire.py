"""One blocking connection to any broker, for what is done once and not measured: topics, filling, a first answer."""

import socket
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tidelog.protocol.frame import decode_response, encode_request
from tidelog.protocol.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.wire.api import Api

LATEST, EARLIEST = -1, -2


class RefusedError(RuntimeError):
    """The broker answered with an error code."""


class Wire:
    """One connection; requests may be sent ahead of their answers."""

    def __init__(self, port: int, timeout_s: float = 60) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb", 1 << 16)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, api: Api, version: int, request: object) -> None:
        self._socket.sendall(encode_request(api, version, 1, "bench", request))

    def receive(self, api: Api, version: int) -> Any:
        size = self._stream.read(4)
        if len(size) < 4:
            raise ConnectionError("the broker closed the connection")
        return decode_response(api, version, self._stream.read(int.from_bytes(size, "big")))[1]

    def ask(self, api: Api, version: int, request: object) -> Any:
        self.send(api, version, request)
        return self.receive(api, version)

    def create_topics(
        self, names: Sequence[str], partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create topics, and return once they exist."""
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in (settings or {}).items()]
        topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
            for name in names
        ]
        response = self.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        for topic in response.topics:
            _check(topic.error_code, f"creating {topic.name}")

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; those that are gone already are no matter."""
        if names:
            self.ask(DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=list(names), timeout_ms=60_000))

    def leads(self, topic: str, partitions: int) -> bool:
        """Return whether all partitions of a topic are served; Kafka's metadata says so a moment too early."""
        wanted = [
            ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(partitions)
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
        answers = self.ask(LIST_OFFSETS, 1, request).topics[0].partitions
        return not any(answer.error_code for answer in answers)

    def wait_for_leaders(self, topic: str, partitions: int, timeout_s: float) -> None:
        """Return once all partitions of a topic are served; RefusedError if that takes longer."""
        deadline = time.monotonic() + timeout_s
        while not self.leads(topic, partitions):
            if time.monotonic() > deadline:
                raise RefusedError(f"{topic}: not all of {partitions} partitions are served")
            time.sleep(0.01)

    def send_batch(self, topic: str, batch: bytes | bytearray, partition: int = 0, acks: int = 1) -> None:
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        topic_data = [TopicProduceData(name=topic, partition_data=[data])]
        self.send(PRODUCE, 7, ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topic_data))

    def receive_ack(self) -> int:
        """Return the base offset."""
        answer = self.receive(PRODUCE, 7).responses[0].partition_responses[0]
        _check(answer.error_code, "produce")
        return int(answer.base_offset)

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        """Return the first offset at or after a time (or LATEST, EARLIEST), or -1."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        answer = self.ask(LIST_OFFSETS, 1, request).topics[0].partitions[0]
        _check(answer.error_code, "list offsets")
        return int(answer.offset)


def _check(code: int, what: str) -> None:
    if code:
        raise RefusedError(f"{what}: error {code}")
