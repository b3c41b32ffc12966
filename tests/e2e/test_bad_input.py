"""Bad input over the wire: each kind has its Kafka error code, the connection goes on, the log holds none of it.

Where framing itself is lost, or Kafka has no way to answer, the connection ends, and no other does.
"""

import random
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.builders import produce_request
from tests.support.raw_client import API_VERSIONS, METADATA, PRODUCE, PeerClosedError, RawClient
from tests.support.workload import START_MS, bomb, damaged, one_batch
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.records import batch
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.registry import APIS

pytestmark = pytest.mark.e2e

CORRUPT, UNKNOWN_TOPIC, TOO_LARGE = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.MESSAGE_TOO_LARGE,
)
INVALID = ErrorCode.INVALID_RECORD
GOOD = one_batch(3)
MIB = 1 << 20


def with_record_bytes(position: int, new: bytes) -> bytes:
    """Return GOOD with bytes of its records replaced, and a right checksum."""
    start = batch.HEADER_BYTES + position
    return damaged(GOOD[:start] + new + GOOD[start + len(new) :])


def with_garbage(codec: int) -> bytes:
    """Return a batch whose payload is no stream of its codec."""
    return damaged(GOOD[: batch.HEADER_BYTES] + b"\xff" * (len(GOOD) - batch.HEADER_BYTES), attributes=codec)


def with_gap() -> bytes:
    """Return a batch of two records at offset deltas 0 and 2."""
    return build_batch([Record(0, START_MS, None, b"a"), Record(2, START_MS, None, b"b")])


# (what is sent, the codes that may answer it)
BAD_BATCHES: dict[str, tuple[bytes, set[int]]] = {
    "wrong checksum": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), {CORRUPT}),
    "cut short": (GOOD[:-1], {CORRUPT, INVALID}),
    "cut inside the header": (GOOD[:40], {CORRUPT, INVALID}),
    "bytes behind it": (GOOD + b"\0", {CORRUPT, INVALID}),
    "no bytes": (b"", {CORRUPT, INVALID}),
    "random bytes": (random.Random(1).randbytes(200), {CORRUPT, INVALID}),
    "length beyond the request": (damaged(GOOD, batch_length=1 << 30), {CORRUPT, INVALID}),
    "negative length": (damaged(GOOD, batch_length=-5), {CORRUPT, INVALID}),
    "two batches": (GOOD + GOOD, {INVALID, CORRUPT}),
    "count too small": (damaged(GOOD, record_count=2), {INVALID, CORRUPT}),
    "count too large": (damaged(GOOD, record_count=4), {INVALID, CORRUPT}),
    "count far too large": (damaged(GOOD, record_count=(1 << 31) - 1), {INVALID, CORRUPT}),
    "negative count": (damaged(GOOD, record_count=-1), {INVALID, CORRUPT}),
    "count and last offset delta of millions": (
        damaged(GOOD, record_count=1 << 30, last_offset_delta=(1 << 30) - 1),
        {INVALID, CORRUPT},
    ),
    "last offset delta too large": (damaged(GOOD, last_offset_delta=3), {INVALID, CORRUPT}),
    "gap in the offset deltas": (with_gap(), {INVALID, CORRUPT}),
    "wrong offset delta of a record": (with_record_bytes(3, b"\x04"), {INVALID, CORRUPT}),
    "wrong length of a record": (with_record_bytes(0, b"\x7e"), {INVALID, CORRUPT}),
    "endless varint": (with_record_bytes(0, b"\xff" * 12), {INVALID, CORRUPT}),
    "control batch": (damaged(GOOD, attributes=batch.CONTROL), {INVALID, CORRUPT}),
    "transaction": (damaged(GOOD, attributes=batch.TRANSACTIONAL), {ErrorCode.INVALID_TXN_STATE, INVALID}),
    "message format of the future": (damaged(GOOD, magic=3), {CORRUPT, INVALID}),
    "message format v1": (
        damaged(GOOD, magic=1),
        {CORRUPT, INVALID, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT},
    ),
    "codec 5": (damaged(GOOD, attributes=5), {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}),
    "codec 7": (damaged(GOOD, attributes=7), {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}),
    "garbage said to be gzip": (with_garbage(1), {CORRUPT, INVALID}),
    # Raw snappy begins with its length, which here is one that no batch may have.
    "garbage said to be snappy": (with_garbage(2), {CORRUPT, INVALID, TOO_LARGE}),
    "garbage said to be lz4": (with_garbage(3), {CORRUPT, INVALID}),
    "garbage said to be zstd": (with_garbage(4), {CORRUPT, INVALID}),
    "far in the future": (one_batch(1, first_timestamp=1 << 52), {ErrorCode.INVALID_TIMESTAMP}),
    "largest timestamp overflows": (
        damaged(GOOD, base_timestamp=(1 << 63) - 1, max_timestamp=(1 << 63) - 1),
        {ErrorCode.INVALID_TIMESTAMP, INVALID, CORRUPT},
    ),
    "too large": (one_batch(1, value_bytes=1_048_588), {TOO_LARGE}),
    "producer without a sequence": (one_batch(1, producer=(7, 0, -1)), {INVALID, CORRUPT}),
}


@pytest.mark.parametrize(("data", "codes"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_bad_batch_is_refused_and_the_connection_goes_on(
    shared_broker: Broker, topic: str, data: bytes, codes: set[int]
) -> None:
    with RawClient(shared_broker) as client:
        client.create(topic)
        assert client.produce(topic, GOOD).base_offset == 0
        answer = client.produce(topic, data)
        assert answer.error_code in codes, ErrorCode(answer.error_code).name
        assert answer.base_offset == -1
        assert client.produce(topic, GOOD).base_offset == 3
        assert [(at, len(stored)) for at, stored in client.batches(topic)] == [(0, len(GOOD)), (3, len(GOOD))]
        assert client.list_offsets(topic, -1).offset == 6


@pytest.mark.parametrize(
    ("codec", "size"), [(1, 256 * MIB), (2, 256 * MIB), (3, 256 * MIB), (4, 1024 * MIB)], ids=str
)
def test_decompression_bomb_is_refused_in_bounded_memory(
    shared_broker: Broker, topic: str, codec: int, size: int
) -> None:
    """P26: Kafka accepts a record of 1 GB in 32 KB of zstd, and takes 2.3 GB of memory over it."""
    data = bomb(codec, size)
    with RawClient(shared_broker) as client:
        client.create(topic, configs={"max.message.bytes": str(64 * MIB)})
        # Makes VmHWM start again from the present size.
        Path(f"/proc/{shared_broker.pid}/clear_refs").write_text("5")
        before = shared_broker.rss_bytes
        assert client.produce(topic, data).error_code == TOO_LARGE
        # The bound is 64 MiB; a copy while it is reached may double it.
        assert shared_broker.peak_rss_bytes - before < 160 * MIB
        assert client.produce(topic, GOOD).base_offset == 0


def test_produce_to_what_does_not_exist(shared_broker: Broker, topic: str) -> None:
    with RawClient(shared_broker) as client:
        assert client.produce(topic, GOOD).error_code == UNKNOWN_TOPIC
        client.create(topic)
        assert client.produce(topic, GOOD, partition=1).error_code == UNKNOWN_TOPIC
        assert client.produce(topic, GOOD, partition=-1).error_code == UNKNOWN_TOPIC
        assert client.produce(topic, GOOD).base_offset == 0


def test_one_bad_partition_does_not_spoil_the_others(shared_broker: Broker, topic: str) -> None:
    with RawClient(shared_broker) as client:
        client.create(topic, 3)
        request = produce_request(topic, GOOD, 0)
        bad = produce_request(topic, GOOD[:-1] + b"\xff", 1)
        last = produce_request(topic, GOOD, 2)
        request.topic_data[0].partition_data += [
            *bad.topic_data[0].partition_data,
            *last.topic_data[0].partition_data,
        ]
        answers = client.ask(PRODUCE, 9, request).responses[0].partition_responses
        assert [(a.index, a.error_code, a.base_offset) for a in answers] == [
            (0, 0, 0),
            (1, CORRUPT, -1),
            (2, 0, 0),
        ]


ILLEGAL_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "/etc/x",
    "a\\b",
    "a b",
    "a\0b",
    "\0",
    "ü",
    "x" * 250,
    "a\n",
    "~",
]


@pytest.mark.parametrize("name", ILLEGAL_NAMES, ids=ascii)
def test_illegal_topic_name(shared_broker: Broker, name: str) -> None:
    with RawClient(shared_broker) as client:
        for version in (1, 4, 9, 12):
            (row,) = client.metadata(name, version=version).topics
            assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert client.create(name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        refused = client.produce(name, GOOD).error_code
        assert refused in {ErrorCode.INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC}
        assert client.list_offsets(name, -1).error_code in {ErrorCode.INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC}
        assert client.fetch(name, 0).error_code in {ErrorCode.INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC}


def test_illegal_topic_names_leave_nothing_on_disk(new_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker = new_broker(name="nested/data")
    before = {path for path in tmp_path.rglob("*") if "data" in path.parts}
    with RawClient(broker) as client:
        for name in ILLEGAL_NAMES:
            client.metadata(name)
            client.create(name)
    folders = {path for path in tmp_path.rglob("*") if path.is_dir()}
    assert (
        folders - before - {tmp_path / "nested", broker.data_dir, tmp_path / "nested" / "data.broker"}
        == set()
    )


def test_longest_legal_topic_name(shared_broker: Broker, topic: str) -> None:
    name = topic.ljust(249, "x")
    with RawClient(shared_broker) as client:
        assert client.create(name).error_code == 0
        assert client.produce(name, GOOD).base_offset == 0


# -- frames ----------------------------------------------------------------------------------------------------


def still_serves(broker: Broker) -> bool:
    with RawClient(broker) as client:
        return bool(client.api_versions())


def request_bytes(key: int, version: int, correlation_id: int = 1) -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, -1)


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (0, 14),
        (0, 99),
        (1, 19),
        (2, 12),
        (3, 14),
        (4, 0),
        (24, 0),
        (-1, 0),
        (1000, 0),
        (32767, 32767),
        (3, -1),
    ],
)
def test_unknown_api_or_version_ends_only_its_own_connection(
    shared_broker: Broker, key: int, version: int
) -> None:
    with RawClient(shared_broker) as bystander, RawClient(shared_broker) as client:
        client.send_frame(request_bytes(key, version) + bytes(20))
        assert client.is_closed_by_peer()
        assert bystander.api_versions()


@pytest.mark.parametrize("version", [APIS[API_VERSIONS].max_version + 1, 99, 32767, -1])
def test_unknown_version_of_api_versions_is_answered_with_the_table(
    shared_broker: Broker, version: int
) -> None:
    with RawClient(shared_broker) as client:
        client.send_frame(request_bytes(API_VERSIONS, version, correlation_id=77) + b"\0\x01\x01\0")
        correlation_id, answer = client.receive(API_VERSIONS, 0)
        assert (correlation_id, answer.error_code) == (77, ErrorCode.UNSUPPORTED_VERSION)
        rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        # A maximum that the broker does not serve makes Java and kafka-python ask for ever.
        low, high = rows[API_VERSIONS]
        assert low <= 3 <= high == APIS[API_VERSIONS].max_version
        assert client.api_versions()[API_VERSIONS] == (low, high)


@pytest.mark.parametrize("size", [(1 << 31) - 1, 100 * MIB + 1, 0, -1, -(1 << 31)])
def test_frame_of_an_impossible_size(shared_broker: Broker, size: int) -> None:
    with RawClient(shared_broker) as client:
        before = shared_broker.rss_bytes
        client.send_bytes(struct.pack(">i", size))
        if size > 0:
            client.send_bytes(request_bytes(API_VERSIONS, 0))
        assert client.is_closed_by_peer()
        assert shared_broker.rss_bytes - before < 50 * MIB
    assert still_serves(shared_broker)


def test_announced_frames_take_no_memory_and_nobodys_turn(new_broker: Callable[..., Broker]) -> None:
    """A size alone costs a client nothing: 20 of them must not cost the broker 2 GB, nor hold up a producer."""
    broker = new_broker()
    before = broker.rss_bytes
    with ExitStack() as stack:
        for _ in range(20):
            hostile = stack.enter_context(RawClient(broker))
            hostile.send_bytes(struct.pack(">i", 100 * MIB - 4) + request_bytes(PRODUCE, 9))
        with RawClient(broker, timeout_s=5) as honest:
            honest.create("honest")
            assert honest.produce("honest", one_batch(1, value_bytes=MIB // 2)).base_offset == 0
        assert broker.rss_bytes - before < 100 * MIB


def test_truncated_frames_leave_nothing_behind(shared_broker: Broker, topic: str) -> None:
    whole = encode_request(APIS[PRODUCE], 9, 1, "cut", produce_request(topic, GOOD))
    with RawClient(shared_broker) as watcher:
        watcher.create(topic)
        for length in [*range(0, 60, 7), len(whole) // 2, len(whole) - 1]:
            with RawClient(shared_broker) as client:
                client.send_bytes(whole[:length])
                client.end_sending()
                assert client.is_closed_by_peer()
        # The same cut, but in a frame whose size says that it is whole.
        for length in range(14, len(whole) - 4, 9):
            with RawClient(shared_broker) as client:
                client.send_frame(whole[4 : 4 + length])
                assert client.is_closed_by_peer()
        assert list(watcher.batches(topic)) == []


def test_random_frames(shared_broker: Broker, topic: str) -> None:
    rng = random.Random("random frames")
    whole = {
        key: encode_request(APIS[key], version, 1, "fuzz", request)[4:]
        for key, version, request in (
            (PRODUCE, 9, produce_request(topic, GOOD)),
            (METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=topic)])),
        )
    }
    with RawClient(shared_broker) as watcher:
        watcher.create(topic)
        for turn in range(300):
            if turn % 3 == 0:
                body = rng.randbytes(rng.randrange(1, 200))
            else:
                body = bytearray(whole[rng.choice((PRODUCE, METADATA))])
                # Changes behind the checksum's reach are the point; those inside the batch draw code 2.
                for _ in range(rng.randrange(1, 4)):
                    body[rng.randrange(4, len(body))] = rng.randrange(256)
            with RawClient(shared_broker) as client:
                client.send_frame(bytes(body))
                client.end_sending()
                while not client.is_closed_by_peer():
                    pass
            if turn % 50 == 0:
                assert watcher.api_versions()
        stored = [data for _, data in watcher.batches(topic)]
        assert {data[batch.ATTRIBUTES_POSITION :] for data in stored} <= {GOOD[batch.ATTRIBUTES_POSITION :]}


def test_answers_keep_the_order_of_requests(shared_broker: Broker, topic: str) -> None:
    """Refused, slow and quick requests in one burst: the answers come in the order they were asked."""
    with RawClient(shared_broker) as client:
        client.create(topic)
        sent = []
        for turn in range(50):
            data = GOOD if turn % 2 else GOOD[:-1] + b"\xff"
            sent.append((PRODUCE, 9, client.send(PRODUCE, 9, produce_request(topic, data))))
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            sent.append((METADATA, 12, client.send(METADATA, 12, request)))
        assert [client.receive(key, version)[0] for key, version, _ in sent] == [
            number for _, _, number in sent
        ]
        assert client.list_offsets(topic, -1).offset == 25 * 3


def test_produce_without_acks_that_fails_ends_the_connection(shared_broker: Broker, topic: str) -> None:
    with RawClient(shared_broker) as client:
        client.create(topic)
        client.send(PRODUCE, 9, produce_request(topic, GOOD[:-1] + b"\xff", acks=0))
        assert client.is_closed_by_peer()
    with RawClient(shared_broker) as client:
        client.send(PRODUCE, 9, produce_request(topic, GOOD, acks=0))
        assert [at for at, _ in client.batches(topic)] == [0]


# -- connections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["max.connections", "max.connections.per.ip"])
def test_full_connection_table(new_broker: Callable[..., Broker], option: str) -> None:
    broker = new_broker({option: "5"})
    clients = [RawClient(broker) for _ in range(5)]
    assert all(client.api_versions() for client in clients)
    with RawClient(broker) as one_more:
        assert is_refused(one_more)
    assert all(client.api_versions() for client in clients)
    clients.pop().close()
    wait_for_room(broker)
    for client in clients:
        client.close()


def is_refused(client: RawClient) -> bool:
    try:
        client.api_versions()
    except (PeerClosedError, ConnectionResetError, BrokenPipeError):
        return True
    return False


def wait_for_room(broker: Broker) -> None:
    """Connect until it works: the broker hears of a closed connection only after we closed it."""
    for _ in range(1000):
        with RawClient(broker) as client:
            if not is_refused(client):
                return
    raise AssertionError("no connection was let in although one had left")


def test_idle_connection_is_closed(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker({"connections.max.idle.ms": "300"})
    with RawClient(broker, timeout_s=10) as client:
        assert client.api_versions()
        assert client.is_closed_by_peer()


def test_a_client_that_never_reads_is_held_back(new_broker: Callable[..., Broker]) -> None:
    """What a client does not read must not pile up: the broker stops taking its requests."""
    broker = new_broker()
    before = broker.rss_bytes
    request = encode_request(APIS[API_VERSIONS], 0, 1, "deaf", ApiVersionsRequest())
    with socket.create_connection((broker.host, broker.port)) as deaf:
        deaf.settimeout(0.5)
        sent, stuck = 0, False
        while sent < 64 * MIB and not stuck:
            try:
                sent += deaf.send(request * 2000)
            except TimeoutError:
                stuck = True
        assert stuck, f"took {sent} bytes of requests"
        assert broker.rss_bytes - before < 64 * MIB
        assert still_serves(broker)
