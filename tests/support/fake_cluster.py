"""A cluster of one broker in memory, for tests of what is built on `tidelog.client`.

Owns logs of (offset, record time, append time) by partition, and answers to Fetch, ListOffsets and Metadata. A test
changes the logs, or an answer, while it is used. Below it there are no sockets: `Connection` is played.
"""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from tidelog.client.cluster import Cluster, Partition
from tidelog.protocol.messages.fetch import FETCH, FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.records.batch import MAGIC, BatchHeader
from tidelog.protocol.records.build import Record, build_batch, signed
from tidelog.protocol.wire.api import Api

UNKNOWN_TOPIC = 3
CORRUPT = 2

Entry = tuple[int, int, int]


class FakeConnection:
    """Answers by API key; an answer of None does not come until the test sets another and calls `answer`."""

    def __init__(self) -> None:
        self.address = "fake:1"
        self.answers: dict[int, Callable[[Any], Any]] = {}
        self.asked: list[tuple[int, Any]] = []
        self._due: deque[Any] = deque()
        self._ours, self._theirs = socket.socketpair()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._theirs.close()

    def fileno(self) -> int:
        return self._ours.fileno()

    def close(self) -> None:
        pass

    def version(self, api: Api, at_most: int | None = None) -> int:
        return api.max_version if at_most is None else at_most

    def send(self, api: Api, request: Any, _at_most: int | None = None) -> None:
        self.asked.append((api.key, request))
        answer = self.answers[api.key](request)
        if answer is not None:
            self._due.append(answer)
            self._theirs.send(b"x")

    def receive(self) -> Any:
        self._ours.recv(1)
        answer = self._due.popleft()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def ask(self, api: Api, request: Any, at_most: int | None = None) -> Any:
        self.send(api, request, at_most)
        return self.receive()


class FakeCluster(Cluster):
    """Topic `t`, or those of the partitions that are given, each with its log."""

    def __init__(self, *logs: Sequence[Entry], at_once: int = 100) -> None:
        super().__init__([("fake", 1)], "test")
        self.logs = {Partition("t", number): list(log) for number, log in enumerate(logs)}
        self.ends = {
            key: max([offset + 1 for offset, *_ in log], default=0) for key, log in self.logs.items()
        }
        self.at_once = at_once
        self.gives_one = False  # an answer to Fetch has room for one partition with records
        self.by_append: set[str] = set()  # topics that are searched by append time
        self.errors: dict[tuple[Partition, int], int] = {}  # of a fetch of a partition at an offset
        self.connection = FakeConnection()
        self.connection.answers = {
            FETCH.key: self._fetch,
            LIST_OFFSETS.key: self._list_offsets,
            METADATA.key: self._metadata,
        }

    def __exit__(self, *_: object) -> None:
        self.connection.__exit__()

    def any_broker(self) -> Any:
        return self.connection

    def _connected(self, _address: tuple[str, int]) -> Any:
        return self.connection

    def asked(self, key: int) -> list[Any]:
        """Return the requests of an API that came."""
        return [request for each, request in self.connection.asked if each == key]

    def _metadata(self, request: Any) -> MetadataResponse:
        names = sorted({key.topic for key in self.logs})
        if request.topics is not None:
            names = [each.name for each in request.topics]
        topics = []
        for name in names:
            partitions = [
                MetadataResponsePartition(
                    error_code=0, partition_index=key.partition, leader_id=1, replica_nodes=[], isr_nodes=[]
                )
                for key in self.logs
                if key.topic == name
            ]
            code = 0 if partitions else UNKNOWN_TOPIC
            topics.append(MetadataResponseTopic(error_code=code, name=name, partitions=partitions))
        brokers = [MetadataResponseBroker(node_id=1, host="fake", port=1)]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=topics)

    def _list_offsets(self, request: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[self._found(topic.name, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _found(self, topic: str, wanted: Any) -> ListOffsetsPartitionResponse:
        key, at = Partition(topic, wanted.partition_index), wanted.timestamp
        place = {-1: (self.ends[key], -1), -2: (min([each[0] for each in self.logs[key]], default=0), -1)}
        if at in place:
            offset, found_ms = place[at]
        else:
            clock = 2 if topic in self.by_append else 1
            offset, found_ms = next(
                ((each[0], each[clock]) for each in self.logs[key] if each[clock] >= at), (-1, -1)
            )
        return ListOffsetsPartitionResponse(
            partition_index=key.partition, error_code=0, offset=offset, timestamp=found_ms
        )

    def _fetch(self, request: Any) -> FetchResponse:
        self._is_full = False
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[self._data(topic.topic, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _data(self, topic: str, wanted: Any) -> PartitionData:
        key, offset = Partition(topic, wanted.partition), wanted.fetch_offset
        code = UNKNOWN_TOPIC if key not in self.logs else self.errors.get((key, offset), 0)
        data = b"" if code or self._is_full else self._batches(key, offset)
        self._is_full = self._is_full or (self.gives_one and bool(data))
        return PartitionData(
            partition_index=key.partition,
            error_code=code,
            high_watermark=self.ends.get(key, 0),
            aborted_transactions=None,
            records=memoryview(data),
        )

    def _batches(self, key: Partition, start: int) -> bytes:
        """Return a batch for each record, the last of all up to the end of the log."""
        damaged = min([at for each, at in self.errors if each == key and at > start], default=self.ends[key])
        data = b""
        there = [each for each in self.logs[key] if start <= each[0] < max(damaged, start + 1)]
        for offset, record_ms, _ in there[: self.at_once]:
            data += build_batch([Record(offset, record_ms, None, b"%d" % offset)])
        last = max([each[0] for each in self.logs[key]], default=-1)
        if len(there) <= self.at_once and max(last + 1, start) < min(self.ends[key], damaged):
            data += empty_batch(max(last + 1, start), self.ends[key])
        return data


def empty_batch(start: int, end: int) -> bytes:
    """Return a batch without records, as compaction leaves it, up to an offset."""
    header = BatchHeader(start, 0, -1, MAGIC, 0, 0, end - 1 - start, -1, -1, -1, -1, -1, 0)
    return bytes(signed(header, b""))
