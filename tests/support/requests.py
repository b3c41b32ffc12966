"""Random sequences of requests for a few topics, of every shape and version, sound and spoiled.

Owns what is asked; knows nothing of who answers, but for a look at the logs. Invariant: the same random
generator and the same logs give the same requests.
"""

import random
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.fuzz.frames import Seed, spoiled
from tests.support.batches import NOW_MS, batch_of, changed
from tests.support.wire import uvarint
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.protocol.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records import batch
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.wire.api import Api

HEADER = struct.Struct(">hhi")
IDS_SINCE = 13  # Produce and Fetch
# Around where something begins: a reply of one part, elsewhere, in parts.
BOUNDS = (0, 1, 60, 61, 100, 1000, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20, (1 << 31) - 1, -1)
CLIENT_IDS = (b"reader", b"reader", b"writer", b"", None, b"\xff\xfe", "grün".encode(), b"x" * 300)
LONG_WAIT_MS = 600_000

# What the topics are created with; "gone" and "again" come and go.
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {}),
    "stamped": (2, {"message.timestamp.type": "LogAppendTime"}),
    "zstd": (2, {"compression.type": "zstd"}),
    "gone": (1, {}),
    "again": (2, {"max.message.bytes": "5000"}),
}
COMING_AND_GOING = ("gone", "again")


class Seen(NamedTuple):
    """What is known of a log: its first offset, the one after its last, its leader epoch."""

    start: int
    end: int
    epoch: int


NOTHING = Seen(0, 0, 0)


class Asked(NamedTuple):
    """A request, its size included."""

    name: str
    frame: bytes


class Requests:
    """What one seed asks for."""

    def __init__(self, rng: random.Random, see: Callable[[str, int], Seen], topic_id: Callable[[str], bytes]):
        """Look at a log by `see`; `topic_id` gives the 16 bytes of a topic's, 0 where there is none."""
        self._rng = rng
        self._see = see
        self._topic_id = topic_id
        self._batches = [_batch(rng) for _ in range(40)] + _large_batches(rng)
        self._weights = [30] * 40 + [6] * 6 + [1] * (len(self._batches) - 46)
        self._sent: dict[tuple[str, int, int], list[bytes]] = {}  # by topic, partition, producer
        self._made: deque[Asked] = deque(maxlen=50)
        self._old_ids = [bytes(16), bytes(15) + b"\x01"]

    def next(self) -> Asked:
        """Return the next request: in part one that was made before, as most clients ask."""
        rng = self._rng
        if rng.random() < 0.25 and len(self._made) == self._made.maxlen:
            return rng.choice(self._made)
        asked = self._new()
        if len(asked.frame) < 5_000:
            self._made.append(asked)
        return asked

    def _new(self) -> Asked:
        rng = self._rng
        kinds, weights = zip(*_KINDS, strict=True)
        api, make = rng.choices(kinds, weights)[0]
        version = rng.randint(_OLDEST.get(api.key, api.min_version), api.max_version)
        request = make(self, version)
        body = b"".join(bytes(part) for part in api.request_writer(version)(request)[0])
        kind = rng.random()
        if kind < 0.08 and api in _SPOILED:
            # Its client id is short, so that spoiling hits what follows.
            seed = Seed(_head(rng, api, version, b"x") + body, api, version, request)
            frame = spoiled(rng, (seed,))
            # By chance it asks for a deletion, with no time for it: whether that has begun by then is chance, too.
            is_deletion = frame[4:6] == DELETE_TOPICS.key.to_bytes(2, "big")
            if not is_deletion and (len(frame) < 5_000 or rng.random() < 0.02):
                return Asked(f"{api.name} v{version}, spoiled", frame)
        if api.is_flexible(version) and kind > 0.93 and body.endswith(b"\x00"):
            body = body[:-1] + _tags(rng)
        if kind > 0.9 and rng.random() < 0.4:
            body = body + rng.randbytes(rng.randrange(1, 9)) if kind > 0.97 else body[: -rng.randrange(1, 4)]
        frame = _head(rng, api, version, rng.choice(CLIENT_IDS)) + body
        return Asked(f"{api.name} v{version}", len(frame).to_bytes(4, "big") + frame)

    def beginning(self) -> Asked:
        """Return the request that makes the topics."""
        request = CreateTopicsRequest(topics=list(map(_creatable, TOPICS)))
        api, version = CREATE_TOPICS, CREATE_TOPICS.max_version
        return Asked(f"{api.name} v{version}", encode_request(api, version, 0, None, request))

    # -- shapes ------------------------------------------------------------------------------------------------------

    def _shape(self) -> list[tuple[str, list[int]]]:
        """Return the topics and partitions that a request names."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.68:
            return [self._one()]
        if kind < 0.71:
            return []
        if kind < 0.73:
            return [(self._name(), [])]
        if kind < 0.78:
            name, (index,) = self._one()
            return [(name, [index] * rng.randint(2, 3))]
        if kind < 0.83:
            one = self._one()
            return [one, self._one(), one]
        if kind < 0.8303:
            return [(self._name(), [n % 4 for n in range(rng.choice((200, 4094, 4095, 4096, 4097)))])]
        return [
            (self._name(), [self._index() for _ in range(rng.randint(0, 3))])
            for _ in range(rng.randint(1, 3))
        ]

    def _one(self) -> tuple[str, list[int]]:
        return self._name(), [self._index()]

    def _name(self) -> str:
        name = self._rng.choices((*TOPICS, "none"), (12, 5, 5, 1.5, 1.5, 0.8))[0]
        return self._rng.choice(("", "ü", "a" * 250)) if self._rng.random() < 0.01 else name

    def _index(self) -> int:
        return self._rng.choice((0, 0, 0, 0, 0, 1, 1, 2) if self._rng.random() < 0.97 else (-1, 3, 1 << 30))

    def _named(self, name: str, version: int, field: str) -> dict[str, Any]:
        if version < IDS_SINCE:
            return {field: name}
        topic_id = self._topic_id(name)
        if topic_id not in self._old_ids:
            self._old_ids.append(topic_id)
        return {"topic_id": self._rng.choice(self._old_ids) if self._rng.random() < 0.04 else topic_id}

    def _epoch(self, name: str, index: int) -> int:
        kind = self._rng.random()
        if kind < 0.9:
            return -1 if kind < 0.6 else self._see(name, index).epoch
        return self._rng.choice((0, 1, 2, 3, -2, 1 << 30))

    # -- requests ----------------------------------------------------------------------------------------------------

    def _produce(self, version: int) -> ProduceRequest:
        rng = self._rng
        topics = [
            TopicProduceData(
                **self._named(name, version, "name"),
                partition_data=[
                    PartitionProduceData(index=index, records=self._records(name, index, len(indexes)))
                    for index in indexes
                ],
            )
            for name, indexes in self._shape()
        ]
        return ProduceRequest(
            transactional_id=rng.choice((None, None, None, "", "t")),
            acks=rng.choice((0, 1, 1, 1, 1, 1, -1, -1, 2)),
            timeout_ms=rng.choice((0, 1000, -1)),
            topic_data=topics,
        )

    def _records(self, name: str, index: int, count: int) -> memoryview | None:
        """Return what is produced to a partition: a batch, as a rule."""
        rng = self._rng
        if count > 100:
            return None
        data = rng.choices(self._batches, self._weights)[0]
        kind = rng.random()
        if kind < 0.3 and len(data) < 10_000:
            data = self._in_sequence(name, index, data)
        elif kind > 0.92:
            data = _wrong(rng, data)
            if data is None:
                return None
        return memoryview(data)

    def _in_sequence(self, name: str, index: int, data: bytes) -> bytes:
        """Return a batch of an idempotent producer: the next, one that was sent already, or one out of order."""
        rng = self._rng
        producer_id = rng.randrange(3)
        sent = self._sent.setdefault((name, index, producer_id), [])
        kind = rng.random()
        if sent and kind < 0.25:
            return rng.choice(sent[-7:])
        last = batch.read_header(sent[-1]) if sent else None
        next_sequence = (last.base_sequence + last.record_count) & 0x7FFFFFFF if last else 0
        epoch = last.producer_epoch if last else 0
        if kind > 0.95:
            next_sequence += rng.choice((1, 5, -1)) if next_sequence else 7
        elif kind > 0.87:
            epoch, next_sequence = max(epoch + rng.choice((1, 1, 1, -1)), 0), 0
        made = bytes(
            changed(data, producer_id=producer_id, producer_epoch=epoch, base_sequence=next_sequence)
        )
        if kind <= 0.95:
            sent.append(made)
            del sent[:-7]
        return made

    def _fetch(self, version: int) -> FetchRequest:
        rng = self._rng
        bounds = BOUNDS[6:] if rng.random() < 0.05 else BOUNDS[:9]
        forgotten = []
        if version >= 7 and rng.random() < 0.1:
            forgotten = [ForgottenTopic(**self._named("plain", version, "topic"), partitions=[0, 1])]
        topics = [
            FetchTopic(
                **self._named(name, version, "topic"),
                partitions=[self._fetch_one(name, index, version, bounds) for index in indexes],
            )
            for name, indexes in self._shape()
        ]
        return FetchRequest(
            replica_id=-1,
            cluster_id=rng.choice((None, None, None, "c")),
            max_wait_ms=rng.choices((0, 1, LONG_WAIT_MS, -5), (60, 8, 30, 2))[0],
            min_bytes=rng.choice((0, 1, 1, 1, 100, 4096, 65_536, 1 << 20, -1)),
            max_bytes=rng.choice(bounds),
            isolation_level=rng.choice((0, 0, 1, 1, 2)),
            session_epoch=rng.choice((-1, -1, -1, -1, -1, -1, 0, 1)) if version >= 7 else -1,
            topics=topics,
            forgotten_topics_data=forgotten,
            rack_id=rng.choice(("", "rack")),
        )

    def _fetch_one(self, name: str, index: int, version: int, bounds: tuple[int, ...]) -> FetchPartition:
        rng = self._rng
        return FetchPartition(
            partition=index,
            current_leader_epoch=self._epoch(name, index),
            fetch_offset=self._offset(name, index),
            last_fetched_epoch=self._epoch(name, index) if version >= 12 and rng.random() < 0.2 else -1,
            partition_max_bytes=rng.choice(bounds),
        )

    def _offset(self, name: str, index: int) -> int:
        rng = self._rng
        start, end, _ = self._see(name, index)
        kind = rng.random()
        if kind < 0.5:
            return rng.randint(start, end)
        if kind < 0.75:
            return max(end - rng.randrange(5), 0)
        return rng.choice((0, start, start - 1, start + 1, end, end, end + 1, -1, 1 << 62))

    def _list_offsets(self, version: int) -> ListOffsetsRequest:
        rng = self._rng

        def one(name: str, index: int) -> ListOffsetsPartition:
            return ListOffsetsPartition(
                partition_index=index,
                current_leader_epoch=self._epoch(name, index),
                timestamp=rng.choice((-1, -2, -3, -4, -5, -6, -7))
                if rng.random() < 0.5
                else rng.choice((0, NOW_MS - 1, NOW_MS, 1 << 62))
                if rng.random() < 0.2
                else NOW_MS + rng.randint(-12_000, 12_000),
                max_num_offsets=rng.choice((1, 0, 3, 100, -1)) if version == 0 else 1,
            )

        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=rng.choice((0, 1)) if version >= 2 else 0,
            topics=[
                ListOffsetsTopic(name=name, partitions=[one(name, index) for index in indexes])
                for name, indexes in self._shape()
            ],
        )

    def _epoch_ends(self, version: int) -> OffsetForLeaderEpochRequest:
        def one(name: str, index: int) -> OffsetForLeaderPartition:
            epochs = self._epoch(name, index), self._epoch(name, index)
            return OffsetForLeaderPartition(
                partition=index, current_leader_epoch=epochs[0], leader_epoch=epochs[1]
            )

        topics = [
            OffsetForLeaderTopic(topic=name, partitions=[one(name, index) for index in indexes])
            for name, indexes in self._shape()
        ]
        return OffsetForLeaderEpochRequest(topics=topics)

    def _metadata(self, version: int) -> MetadataRequest:
        rng = self._rng
        topics = [MetadataRequestTopic(name=name) for name, _ in self._shape()]
        every = None if version >= 1 else []
        return MetadataRequest(
            topics=topics if rng.random() < 0.8 else every,
            include_topic_authorized_operations=version >= 8 and rng.random() < 0.5,
        )

    def _create(self, version: int) -> CreateTopicsRequest:
        names = self._rng.sample((*COMING_AND_GOING, *TOPICS), self._rng.randint(1, 3))
        return CreateTopicsRequest(topics=[_creatable(name) for name in names])

    def _delete(self, version: int) -> DeleteTopicsRequest:
        names = self._rng.sample((*COMING_AND_GOING, "none"), self._rng.randint(1, 2))
        if version < 6:
            return DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
        states = [DeleteTopicState(name=name) for name in names]
        return DeleteTopicsRequest(topics=states, timeout_ms=60_000)

    def _versions(self, version: int) -> ApiVersionsRequest:
        named = {"client_software_name": "n", "client_software_version": "1"} if version >= 3 else {}
        return ApiVersionsRequest(**named)

    def _producer_id(self, version: int) -> InitProducerIdRequest:
        return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


# What is older may be converted on another thread, and what others do comes before it or after it, as by chance.
_OLDEST = {PRODUCE.key: 3, FETCH.key: 4}
_KINDS: list[tuple[tuple[Api, Callable[[Requests, int], Any]], float]] = [
    ((PRODUCE, Requests._produce), 36),
    ((FETCH, Requests._fetch), 33),
    ((LIST_OFFSETS, Requests._list_offsets), 22),
    ((OFFSET_FOR_LEADER_EPOCH, Requests._epoch_ends), 4),
    ((METADATA, Requests._metadata), 2.5),
    ((API_VERSIONS, Requests._versions), 1),
    ((INIT_PRODUCER_ID, Requests._producer_id), 1),
    ((CREATE_TOPICS, Requests._create), 0.5),
    ((DELETE_TOPICS, Requests._delete), 0.15),
]
# Not what makes topics: ten thousand partitions take long.
_SPOILED = (PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, METADATA)


def _creatable(name: str) -> CreatableTopic:
    partitions, options = TOPICS[name]
    configs = [CreatableTopicConfig(name=option, value=value) for option, value in options.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)


def _head(rng: random.Random, api: Api, version: int, client_id: bytes | None) -> bytes:
    size = -1 if client_id is None else len(client_id)
    head = HEADER.pack(api.key, version, rng.getrandbits(31)) + struct.pack(">h", size) + (client_id or b"")
    if not api.is_flexible(version):
        return head
    return head + (_tags(rng) if rng.random() < 0.03 else b"\x00")


def _tags(rng: random.Random) -> bytes:
    """Return a section of tagged fields that nobody knows."""
    tags = sorted(rng.sample(range(50, 400), rng.randint(1, 3)))
    values = [rng.randbytes(rng.choice((0, 1, 5, 200))) for _ in tags]
    fields = [uvarint(tag) + uvarint(len(value)) + value for tag, value in zip(tags, values, strict=True)]
    return uvarint(len(tags)) + b"".join(fields)


def _batch(rng: random.Random) -> bytes:
    """Return a batch of a few records."""
    count = rng.choice((1, 1, 1, 2, 5, 12))
    base_ms = NOW_MS + rng.randint(-10_000, 10_000)
    records = [
        Record(
            offset,
            -1 if rng.random() < 0.02 else base_ms + rng.randint(-50, 50),
            rng.choice((None, b"", b"key")),
            rng.choice((None, b"", rng.randbytes(rng.choice((1, 10, 100, 300))), b"v" * 200)),
            rng.choice(((), (("h", b"1"),), (("h", None), ("i", b"")))),
        )
        for offset in range(count)
    ]
    return build_batch(records, codec=rng.choice((0, 0, 0, 0, 1, 2, 3, 4)))


def _large_batches(rng: random.Random) -> list[bytes]:
    """Return batches of about the sizes at which something begins, and such as take long to look through."""
    sizes = [size + more for size in (4096, 65_536) for more in (-1, 0, 1)]
    made = [_of_size(size) for size in sizes]
    zeros = [Record(n, NOW_MS + n, None, bytes(100_000)) for n in range(14)]
    # More than a topic that compresses looks at on the event loop, and more than any other does.
    made += [build_batch(zeros[:1], codec=1), build_batch(zeros, codec=1), build_batch(zeros, codec=3)]
    return [*made, build_batch([Record(n, NOW_MS + n % 7, None, b"v") for n in range(400)], codec=2)]


def _of_size(size_bytes: int) -> bytes:
    """Return a batch of so many bytes."""
    value = b"x" * (size_bytes - 100)
    missing = size_bytes - len(build_batch([Record(0, NOW_MS, None, value)]))
    return build_batch([Record(0, NOW_MS, None, value + b"x" * missing)])


def _wrong(rng: random.Random, data: bytes) -> bytes | None:
    """Return what is not to be stored, or not a batch at all."""
    kind = rng.randrange(9)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    if kind == 2:
        return data + data
    if kind == 3:
        return data[: rng.randrange(len(data))]
    if kind == 4:
        return bytes(batch_of(rng.randbytes(20), count=rng.randint(0, 3)))
    if kind == 5:
        fields = ("record_count", "last_offset_delta", "attributes", "max_timestamp", "base_timestamp")
        return bytes(changed(data, **{rng.choice(fields): rng.choice((-1, 0, 1, 2, 16, 32, 7, 1000))}))
    if kind == 6:
        return bytes(changed(data, magic=rng.choice((0, 1, 3))))
    spoilt = bytearray(data)
    spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)
