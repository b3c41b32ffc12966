"""Every API in every version that is announced, asked over loopback: the answer can be read and says the truth."""

import json
import logging
import threading
from typing import Any

import pytest

from tests.support.builders import (
    NO_ID,
    T0,
    fetch_request,
    list_offsets_request,
    metadata_request,
    produce_request,
    records,
)
from tests.support.faulty_disk import FaultyDisk
from tests.support.group_member import ASKED
from tests.support.served import Client, Serve, Served, log_of, until, versions
from tidelog.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidelog.broker.broker import Broker
from tidelog.broker.topic_rules import MAX_TOPIC_NAME_LENGTH, name_problem
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages import create_topics as create
from tidelog.protocol.messages.alter_configs import ALTER_CONFIGS
from tidelog.protocol.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.messages.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from tidelog.protocol.messages.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from tidelog.protocol.messages.create_partitions import CREATE_PARTITIONS
from tidelog.protocol.messages.delete_records import DELETE_RECORDS
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.describe_acls import DESCRIBE_ACLS
from tidelog.protocol.messages.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from tidelog.protocol.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from tidelog.protocol.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.describe_log_dirs import DESCRIBE_LOG_DIRS
from tidelog.protocol.messages.describe_producers import DESCRIBE_PRODUCERS
from tidelog.protocol.messages.describe_quorum import (
    DESCRIBE_QUORUM,
    AskedPartitionData,
    AskedTopicData,
    DescribeQuorumRequest,
)
from tidelog.protocol.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from tidelog.protocol.messages.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from tidelog.protocol.messages.elect_leaders import ELECT_LEADERS
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from tidelog.protocol.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tidelog.protocol.messages.list_config_resources import LIST_CONFIG_RESOURCES
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from tidelog.protocol.messages.list_transactions import LIST_TRANSACTIONS
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import (
    PRODUCE,
)
from tidelog.protocol.records import message_set
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.registry import APIS
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT

# These are asked in test_administration.py.
ADMINISTRATION = {
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    LIST_PARTITION_REASSIGNMENTS,
}


# Asked in test_nothing_to_describe.py.
NOTHING_TO_DESCRIBE = {
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    LIST_TRANSACTIONS,
}


def test_every_api_that_is_announced_has_its_versions_asked_here() -> None:
    asked = {PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, create.CREATE_TOPICS, DELETE_TOPICS}
    asked |= {INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS}
    asked |= {DESCRIBE_CLUSTER, DESCRIBE_QUORUM}
    asked |= ADMINISTRATION
    asked |= ASKED  # those of groups
    asked |= {CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE}  # test_consumer_group_handlers.py
    asked |= NOTHING_TO_DESCRIBE
    assert asked == set(APIS.values())


@versions(API_VERSIONS)
async def test_api_versions(client: Client, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = await client.ask(API_VERSIONS, version, request)
    announced = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert announced == {key: (api.min_version, api.max_version) for key, api in APIS.items()}
    features = {"metadata.version": 25, "group.version": 1} if version >= 3 else {}
    assert {row.name: row.max_version_level for row in response.finalized_features} == features
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)
    supported = {row.name: (row.min_version, row.max_version) for row in response.supported_features}
    assert supported == {name: (level, level) for name, level in features.items()}


def test_what_a_client_may_do_is_in_kafkas_bits() -> None:
    """As Kafka without an authorizer answers it."""
    assert (TOPIC_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 8096)


async def test_an_unknown_version_of_api_versions_gets_the_table_in_version_0(client: Client) -> None:
    header = b"\x00\x12" + (99).to_bytes(2, "big") + (5).to_bytes(4, "big") + b"\x00\x01c" + b"\x00 who knows"
    client.writer.write(len(header).to_bytes(4, "big") + header)
    correlation_id, response = await client.receive(API_VERSIONS, 0)
    assert (correlation_id, response.error_code) == (5, ErrorCode.UNSUPPORTED_VERSION)
    assert next(row.max_version for row in response.api_keys if row.api_key == 18) == API_VERSIONS.max_version
    assert (await client.ask(API_VERSIONS, 0, ApiVersionsRequest())).error_code == ErrorCode.NONE


async def test_a_client_may_not_call_itself_anything(client: Client) -> None:
    request = ApiVersionsRequest(client_software_name="no spaces", client_software_version="1")
    assert (await client.ask(API_VERSIONS, 3, request)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_client_that_expects_another_broker_is_told_to_bootstrap_again(
    served: Served, client: Client
) -> None:
    """KIP-1242."""
    ours = served.broker.cluster_id
    for cluster_id, node_id, code in (
        (ours, 1, ErrorCode.NONE),
        (ours, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (ours, -1, ErrorCode.INVALID_REQUEST),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, 1, ErrorCode.INVALID_REQUEST),
        (None, -1, ErrorCode.NONE),
    ):
        request = ApiVersionsRequest(
            client_software_name="test",
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        )
        response = await client.ask(API_VERSIONS, 5, request)
        assert (response.error_code, bool(response.api_keys)) == (code, code == ErrorCode.NONE)


@versions(METADATA)
async def test_metadata(served: Served, client: Client, version: int) -> None:
    topic_id = await client.make_topic("t", 3)
    wanted = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="../x")]
    response = await client.ask(METADATA, version, MetadataRequest(topics=wanted))
    found, illegal = response.topics
    assert [(node.node_id, node.host, node.port) for node in response.brokers] == [(1, *served.address)]
    assert (found.error_code, illegal.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert [p.partition_index for p in found.partitions] == [0, 1, 2]
    assert {(p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes)) for p in found.partitions} == {
        (1, (1,), (1,))
    }
    assert found.topic_id == (topic_id if version >= 10 else NO_ID)
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == served.broker.cluster_id
    if version >= 8:
        assert found.topic_authorized_operations == NOT_ASKED


@versions(METADATA)
async def test_metadata_of_all_topics_and_of_none(client: Client, version: int) -> None:
    await client.make_topic("a")
    await client.make_topic("b")
    everything = MetadataRequest(topics=None if version else [])
    assert {t.name for t in (await client.ask(METADATA, version, everything)).topics} == {"a", "b"}
    if version:
        assert (await client.ask(METADATA, version, MetadataRequest(topics=[]))).topics == []


@versions(METADATA)
async def test_metadata_creates_what_is_missing_where_it_may(serve: Serve, version: int) -> None:
    client = await (await serve(num_partitions="2")).connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    (topic,) = (await client.ask(METADATA, version, request)).topics
    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 2)
    assert (await client.produce("new", records(b"at once"))).error_code == ErrorCode.NONE
    if version >= 4:
        request = metadata_request("unwanted", create=False)
        (topic,) = (await client.ask(METADATA, version, request)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metadata_creates_nothing_where_the_broker_forbids_it(serve: Serve) -> None:
    client = await (await serve(auto_create_topics_enable="false")).connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    (topic,) = (await client.ask(METADATA, 1, request)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.ask(METADATA, 1, MetadataRequest(topics=None))).topics == []


@pytest.mark.parametrize("version", [12, 13])
async def test_metadata_by_id(client: Client, version: int) -> None:
    topic_id = await client.make_topic("t")
    ids = [
        MetadataRequestTopic(topic_id=topic_id, name=None),
        MetadataRequestTopic(topic_id=b"?" * 16, name=None),
    ]
    request = MetadataRequest(topics=ids, include_topic_authorized_operations=True)
    known, unknown = (await client.ask(METADATA, version, request)).topics
    assert (known.name, known.topic_authorized_operations) == ("t", TOPIC_OPERATIONS)
    assert (unknown.error_code, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"?" * 16)


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_by_id_before_ids_are_understood(client: Client, version: int) -> None:
    topic_id = await client.make_topic("t")
    for wrong in (
        MetadataRequestTopic(topic_id=topic_id, name=None),
        MetadataRequestTopic(topic_id=topic_id, name="t"),
        MetadataRequestTopic(name=None),
    ):
        request = MetadataRequest(topics=[wrong, wrong, MetadataRequestTopic(name="new")])
        response = await client.ask(METADATA, version, request)
        told = [(topic.error_code, topic.name, topic.topic_id) for topic in response.topics]
        refused = ErrorCode.INVALID_REQUEST
        assert told == [(refused, wrong.name or "", wrong.topic_id), (refused, "new", NO_ID)]
    everything = await client.ask(METADATA, version, MetadataRequest(topics=None))
    assert [topic.name for topic in everything.topics] == ["t"]


@versions(PRODUCE)
@pytest.mark.parametrize("acks", [1, -1])
async def test_produce(client: Client, version: int, acks: int) -> None:
    await client.make_topic("t")
    for expected in (0, 2):
        answer = await client.produce("t", records(b"a", b"b"), acks=acks, version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, expected)
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)


@versions(PRODUCE)
async def test_produce_to_what_is_not_there(client: Client, version: int) -> None:
    answer = await client.produce("nowhere", records(b"a"), version=version)
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (answer.error_code, answer.base_offset) == (code, -1)


async def test_produce_with_acks_that_do_not_exist(client: Client) -> None:
    await client.make_topic("t")
    answer = await client.produce("t", records(b"a"), acks=2)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert (await client.produce("t", records(b"a"))).base_offset == 0


async def test_produce_without_acks_is_not_answered_and_a_failure_ends_the_connection(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.make_topic("t")
    request = produce_request("t", records(b"a"), acks=0)
    client.send(PRODUCE, 9, 1, request)
    assert (await client.produce("t", records(b"b"))).base_offset == 1
    request.topic_data[0].name = "nowhere"
    client.send(PRODUCE, 9, 1, request)
    assert await client.reader.read() == b""
    (line,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert "acks=0, nowhere-0: This server does not host this topic-partition." in line.getMessage()
    assert line.exc_info is None  # The client's fault: what we were doing meanwhile explains nothing.


async def test_S46_log_append_time_is_told_and_stored(served: Served) -> None:
    served.broker.clock.hold(T0 + 5)
    client = await served.connect()
    await client.make_topic("t", message_timestamp_type="LogAppendTime")
    assert (await client.produce("t", records(b"a", b"b"))).log_append_time_ms == T0 + 5
    assert [r.timestamp for r in read_records(await client.fetched("t", 0))] == [T0 + 5] * 2


@versions(FETCH)
async def test_fetch(client: Client, version: int) -> None:
    await client.make_topic("t")
    await client.produce("t", records(b"a", b"b"))
    await client.produce("t", records(b"c"))
    part = await client.fetch("t", 1, version=version)
    assert (part.error_code, part.high_watermark) == (ErrorCode.NONE, 3)
    assert part.last_stable_offset == (3 if version >= 4 else -1)
    assert part.log_start_offset == (0 if version >= 5 else -1)
    data = bytes(part.records)
    if version >= 4:
        assert [r.value for r in read_records(data)] == [b"a", b"b"], (
            "S81: the whole batch that holds the offset"
        )
        assert b"c" in data
    else:
        assert [(r.offset, r.value) for r in message_set.read_records(data)] == [(1, b"b"), (2, b"c")]
    at_end = await client.fetch("t", 3, version=version)
    assert (at_end.error_code, bytes(at_end.records)) == (ErrorCode.NONE, b"")


@versions(FETCH)
async def test_fetch_from_where_nothing_is(client: Client, version: int) -> None:
    await client.make_topic("t")
    behind = await client.fetch("t", 1, version=version, max_wait_ms=60_000)
    assert (behind.error_code, behind.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    unknown = await client.fetch("no", 0, version=version, max_wait_ms=60_000)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.error_code == missing


async def test_fetch_waits_for_what_comes(served: Served) -> None:
    client, producer = await served.connect(), await served.connect()
    await client.make_topic("t")
    client.send(FETCH, 11, 9, fetch_request("t", max_wait_ms=600_000))
    await producer.produce("t", records(b"here"))
    _, response = await client.receive(FETCH, 11)
    assert [r.value for r in read_records(bytes(response.responses[0].partitions[0].records))] == [b"here"]


async def test_fetch_shares_its_bytes_between_partitions_and_the_first_batch_is_whole(client: Client) -> None:
    await client.make_topic("big")
    await client.make_topic("other")
    await client.produce("big", records(b"x" * 5_000))
    await client.produce("other", records(b"y" * 100))
    request = fetch_request("big", max_bytes=1_000, partition_max_bytes=1 << 20)
    request.topics += fetch_request("other").topics
    big, other = (await client.ask(FETCH, 11, request)).responses
    assert len(bytes(big.partitions[0].records)) > 5_000
    assert bytes(other.partitions[0].records) == b""


@pytest.mark.parametrize("version", [4, 11, 12, 17])
async def test_large_answers_arrive_whole_however_slowly_they_are_read(
    broker: Broker, client: Client, version: int
) -> None:
    topic_id = await client.make_topic("t", partitions=2, max_message_bytes="10000000")
    for n in range(6):
        await client.produce("t", records(bytes([n]) * 700_000))
    log = log_of(broker, "t")
    whole = log.read(0, 1 << 30, True, PATIENT).read()
    wanted = [
        FetchPartition(partition=index, fetch_offset=3 * (1 - index), partition_max_bytes=most)
        for index, most in ((0, 5_000_000), (1, 1000))
    ]
    named = FetchTopic(topic="t" if version < 13 else "", topic_id=topic_id, partitions=wanted)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, topics=[named])
    for correlation_id in range(5):
        client.send(FETCH, version, correlation_id, request)
        client.send(API_VERSIONS, 0, 100 + correlation_id, ApiVersionsRequest())
    for correlation_id in range(5):
        received, response = await client.receive(FETCH, version)
        answer, empty = response.responses[0].partitions
        assert (received, bytes(answer.records)) == (correlation_id, whole[len(whole) // 2 :])
        assert bytes(empty.records) == b""
        assert (await client.receive(API_VERSIONS, 0))[0] == 100 + correlation_id


async def test_what_is_not_in_memory_is_read_by_another_thread(client: Client, disk: FaultyDisk) -> None:
    await client.make_topic("t")
    for n in range(5):
        await client.produce("t", records(b"%d" % n))
    threads = set()
    disk.is_cold = True
    disk.on("read", do=lambda: threads.add(threading.current_thread().name.partition("_")[0]))
    data = await client.fetched("t", 2)
    assert [r.value for r in read_records(data)] == [b"2"]
    answer = await client.list_offsets("t", T0)
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, 0, T0)
    assert threads == {"reader"}


async def test_a_fetch_session_that_nobody_has_is_not_found(client: Client) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=5, session_epoch=1, topics=[])
    response = await client.ask(FETCH, 11, request)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_leader_epoch_that_is_not_ours_is_refused(client: Client) -> None:
    await client.make_topic("t")
    newer = await client.fetch("t", 0, current_leader_epoch=7)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await client.fetch("t", 0, current_leader_epoch=0)).error_code == ErrorCode.NONE


async def test_a_reader_that_saw_another_epoch_is_told_where_they_part(client: Client) -> None:
    await client.make_topic("t")
    await client.produce("t", records(b"a"))
    part = await client.fetch("t", 5, version=12, last_fetched_epoch=0)
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 1)
    unheard_of = await client.fetch("t", 0, version=12, last_fetched_epoch=3)
    assert unheard_of.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@versions(LIST_OFFSETS)
async def test_list_offsets(client: Client, version: int) -> None:
    await client.make_topic("t")
    await client.produce("t", records(b"a", b"b", b"c"))

    async def ask(timestamp: int) -> Any:
        want = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=10)
        if version:
            want.max_num_offsets = 1
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[want])])
        return (await client.ask(LIST_OFFSETS, version, request)).topics[0].partitions[0]

    if version == 0:
        assert (await ask(-1)).old_style_offsets == [3, 0]
        assert (await ask(-2)).old_style_offsets == [0]
        return
    for timestamp, expected in ((T0, 0), (T0 + 1, 1), (T0 + 1000, 1), (T0 + 2000, 2)):
        found = await ask(timestamp)
        assert (found.offset, found.timestamp) == (expected, T0 + expected * 1000)
        assert found.leader_epoch == (0 if version >= 4 else -1)
    nothing = await ask(T0 + 2001)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (ErrorCode.NONE, -1, -1)
    assert [(await ask(-1)).offset, (await ask(-2)).offset] == [3, 0]
    assert [(await ask(-1)).timestamp, (await ask(-2)).timestamp] == [-1, -1]
    for special, since, expected in ((-3, 7, 2), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)):
        answer = await ask(special)
        code = ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert (answer.error_code, answer.offset) == (code, expected if version >= since else -1)


async def test_P5_P24_the_questions_that_are_no_times_look_from_the_log_start_on(
    broker: Broker, client: Client
) -> None:
    await client.make_topic("t")

    async def ask(timestamp: int) -> Any:
        want = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[want])])
        part = (await client.ask(LIST_OFFSETS, 11, request)).topics[0].partitions[0]
        return part.error_code, part.offset, part.timestamp, part.leader_epoch

    assert await ask(-3) == (0, -1, -1, -1)
    await client.produce("t", records(b"a", b"b", b"c"))
    await client.produce("t", records(b"d", b"e"))
    assert await ask(-3) == (0, 2, T0 + 2000, 0)
    log = log_of(broker, "t")
    log.advance_start(3)
    assert [await ask(special) for special in (-1, -2, -3, -4)] == [
        (0, 5, -1, 0),
        (0, 3, -1, 0),
        (0, 4, T0 + 1000, 0),
        (0, 3, -1, 0),
    ]
    # There is no tier to which anything was moved, or is to be.
    assert [await ask(special) for special in (-5, -6)] == [(0, -1, -1, -1)] * 2
    assert await ask(-7) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)
    log.advance_start(5)
    assert await ask(-3) == (0, -1, -1, -1)


async def test_the_end_of_what_is_decided_is_asked_for_by_those_who_read_nothing_else(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "last_stable_offset", property(lambda _: 1))
    client = await (await serve()).connect()
    await client.make_topic("t")
    await client.produce("t", records(b"a", b"b", b"c"))
    part = await client.fetch("t", 0)
    assert (part.high_watermark, part.last_stable_offset) == (3, 1)
    refused = await client.fetch("t", 4)
    assert (refused.error_code, refused.last_stable_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)
    for isolation_level, end in ((0, 3), (1, 1)):
        request = list_offsets_request("t", -1, isolation_level=isolation_level)
        for times in (1, 2):
            request.topics *= times
            answers = [topic.partitions[0] for topic in (await client.ask(LIST_OFFSETS, 7, request)).topics]
            assert [(answer.error_code, answer.offset) for answer in answers] == [(0, end)] * times


@versions(create.CREATE_TOPICS)
async def test_create_topics(client: Client, version: int) -> None:

    async def ask(*topics: create.CreatableTopic, validate_only: bool = False) -> list[Any]:
        request = create.CreateTopicsRequest(
            topics=list(topics), timeout_ms=1000, validate_only=validate_only
        )
        return list((await client.ask(create.CREATE_TOPICS, version, request)).topics)

    def topic(name: str, partitions: int = 1, replicas: int = 1, **options: str | None) -> Any:
        configs = [
            create.CreatableTopicConfig(name=option.replace("_", "."), value=value)
            for option, value in options.items()
        ]
        return create.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
        )

    def assigned(name: str, *nodes: list[int]) -> Any:
        assignments = [
            create.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(nodes)
        ]
        return create.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )

    if version >= 1:
        tried = await ask(topic("t", 2), topic("a.b"), topic("a_b"), validate_only=True)
        assert {answer.name: answer.error_code for answer in tried} == {
            "t": ErrorCode.NONE,
            "a.b": ErrorCode.NONE,
            "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
    (made,) = await ask(topic("t", 2, retention_ms="1000"))
    assert made.error_code == ErrorCode.NONE
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        configs = {config.name: (config.value, config.config_source) for config in made.configs}
        assert configs["retention.ms"] == ("1000", 1)
        assert configs["segment.bytes"] == (str(1 << 30), 5)
    codes = {
        "t": (topic("t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        "../x": (topic("../x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "zero": (topic("zero", 0), ErrorCode.INVALID_PARTITIONS),
        "many": (topic("many", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        "replicas": (topic("replicas", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        "option": (topic("option", retention="1"), ErrorCode.INVALID_CONFIG),
        "value": (topic("value", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        "null": (topic("null", retention_ms=None), ErrorCode.INVALID_CONFIG),
        "forgets": (topic("forgets", cleanup_policy="forget"), ErrorCode.INVALID_CONFIG),
        "compact": (topic("compact", cleanup_policy="compact,delete"), ErrorCode.NONE),
        "inflated": (topic("inflated", max_decompressed_bytes=str(1 << 32)), ErrorCode.INVALID_CONFIG),
        "elsewhere": (assigned("elsewhere", [1], [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "here": (assigned("here", [1], [1]), ErrorCode.NONE),
        "crowd": (
            assigned("crowd", *[[1]] * (MAX_PARTITIONS_PER_TOPIC + 1)),
            ErrorCode.INVALID_PARTITIONS,
        ),
    }
    answers = await ask(*(wanted for wanted, _ in codes.values()))
    assert {answer.name: answer.error_code for answer in answers} == {
        name: code for name, (_, code) in codes.items()
    }
    said = next(answer for answer in answers if answer.name == "zero")
    if version >= 1:
        assert all(answer.error_message for answer in answers if answer.error_code)
        assert said.error_message == "Number of partitions was set to an invalid non-positive value."
    if version >= 5:
        assert (said.num_partitions, said.replication_factor) == (-1, -1)
    (twice,) = await ask(topic("twice"), topic("twice"))
    assert twice.error_code == ErrorCode.INVALID_REQUEST


@versions(DELETE_TOPICS)
async def test_delete_topics(served: Served, version: int) -> None:
    client, waiting = await served.connect(), await served.connect()
    topic_id = await client.make_topic("t")
    waiting.send(FETCH, 11, 1, fetch_request("t", max_wait_ms=600_000))
    while not served.broker.parked:
        await client.ask(API_VERSIONS, 0, ApiVersionsRequest())

    def request(name: str, id_: bytes) -> DeleteTopicsRequest:
        if version < 6:
            return DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
        by_id = DeleteTopicState(name=None, topic_id=id_)
        return DeleteTopicsRequest(topics=[by_id], timeout_ms=1000)

    (answer,) = (await client.ask(DELETE_TOPICS, version, request("t", topic_id))).responses
    assert (answer.name, answer.error_code) == ("t", ErrorCode.NONE)
    _, response = await waiting.receive(FETCH, 11)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (again,) = (await client.ask(DELETE_TOPICS, version, request("t", topic_id))).responses
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert again.error_code == gone
    assert not list(served.broker.logs.directory.glob("t-*"))
    assert await client.make_topic("t") != topic_id


async def test_deletion_can_be_forbidden(serve: Serve) -> None:
    client = await (await serve(delete_topic_enable="false")).connect()
    await client.make_topic("t")
    assert await client.delete("t") == ErrorCode.TOPIC_DELETION_DISABLED
    assert (await client.produce("t", records(b"still there"))).error_code == ErrorCode.NONE


@versions(INIT_PRODUCER_ID)
async def test_init_producer_id(client: Client, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    first = await client.ask(INIT_PRODUCER_ID, version, request)
    second = await client.ask(INIT_PRODUCER_ID, version, request)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (ErrorCode.NONE, 0, 0)
    assert first.producer_id >= 0
    assert second.producer_id != first.producer_id
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    refused = await client.ask(INIT_PRODUCER_ID, version, request)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


@versions(OFFSET_FOR_LEADER_EPOCH)
async def test_offset_for_leader_epoch(client: Client, version: int) -> None:
    await client.make_topic("t")
    await client.produce("t", records(b"a", b"b"))

    async def ask(topic: str, epoch: int, current: int = -1) -> Any:
        want = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        topics = [OffsetForLeaderTopic(topic=topic, partitions=[want])]
        response = await client.ask(
            OFFSET_FOR_LEADER_EPOCH, version, OffsetForLeaderEpochRequest(topics=topics)
        )
        return response.topics[0].partitions[0]

    found = await ask("t", 0)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, 0, 2)
    later = await ask("t", 9)
    assert (later.leader_epoch, later.end_offset) == (-1, -1)
    assert (await ask("t", 0, current=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await ask("no", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@versions(DESCRIBE_CONFIGS)
async def test_describe_configs(serve: Serve, version: int) -> None:
    client = await (await serve(log_retention_ms="5000")).connect()
    await client.make_topic("t", segment_bytes="4096")

    async def ask(kind: int, name: str, keys: list[str] | None = None) -> Any:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(
            resources=[resource],
            include_synonyms=version >= 1,
            include_documentation=version >= 3,
        )
        return (await client.ask(DESCRIBE_CONFIGS, version, request)).results[0]

    topic = await ask(2, "t")
    values = {config.name: (config.value, config.config_source) for config in topic.configs}
    assert values["segment.bytes"] == ("4096", 1)
    assert values["retention.ms"] == ("5000", 4)
    assert values["index.interval.bytes"] == ("4096", 5)
    (segment,) = (await ask(2, "t", ["segment.bytes"])).configs
    assert [(s.name, s.value) for s in segment.synonyms] == [
        ("segment.bytes", "4096"),
        ("log.segment.bytes", str(1 << 30)),
    ]
    assert bool(segment.documentation) == (version >= 3)
    broker = await ask(4, "1")
    assert {"log.retention.ms", "num.partitions"} <= {config.name for config in broker.configs}
    assert {config.read_only for config in broker.configs if config.name.startswith("queued.")} == {True}
    for kind, name in ((2, "t"), (4, "1")):
        assert (await ask(kind, name, [])).configs == (await ask(kind, name)).configs
        assert (await ask(kind, name, ["no"])).configs == []
    everywhere = await ask(4, "")
    assert (everywhere.error_code, everywhere.configs) == (ErrorCode.NONE, [])
    assert (await ask(2, "../x")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await ask(4, "2")).error_code == ErrorCode.INVALID_REQUEST
    missing = await ask(2, "no")
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "This server does not host this topic-partition.",
    )
    assert (await ask(8, "1")).error_code == ErrorCode.INVALID_REQUEST
    for kind in (16, 32):
        found = await ask(kind, "g")
        assert (found.error_code, found.resource_name, found.configs) == (ErrorCode.NONE, "g", [])
        assert (await ask(kind, "")).error_code == ErrorCode.INVALID_REQUEST


@versions(DESCRIBE_CLUSTER)
async def test_describe_cluster(served: Served, client: Client, version: int) -> None:
    response = await client.ask(
        DESCRIBE_CLUSTER, version, DescribeClusterRequest(include_cluster_authorized_operations=True)
    )
    assert (response.error_code, response.cluster_id) == (ErrorCode.NONE, served.broker.cluster_id)
    assert [(node.broker_id, node.host, node.port) for node in response.brokers] == [(1, *served.address)]
    if version >= 1:
        controllers = await client.ask(
            DESCRIBE_CLUSTER,
            version,
            DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2),
        )
        assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert controllers.brokers == []


def quorum_of(*asked: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            AskedTopicData(topic_name=topic, partitions=[AskedPartitionData(partition_index=number)])
            for topic, number in asked
        ]
    )


@versions(DESCRIBE_QUORUM)
async def test_describe_quorum(serve: Serve, version: int) -> None:
    served = await serve(node_id="7")
    served.broker.clock.hold()
    client = await served.connect()
    await client.make_topic("t", 1)
    answer = await client.ask(DESCRIBE_QUORUM, version, quorum_of(("__cluster_metadata", 0)))
    ((quorum,),) = [topic.partitions for topic in answer.topics]
    (voter,) = quorum.current_voters
    assert (answer.error_code, quorum.error_code, quorum.observers) == (ErrorCode.NONE, ErrorCode.NONE, [])
    assert quorum.leader_id == voter.replica_id == 7
    assert quorum.leader_epoch > 0
    assert quorum.high_watermark == voter.log_end_offset > 0
    now_ms = served.broker.clock.now_ms() if version else -1
    assert (voter.last_caught_up_timestamp, voter.last_fetch_timestamp) == (now_ms, now_ms)
    if version >= 2:
        assert [(node.node_id, node.listeners) for node in answer.nodes] == [(7, [])]
    for topic, number in (("__cluster_metadata", 1), ("t", 0)):
        answer = await client.ask(DESCRIBE_QUORUM, version, quorum_of((topic, number)))
        ((found,),) = [each.partitions for each in answer.topics]
        assert (found.partition_index, found.error_code) == (number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert found.error_message == ("only __cluster_metadata-0 has a quorum" if version >= 2 else "")
    for several in (quorum_of(), quorum_of(("__cluster_metadata", 0), ("__cluster_metadata", 0))):
        answer = await client.ask(DESCRIBE_QUORUM, version, several)
        assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\0b", "a b", "é", "x" * (MAX_TOPIC_NAME_LENGTH + 1)]
)
def test_topic_names_that_could_do_harm_are_refused(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * MAX_TOPIC_NAME_LENGTH])
def test_topic_names_that_kafka_allows_are_allowed(name: str) -> None:
    assert name_problem(name) is None


async def test_topics_and_their_options_survive_a_restart(
    served: Served, client: Client, serve: Serve
) -> None:
    topic_id = await client.make_topic("t", 2, retention_ms="-1")  # the records are old
    await client.produce("t", records(b"a"), acks=-1)
    options = json.dumps(served.broker.topics.by_name["t"].options)
    await served.stop()
    again = await serve()
    topic = again.broker.topics.by_name["t"]
    assert (topic.id, len(topic.partitions), json.dumps(topic.options)) == (topic_id, 2, options)
    assert topic.config.retention_ms == -1
    client = await again.connect()
    assert [r.value for r in read_records(await client.fetched("t", 0))] == [b"a"]


async def test_S24_records_are_unreadable_as_soon_as_they_have_expired(
    broker: Broker, client: Client
) -> None:
    """Though the next look is five minutes away by `log.retention.check.interval.ms`."""
    await client.make_topic("t", retention_ms="200")
    record = Record(0, broker.clock.now_ms(), None, b"soon gone")
    await client.produce("t", memoryview(build_batch([record], base_offset=0)))
    part = await client.fetch("t", 0)
    while part.error_code == ErrorCode.NONE:
        part = await client.fetch("t", 0)
    assert (part.error_code, part.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)
    answer = await client.list_offsets("t", -2)
    assert (answer.error_code, answer.offset) == (ErrorCode.NONE, 1)


async def test_P2_what_comes_too_old_can_be_read_until_the_next_look_of_retention(serve: Serve) -> None:
    """A backfill, say; and there the log's other records need not be old (`log.retention.check.interval.ms`)."""
    served = await serve(log_retention_check_interval_ms="60000")
    clock, client = served.broker.clock, await served.connect()
    clock.hold()
    for name, retention_ms, stays_ms in (("week", "604800000", 60_000), ("purged", "1", 1)):
        await client.make_topic(name, retention_ms=retention_ms)
        for value in (b"first", b"second"):
            old = Record(0, clock.now_ms() - 365 * 86_400_000, None, value)
            await client.produce(name, memoryview(build_batch([old], base_offset=0)))
        log = log_of(served.broker, name)
        for moved_ms, start in ((stays_ms - 1, 0), (1, 2)):
            clock.advance(milliseconds=moved_ms)
            await until(lambda: served.broker.maintenance.is_settled)
            if start:
                clock.advance(milliseconds=100)  # so long a new segment may wait to be looked at
            await until(lambda log=log, start=start: log.log_start_offset == start)
            code = (await client.fetch(name, 0)).error_code
            assert code == (ErrorCode.OFFSET_OUT_OF_RANGE if start else ErrorCode.NONE)


async def test_interval_flushes_by_count_and_by_time(broker: Broker, client: Client) -> None:
    await client.make_topic("count", flush_policy="interval", flush_messages="3")
    log = log_of(broker, "count")
    for value, recovery_point in ((b"a", 0), (b"b", 0), (b"c", 3), (b"d", 3)):
        await client.produce("count", records(value), acks=-1)
        assert log.recovery_point == recovery_point
    await client.make_topic("time", flush_policy="interval", flush_ms="10")
    log = log_of(broker, "time")
    await client.produce("time", records(b"a"))
    while log.recovery_point < 1:
        await client.ask(API_VERSIONS, 0, ApiVersionsRequest())


async def test_none_never_flushes_and_answers_at_once(broker: Broker, client: Client) -> None:
    await client.make_topic("t", flush_policy="none")
    assert (await client.produce("t", records(b"a"), acks=-1)).base_offset == 0
    assert log_of(broker, "t").recovery_point == 0


async def test_S38_a_partition_that_is_not_there_is_the_only_one_without_a_leader(client: Client) -> None:
    await client.make_topic("t", 2)
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=T0) for index in (0, 1, 2)]
    topics = [
        ListOffsetsTopic(name="t", partitions=wanted),
        ListOffsetsTopic(name="no", partitions=wanted[:1]),
    ]
    response = await client.ask(LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=topics))
    codes = [[p.error_code for p in topic.partitions] for topic in response.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[ErrorCode.NONE, ErrorCode.NONE, unknown], [unknown]]
