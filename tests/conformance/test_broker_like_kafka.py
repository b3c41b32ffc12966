"""The same requests put to Apache Kafka and to us: what comes back must be the same, field by field.

Each test is a script that asks a broker and returns what it was told, with what may rightly differ (ids,
addresses, names) left out. Where we differ on purpose there is no comparison here but a test of our own.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.kafka import QUICK_JVM, ApacheKafka
from tests.support.broker import Broker, Running
from tests.support.builders import produce_request
from tests.support.java import jars, needs_java
from tests.support.raw_client import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    RawClient,
)
from tests.support.workload import START_MS, damaged, one_batch, unique_topic
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.records import batch, compression
from tidelog.protocol.records.build import Record, build_batch, read_records

pytestmark = [needs_java, pytest.mark.java, pytest.mark.e2e]

# Neither stops a log from being as old as its records, nor lets the background delete what a test still reads.
SETTINGS = {"log.retention.ms": "-1", "num.partitions": "1"}
LAST = 6
# Out of order within a batch and between batches, equal largest timestamps, in three batches and a half.
TIMES = [[100, 300, 200], [250, 400], [400], [350]]


class Sides:
    """The two brokers that are compared."""

    def __init__(self, kafka: ApacheKafka, ours: Running, folder: Path) -> None:
        self.kafka, self.ours = kafka, ours
        self._folder = folder

    def ask_kafka(self, script: Callable[[RawClient], Any]) -> Any:
        """Run the script against Apache Kafka, and once more against a new one if that cannot be reached."""
        try:
            with RawClient(self.kafka) as client:
                return script(client)
        except OSError as error:
            print(repr(error), self.kafka.last_words(), sep="\n")
        self.kafka.kill()
        self.kafka.start(self.kafka.port, self._folder / unique_topic("kafka"), SETTINGS)
        with RawClient(self.kafka) as client:
            return script(client)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("sides")
    with ApacheKafka(jars(), QUICK_JVM) as kafka, Broker(folder / "ours", SETTINGS) as ours:
        yield Sides(kafka.start(0, folder / "kafka", SETTINGS), ours.start(), folder)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return unique_topic(request.node.originalname)


def compare(sides: Sides, script: Callable[[RawClient], Any]) -> Any:
    """Run the script against both, compare, and return what both said."""
    theirs = sides.ask_kafka(script)
    with RawClient(sides.ours) as client:
        ours = script(client)
    found = list(differences(ours, theirs, ""))
    assert not found, "\n".join(found)
    return ours


def differences(ours: Any, theirs: Any, where: str) -> Iterator[str]:
    """Name each place where the two differ, for a person to read."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            yield from differences(ours.get(key, "nothing"), theirs.get(key, "nothing"), f"{where}[{key!r}]")
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(our, their, f"{where}[{number}]")
    elif ours != theirs:
        yield f"{where}: we say {ours!r}, Kafka {theirs!r}"


def as_told(message: object, *leave_out: str) -> Any:
    """Return a message as plain data, without the fields left out at any depth."""
    if isinstance(message, list):
        return [as_told(item, *leave_out) for item in message]
    if not hasattr(message, "__slots__"):
        return message
    names = [name for name in message.__slots__ if name not in leave_out]
    return {name: as_told(getattr(message, name), *leave_out) for name in names}


def as_answered(message: Any, *leave_out: str) -> Any:
    """Return an answer as plain data, and of a refusal its code alone: we tell more than Kafka beside it, or less.

    Kafka hides both ends of the log from who asks beyond them, and names the first record that it refused.
    """
    return message.error_code or as_told(message, *leave_out)


def made(client: RawClient, topic: str, partitions: int = 1, **options: str) -> None:
    """Make a topic and wait for all of it: Kafka answers before its partitions have a leader, we do not."""
    configs = {name.replace("_", "."): value for name, value in options.items()}
    assert client.create(topic, partitions, configs).error_code == 0
    await_code(0, lambda: max(client.list_offsets(topic, -1, i).error_code for i in range(partitions)))


def await_code(code: int, ask: Callable[[], int]) -> None:
    deadline = time.monotonic() + 20
    while (said := ask()) != code:
        assert time.monotonic() < deadline, f"still {said}, not {code}"
        time.sleep(0.01)


def fill(client: RawClient, topic: str, codec: int = 0) -> None:
    """Make a topic of one partition with the records of TIMES."""
    made(client, topic)
    offset = 0
    for times in TIMES:
        records = [Record(i, START_MS + time, None, b"%d" % time) for i, time in enumerate(times)]
        answer = client.produce(topic, build_batch(records, codec=codec))
        assert (answer.error_code, answer.base_offset) == (0, offset)
        offset += len(times)


QUERIES = [-1, -2, -3, -4, -5, -6, -7, 0, (1 << 62)] + [
    START_MS + time + near for time in (100, 200, 250, 300, 350, 400) for near in (-1, 0, 1)
]


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.ZSTD])
def test_list_offsets_at_every_time_and_version(sides: Sides, topic: str, codec: int) -> None:
    def script(client: RawClient) -> Any:
        fill(client, topic, codec)
        return {
            (version, query): as_told(client.list_offsets(topic, query, version=version))
            for version in range(1, LIST_OFFSETS_VERSIONS)
            for query in QUERIES
        }

    said = compare(sides, script)
    assert said[1, START_MS + 250]["offset"] == 1
    assert said[7, -3]["offset"] == 4


def test_list_offsets_of_an_empty_topic(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic)
        return {
            (version, query): as_told(client.list_offsets(topic, query, version=version))
            for version in range(1, LIST_OFFSETS_VERSIONS)
            for query in (-1, -2, -3, -4, -5, 0, START_MS)
        }

    said = compare(sides, script)
    assert (said[7, -1]["offset"], said[7, -1]["timestamp"], said[7, -1]["error_code"]) == (0, -1, 0)
    assert (said[7, 0]["offset"], said[7, 0]["timestamp"], said[7, 0]["error_code"]) == (-1, -1, 0)


def test_list_offsets_of_what_does_not_exist_or_is_asked_twice(sides: Sides, topic: str) -> None:
    def ask(client: RawClient, version: int, *partitions: ListOffsetsPartition) -> Any:
        wanted = [ListOffsetsTopic(name=topic, partitions=list(partitions))]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=wanted)
        answers = client.ask(LIST_OFFSETS, version, request).topics[0].partitions
        return sorted({(part.partition_index, part.error_code, part.offset) for part in answers})

    def at(partition: int, epoch: int = -1) -> ListOffsetsPartition:
        return ListOffsetsPartition(partition_index=partition, timestamp=-1, current_leader_epoch=epoch)

    def script(client: RawClient) -> Any:
        missing = ask(client, 7, at(0))
        made(client, topic)
        return [
            missing,
            ask(client, 7, at(1)),
            ask(client, 7, at(0), at(0)),
            ask(client, 7, at(0, epoch=0)),
            ask(client, 7, at(0, epoch=7)),
        ]

    compare(sides, script)


def test_metadata_of_topics_in_every_version(sides: Sides, topic: str) -> None:
    ids = "topic_id", "cluster_id", "host", "port", "node_id", "controller_id"
    wheres = "leader_id", "replica_nodes", "isr_nodes"

    def script(client: RawClient) -> Any:
        made(client, topic, 3)
        said = []
        for version in range(14):
            names = [topic] if version < 4 else [topic, f"{topic}-missing"]
            answer = as_told(client.metadata(*names, create=version < 4, version=version), *ids, *wheres)
            answer["topics"].sort(key=lambda row: row["name"])
            for row in answer["topics"]:
                row["partitions"].sort(key=lambda part: part["partition_index"])
            said.append(answer)
        return said

    compare(sides, script)


def test_metadata_creates_topics_and_refuses_illegal_names(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        names = ["", ".", "..", "../x", "a/b", "a b", "a\0b", "ü", "x" * 250]
        illegal = [
            client.metadata(name, create=flag).topics[0].error_code for name in names for flag in (0, 1)
        ]
        for version in (0, 3, 4, 9, 12):
            name = f"{topic}-{version}"
            await_code(0, lambda: client.metadata(name, version=version).topics[0].error_code)  # noqa: B023
        return illegal

    compare(sides, script)


def test_metadata_by_topic_id(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic)
        (row,) = client.metadata(topic).topics
        said = []
        for topic_id in (row.topic_id, b"\x07" * 16):
            for name in (None, "", f"{topic}-another"):
                request = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=topic_id)])
                (found,) = client.ask(METADATA, 12, request).topics
                # Of an id that is unknown Kafka leaves out the name, which stops Java's consumer for good.
                name = found.name or ""
                said.append((found.error_code, name, found.topic_id == topic_id, len(found.partitions)))
        for version in (10, 11):
            for name, topic_id in ((None, row.topic_id), (topic, row.topic_id), (None, b"\0" * 16)):
                asked = [(name, topic_id), (name, topic_id), (f"{topic}-new", b"\0" * 16)]
                request = MetadataRequest(topics=[MetadataRequestTopic(name=n, topic_id=i) for n, i in asked])
                answer = client.ask(METADATA, version, request)
                said.append({(found.error_code, found.name) for found in answer.topics})
        return said

    assert compare(sides, script)[:3] == [(0, topic, True, 1)] * 3


def test_metadata_of_all_topics(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic)
        said = []
        for version in (0, 1, 9, 12):
            request = MetadataRequest(topics=[] if version == 0 else None)
            said.append(topic in {row.name for row in client.ask(METADATA, version, request).topics})
            nothing = MetadataRequest(topics=[])
            said.append(len(client.ask(METADATA, version, nothing).topics) if version else 0)
        return said

    compare(sides, script)


def test_api_versions_of_every_version_and_of_none(sides: Sides) -> None:
    def script(client: RawClient) -> Any:
        own_row = [client.api_versions(version)[API_VERSIONS] for version in range(6)]
        client.send_frame(bytes.fromhex("0012 7fff 00000007 ffff 00"))
        correlation_id, answer = client.receive(API_VERSIONS, 0)
        rows = {row.api_key: row.max_version for row in answer.api_keys}
        name = ApiVersionsRequest(client_software_name="", client_software_version="?!")
        bad_name = client.ask(API_VERSIONS, 3, name).error_code
        here = client.metadata()
        expected = []
        for cluster_id, node_id in (
            (here.cluster_id, here.brokers[0].node_id),
            (here.cluster_id, 77),
            ("other", here.brokers[0].node_id),
            ("other", -1),
            (None, 77),
            (None, -1),
        ):
            request = ApiVersionsRequest(
                client_software_name="raw",
                client_software_version="1",
                cluster_id=cluster_id,
                node_id=node_id,
            )
            response = client.ask(API_VERSIONS, 5, request)
            expected.append((response.error_code, bool(response.api_keys)))
        return own_row, correlation_id, answer.error_code, rows[API_VERSIONS], bad_name, expected

    compare(sides, script)


def test_every_api_that_we_announce_kafka_has_too(sides: Sides) -> None:
    theirs = sides.ask_kafka(RawClient.api_versions)
    with RawClient(sides.ours) as client:
        ours = client.api_versions()
    assert {key: versions for key, versions in ours.items() if key not in theirs} == {}
    # Our floors may be lower than Kafka's own.
    assert [key for key, (low, _) in ours.items() if low > theirs[key][0]] == []
    assert [key for key, (_, high) in ours.items() if high > theirs[key][1]] == []


def test_S69_batches_come_back_byte_for_byte(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        for codec in (compression.NONE, compression.GZIP, compression.LZ4, compression.ZSTD):
            fill(client, f"{topic}-{codec}", codec)
        return {
            (codec, version): [data for _, data in client.batches(f"{topic}-{codec}")]
            for codec in (compression.NONE, compression.GZIP, compression.LZ4, compression.ZSTD)
            for version in (4, 12)
        }

    compare(sides, script)


def test_a_false_largest_timestamp_is_put_right(sides: Sides, topic: str) -> None:
    """P22: the header's largest timestamp is the producer's word; both brokers store what the records say."""

    def script(client: RawClient) -> Any:
        made(client, topic)
        records = [Record(i, START_MS + i, b"k", b"v") for i in range(3)]
        for wrong in (START_MS + 9, START_MS, -1):
            answer = client.produce(topic, damaged(build_batch(records), max_timestamp=wrong))
            assert answer.error_code == 0
        found = client.list_offsets(topic, -3)
        return [data for _, data in client.batches(topic)], found.offset, found.timestamp

    compare(sides, script)


def test_produce_answers(sides: Sides, topic: str) -> None:
    good = one_batch(3)

    def script(client: RawClient) -> Any:
        missing = as_answered(client.produce(topic, good))
        made(client, topic)
        requests = {
            "sound": good,
            "partition that is not there": (good, 5),
            "wrong checksum": bytes([*good[:-1], good[-1] ^ 1]),
            "two batches": good + good,
            "control batch": damaged(good, attributes=batch.CONTROL),
            "count too small": damaged(good, record_count=2),
            "count of zero": damaged(good, record_count=0),
            "last offset delta too large": damaged(good, last_offset_delta=3),
            "far ahead": one_batch(1, first_timestamp=1 << 52),
            "too large": one_batch(1, value_bytes=1_048_588),
            "after all that": good,
        }
        said: dict[str, Any] = {"missing topic": missing}
        for name, wanted in requests.items():
            data, partition = wanted if isinstance(wanted, tuple) else (wanted, 0)
            said[name] = as_answered(client.produce(topic, data, partition))
        said["stored"] = [base for base, _ in client.batches(topic)]
        return said

    said = compare(sides, script)
    assert said["stored"] == [0, 3]


def test_produce_in_every_version(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic)
        said = []
        for version in range(3, 13):
            for acks in (1, -1, 2):
                answer = client.produce(topic, one_batch(2), acks=acks, version=version)
                said.append(as_answered(answer))
        client.send(PRODUCE, 9, produce_request(topic, one_batch(2), acks=0))
        said.append(as_told(client.produce(topic, one_batch(2))))
        return said

    compare(sides, script)


def test_produce_stamps_append_time(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic, message_timestamp_type="LogAppendTime")
        answer = client.produce(topic, one_batch(3))
        ((_, data),) = client.batches(topic)
        header = batch.read_header(data)
        last = client.list_offsets(topic, -3)
        assert answer.log_append_time_ms == header.max_timestamp == last.timestamp > START_MS
        assert batch.check_crc(data, 0, header)
        return header._replace(crc=0, max_timestamp=0), data[batch.HEADER_BYTES :], last.offset

    compare(sides, script)


def test_idempotent_producers(sides: Sides, topic: str) -> None:
    """Kafka answers a duplicate with a create time where the append time stands; a client would believe it."""

    def script(client: RawClient) -> Any:
        made(client, topic)
        # Kafka's first answers may say that it is not ready to hand out ids.
        await_code(0, lambda: client.init_producer_id().error_code)
        first, second = client.init_producer_id(), client.init_producer_id()
        producer_id, epoch, other_id = first.producer_id, first.producer_epoch, second.producer_id
        assert other_id != producer_id

        def put(sequence: int, count: int = 2, epoch: int = epoch, producer_id: int = producer_id) -> Any:
            data = one_batch(count, producer=(producer_id, epoch, sequence))
            return as_answered(client.produce(topic, data), "log_append_time_ms")

        said = [
            put(0),
            put(2),
            put(4),
            put(2),
            put(0),
            put(4),
            put(5),
            put(9),
            put(6),
            put(8),
            put(10),
            put(12),
        ]
        said += [put(0), put(2), put(12), put(14, epoch=-1), put(3, epoch=epoch + 1), put(0, epoch=epoch + 1)]
        said += [put(14), put(5, producer_id=other_id), put(7, producer_id=other_id)]
        return said, [base for base, _ in client.batches(topic)]

    compare(sides, script)


def test_fetch_answers(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        missing = as_answered(client.fetch(topic, 0))
        fill(client, topic)
        offsets = [-1, 0, 1, 2, LAST, LAST + 1, LAST + 2, 1 << 40]
        said = [missing, as_answered(client.fetch(topic, 0, partition=3))]
        for version in range(4, 13):
            for offset in offsets:
                part = client.fetch(topic, offset, version=version)
                said.append((as_answered(part, "records"), bytes(part.records or b"")))
        return said

    compare(sides, script)


def test_fetch_gives_one_batch_however_small_the_limit(sides: Sides, topic: str) -> None:
    """KIP-74: the first batch comes whole; what follows it keeps to the limit."""

    def script(client: RawClient) -> Any:
        fill(client, topic)
        sizes = [len(data) for _, data in client.batches(topic)]
        said = []
        for max_bytes in (1, sizes[0], sizes[0] + sizes[1] - 1, sizes[0] + sizes[1], 1 << 20):
            data = bytes(client.fetch(topic, 0, max_bytes=max_bytes).records)
            said.append(batch.read_header(data).size_bytes <= len(data))
        return said

    compare(sides, script)


# Values that Kafka takes, and values that it refuses.
TOPIC_OPTIONS = [
    ("remote.storage.enable", "false"),
    ("compression.type", "producer"),
    *[("compression.type", kind) for kind in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "none")],
    *[("compression.gzip.level", level) for level in ("-1", "1", "9", "0", "10")],
    *[("compression.lz4.level", level) for level in ("1", "17", "0", "18")],
    *[("compression.zstd.level", level) for level in ("-131072", "22", "-131073", "23")],
    *[("local.retention.ms", value) for value in ("-2", "1000", "-3")],
    *[("local.retention.bytes", value) for value in ("-2", "1000", "-3")],
    *[("min.cleanable.dirty.ratio", value) for value in ("0", "0.5", "1", "1.1", "x")],
    *[("preallocate", value) for value in ("true", "false", "maybe")],
    *[("max.compaction.lag.ms", value) for value in ("1", "0")],
    *[("min.compaction.lag.ms", value) for value in ("0", "-1")],
    *[("delete.retention.ms", value) for value in ("0", "-1")],
    ("remote.storage.enable", "true"),
]


def test_create_topics_answers(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        def create(wanted: CreatableTopic, validate_only: bool = False) -> Any:
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=20_000, validate_only=validate_only)
            row = client.ask(CREATE_TOPICS, 7, request).topics[0]
            return row.error_code, row.num_partitions, row.replication_factor

        def wanted(
            name: str = topic, partitions: int = 1, replicas: int = 1, **options: str
        ) -> CreatableTopic:
            configs = [
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in options.items()
            ]
            return CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
            )

        assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
        return [
            create(wanted(), validate_only=True),
            create(wanted()),
            create(wanted()),
            create(wanted(f"{topic}-2", partitions=-1, replicas=-1)),
            create(wanted(f"{topic}-3", partitions=0)),
            create(wanted(f"{topic}-3", partitions=-2)),
            create(wanted(f"{topic}-3", replicas=2)),
            create(wanted(f"{topic}-3", replicas=0)),
            create(wanted(f"{topic}-3", no_such_option="1")),
            create(wanted(f"{topic}-3", segment_bytes="many")),
            create(wanted(f"{topic}-3", cleanup_policy="forget")),
            create(wanted(f"{topic}-3", min_compaction_lag_ms="6", max_compaction_lag_ms="5")),
            create(
                CreatableTopic(
                    name=f"{topic}-4", num_partitions=1, replication_factor=1, assignments=[assigned]
                )
            ),
            *[create(wanted(name)) for name in ("", ".", "..", "../x", "a/b", "a\0b", "x" * 250)],
            create(wanted(topic.replace("-", ".", 1))),
            create(wanted(topic.replace("-", "_", 1))),
            create(wanted("__cluster_metadata")),
            *[
                create(wanted(f"{topic}-{number}", **{name.replace(".", "_"): value}))
                for number, (name, value) in enumerate(TOPIC_OPTIONS, 10)
            ],
        ]

    compare(sides, script)


def test_describe_configs_answers(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic, local_retention_ms="-2", min_cleanable_dirty_ratio="0.25")

        def ask(kind: int, name: str, keys: list[str] | None) -> Any:
            resource = DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            )
            answer = client.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource]))
            (result,) = answer.results
            return result

        def told(kind: int, name: str, keys: list[str] | None) -> Any:
            result = ask(kind, name, keys)
            rows = [(row.name, row.value, row.config_source, row.config_type) for row in result.configs]
            return result.error_code, sorted(rows)

        set_here = ["local.retention.ms", "min.cleanable.dirty.ratio"]
        levels = [f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")]
        of_topics = ["delete.retention.ms", "max.compaction.lag.ms", "min.compaction.lag.ms"]
        of_cleaners = ["backoff.ms", "dedupe.buffer.size", "enable", "io.buffer.load.factor"]
        of_cleaners += ["io.max.bytes.per.second", "threads", "delete.retention.ms", "min.cleanable.ratio"]
        of_cleaners += ["max.compaction.lag.ms", "min.compaction.lag.ms"]
        return [
            *[len(ask(kind, name, []).configs) > 10 for kind, name in ((2, topic), (4, "1"))],
            told(2, topic, [*set_here, *levels, "compression.type", "remote.storage.enable"]),
            told(2, topic, of_topics),
            told(4, "1", [f"log.cleaner.{name}" for name in of_cleaners]),
            told(2, topic, ["nothing"]),
            told(2, f"{topic}-missing", None),
            told(2, "../x", None),
            told(2, "", None),
            told(4, "", ["log.segment.bytes"]),
            told(4, "2", None),
            [ask(kind, name, None).error_code for kind in (16, 32) for name in ("", "x")],
        ]

    compare(sides, script)


def test_zstd_needs_a_version_that_knows_it(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic)
        return [
            client.produce(topic, one_batch(2, codec=codec), version=version).error_code
            for version in range(3, 13)
            for codec in range(5)
        ]

    compare(sides, script)


def test_the_records_that_are_to_blame(sides: Sides, topic: str) -> None:
    times = [START_MS, 1 << 52, START_MS, -1, 5, 1 << 53]

    def script(client: RawClient) -> Any:
        made(client, topic, message_timestamp_before_max_ms="1000000000000")
        said = []
        for codec in (compression.NONE, compression.GZIP):
            data = build_batch([Record(i, at, None, b"v") for i, at in enumerate(times)], codec=codec)
            for version in (7, 8, 12):
                answer = client.produce(topic, data, version=version)
                blamed = [row.batch_index for row in answer.record_errors]
                said.append((answer.error_code, blamed, bool(answer.error_message)))
        return said

    assert compare(sides, script)[1] == (32, [1, 4, 5], True)


@pytest.mark.parametrize("kind", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_again(sides: Sides, topic: str, kind: str) -> None:
    """Both store the same records under the same header; what a library makes of the bytes is its own affair."""

    def script(client: RawClient) -> Any:
        said = []
        for number, clock in enumerate(("CreateTime", "LogAppendTime")):
            name = f"{topic}-{number}"
            made(client, name, compression_type=kind, message_timestamp_type=clock)
            for codec in range(5):
                records = [Record(i, START_MS + i % 3, b"k", b"v" * 99, (("h", b"x"),)) for i in range(50)]
                answer = client.produce(name, build_batch(records, codec=codec))
                assert answer.error_code == 0
            for _, data in client.batches(name):
                header = batch.read_header(data)
                assert batch.check_crc(data, 0, header)
                said.append(header._replace(crc=0, batch_length=0, max_timestamp=0))
                for row in read_records(data):
                    timestamp = (
                        row.timestamp if clock == "CreateTime" else header.max_timestamp - row.timestamp
                    )
                    said.append((row.offset, timestamp, row.key, row.value, row.headers))
            if clock == "CreateTime":
                said.append([client.list_offsets(name, START_MS + i).offset for i in range(4)])
        return said

    compare(sides, script)


def test_a_batch_must_fit_as_it_comes_and_as_it_is_stored(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        said = []
        for kind, codec in (("uncompressed", compression.ZSTD), ("zstd", compression.NONE)):
            name = f"{topic}-{kind}"
            made(client, name, compression_type=kind, max_message_bytes="2000")
            said.append(client.produce(name, one_batch(100, codec=codec, value_bytes=200)).error_code)
            said.append(client.produce(name, one_batch(1, codec=codec)).error_code)
        return said

    compare(sides, script)


def test_unknown_requests_end_the_connection_and_no_other(sides: Sides) -> None:
    def script(client: RawClient) -> Any:
        client.send_frame(bytes.fromhex("7fff 0000 00000007 ffff"))
        return client.is_closed_by_peer()

    assert compare(sides, script)


LIST_OFFSETS_VERSIONS = 11
assert FETCH == 1
