"""Requests that clients send and that are easy to answer wrongly: each as Kafka answers it, or it says otherwise."""

import logging
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.builders import creatable, create_request, fetch_request
from tests.support.served import Client, Serve, Served, log_of
from tests.support.workload import damaged
from tidelog.broker.handlers import describe_configs
from tidelog.broker.running import Readers
from tidelog.broker.work import Stopping
from tidelog.config.options import BrokerConfig
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CREATE_TOPICS,
)
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.records.build import Record, build_batch, read_records

T0 = 1_700_000_000_000
NO_ID = bytes(16)
GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def create(client: Client, *names: str, timeout_ms: int = 20_000, **fields: bool) -> list[Any]:
    request = create_request(*map(creatable, names), timeout_ms=timeout_ms, **fields)
    return list((await client.ask(CREATE_TOPICS, 7, request)).topics)


async def delete(client: Client, *states: tuple[str | None, bytes], timeout_ms: int = 20_000) -> set[Any]:
    topics = [DeleteTopicState(name=name, topic_id=id_) for name, id_ in states]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)
    rows = (await client.ask(DELETE_TOPICS, 6, request)).responses
    assert all(bool(row.error_message) == bool(row.error_code) for row in rows)
    answered = {(row.name, row.topic_id, row.error_code) for row in rows}
    assert len(answered) == len(rows) or states.count((None, NO_ID)) > 1
    return answered


async def produce(client: Client, data: bytes, version: int = 9, topic: str = "t") -> Any:
    return await client.produce(topic, data, version=version)


def records(count: int, **options: Any) -> bytes:
    return build_batch([Record(n, T0 + n, None, b"%d" % n) for n in range(count)], **options)


# Metadata


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("name", ["", None, "another"])
async def test_a_topic_is_found_by_its_id_whatever_name_comes_with_it(
    client: Client, version: int, name: str | None
) -> None:
    """Java's describeTopics by id sends the name ""."""
    topic_id = await client.make_topic("t")
    await client.make_topic("another")
    asked = [MetadataRequestTopic(name=name, topic_id=id_) for id_ in (topic_id, b"?" * 16)]
    found, missing = (await client.ask(METADATA, version, MetadataRequest(topics=asked))).topics
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, "t", topic_id)
    assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_ID, "")
    unknown = MetadataRequest(topics=[MetadataRequestTopic(name="new", topic_id=b"?" * 16)])
    assert (await client.ask(METADATA, version, unknown)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert set(await client.topics()) == {"t", "another"}


async def test_metadata_does_not_create_what_create_topics_would_refuse(client: Client) -> None:
    await client.make_topic("a.b")
    names = ["a_b", "__cluster_metadata", "c_d", "c.d"]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    for _ in range(2):
        rows = (await client.ask(METADATA, 12, request)).topics
        codes = {row.name: row.error_code for row in rows}
        assert codes == {"a_b": 17, "__cluster_metadata": GONE, "c_d": ErrorCode.NONE, "c.d": 17}
    assert set(await client.topics()) == {"a.b", "c_d"}


# CreateTopics


async def test_names_that_are_one_in_metrics_are_17(served: Served, client: Client, serve: Serve) -> None:
    await client.make_topic("a.b_c")
    for validate_only in (True, False):
        for name in ("a_b.c", "a_b_c", "a.b.c"):
            (topic,) = await create(client, name, validate_only=validate_only)
            assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert "a.b_c" in topic.error_message
        (topic,) = await create(client, "a.b_c", validate_only=validate_only)
        assert topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        both = await create(client, "x.y", "x_y", "xy", "x-y", validate_only=validate_only)
        assert [row.error_code for row in both] == [0, 17, 0, 0]
    await delete(client, ("a.b_c", NO_ID))
    assert "a_b_c" not in served.broker.topics._by_metric_name
    await client.make_topic("a_b.c")
    await served.stop()
    client = await (await serve()).connect()
    assert [row.error_code for row in await create(client, "a_b_c", "x_y")] == [17, 17]


async def test_the_log_of_kafkas_controllers_is_42(client: Client) -> None:
    names = ["__cluster_metadata", "__consumer_offsets", "__transaction_state"]
    answers = await create(client, *names)
    assert [row.error_code for row in answers] == [ErrorCode.INVALID_REQUEST, 0, 0]
    assert set(await client.topics()) == set(names[1:])


async def test_options_without_effect_are_told_and_named_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    options = {"local_retention_ms": "-2", "remote_storage_enable": "false", "compression_type": "producer"}
    served = await serve()
    client = await served.connect()
    row = await client.create("t", min_cleanable_dirty_ratio="0.2", **options)
    told = {config.name: (config.value, config.config_source) for config in row.configs}
    wanted = {"min.cleanable.dirty.ratio": ("0.2", 1), "local.retention.ms": ("-2", 1)}
    assert told.items() >= wanted.items()
    lines = [line for line in caplog.messages if line.startswith("option has no effect")]
    assert len(lines) == 1
    assert "topic=t option=local.retention.ms value=-2 reason=" in lines[0]
    await served.stop()
    client = await (await serve()).connect()
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=list(wanted))
    (result,) = (await client.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource]))).results
    assert {config.name: (config.value, config.config_source) for config in result.configs} == wanted
    assert [line for line in caplog.messages if line.startswith("option has no effect")] == lines


async def test_what_is_named_again_and_again_is_described_once(client: Client) -> None:
    await client.make_topic("t")
    some = [DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["segment.ms"])]
    whole = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in ((2, "t"), (4, "1"))
        for keys in (None, [])
    ]
    answer = await client.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(some + whole) * 100))
    described = [(result.resource_type, len(result.configs) > 1) for result in answer.results]
    assert described == [(2, False), (2, True), (4, True)]


def described(name: str, *key_sets: list[str], kind: int = 2) -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for keys in key_sets
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


async def test_a_description_is_bounded_in_bytes_and_says_so(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes first is answered, and what there is no room for refused without looking at it."""
    monkeypatch.setattr(describe_configs, "MOST_ANSWER_BYTES", 100_000)
    client = await (await serve()).connect()
    await client.make_topic("t", follower_replication_throttled_replicas="v" * 1000)
    value = ["follower.replication.throttled.replicas"]
    sets = [[*value, str(number)] for number in range(200)]
    request = described("t", *sets)
    request.resources += described("there-is-none", []).resources
    results = (await client.ask(DESCRIBE_CONFIGS, 4, request)).results
    codes = [result.error_code for result in results]
    answered = codes.count(ErrorCode.NONE)
    assert 40 <= answered <= 50
    assert codes[answered:] == [ErrorCode.INVALID_REQUEST] * (201 - answered)
    assert "request fewer resources at once" in results[answered].error_message
    size_bytes = sum(len(option.value) for result in results for option in result.configs)
    assert size_bytes <= 100_000


async def test_what_a_description_takes_is_counted_as_what_it_takes_and_little_more(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.make_topic("t")
    for request in (described("t", []), DescribeConfigsRequest(resources=described("t", []).resources)):
        client.send(DESCRIBE_CONFIGS, 4, 1, request)
        size_bytes = len(await client.frame())
        for limit_bytes, code in (
            (3 * size_bytes // 2, ErrorCode.NONE),
            (size_bytes, ErrorCode.INVALID_REQUEST),
        ):
            with monkeypatch.context() as bound:
                bound.setattr(describe_configs, "MOST_ANSWER_BYTES", limit_bytes)
                (result,) = (await client.ask(DESCRIBE_CONFIGS, 4, request)).results
            assert result.error_code == code


async def test_a_resource_is_looked_through_once_for_all_its_sets_of_keys(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = 0
    describe = BrokerConfig.describe

    def counted(config: BrokerConfig) -> Any:
        nonlocal times
        times += 1
        return describe(config)

    monkeypatch.setattr(BrokerConfig, "describe", counted)
    sets = [["node.id", str(number)] for number in range(100)]
    results = (await client.ask(DESCRIBE_CONFIGS, 4, described("1", *sets, kind=4))).results
    assert [[option.value for option in result.configs] for result in results] == [["1"]] * 100
    assert times == 1


@pytest.mark.parametrize(("topics", "thread"), [(1, "MainThread"), (30, "reader")])
async def test_many_options_are_described_beside_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch, topics: int, thread: str
) -> None:
    threads = set()
    table = describe_configs._table

    def noted(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name.partition("_")[0])
        return table(*arguments)

    monkeypatch.setattr(describe_configs, "_table", noted)
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=f"t{number}", configuration_keys=None)
        for number in range(topics)
    ]
    answer = await client.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources))
    assert {result.error_code for result in answer.results} == {GONE}
    assert threads == {thread}


def test_what_was_not_described_when_the_broker_stops_says_so() -> None:
    work = describe_configs.handle(cast(Any, SimpleNamespace(broker=None)), described("t", ["a"], ["b"]), 4)
    work.send(None)
    work.throw(Stopping())
    with pytest.raises(StopIteration) as end:
        work.throw(Stopping())
    assert [result.error_code for result in end.value.value.results] == [ErrorCode.REQUEST_TIMED_OUT] * 2


async def test_names_and_values_that_are_too_long_are_refused_in_few_words(client: Client) -> None:
    """No message becomes longer than a string may be, which would end the connection."""
    long = "\x00" * 32_000
    (result,) = (await client.ask(DESCRIBE_CONFIGS, 4, described(long, [], kind=4))).results
    assert (result.error_code, result.resource_name) == (ErrorCode.INVALID_REQUEST, long)
    for options in (
        {"message_format_version": "v" * 1001},
        {"retention_ms": "1" * 32_700},
        {"x" * 32_700: "1"},
    ):
        topic = await client.create("t", **options)
        assert topic.error_code == ErrorCode.INVALID_CONFIG
        assert "at most 1000" in topic.error_message
        assert len(topic.error_message) < 1200


async def test_an_answer_describes_the_options_of_a_thousand_topics(client: Client) -> None:
    results = await create(client, *(f"t{n}" for n in range(1002)), validate_only=True)
    told = [(result.error_code, bool(result.configs), result.topic_config_error_code) for result in results]
    assert told == 1000 * [(0, True, 0)] + 2 * [(0, False, 89)]


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_what_has_not_begun_in_time_does_not_happen(client: Client, timeout_ms: int) -> None:
    topic_id = await client.make_topic("kept")
    (late,) = await create(client, "late", timeout_ms=timeout_ms)
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    timed_out = await delete(client, ("kept", NO_ID), timeout_ms=timeout_ms)
    assert timed_out == {("kept", topic_id, ErrorCode.REQUEST_TIMED_OUT)}
    assert set(await client.topics()) == {"kept"}


# DeleteTopics


async def test_a_topic_that_several_entries_mean_is_not_deleted(client: Client) -> None:
    ids = {name: await client.make_topic(name) for name in "abcd"}
    bad = ErrorCode.INVALID_REQUEST
    assert await delete(client, ("a", NO_ID), ("a", NO_ID), ("a", NO_ID)) == {("a", NO_ID, bad)}
    assert await delete(client, (None, ids["b"]), (None, ids["b"])) == {(None, ids["b"], bad)}
    assert await delete(client, (None, ids["c"]), ("c", NO_ID)) == {("c", ids["c"], bad)}
    assert await delete(client, ("c", ids["c"])) == {("c", ids["c"], bad)}
    assert await delete(client, (None, NO_ID), (None, NO_ID)) == {(None, NO_ID, bad)}
    assert await delete(client, ("no", NO_ID), ("no", NO_ID)) == {("no", NO_ID, bad)}
    assert set(await client.topics()) == set("abcd")
    mixed = ("a", ids["a"]), (None, NO_ID), ("b", NO_ID), ("c", NO_ID), ("c", NO_ID), ("a", NO_ID)
    assert await delete(client, *mixed, (None, ids["d"])) == {
        ("a", ids["a"], bad),
        (None, NO_ID, bad),
        ("b", ids["b"], ErrorCode.NONE),
        ("c", NO_ID, bad),
        ("a", ids["a"], ErrorCode.NONE),
        ("d", ids["d"], ErrorCode.NONE),
    }
    assert set(await client.topics()) == {"c"}


@pytest.mark.parametrize("version", range(1, 6))
async def test_a_topic_that_is_named_twice_is_not_deleted(client: Client, version: int) -> None:
    for name in "ab":
        await client.make_topic(name)
    request = DeleteTopicsRequest(topic_names=["a", "a", "b"], timeout_ms=20_000)
    rows = (await client.ask(DELETE_TOPICS, version, request)).responses
    assert {(row.name, row.error_code) for row in rows} == {("a", ErrorCode.INVALID_REQUEST), ("b", 0)}
    assert set(await client.topics()) == {"a"}


# Produce


@pytest.mark.parametrize("version", range(3, 13))
async def test_zstd_is_76_before_version_7(client: Client, version: int) -> None:
    await client.make_topic("t")
    for _ in range(2):
        assert (await produce(client, records(2, codec=3), version)).error_code == ErrorCode.NONE
        answer = await produce(client, records(2, codec=4), version)
        if version < 7:
            assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        else:
            assert answer.error_code == ErrorCode.NONE
    for odd in (b"", b"\0" * 16 + b"\2", records(1)[:22]):
        assert (await produce(client, odd, version)).error_code in (ErrorCode.INVALID_RECORD, 2)


@pytest.mark.parametrize("version", range(4, 13))
async def test_a_topic_that_is_kept_as_zstd_is_76_to_a_fetch_before_version_10(
    client: Client, version: int
) -> None:
    """As in Kafka; what a producer has sent as zstd leaves as it is."""
    for topic, codec in (("kept", "zstd"), ("t", "producer")):
        await client.make_topic(topic, compression_type=codec)
        assert (await produce(client, records(2, codec=4), topic=topic)).error_code == ErrorCode.NONE
    for _ in range(2):
        assert (await client.fetch("t", version=version)).error_code == ErrorCode.NONE
        part = await client.fetch("kept", version=version)
        if version < 10:
            assert (part.error_code, part.high_watermark) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 2)
            assert not part.records
        else:
            assert part.error_code == ErrorCode.NONE
            assert len(list(read_records(part.records))) == 2


@pytest.mark.parametrize("version", range(3, 13))
async def test_a_refusal_names_the_records_that_are_to_blame(client: Client, version: int) -> None:
    await client.make_topic("t", message_timestamp_before_max_ms="1000000000000")
    times = [T0, 1 << 52, T0, -1, 5, 1 << 53]
    data = build_batch([Record(n, time, None, b"v") for n, time in enumerate(times)])
    for _ in range(2):
        assert (await produce(client, records(1), version)).error_code == ErrorCode.NONE
        answer = await produce(client, data, version)
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        if version < 8:
            assert (answer.record_errors, answer.error_message) == ([], None)
            continue
        assert [row.batch_index for row in answer.record_errors] == [1, 4, 5]
        first, old, last = (row.batch_index_error_message for row in answer.record_errors)
        assert f"timestamp {1 << 52}, " in first
        assert "message.timestamp.after.max.ms is 3600000" in last
        assert old.startswith("timestamp 5, ")
        assert "message.timestamp.before.max.ms is 1000000000000" in old
        assert f"record 5 has timestamp {1 << 53}" in answer.error_message


async def test_a_refusal_of_the_batch_blames_no_record(client: Client) -> None:
    await client.make_topic("t")
    answer = await produce(client, records(3)[:-1])
    assert (answer.error_code, answer.record_errors) == (ErrorCode.CORRUPT_MESSAGE, [])
    answer = await produce(client, damaged(records(3), record_count=2, last_offset_delta=1))
    assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_RECORD, [])
    assert answer.error_message


async def test_a_record_that_is_malformed_is_named(client: Client) -> None:
    await client.make_topic("t")
    data = bytearray(records(3))
    data[61 + 2 * ((len(data) - 61) // 3) + 3] += 2  # the last record's offset delta
    answer = await produce(client, damaged(bytes(data)))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    (row,) = answer.record_errors
    assert row.batch_index == 2
    assert "offset delta does not follow" in row.batch_index_error_message


async def test_the_records_that_are_named_are_bounded(client: Client) -> None:
    await client.make_topic("t")
    for count, named in ((5000, 100), (20_000, 1)):
        bad = build_batch([Record(n, (1 << 52) - n, None, None) for n in range(count)], codec=1)
        answer = await produce(client, bad)
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [row.batch_index for row in answer.record_errors] == list(range(named))


@pytest.mark.parametrize("codec", range(5))
async def test_C16_a_producers_base_offset_is_overwritten(client: Client, codec: int) -> None:
    """Kafka refuses one that is not 0, whatever the codec."""
    await client.make_topic("t")
    for number, base in enumerate((0, 7, -1, 2**63 - 1, -(2**63))):
        answer = await produce(client, damaged(records(2, codec=codec), base_offset=base))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number * 2)
    stored, offsets = await client.fetched("t"), []
    while stored:
        size = 12 + int.from_bytes(stored[8:12], "big")
        offsets += [record.offset for record in read_records(stored[:size])]
        stored = stored[size:]
    assert offsets == list(range(10))


async def test_a_fetch_waits_for_bytes_as_they_are_stored(served: Served) -> None:
    client, waiting = await served.connect(), await served.connect()
    await client.make_topic("t", compression_type="uncompressed")
    data = build_batch([Record(0, T0, None, b"v" * 100_000)], codec=4)
    assert len(data) < 1000
    waiting.send(FETCH, 11, 1, fetch_request("t", max_wait_ms=600_000, min_bytes=100_000))
    while not served.broker.parked:
        await client.topics()
    assert (await produce(client, data)).error_code == ErrorCode.NONE
    _, response = await waiting.receive(FETCH, 11)
    assert len(response.responses[0].partitions[0].records) > 100_000


# ListOffsets


async def test_the_largest_timestamp_is_not_searched_for_by_the_event_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the largest lies before the log's start every batch behind it is looked at."""
    served = await serve(log_retention_ms="-1")
    client = await served.connect()
    await client.make_topic("t")
    for time in (T0 + 9, T0 + 3, T0 + 5):
        await produce(client, build_batch([Record(0, time, None, b"v")]))
    jobs: list[int] = []
    put = Readers.put

    def counted(self: Readers, *what: Any) -> None:
        jobs.append(1)
        put(self, *what)

    monkeypatch.setattr(Readers, "put", counted)

    async def ask() -> tuple[int, int, int]:
        answer = await client.list_offsets("t", -3)
        return answer.error_code, answer.timestamp, answer.offset

    assert await ask() == (0, T0 + 9, 0)
    assert not jobs
    log = log_of(served.broker, "t")
    with log.lock:
        log.log_start_offset = 1
    assert await ask() == (0, T0 + 5, 2)
    assert jobs


async def test_a_partition_that_is_searched_twice_is_answered_once_and_refused(serve: Serve) -> None:
    client = await (await serve(num_partitions="2")).connect()
    await client.make_topic("u")
    twice = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="u", partitions=twice)])
    answers = (await client.ask(LIST_OFFSETS, 7, request)).topics[0].partitions
    assert [(answer.partition_index, answer.error_code) for answer in answers] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
    ]
