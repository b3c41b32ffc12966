"""Clients that take more than their share: of memory, of the event loop, of a thread. `neighbours.py` runs them."""

import random
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

from tests.support.builders import produce_request
from tests.support.raw_client import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    RawClient,
)
from tests.support.stage import SCENARIOS, Bounds, Scenario, Stage, frame, scenario, stop
from tests.support.workload import START_MS, bomb, damaged
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records.build import Record, build_batch

MIB = 1 << 20
ONE_RECORD = build_batch([Record(0, START_MS, None, b"x")])
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS = 23, 32


def fetch_request(
    topic: str, offset: int = 0, *, max_bytes: int, min_bytes: int = 1, wait_ms: int = 0
) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )


def metadata_request(names: list[str], *, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def fill(client: RawClient, topic: str, batches: int) -> None:
    """Create a topic of so many batches of a megabyte."""
    assert client.create(topic).error_code == 0
    megabyte = build_batch([Record(0, START_MS, None, b"v" * 1_000_000)])
    for _ in range(batches):
        assert client.produce(topic, megabyte, acks=1).error_code == 0


# -- unread answers --------------------------------------------------------------------------------------------------

HEAVY_BATCHES, FETCHES = 52, 60
HEAVY = [frame(FETCH, 12, fetch_request("heavy", max_bytes=55_000_000), number) for number in range(FETCHES)]


def read_heavy(client: RawClient) -> None:
    """Read the answers to HEAVY: all of them, whole and in order, on a connection that lives on."""
    first = b""
    for number in range(FETCHES):
        correlation_id, answer = client.receive(FETCH, 12)
        assert correlation_id == number, f"answer {correlation_id} in place of {number}"
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0, f"answer {number} has error {part.error_code}"
        first = first or bytes(part.records)
        assert len(first) > HEAVY_BATCHES * 1_000_000
        assert part.records == first, f"answer {number} differs from the first"
    assert client.api_versions()


@scenario(is_slow=True)
def deaf_fetches(stage: Stage) -> None:
    """Sixty fetches in one packet, whose answers nobody reads for a while."""
    with RawClient(stage.broker, 60) as client:
        fill(client, "heavy", HEAVY_BATCHES)
        with stage.watched():
            client.send_bytes(b"".join(HEAVY))
            time.sleep(3)
            read_heavy(client)


@scenario(Bounds(growth_mb=1000), is_slow=True)
def deaf_fetches_of_twenty(stage: Stage) -> None:
    """The same from twenty connections, of which one reads in the end."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(20)]
        fill(clients[0], "heavy", HEAVY_BATCHES)
        with stage.watched():
            for client in clients:
                client.send_bytes(b"".join(HEAVY))
            time.sleep(3)
            read_heavy(clients[0])
            for client in clients:
                client.close()


# -- requests that are large -----------------------------------------------------------------------------------------


@scenario()
def fetches_with_a_large_tag(stage: Stage) -> None:
    """A hundred fetches, each with ten megabytes that nobody knows the meaning of."""
    plain = frame(FETCH, 12, fetch_request("heavy", max_bytes=1000))
    with RawClient(stage.broker, 60) as client:
        fill(client, "heavy", 1)
        with stage.watched():
            for number in range(100):
                # One tag in place of none: its number, its length, and what it holds.
                tag = b"\x01\x63" + uvarint(10_000_000) + number.to_bytes(4, "big") * 2_500_000
                body = plain[4:-1] + tag
                client.send_frame(body)
                assert client.receive(FETCH, 12)[1].error_code == 0


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# What all connections may hold of large frames is an option, queued.max.request.bytes, of 512 MiB.
@scenario(Bounds(growth_mb=600))
def announced_and_not_sent(stage: Stage) -> None:
    """Connections that announce 100 MB, send 16 KB and wait, while another wants to send a megabyte."""
    start = (100_000_000).to_bytes(4, "big") + frame(PRODUCE, 9, produce_request("neighbour", bytes(17_000)))[
        4:
    ]
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(520)]
        with stage.watched("large"):
            for client in clients:
                client.send_bytes(start[: 16 * 1024 + 4])
            time.sleep(4)


# -- Metadata --------------------------------------------------------------------------------------------------------


@scenario(Bounds(growth_mb=150))
def one_topic_named_often(stage: Stage) -> None:
    """A topic of a thousand partitions, named two thousand times in one request: it is described once."""
    with RawClient(stage.broker, 60) as client:
        assert client.create("t", 1000).error_code == 0
        with stage.watched():
            answer = client.ask(METADATA, 9, metadata_request(["t"] * 2000))
            time.sleep(0.3)
        assert [len(topic.partitions) for topic in answer.topics] == [1000]


@scenario(Bounds(growth_mb=150, small_s=0.3), is_slow=True)
def many_partitions_described(stage: Stage) -> None:
    """Metadata of topics with many partitions: more parts than one writev takes.

    The collector does not look at all objects of these partitions, which would take longer than the bound.
    """
    with RawClient(stage.broker, 60) as client:
        for number in range(MANY_TOPICS):
            assert client.create(f"many-{number}", MANY_PARTITIONS).error_code == 0
        names = [f"many-{number}" for number in range(MANY_TOPICS)]
        everything = metadata_request(names)
        everything.topics = None
        asked = [
            (version, request) for version in (5, 9, 12) for request in (metadata_request(names), everything)
        ]
        with stage.watched():
            # All before the first is read: what the socket does not take at once is what is put together for writev.
            for _ in range(4):
                for version, request in asked:
                    client.send_bytes(frame(METADATA, version, request))
            time.sleep(0.5)
            for _ in range(4):
                for version, _ in asked:
                    _, answer = client.receive(METADATA, version)
                    found = {topic.name: len(topic.partitions) for topic in answer.topics}
                    assert {found[name] for name in names} == {MANY_PARTITIONS}


MANY_TOPICS, MANY_PARTITIONS = 27, 1000


@scenario(Bounds(growth_mb=150), is_slow=True)
def many_new_names(stage: Stage) -> None:
    """Thirty thousand new names in one request, and a stop in the midst of another."""
    with ExitStack() as stack:
        client = stage.connect(stack, 0.5)
        with stage.watched("create", "producer-id"):
            client.send_bytes(
                frame(METADATA, 9, metadata_request([f"new-{i:05}" for i in range(30_000)], create=True))
            )
            time.sleep(5)
        client.send_bytes(
            frame(METADATA, 9, metadata_request([f"more-{i:05}" for i in range(30_000)], create=True))
        )
        time.sleep(0.5)
        stop(stage)


# -- elements --------------------------------------------------------------------------------------------------------

ELEMENTS = 250_000


def of_many_elements(what: str) -> tuple[int, int, object]:
    """Return a request of an API that takes a list, with as many elements as one may have."""
    numbers = range(ELEMENTS)
    match what:
        case "metadata":
            return METADATA, 9, metadata_request([f"{i:x}" for i in numbers])
        case "fetch":
            fetches = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=100) for i in numbers]
            topic = FetchTopic(topic="t", partitions=fetches)
            return FETCH, 11, FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=[topic])
        case "list_offsets":
            lookups = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in numbers]
            asked = [ListOffsetsTopic(name="t", partitions=lookups)]
            return LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=asked)
        case "offset_for_leader_epoch":
            epochs = [OffsetForLeaderPartition(partition=i, leader_epoch=0) for i in numbers]
            by_topic = [OffsetForLeaderTopic(topic="t", partitions=epochs)]
            return OFFSET_FOR_LEADER_EPOCH, 3, OffsetForLeaderEpochRequest(topics=by_topic)
        case "create_topics":
            topics = [CreatableTopic(name=f"{i:x}", num_partitions=1, replication_factor=1) for i in numbers]
            return CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, validate_only=True)
        case "describe_configs":
            resources = [
                DescribeConfigsResource(resource_type=2, resource_name=f"{i:x}", configuration_keys=None)
                for i in numbers
            ]
            return DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources)
        case "produce":
            parts = [PartitionProduceData(index=i, records=memoryview(b"")) for i in numbers]
            data = [TopicProduceData(name="t", partition_data=parts)]
            request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)
            return PRODUCE, 9, request
        case "produce_to_nothing":
            empty = [TopicProduceData(name="t", partition_data=[]) for _ in numbers]
            return PRODUCE, 7, ProduceRequest(acks=1, timeout_ms=1000, topic_data=empty)
        case "list_offsets_of_nothing":
            nowhere = [ListOffsetsTopic(name="t", partitions=[]) for _ in numbers]
            return LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=nowhere)
        case "offset_for_leader_epoch_of_nothing":
            no_topics = [OffsetForLeaderTopic(topic="t", partitions=[]) for _ in numbers]
            return OFFSET_FOR_LEADER_EPOCH, 3, OffsetForLeaderEpochRequest(topics=no_topics)
    raise AssertionError(what)


def many_elements(what: str) -> Callable[[Stage], None]:
    def run(stage: Stage) -> None:
        data = frame(*of_many_elements(what))
        with RawClient(stage.broker, 60) as client:
            assert client.create("t").error_code == 0
            with stage.watched():
                for _ in range(3):
                    client.send_bytes(data)
                    # It may be answered or refused by the end of the connection; the others must not feel it.
                    if client.is_closed_by_peer():
                        break

    return run


# Each with whether it is left to `make test-all`.
for _what, _is_slow in {
    "metadata": False,
    "create_topics": True,
    "fetch": False,
    "list_offsets": True,
    "offset_for_leader_epoch": True,
    "describe_configs": True,
    "produce": True,
    "produce_to_nothing": False,
    "list_offsets_of_nothing": False,
    "offset_for_leader_epoch_of_nothing": True,
}.items():
    _name = f"many_elements_{_what}"
    SCENARIOS[_name] = Scenario(_name, many_elements(_what), is_slow=_is_slow)


@scenario()
def one_broker_described_often(stage: Stage) -> None:
    """DescribeConfigs that names the broker, all of its options, ten thousand times."""
    resources = [
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        for _ in range(10_000)
    ]
    data = frame(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources, include_synonyms=True))
    with RawClient(stage.broker, 60) as client, stage.watched():
        client.send_bytes(data)
        client.is_closed_by_peer()


def described(keys: list[list[str]], kind: int = 4, name: str = "1") -> bytes:
    """Return a request for options of one resource, once for each set of keys."""
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
        for wanted in keys
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    return frame(DESCRIBE_CONFIGS, 4, request)


@scenario()
def a_name_of_many_connections(stage: Stage) -> None:
    """Metadata that names a topic 83,000 times, from a hundred connections at once."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(100)]
        other = stage.connect(stack)
        data = frame(METADATA, 9, metadata_request(["n"] * 83_000))
        all_ask_and_another_is_served(stage, clients, data, other)


@scenario(is_slow=True)
def all_partitions_described_to_many(stage: Stage) -> None:
    """Ten thousand partitions, described twice to each of sixty connections."""
    with ExitStack() as stack:
        topic_of_many(stage, stack)
        clients = [stage.connect(stack) for _ in range(60)]
        other = stage.connect(stack)
        data = frame(METADATA, 9, MetadataRequest(topics=None))
        all_ask_and_another_is_served(stage, clients, 2 * data, other)


@scenario(Bounds(growth_mb=1000, left_mb=200), is_slow=True)
def very_many_names_refused(stage: Stage) -> None:
    """Ten connections each name 260,000 topics to be deleted: more than may wait, and refused one by one.

    Small objects free their memory in fragments, which the next such requests use: it does not grow with their number.
    """
    request = DeleteTopicsRequest(topic_names=[f"{number:x}" for number in range(260_000)], timeout_ms=1000)
    data = frame(DELETE_TOPICS, 5, request)
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(10)]
        with stage.watched():
            senders = [threading.Thread(target=client.send_bytes, args=(data,)) for client in clients]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            time.sleep(5)


@scenario(Bounds(growth_mb=600))
def half_frames_of_thousands(stage: Stage) -> None:
    """Three thousand connections each send most of a frame, and leave."""
    data = (65_000).to_bytes(4, "big") + bytes(60_000)
    with ExitStack() as stack, stage.watched():
        for _ in range(3000):
            stage.connect(stack).send_bytes(data)


@scenario()
def options_from_a_thousand_connections(stage: Stage) -> None:
    """A thousand connections ask at once, each for fifty sets of options."""
    data = described([[str(number)] for number in range(50)])
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(1000)]
        with stage.watched():
            for _ in range(2):
                for client in clients:
                    client.send_bytes(data)
                for client in clients:
                    assert len(client.receive(DESCRIBE_CONFIGS, 4)[1].results) == 50


@scenario()
def a_long_option_described_often(stage: Stage) -> None:
    """An option with the longest value that a topic may have, asked for with twenty thousand sets of keys."""
    option = "follower.replication.throttled.replicas"
    with RawClient(stage.broker, 60) as client:
        assert client.create("o", 1, {option: "v" * 32_000}).error_code
        assert client.create("o", 1, {option: "v" * 1_000}).error_code == 0
        with stage.watched():
            client.send_bytes(described([[option, str(number)] for number in range(20_000)], 2, "o"))
            results = client.receive(DESCRIBE_CONFIGS, 4)[1].results
        codes = {result.error_code for result in results}
        assert (len(results), codes) == (20_000, {ErrorCode.NONE, ErrorCode.INVALID_REQUEST})


# -- topics ----------------------------------------------------------------------------------------------------------


@scenario(Bounds(growth_mb=1000), is_slow=True)
def names_from_a_thousand_connections(stage: Stage) -> None:
    """A thousand connections of one address each ask for sixteen new names."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(1000)]
        with stage.watched("create", "producer-id"):
            for number, client in enumerate(clients):
                names = [f"n-{number}-{i}" for i in range(16)]
                client.send_bytes(frame(METADATA, 9, metadata_request(names, create=True)))
            time.sleep(10)


@scenario(Bounds(growth_mb=1000), is_slow=True)
def creations_from_a_thousand_connections(stage: Stage) -> None:
    """A thousand connections of one address each ask for sixteen topics, in so many words."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(1000)]
        with stage.watched("create", "producer-id"):
            for number, client in enumerate(clients):
                topics = [
                    CreatableTopic(name=f"t-{number}-{i}", num_partitions=1, replication_factor=1)
                    for i in range(16)
                ]
                client.send_bytes(
                    frame(CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, timeout_ms=20_000))
                )
            time.sleep(10)


# -- producers -------------------------------------------------------------------------------------------------------

PRODUCER_IDS = 200_000


@scenario(Bounds(growth_mb=120, small_s=0.3), is_slow=True)
def invented_producer_ids(stage: Stage) -> None:
    """Two hundred thousand producers of one record each, in a log that rolls again and again."""
    with RawClient(stage.broker, 60) as client:
        assert client.create("ids", configs={"segment.bytes": str(MIB)}).error_code == 0
        frames = list(idempotent_frames("ids", PRODUCER_IDS))
        with stage.watched():
            answers: list[int] = []
            reader = threading.Thread(target=lambda: answers.extend(codes_of(client, PRODUCER_IDS)))
            reader.start()
            for start in range(0, PRODUCER_IDS, 500):
                client.send_bytes(b"".join(frames[start : start + 500]))
            reader.join()
        assert len(answers) == PRODUCER_IDS, f"{len(answers)} answers"


def codes_of(client: RawClient, count: int) -> Iterator[int]:
    for _ in range(count):
        yield client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code


def idempotent_frames(topic: str, count: int) -> Iterator[bytes]:
    """Yield produces of one small batch, each of another producer."""
    data = build_batch([Record(0, START_MS, None, b"")], producer_id=1, producer_epoch=0, base_sequence=0)
    whole = frame(PRODUCE, 9, produce_request(topic, data, acks=1))
    at = whole.index(data)
    for number in range(count):
        yield whole[:at] + damaged(data, producer_id=1_000_000 + number) + whole[at + len(data) :]


@scenario(Bounds(small_s=0.5))
def bombs_on_one_connection(stage: Stage) -> None:
    """Forty batches of 2 KB that are 60 MB once decompressed, in one packet."""
    with RawClient(stage.broker, 60) as client:
        assert client.create("bombs").error_code == 0
        request = produce_request("bombs", bomb(4, 60 * MIB), acks=1)
        with stage.watched():
            client.send_bytes(b"".join(frame(PRODUCE, 9, request, number) for number in range(40)))
            for number in range(40):
                correlation_id, answer = client.receive(PRODUCE, 9)
                part = answer.responses[0].partition_responses[0]
                assert (correlation_id, part.error_code, part.base_offset) == (number, 0, number)


@scenario(Bounds(small_s=0.5), is_slow=True)
def bombs_on_forty_connections(stage: Stage) -> None:
    """The same, one on each of forty connections."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(40)]
        assert clients[0].create("bombs").error_code == 0
        data = frame(PRODUCE, 9, produce_request("bombs", bomb(4, 60 * MIB), acks=1))
        with stage.watched():
            for _ in range(2):
                for client in clients:
                    client.send_bytes(data)
                for client in clients:
                    part = client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0]
                    assert part.error_code == 0, f"error {part.error_code}"


@scenario()
def bombs_before_the_readers(stage: Stage) -> None:
    """Five on each of a hundred connections: what is short and needs a reader passes them, and so does a stop."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(100)]
        other = stage.connect(stack)
        assert other.create("bombs").error_code == 0
        data = frame(PRODUCE, 9, produce_request("bombs", bomb(4, 60 * MIB), acks=1))
        with stage.watched():
            for client in clients:
                client.send_bytes(5 * data)
            time.sleep(0.5)
            ask_many_names(stage, other)
        stop(stage)


def all_ask_and_another_is_served(
    stage: Stage, clients: list[RawClient], data: bytes, other: RawClient
) -> None:
    """Send the same from all of them, and see that who needs a reader thread has it meanwhile."""
    with stage.watched():
        for client in clients:
            client.send_bytes(data)
        time.sleep(0.3)
        for _ in range(2):
            ask_many_names(stage, other)


def ask_many_names(stage: Stage, client: RawClient) -> None:
    """Ask for so many names that a reader thread answers; the longest wait counts."""
    began_s = time.monotonic()
    client.ask(METADATA, 9, metadata_request([f"n{number}" for number in range(1100)]))
    stage.row.reader_s = max(stage.row.reader_s, time.monotonic() - began_s)


# -- what is far to find -----------------------------------------------------------------------------------------------


@scenario(is_slow=True)
def walks_without_an_index(stage: Stage) -> None:
    """A log without index entries: each of hundreds of fetches and thousands of lookups walks through all of it."""
    batch = build_batch([Record(0, START_MS, None, b"v" * 60_000)])
    count = 1000
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(4)]
        other = stage.connect(stack)
        assert other.create("far", 1, {"index.interval.bytes": str((1 << 31) - 1)}).error_code == 0
        for _ in range(count):
            assert other.produce("far", batch, acks=1).error_code == 0
        latest = build_batch([Record(0, START_MS + 10_000, None, b"v")])
        assert other.produce("far", latest, acks=1).error_code == 0
        part = FetchPartition(partition=0, fetch_offset=count, partition_max_bytes=100)
        fetch = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=MIB, topics=[FetchTopic(topic="far", partitions=[part])]
        )
        wants = [
            ListOffsetsPartition(partition_index=0, timestamp=START_MS + number) for number in range(1, 5000)
        ]
        lookups = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="far", partitions=[want]) for want in wants]
        )
        with stage.watched():
            for client in clients[:2]:
                client.send_bytes(300 * frame(FETCH, 12, fetch))
            for client in clients[2:]:
                client.send_bytes(frame(LIST_OFFSETS, 5, lookups))
            time.sleep(1)
            ask_many_names(stage, other)
            for client in clients[:2] * 300:
                answer = client.receive(FETCH, 12)[1]
                assert answer.responses[0].partitions[0].error_code == 0
        stop(stage)


# -- compression -----------------------------------------------------------------------------------------------------


@scenario(is_slow=True)
def compressed_as_small_as_can_be(stage: Stage) -> None:
    """Four batches of 30 MB that nothing makes smaller, to a topic that asks for the smallest there is."""
    noise = random.Random(1).randbytes(30 * MIB)
    data = frame(
        PRODUCE, 9, produce_request("small", build_batch([Record(0, START_MS, None, noise)]), acks=1)
    )
    options = {
        "compression.type": "zstd",
        "compression.zstd.level": "22",
        "max.message.bytes": "100000000",
    }
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(4)]
        assert clients[0].create("small", configs=options).error_code == 0
        with stage.watched():
            for client in clients:
                client.send_bytes(data)
            for client in clients:
                part = client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0]
                assert part.error_code == 0, f"error {part.error_code}"


# -- waiting ---------------------------------------------------------------------------------------------------------


# -- many partitions, many segments ----------------------------------------------------------------------------------

PARTITIONS = 5000
DESCRIPTORS = 1500


def produce_to_all(client: RawClient, topic: str, acks: int) -> None:
    """Send one record to each partition."""
    records = memoryview(ONE_RECORD)
    parts = [PartitionProduceData(index=index, records=records) for index in range(PARTITIONS)]
    data = [TopicProduceData(name=topic, partition_data=parts)]
    request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=20_000, topic_data=data)
    answer = client.ask(PRODUCE, 9, request).responses[0].partition_responses
    assert {part.error_code for part in answer} == {0}


def topic_of_many(stage: Stage, stack: ExitStack, **options: str) -> RawClient:
    client = stage.connect(stack, 150)
    named = {name.replace("_", "."): value for name, value in options.items()}
    assert client.create("many", PARTITIONS, named).error_code == 0
    return client


@scenario(is_slow=True)
def durable_in_many_partitions(stage: Stage) -> None:
    """The logs are new: their names are to be put on disk as well."""
    with ExitStack() as stack:
        client = topic_of_many(stage, stack)
        with stage.watched("durable"):
            produce_to_all(client, "many", -1)


@scenario(is_slow=True)
def retention_of_many_partitions(stage: Stage) -> None:
    with ExitStack() as stack:
        client = topic_of_many(stage, stack, retention_ms="100", file_delete_delay_ms="0")
        with stage.watched("create", "producer-id"):
            for _ in range(2):
                produce_to_all(client, "many", 1)
                time.sleep(3)


@scenario(is_slow=True)
def flushes_of_many_partitions(stage: Stage) -> None:
    with ExitStack() as stack:
        client = topic_of_many(stage, stack, flush_policy="interval", flush_ms="1")
        with stage.watched("create"):
            for _ in range(3):
                produce_to_all(client, "many", 1)
                time.sleep(1)


@scenario(is_slow=True)
def a_deletion_of_many_partitions(stage: Stage) -> None:
    with ExitStack() as stack:
        client = topic_of_many(stage, stack)
        request = DeleteTopicsRequest(topic_names=["many"], timeout_ms=20_000)
        with stage.watched("create"):
            assert client.ask(DELETE_TOPICS, 5, request).responses[0].error_code == 0


@scenario()
def many_small_segments(stage: Stage) -> None:
    """Each record a segment, more of them than there are descriptors: others need some, too."""
    resource.prlimit(stage.broker.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    one = frame(PRODUCE, 9, produce_request("small", ONE_RECORD, acks=1))
    with ExitStack() as stack:
        client = stage.connect(stack)
        assert client.create("small", 1, {"segment.bytes": "14"}).error_code == 0
        with stage.watched("create"):
            for _ in range(20):
                client.send_bytes(one * 100)
                answers = [client.receive(PRODUCE, 9)[1].responses[0] for _ in range(100)]
                assert {answer.partition_responses[0].error_code for answer in answers} == {0}
            stage.connect(stack).api_versions()


@scenario()
def many_parked_fetches(stage: Stage) -> None:
    """Forty thousand fetches that wait on one partition, on which another produces all the time."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(40)]
        assert clients[0].create("crowd").error_code == 0
        request = fetch_request("crowd", max_bytes=200, min_bytes=1 << 20, wait_ms=300_000)
        with stage.watched(topic="crowd"):
            for client in clients:
                client.send_bytes(b"".join(frame(FETCH, 12, request, number) for number in range(1000)))
            time.sleep(3)
            with RawClient(stage.broker) as other:
                enough = build_batch([Record(0, START_MS, None, b"v" * 1_000_000)])
                for _ in range(2):
                    assert other.produce("crowd", enough, acks=1).error_code == 0
            for client in clients:
                for number in range(1000):
                    correlation_id, answer = client.receive(FETCH, 12)
                    assert correlation_id == number, f"answer {correlation_id} in place of {number}"
                    assert answer.responses[0].partitions[0].error_code == 0


def one_partition_named_often(count: int) -> Callable[[Stage], None]:
    """Return a scenario of so many clients, each with two fetches that wait and name one partition ever again."""
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)] * ELEMENTS
    request = FetchRequest(
        max_wait_ms=600_000, min_bytes=1 << 30, topics=[FetchTopic(topic="p", partitions=parts)]
    )

    def run(stage: Stage) -> None:
        data = frame(FETCH, 12, request)
        with ExitStack() as stack:
            clients = [stage.connect(stack) for _ in range(count)]
            assert clients[0].create("p").error_code == 0
            with stage.watched():
                for client in clients:
                    client.send_bytes(data * 2)
                time.sleep(1)

    return run


SCENARIOS["parked_often"] = Scenario("parked_often", one_partition_named_often(1))
SCENARIOS["parked_often_by_twenty"] = Scenario(
    "parked_often_by_twenty", one_partition_named_often(20), Bounds(growth_mb=1000), is_slow=True
)


# What all connections may hold of frames up to a megabyte, and of larger ones, is an option: half of 512 MiB each.
@scenario(Bounds(growth_mb=600), is_slow=True)
def megabytes_left_half_sent(stage: Stage) -> None:
    """Six hundred connections that send half of a megabyte and then a little a second, and leave all at once."""
    half, little = bytes(520 * 1024), bytes(40 * 1024)
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(600)]
        with stage.watched("large"):
            for client in clients:
                with suppress(OSError):
                    client._socket.send(MIB.to_bytes(4, "big") + half, socket.MSG_DONTWAIT)
            for _ in range(10):
                time.sleep(1)
                for client in clients:
                    with suppress(OSError):
                        client._socket.send(little, socket.MSG_DONTWAIT)
