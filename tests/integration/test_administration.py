"""The requests that change options and partitions and delete records, and those that describe what one node has."""

import asyncio
import errno
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import T0, creatable, create_request, fetch_request, metadata_request, records
from tests.support.faulty_disk import FaultyDisk
from tests.support.served import Client, Serve, Served, log_of, until, versions
from tidelog.broker import topic_changes
from tidelog.broker.broker import Broker
from tidelog.broker.catalog import CATALOG_FILE, Catalog
from tidelog.broker.quota import Quota
from tidelog.broker.topic_rules import BrokerStops
from tidelog.broker.topics import TOO_MANY_WAIT, NewTopic, Topic, Topics
from tidelog.config.inert import BROKER_INERT
from tidelog.config.topic_options import TOPIC_OPTIONS
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages import alter_configs as alter
from tidelog.protocol.messages import alter_partition_reassignments as reassign
from tidelog.protocol.messages import create_partitions as partitions
from tidelog.protocol.messages import delete_records as deletion
from tidelog.protocol.messages import describe_log_dirs as log_dirs
from tidelog.protocol.messages import describe_producers as producers
from tidelog.protocol.messages import describe_topic_partitions as topic_partitions
from tidelog.protocol.messages import elect_leaders as elect
from tidelog.protocol.messages import incremental_alter_configs as incremental
from tidelog.protocol.messages import list_config_resources as resources
from tidelog.protocol.messages import list_partition_reassignments as reassignments
from tidelog.protocol.messages.create_topics import (
    CREATE_TOPICS,
)
from tidelog.protocol.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.metadata import METADATA
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.records.steps import at_once
from tidelog.storage.checkpoints import load_offsets
from tidelog.storage.errors import LogDeleted, StorageError
from tidelog.storage.layout import LOG_STARTS
from tidelog.storage.log_manager import LogManager

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE = ErrorCode.NONE
LAGS = "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5): "


# -- CreatePartitions ---------------------------------------------------------------------------------------------


async def grow(
    client: Client, *wanted: tuple[str, int, Any], version: int = 3, validate_only: bool = False
) -> dict[str, Any]:
    topics = [
        partitions.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=nodes
            and [partitions.CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in nodes],
        )
        for name, count, nodes in wanted
    ]
    request = partitions.CreatePartitionsRequest(
        topics=topics, timeout_ms=10_000, validate_only=validate_only
    )
    answer = await client.ask(partitions.CREATE_PARTITIONS, version, request)
    return {result.name: (result.error_code, result.error_message) for result in answer.results}


@versions(partitions.CREATE_PARTITIONS)
async def test_create_partitions(broker: Broker, client: Client, version: int) -> None:
    topic_id = await client.make_topic("t", 2)
    await client.make_topic("u", 3)
    first = broker.topics.by_name["t"].partitions
    assert await grow(client, ("t", 4, None), version=version, validate_only=True) == {"t": (NONE, None)}
    assert len(broker.topics.by_name["t"].partitions) == 2
    assert await grow(client, ("t", 4, None), version=version) == {"t": (NONE, None)}
    grown = broker.topics.by_name["t"]
    assert (grown.id, len(grown.partitions), grown.partitions[:2]) == (topic_id, 4, first)
    assert [partition.index for partition in grown.partitions] == [0, 1, 2, 3]
    assert grown.partitions[3].log.append(bytearray(records(b"a")), T0).base_offset == 0
    found = await grow(
        client,
        ("t", 4, None),
        ("u", 2, None),
        ("nowhere", 2, None),
        ("twice", 2, None),
        ("twice", 3, None),
        version=version,
    )
    assert found == {
        "t": (ErrorCode.INVALID_PARTITIONS, "Topic already has 4 partition(s)."),
        "u": (
            ErrorCode.INVALID_PARTITIONS,
            "The topic u currently has 3 partition(s); 2 would not be an increase.",
        ),
        "nowhere": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        "twice": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
    }


async def test_new_partitions_are_where_they_are_assigned_and_no_more_than_there_may_be(
    client: Client,
) -> None:
    for name in ("a", "b", "c", "d"):
        await client.make_topic(name)
    found = await grow(client, ("a", 3, [[1], [1]]), ("b", 3, [[1]]), ("c", 2, [[2]]), ("d", 10_001, None))
    assert [code for code, _ in found.values()] == [
        NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_PARTITIONS,
    ]


async def test_what_is_not_begun_in_time_does_not_happen(broker: Broker, client: Client) -> None:
    await client.make_topic("t")
    topic = partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)
    request = partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=0, validate_only=False)
    (answer,) = (await client.ask(partitions.CREATE_PARTITIONS, 3, request)).results
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(broker.topics.by_name["t"].partitions) == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_records_are_deleted_whatever_the_time_to_wait_for_followers(
    broker: Broker, client: Client, timeout_ms: int
) -> None:
    await client.make_topic("t")
    await client.produce("t", records(b"a"))
    log = log_of(broker, "t")
    wanted = deletion.DeleteRecordsTopic(
        name="t", partitions=[deletion.DeleteRecordsPartition(partition_index=0, offset=-1)]
    )
    request = deletion.DeleteRecordsRequest(topics=[wanted], timeout_ms=timeout_ms)
    (part,) = (await client.ask(deletion.DELETE_RECORDS, 2, request)).topics[0].partitions
    assert (part.error_code, part.low_watermark, log.log_start_offset) == (NONE, 1, 1)


async def test_an_internal_topic_keeps_its_number_of_partitions(client: Client) -> None:
    """A group is in the partition that its name and their number say: with more it would be looked for elsewhere."""
    await client.make_topic("__consumer_offsets", 2)
    ((code, message),) = (await grow(client, ("__consumer_offsets", 4, None))).values()
    assert (code, "number of partitions is fixed" in message) == (ErrorCode.INVALID_REQUEST, True)


async def test_what_groups_have_committed_stays_whatever_is_taken_back_of_the_options_of_its_topic(
    served: Served, client: Client, serve: Serve
) -> None:
    """Now, and after the next start: retention would take what is still needed."""
    await client.make_topic("__consumer_offsets")
    assert await change(client, TOPIC, "__consumer_offsets", ("cleanup.policy", DELETE, None)) == (NONE, None)
    await change(client, TOPIC, "__consumer_offsets", ("retention.ms", SET, "1000"))
    of_now = served.broker.topics.by_name["__consumer_offsets"].config
    assert (of_now.deletes, of_now.segment_bytes) == (False, 100 << 20)
    await served.stop()
    again = (await serve()).broker.topics.by_name["__consumer_offsets"].config
    assert again == of_now


async def test_new_partitions_are_there_after_a_crash(served: Served, client: Client, serve: Serve) -> None:
    await client.make_topic("t", retention_ms="77")
    await grow(client, ("t", 3, None))
    crash(served)
    topic = (await serve()).broker.topics.by_name["t"]
    assert (len(topic.partitions), topic.config.retention_ms) == (3, 77)


def crash(served: Served) -> None:
    """Let go of the data folder as the end of a process would."""
    served.server.stop()
    served.broker.readers.stop()
    served.broker.flusher.stop()
    served.broker.maintenance.stop()
    served.broker.catalog.close()
    served.broker.logs.abandon()
    served.broker.stop = lambda: None  # type: ignore[method-assign]


async def test_partitions_that_cannot_be_made_are_taken_back(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    await client.make_topic("t", 2)
    create = LogManager.create

    def refuse(logs: LogManager, topic: str, partition: int, *rest: Any) -> Any:
        if partition == 4:
            raise StorageError("no room")
        return create(logs, topic, partition, *rest)

    with monkeypatch.context() as disk:
        disk.setattr(LogManager, "create", refuse)
        assert await grow(client, ("t", 6, None)) == {"t": (ErrorCode.KAFKA_STORAGE_ERROR, "no room")}
    assert sorted(path.name for path in served.broker.logs.directory.glob("t-*")) == ["t-0", "t-1"]
    assert [topic.partitions for topic in served.broker.catalog.topics()] == [2]
    assert await grow(client, ("t", 3, None)) == {"t": (NONE, None)}
    await served.stop()
    assert len((await serve()).broker.topics.by_name["t"].partitions) == 3


# -- Changes of a topic that meet one another: the steps of both are made here, as the maintenance thread would --------


async def alone(serve: Serve, partitions: int = 2) -> Any:
    """Return a broker's topics, whose maintenance thread has nothing to do."""
    served = await serve()
    await (await served.connect()).make_topic("t", partitions)
    served.broker.maintenance.stop()
    served.broker.logs.trust.reports_errors = False  # What is made is put on disk one by one.
    return served.broker.topics


async def grow_one(topics: Topics, topic: Topic, count: int) -> None:
    """Give a topic more partitions, and raise what has kept it from that."""
    outcome = (await topics.grow_all([(topic, count)]))[topic.name]
    if outcome is not None:
        raise outcome


async def test_a_topic_that_is_deleted_while_it_grows_is_gone(serve: Serve) -> None:
    topics = await alone(serve)
    topic = topics.find("t", b"")
    growing = grow_one(topics, topic, 9)
    growing.send(None)
    growing.send(None)
    deleting = topics.delete(topic)
    deleting.send(None)
    with pytest.raises(StorageError, match="deleted meanwhile"):
        growing.send(None)
    at_once(deleting)
    assert not list(topics._logs.directory.glob("t-*"))
    assert not [key for key in topics._logs.logs if key[0] == "t"]
    at_once(topics.create("t", 1, {}))
    at_once(grow_one(topics, topics.find("t", b""), 2))
    assert len(topics.find("t", b"").partitions) == 2


async def test_a_topic_that_is_deleted_while_its_partitions_are_put_on_disk_is_gone(serve: Serve) -> None:
    topics = await alone(serve)
    topic = topics.find("t", b"")
    growing = grow_one(topics, topic, 4)
    for _ in range(2):  # One is between the two that are made.
        growing.send(None)
    assert ("t", 3) in topics._logs.logs
    deleting = topics.delete(topic)
    deleting.send(None)
    with pytest.raises(LogDeleted, match="deleted meanwhile"):
        at_once(growing)
    at_once(deleting)
    assert not list(topics._logs.directory.glob("t-*"))


@pytest.mark.parametrize(("made_at_once", "count"), [(8, 1), (4, 2)])
async def test_topics_that_grow_together_take_one_change_of_the_catalogue_and_one_sync(
    serve: Serve,
    disk: FaultyDisk,
    telling_file_system: None,
    monkeypatch: pytest.MonkeyPatch,
    made_at_once: int,
    count: int,
) -> None:
    monkeypatch.setattr(topic_changes, "MADE_AT_ONCE", made_at_once)
    changes: list[str] = []
    disk.dirty_bytes = 0
    served = await serve()
    client = await served.connect()
    names = [f"t{number}" for number in range(4)]
    for name in names:
        await client.make_topic(name)
    served.broker.catalog._db.set_trace_callback(changes.append)
    disk.calls.clear()
    grown = await grow(client, *((name, 3, None) for name in names))
    served.broker.catalog._db.set_trace_callback(None)
    assert {code for code, _ in grown.values()} == {ErrorCode.NONE}
    assert [len(served.broker.topics.by_name[name].partitions) for name in names] == [3] * 4
    assert (changes.count("COMMIT"), len(disk.paths("syncfs"))) == (count, count)


async def test_of_topics_that_grow_together_one_that_is_deleted_keeps_no_other_from_it(
    broker: Broker, client: Client
) -> None:
    for name in ("a", "b", "c"):
        await client.make_topic(name)
    broker.maintenance.stop()
    topics = broker.topics
    topics._logs.trust.reports_errors = False  # What is made is put on disk one by one.
    for steps in (1, 4, 6):
        wanted = [topics.find(name, b"") for name in ("a", "b", "c")]
        growing = topics.grow_all([(topic, len(topic.partitions) + 2) for topic in wanted])
        for _ in range(steps):
            growing.send(None)
        at_once(topics.delete(topics.find("b", b"")))
        outcomes = at_once(growing)
        assert (outcomes["a"], outcomes["c"], type(outcomes["b"])) == (None, None, LogDeleted)
        assert not list(topics._logs.directory.glob("b-*"))
        at_once(topics.create("b", 1, {}))
    assert {record.name: record.partitions for record in topics._catalog.topics()} == {"a": 7, "b": 1, "c": 7}


async def test_topics_that_could_not_grow_have_as_many_partitions_as_before(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        await client.make_topic(name)

    def fails(*_: object) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(LogManager, "sync_made", fails)
        grown = await grow(client, ("a", 3, None), ("b", 2, None))
    assert [code for code, _ in grown.values()] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert {record.partitions for record in broker.catalog.topics()} == {1}
    assert sorted(path.name for path in broker.logs.directory.glob("[ab]-*")) == ["a-0", "b-0"]
    grown = await grow(client, ("a", 3, None), ("b", 2, None))
    assert [code for code, _ in grown.values()] == [ErrorCode.NONE] * 2


async def test_partitions_that_were_made_are_put_on_disk_a_step_each(serve: Serve, disk: FaultyDisk) -> None:
    """A sync of each of thousands takes seconds, and others have topics to create."""
    topics = await alone(serve)
    for task, name in ((topics.create("u", 9, {}), "u"), (grow_one(topics, topics.find("t", b""), 9), "t")):
        made = {f"{name}-{index}" for index in range(2, 9)}  # the others of t may be synced by another thread
        most = count = 0
        for _ in task.__await__():
            before, count = count, sum(path.name in made for path in disk.paths("sync"))
            most = max(most, count - before)
        assert most == 1
        synced = [path.name for path in disk.paths("sync")]
        assert made < set(synced)
        assert synced[-1] == "data"
    stopped = topics.create("v", 2, {})
    for _ in range(2):
        stopped.send(None)
    topics.is_stopping = True
    with pytest.raises(BrokerStops):
        stopped.send(None)


async def test_of_topics_that_are_made_together_a_stop_leaves_none(serve: Serve) -> None:
    topics = await alone(serve)
    for steps in (1, 4):  # While partitions are made, and while they are put on disk.
        making = topics.create_all([NewTopic("u", 2, {}), NewTopic("v", 2, {})])
        for _ in range(steps):
            making.send(None)
        topics.is_stopping = True
        outcomes = at_once(making)
        topics.is_stopping = False
        assert [type(outcome) for outcome in outcomes.values()] == [BrokerStops] * 2
        assert [record.name for record in topics._catalog.topics()] == ["t"]
    at_once(topics.create("u", 2, {}))
    assert len(topics.find("u", b"").partitions) == 2


async def test_a_topic_that_grows_as_the_broker_stops_was_not_deleted(serve: Serve) -> None:
    topics = await alone(serve)
    for steps in (1, 2):  # While partitions are made, and while they are put on disk.
        growing = grow_one(topics, topics.find("t", b""), 4)
        for _ in range(steps):
            growing.send(None)
        topics.is_stopping = True
        with pytest.raises(BrokerStops):
            growing.send(None)
        topics.is_stopping = False


async def test_a_topic_that_changes_while_it_grows_does_both(serve: Serve) -> None:
    topics = await alone(serve)
    topic = topics.find("t", b"")
    growing = grow_one(topics, topic, 5)
    growing.send(None)
    at_once(topics.alter(topic, {"retention.ms": "5"}))
    growing.send(None)
    at_once(topics.change_defaults(topics._defaults.override({"segment.bytes": "4096"})))
    at_once(growing)
    now = topics.find("t", b"")
    assert topics.find(None, topic.id) is now
    configs = [
        (partition.log.config.retention_ms, partition.log.config.segment_bytes)
        for partition in now.partitions
    ]
    assert configs == [(5, 4096)] * 5
    assert now.options == {"retention.ms": "5"}
    (record,) = topics._catalog.topics()
    assert (record.partitions, record.options) == (5, {"retention.ms": "5"})
    await asyncio.sleep(0)
    assert topics.by_name["t"] is topics.by_id[topic.id] is now


async def test_a_change_that_is_taken_back_while_a_topic_grows_is_so_everywhere(serve: Serve) -> None:
    topics = await alone(serve, 1)
    growing = grow_one(topics, topics.find("t", b""), 4)
    growing.send(None)
    at_once(topics.alter(topics.find("t", b""), {"retention.ms": "5"}))
    growing.send(None)
    at_once(topics.alter(topics.find("t", b""), {}))
    at_once(growing)
    logs = [partition.log for partition in topics.find("t", b"").partitions]
    assert {log.config.retention_ms for log in logs} == {TOPIC_OPTIONS["retention.ms"].default}


async def test_a_topic_grows_for_one_at_a_time(served: Served) -> None:
    await (await served.connect()).make_topic("t")
    served.broker.maintenance.stop()
    topics = served.broker.topics
    topic = topics.find("t", b"")
    assert topic is not None
    growing = grow_one(topics, topic, 4)
    growing.send(None)
    with pytest.raises(Exception, match="given partitions already"):
        at_once(grow_one(topics, topic, 3))
    at_once(growing)
    found = topics.find("t", b"")
    assert found is not None
    assert len(found.partitions) == 4


async def test_of_two_changes_at_once_the_later_holds(serve: Serve) -> None:
    topics = await alone(serve, 3)
    topic = topics.find("t", b"")
    first = topics.alter(topic, {"retention.ms": "1"})
    first.send(None)
    at_once(topics.alter(topics.find("t", b""), {"retention.ms": "2"}))
    at_once(first)
    now = topics.find("t", b"")
    assert {partition.log.config.retention_ms for partition in now.partitions} == {2}
    assert topics._catalog.topics()[0].options == {"retention.ms": "2"}


@pytest.mark.parametrize(("count", "steps", "is_made"), [(4, 1, False), (2, 2, True)])
async def test_a_topic_that_is_made_or_put_on_disk_while_defaults_change_has_the_new_ones(
    serve: Serve, count: int, steps: int, is_made: bool
) -> None:
    topics = await alone(serve)
    making = topics.create("new", count, {})
    for _ in range(steps):
        making.send(None)
    assert (("new", count - 1) in topics._logs.logs) is is_made
    at_once(topics.change_defaults(topics._defaults.override({"segment.bytes": "4096"})))
    at_once(making)
    made = topics.find("new", b"")
    assert made.config.segment_bytes == 4096
    assert {partition.log.config.segment_bytes for partition in made.partitions} == {4096}


# -- DeleteRecords ------------------------------------------------------------------------------------------------


async def delete(client: Client, *wanted: tuple[str, int, int], version: int = 2) -> list[tuple[int, int]]:
    topics = [
        deletion.DeleteRecordsTopic(
            name=name, partitions=[deletion.DeleteRecordsPartition(partition_index=index, offset=offset)]
        )
        for name, index, offset in wanted
    ]
    request = deletion.DeleteRecordsRequest(topics=topics, timeout_ms=10_000)
    answer = await client.ask(deletion.DELETE_RECORDS, version, request)
    assert [topic.name for topic in answer.topics] == [name for name, *_ in wanted]
    return [(topic.partitions[0].error_code, topic.partitions[0].low_watermark) for topic in answer.topics]


@versions(deletion.DELETE_RECORDS)
async def test_delete_records(serve: Serve, version: int) -> None:
    served = await serve(log_retention_ms="-1")
    client = await served.connect()
    await client.make_topic("t")
    await client.produce("t", records(b"a", b"b", b"c", b"d"))

    async def ask(offset: int, topic: str = "t", index: int = 0) -> tuple[int, int]:
        return (await delete(client, (topic, index, offset), version=version))[0]

    out_of_range = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert [await ask(5), await ask(-2)] == [out_of_range, out_of_range]
    assert await ask(2) == (NONE, 2)
    assert await ask(1) == (NONE, 2), "before the start: nothing happens, as in Kafka"
    assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    part = await client.fetch("t", 2)
    assert (part.error_code, part.log_start_offset) == (NONE, 2)
    assert await ask(-1) == (NONE, 4)
    assert (await client.fetch("t", 4)).error_code == NONE
    missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert [await ask(0, "nowhere"), await ask(0, index=1), await ask(0, index=-1)] == [missing] * 3
    assert (await client.produce("t", records(b"e"))).base_offset == 4


async def test_what_was_deleted_stays_so_after_a_crash(serve: Serve) -> None:
    served = await serve(log_retention_ms="-1")
    client = await served.connect()
    await client.make_topic("t", 2)
    await client.produce("t", records(b"a", b"b", b"c"))
    assert await delete(client, ("t", 0, 2), ("t", 1, 0)) == [(NONE, 2), (NONE, 0)]
    starts = load_offsets(served.broker.logs.directory / LOG_STARTS)
    assert starts["t", 0] == 2
    crash(served)
    client = await (await serve(log_retention_ms="-1")).connect()
    assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in read_records(await client.fetched("t", 2))][-1] == b"c"


async def test_offsets_of_deleted_records_that_no_flush_covered_are_not_given_out_again(serve: Serve) -> None:
    served = await serve(flush_policy="none", log_retention_ms="-1")
    client = await served.connect()
    await client.make_topic("t")
    await client.produce("t", records(b"a", b"b", b"c"))
    assert await delete(client, ("t", 0, -1)) == [(NONE, 3)]
    crash(served)
    (log,) = served.broker.logs.directory.glob("t-0/*.log")
    log.write_bytes(b"")  # as a power cut leaves it
    again = await serve(log_retention_ms="-1")
    client = await again.connect()
    assert (await client.produce("t", records(b"d"))).base_offset >= 3


@pytest.mark.parametrize("format_version", ["0.9.0", "0.10.0", "3.0"])
async def test_segments_of_deleted_records_go_soon(serve: Serve, format_version: str) -> None:
    served = await serve(log_retention_ms="-1")
    client = await served.connect()
    await client.make_topic(
        "t",
        segment_bytes="200",
        file_delete_delay_ms="0",
        retention_ms="-1",
        message_format_version=format_version,
    )
    for n in range(6):
        await client.produce("t", records(b"%d" % n * 100))
    log = log_of(served.broker, "t")
    bases = [segment.base_offset for segment in log.segments]
    assert (bases[3], len(bases)) == (3, 6)
    assert await delete(client, ("t", 0, 3)) == [(NONE, 3)]
    await asyncio.wait_for(until(lambda: [s.base_offset for s in log.segments] == [3, 4, 5]), 10)
    await asyncio.wait_for(until(lambda: len(list(log.directory.glob("*.log*"))) == 3), 10)
    part = await client.fetch("t", 3)
    assert (part.error_code, part.high_watermark) == (NONE, 6)
    assert bytes(part.records)


async def test_records_of_topics_that_brokers_keep_for_themselves_are_not_deleted(serve: Serve) -> None:
    client = await (await serve(log_retention_ms="-1")).connect()
    await client.make_topic("__consumer_offsets")
    await client.make_topic("compacted", cleanup_policy="compact")
    await client.make_topic("both", cleanup_policy="compact,delete")
    await client.make_topic("neither", cleanup_policy="")
    topics = ("__consumer_offsets", "compacted", "both", "neither")
    found = await delete(client, *((name, 0, -1) for name in topics))
    assert found == [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (ErrorCode.POLICY_VIOLATION, -1),
        (NONE, 0),
        (NONE, 0),
    ]


async def test_on_a_full_disk_records_are_deleted_at_the_second_try(serve: Serve, disk: FaultyDisk) -> None:
    served = await serve(log_retention_ms="-1")
    client = await served.connect()
    await client.make_topic("t", segment_bytes="200", file_delete_delay_ms="0")
    for n in range(4):
        await client.produce("t", records(b"%d" % n * 100))
    log = log_of(served.broker, "t")
    disk.fill(LOG_STARTS)
    assert await delete(client, ("t", 0, 2)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    await asyncio.wait_for(until(lambda: len(log.segments) == 2), 10)
    assert load_offsets(served.broker.logs.directory / LOG_STARTS).get(("t", 0), 0) == 0
    disk.heal()
    assert await delete(client, ("t", 0, 2)) == [(NONE, 2)]
    assert load_offsets(served.broker.logs.directory / LOG_STARTS)["t", 0] == 2


# -- AlterConfigs and IncrementalAlterConfigs ---------------------------------------------------------------------


Change = tuple[str, int, str | None]


async def change(
    client: Client,
    type_: int,
    name: str,
    *changes: Change,
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [
        incremental.AlterableConfig(name=option, config_operation=operation, value=value)
        for option, operation, value in changes
    ]
    resource = incremental.AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = (await client.ask(incremental.INCREMENTAL_ALTER_CONFIGS, version, request)).responses
    assert (answer.resource_type, answer.resource_name) == (type_, name)
    return answer.error_code, answer.error_message


async def replace(
    client: Client,
    type_: int,
    name: str,
    options: dict[str, str | None],
    version: int = 2,
    check: bool = False,
) -> tuple[int, str | None]:
    configs = [alter.AlterableConfig(name=option, value=value) for option, value in options.items()]
    resource = alter.AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    request = alter.AlterConfigsRequest(resources=[resource], validate_only=check)
    (answer,) = (await client.ask(alter.ALTER_CONFIGS, version, request)).responses
    return answer.error_code, answer.error_message


async def options_of(client: Client, type_: int, name: str) -> dict[str, Any]:
    resource = DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (answer,) = (await client.ask(DESCRIBE_CONFIGS, 4, request)).results
    assert answer.error_code == NONE
    return {config.name: config for config in answer.configs}


def set_on(table: dict[str, Any], source: int) -> dict[str, str]:
    return {name: option.value for name, option in table.items() if option.config_source == source}


@versions(incremental.INCREMENTAL_ALTER_CONFIGS)
async def test_incremental_alter_configs(broker: Broker, client: Client, version: int) -> None:
    await client.make_topic("t", segment_bytes="4096")

    async def own(*changes: Change, **more: bool) -> Any:
        answer = await change(client, TOPIC, "t", *changes, version=version, **more)
        return answer, set_on(await options_of(client, TOPIC, "t"), 1)

    ok = (NONE, None)
    before = {"segment.bytes": "4096"}
    assert await own(("retention.ms", SET, "5"), validate_only=True) == (ok, before)
    after = before | {"retention.ms": "5"}
    assert await own(("retention.ms", SET, " 5 ")) == (ok, after)
    assert await own(("cleanup.policy", APPEND, "compact")) == (
        ok,
        after | {"cleanup.policy": "delete,compact"},
    )
    assert await own(("cleanup.policy", SUBTRACT, "other, delete")) == (
        ok,
        after | {"cleanup.policy": "compact"},
    )
    both = (("segment.bytes", DELETE, None), ("cleanup.policy", DELETE, ""), ("never.set", DELETE, None))
    assert await own(*both) == (ok, {"retention.ms": "5"})
    log = log_of(broker, "t")
    assert (log.config.retention_ms, log.config.segment_bytes) == (5, 1 << 30)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (
            [("retention.ms", SET, "soon")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        ([("retention", SET, "1")], ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "because its type is not LIST."),
        ([("nothing", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, "because its type is not LIST."),
        (
            [("cleanup.policy", APPEND, "shred")],
            ErrorCode.INVALID_CONFIG,
            "String must be one of: compact, delete",
        ),
        (
            [("retention.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys : retention.ms",
        ),
        (
            [("max.decompressed.bytes", SET, str(1 << 30))],
            ErrorCode.INVALID_CONFIG,
            "Value must be no more than 67108864",
        ),
        ([("retention.ms", SET, "1" * 1001)], ErrorCode.INVALID_CONFIG, "1001 characters"),
        (
            [("segment.ms", SET, "7"), ("retention.ms", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms",
        ),
    ],
)
async def test_of_a_bad_change_nothing_is_made(
    client: Client, changes: list[Change], code: ErrorCode, words: str
) -> None:
    await client.make_topic("t")
    for validate_only in (True, False):
        found, message = await change(client, TOPIC, "t", *changes, validate_only=validate_only)
        assert found == code
        assert words in str(message)
    assert set_on(await options_of(client, TOPIC, "t"), 1) == {}


async def test_what_has_no_options_and_what_stands_twice_is_refused(client: Client) -> None:
    await client.make_topic("t")
    one = ("retention.ms", SET, "1")
    assert await change(client, TOPIC, "u", one) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'u' does not exist.",
    )
    assert (await change(client, BROKER, "2", one))[0] == ErrorCode.INVALID_REQUEST
    assert (await change(client, 8, "1", one))[0] == ErrorCode.INVALID_REQUEST
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource] * 2, validate_only=False)
    (answer,) = (await client.ask(incremental.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@versions(alter.ALTER_CONFIGS)
async def test_alter_configs(client: Client, version: int) -> None:
    await client.make_topic("t", segment_bytes="4096")
    wanted: dict[str, str | None] = {"retention.ms": "5", "retention.bytes": "6"}
    assert await replace(client, TOPIC, "t", wanted, version, check=True) == (NONE, None)
    assert set_on(await options_of(client, TOPIC, "t"), 1) == {"segment.bytes": "4096"}
    assert await replace(client, TOPIC, "t", wanted, version) == (NONE, None)
    assert set_on(await options_of(client, TOPIC, "t"), 1) == wanted
    found, _ = await replace(client, TOPIC, "t", {"retention.ms": None}, version)
    assert found == ErrorCode.INVALID_REQUEST
    assert await replace(client, BROKER, "1", {"log.retention.ms": "9"}, version) == (NONE, None)
    assert set_on(await options_of(client, BROKER, "1"), 2) == {"log.retention.ms": "9"}
    assert await replace(client, BROKER, "1", {}, version) == (NONE, None)
    assert set_on(await options_of(client, BROKER, "1"), 2) == {}


async def test_a_change_is_there_after_a_crash_and_told_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    served = await serve()
    client = await served.connect()
    await client.make_topic("t", 2, segment_bytes="4096")
    await change(
        client,
        TOPIC,
        "t",
        ("segment.bytes", DELETE, None),
        ("cleanup.policy", SET, "compact"),
        ("preallocate", SET, "true"),
    )
    await change(client, BROKER, "1", ("log.retention.ms", SET, "8"))
    await change(client, BROKER, "", ("log.segment.bytes", SET, "5000"))
    said = [record.getMessage() for record in caplog.records]
    assert "options changed topic=t cleanup.policy=compact preallocate=true segment.bytes=default" in said
    assert any("option has no effect topic=t option=preallocate" in line for line in said)
    assert "options changed broker=1 log.retention.ms=8" in said
    assert "options changed broker=all log.segment.bytes=5000" in said
    crash(served)
    again = await serve()
    config = log_of(again.broker, "t", 1).config
    assert (config.cleanup_policy, config.segment_bytes, config.retention_ms) == (("compact",), 5000, 8)
    assert any("option set while running" in record.getMessage() for record in caplog.records)


async def test_what_is_told_of_an_option_of_all_brokers_names_them_and_ends_with_it(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    served = await serve()
    changed = ("num.io.threads", SET, "2")
    assert await change(await served.connect(), BROKER, "", changed) == (NONE, None)
    await served.stop()
    served = await serve()
    told = [message for message in caplog.messages if message.startswith("option has no effect")]
    assert [message.split()[4] for message in told] == ["broker=all"] * 2, "at the change, and at the start"
    changed = ("num.io.threads", DELETE, None)
    assert await change(await served.connect(), BROKER, "", changed) == (NONE, None)
    assert caplog.text.count("option has no effect") == 2


async def test_contradictory_lags_of_compaction_are_refused(client: Client) -> None:
    least, most = ("min.compaction.lag.ms", SET, "6"), ("max.compaction.lag.ms", SET, "5")
    await client.make_topic("t", max_compaction_lag_ms="5")
    for changes in ((least,), (least, most)):
        code, message = await change(client, TOPIC, "t", *changes)
        assert code == ErrorCode.INVALID_CONFIG
        assert message == LAGS + "min.compaction.lag.ms must be at most max.compaction.lag.ms"
    broker = [(f"log.cleaner.{name}", op, value) for name, op, value in (least, most)]
    code, message = await change(client, BROKER, "1", *broker)
    assert code == ErrorCode.INVALID_REQUEST
    assert (
        message
        == LAGS + "log.cleaner.min.compaction.lag.ms must be at most log.cleaner.max.compaction.lag.ms"
    )
    assert await change(client, BROKER, "1", broker[0]) == (NONE, None)
    row = await client.create("u", max_compaction_lag_ms="5")
    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert row.error_message == LAGS + "min.compaction.lag.ms must be at most max.compaction.lag.ms"


async def test_a_change_holds_for_what_comes_after_it(served: Served) -> None:
    served.broker.clock.hold(T0 + 5)
    client = await served.connect()
    await client.make_topic("t", 2)
    log = log_of(served.broker, "t")
    await client.produce("t", records(b"x" * 500))
    await change(client, TOPIC, "t", ("max.message.bytes", SET, "300"))
    assert (await client.produce("t", records(b"x" * 500))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await change(client, TOPIC, "t", ("message.timestamp.type", SET, "LogAppendTime"))
    assert (await client.produce("t", records(b"a"))).log_append_time_ms == T0 + 5
    await change(client, TOPIC, "t", ("segment.bytes", SET, "200"))
    await client.produce("t", records(b"b"))
    assert len(log.segments) == 2
    await change(
        client, TOPIC, "t", ("lookup.clock", SET, "append"), ("message.timestamp.type", DELETE, None)
    )
    assert (await client.produce("t", records(b"c"))).log_append_time_ms == -1
    assert log_of(served.broker, "t") is log


async def test_retention_that_is_shortened_deletes_soon(serve: Serve) -> None:
    served = await serve(log_retention_ms="-1")
    client = await served.connect()
    await client.make_topic("own", file_delete_delay_ms="0", cleanup_policy="compact")
    await client.make_topic("default", file_delete_delay_ms="0")
    logs = [log_of(served.broker, name) for name in ("own", "default")]
    for name in ("own", "default"):
        await client.produce(name, memoryview(build_batch([Record(0, T0, b"k", b"a")])))
    await change(client, TOPIC, "own", ("retention.ms", SET, "1"))
    assert logs[0].log_start_offset == 0
    await change(client, TOPIC, "own", ("cleanup.policy", DELETE, None))
    await asyncio.wait_for(until(lambda: logs[0].log_start_offset == 1), 10)
    assert logs[1].log_start_offset == 0
    await change(client, BROKER, "", ("log.retention.ms", SET, "1"))
    await asyncio.wait_for(until(lambda: logs[1].log_start_offset == 1), 10)


async def test_a_topic_that_flushes_by_time_from_now_on_is_looked_after(
    broker: Broker, client: Client
) -> None:
    await client.make_topic("t")
    await client.produce("t", records(b"a"))
    log = log_of(broker, "t")
    assert log.recovery_point == 0
    await change(client, TOPIC, "t", ("flush.policy", SET, "interval"), ("flush.ms", SET, "1"))
    await asyncio.wait_for(until(lambda: log.recovery_point == 1), 10)


async def test_who_waits_for_records_of_a_topic_that_changes_gets_them(served: Served) -> None:
    client, waiting = await served.connect(), await served.connect()
    await client.make_topic("t")
    waiting.send(FETCH, 11, 1, fetch_request("t", max_wait_ms=600_000))
    await asyncio.wait_for(until(lambda: bool(served.broker.parked)), 10)
    await grow(client, ("t", 3, None))
    await change(client, TOPIC, "t", ("segment.bytes", SET, "4096"))
    assert (await client.produce("t", records(b"a"))).error_code == NONE
    _, response = await waiting.receive(FETCH, 11)
    assert [r.value for r in read_records(bytes(response.responses[0].partitions[0].records))] == [b"a"]


async def test_what_is_produced_amid_changes_is_stored_as_it_is_answered(serve: Serve) -> None:
    """Appends go on beside the thread that changes the options of their log."""
    served = await serve(log_retention_ms="-1")
    served.broker.clock.hold(T0 + 99)
    client, other = await served.connect(), await served.connect()
    await client.make_topic("t")
    is_done = False

    async def alter_again_and_again() -> None:
        number = 0
        while not is_done:
            number += 1
            stamps = "LogAppendTime" if number % 2 else "CreateTime"
            await change(
                other,
                TOPIC,
                "t",
                ("message.timestamp.type", SET, stamps),
                ("segment.bytes", SET, str(300 + number % 7 * 100)),
                ("segment.jitter.ms", SET, str(number % 3)),
                ("flush.policy", SET, ("acks", "none", "interval")[number % 3]),
            )

    changing = asyncio.create_task(alter_again_and_again())
    answers: list[Any] = []
    while len(answers) < 200 or len({answer.log_append_time_ms for answer in answers}) == 1:
        answers.append(await client.produce("t", records(b"x" * 60), acks=-1))
    is_done = True
    await changing
    assert [answer.base_offset for answer in answers] == list(range(len(answers)))
    for answer in answers:
        (stored,) = read_records((await client.fetched("t", answer.base_offset))[:200])
        assert stored.offset == answer.base_offset
        assert answer.log_append_time_ms == (T0 + 99 if stored.timestamp == T0 + 99 else -1)


async def test_options_of_the_broker_and_where_they_come_from(serve: Serve) -> None:
    served = await serve(log_segment_bytes="7000")
    client = await served.connect()
    await client.make_topic("t")
    await client.make_topic("own", segment_bytes="6000")

    async def synonyms(type_: int, name: str, option: str) -> list[tuple[str, int]]:
        found = (await options_of(client, type_, name))[option]
        assert (found.value, found.config_source) == (found.synonyms[0].value, found.synonyms[0].source)
        return [(synonym.value, synonym.source) for synonym in found.synonyms]

    started = [("7000", 4), (str(1 << 30), 5)]
    assert await synonyms(BROKER, "1", "log.segment.bytes") == started
    assert await change(client, BROKER, "", ("log.segment.bytes", SET, "8000")) == (NONE, None)
    assert await change(client, BROKER, "1", ("log.segment.bytes", SET, "9000")) == (NONE, None)
    changed = [("9000", 2), ("8000", 3), *started]
    assert await synonyms(BROKER, "1", "log.segment.bytes") == changed
    assert await synonyms(TOPIC, "t", "segment.bytes") == changed
    assert await synonyms(TOPIC, "own", "segment.bytes") == [("6000", 1), *changed]
    logs = {name: topic.partitions[0].log for name, topic in served.broker.topics.by_name.items()}
    assert {name: log.config.segment_bytes for name, log in logs.items()} == {"t": 9000, "own": 6000}
    (everywhere,) = (await options_of(client, BROKER, "")).items()
    assert (everywhere[0], everywhere[1].value, everywhere[1].config_source) == (
        "log.segment.bytes",
        "8000",
        3,
    )
    await change(client, BROKER, "1", ("log.segment.bytes", DELETE, None))
    assert logs["t"].config.segment_bytes == 8000
    await client.make_topic("later")
    assert log_of(served.broker, "later").config.segment_bytes == 8000
    await change(client, BROKER, "", ("log.segment.bytes", DELETE, None))
    assert await synonyms(TOPIC, "t", "segment.bytes") == started
    assert logs["t"].config.segment_bytes == 7000
    assert await change(client, BROKER, "1", ("log.cleanup.policy", APPEND, "compact")) == (NONE, None)
    assert logs["t"].config.cleanup_policy == ("delete", "compact")


async def test_which_options_of_the_broker_can_be_changed_is_told(client: Client) -> None:
    table = await options_of(client, BROKER, "1")
    changeable = {row.broker for row in TOPIC_OPTIONS.values() if row.broker}
    changeable |= {"log.level", "producer.id.expiration.ms", "max.connections", "max.connections.per.ip"}
    of_cleaners = (
        "backoff.ms",
        "dedupe.buffer.size",
        "io.buffer.load.factor",
        "io.max.bytes.per.second",
        "threads",
    )
    changeable |= {"tidelog.cleaner.schedule", *(f"log.cleaner.{name}" for name in of_cleaners)}
    changeable |= {name for name, row in BROKER_INERT.items() if row.live}
    assert {name for name, option in table.items() if not option.read_only} == changeable
    for name, option in table.items():
        if option.value is None:
            continue
        code, message = await change(client, BROKER, "1", (name, SET, option.value), validate_only=True)
        if option.read_only:
            assert code == ErrorCode.INVALID_REQUEST
            assert "Cannot update these configs dynamically" in str(message)
        else:
            assert (code, message) == (NONE, None)
    for name, words in {
        "log.retention.hours": "use log.retention.ms instead",
        "log.cleaner.enable": "dynamically: [log.cleaner.enable]: it is read when the broker starts",
        "auto.leader.rebalance.enable": "[auto.leader.rebalance.enable]: Has no effect: there is one node",
        "sasl.jaas.config": "can neither authenticate nor encrypt yet",
        "ssl.keystore.location": "an option of Kafka that is refused",
        "principal.builder.class": "an option of Kafka that is refused",
        "zookeeper.connect": "has no effect: there is no ZooKeeper",
        "retention.ms": "the broker's default for all topics is log.retention.ms",
        "no.such": "Unknown config name: no.such",
    }.items():
        code, message = await change(client, BROKER, "1", (name, SET, "1"))
        assert code == ErrorCode.INVALID_REQUEST
        assert words in str(message)
    assert not any(option.read_only for option in await topic_options(client))


async def test_options_that_do_nothing_are_changed_as_in_kafka_and_said_to_do_nothing(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    served = await serve(num_io_threads="8")
    client = await served.connect()
    await client.make_topic("t")

    async def told(client: Client) -> list[tuple[str, int]]:
        option = (await options_of(client, BROKER, "1"))["num.io.threads"]
        return [(synonym.value, synonym.source) for synonym in option.synonyms]

    assert await told(client) == [("8", 4), ("1", 5)]
    changes = ("num.io.threads", SET, "16"), ("log.local.retention.ms", SET, "9")
    assert await change(client, BROKER, "", *changes) == (NONE, None)
    assert await change(client, BROKER, "1", ("num.io.threads", SET, "4")) == (NONE, None)
    line = "option has no effect broker=all option=num.io.threads value=16 reason="
    assert line + "'one event loop serves all connections'" in caplog.messages
    assert await change(client, BROKER, "", ("metric.reporters", APPEND, "a.B")) == (NONE, None)
    for bad in ("0", "many", ""):
        code, _ = await change(client, BROKER, "", ("num.io.threads", SET, bad))
        assert code == ErrorCode.INVALID_REQUEST
    code, _ = await change(client, BROKER, "", ("num.io.threads", APPEND, "1"))
    assert code == ErrorCode.INVALID_CONFIG
    await served.stop()
    client = await (await serve(num_io_threads="8")).connect()
    assert await told(client) == [("4", 2), ("16", 3), ("8", 4), ("1", 5)]
    everywhere = await options_of(client, BROKER, "")
    assert {name: option.value for name, option in everywhere.items()} == {
        "log.local.retention.ms": "9",
        "metric.reporters": "a.B",
        "num.io.threads": "16",
    }
    option = (await options_of(client, TOPIC, "t"))["local.retention.ms"]
    assert (option.value, option.config_source) == ("9", 3)
    await change(client, BROKER, "1", ("num.io.threads", DELETE, None))
    assert await told(client) == [("16", 3), ("8", 4), ("1", 5)]


async def topic_options(client: Client) -> list[Any]:
    await client.make_topic("t")
    return list((await options_of(client, TOPIC, "t")).values())


async def test_what_is_looked_up_when_it_is_used_holds_at_once(served: Served, client: Client) -> None:
    await change(client, BROKER, "1", ("max.connections.per.ip", SET, "1"))
    refused = await served.connect()
    assert await refused.reader.read() == b""
    await change(client, BROKER, "1", ("max.connections.per.ip", SET, "9"), ("max.connections", SET, "1"))
    refused = await served.connect()
    assert await refused.reader.read() == b""
    await change(
        client, BROKER, "1", ("max.connections", DELETE, None), ("producer.id.expiration.ms", SET, "5")
    )
    assert served.broker.logs.defaults.producer_id_expiration_ms == 5


async def test_a_stored_option_that_cannot_be_honoured_does_not_keep_the_broker_from_starting(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, serve: Serve
) -> None:
    await (await served.connect()).make_topic("t")
    await served.stop()
    with closing(Catalog(tmp_path / "data" / CATALOG_FILE)) as catalog:
        catalog.set_broker_options("1", {"log.cleaner.threads": "3000", "log.segment.bytes": "5000"})
        catalog.set_options("t", {"retention.ms": "soon", "segment.ms": "7", "of.another.version": "1"})
    served = await serve()
    client = await served.connect()
    for problem in (
        "log.cleaner.threads=3000: Value must be no more than 16",
        "topic=t, set or delete it: retention.ms=soon: ",
    ):
        assert problem in caplog.text
    config = served.broker.topics.by_name["t"].config
    assert (config.retention_ms, config.segment_ms, config.segment_bytes) == (-1, 7, 5000)
    assert await change(client, BROKER, "1", ("max.connections", SET, "50")) == (NONE, None)
    assert served.broker.catalog.broker_options("1") == {
        "log.segment.bytes": "5000",
        "max.connections": "50",
    }
    assert await change(client, TOPIC, "t", ("retention.ms", SET, "9")) == (NONE, None)
    assert served.broker.topics.by_name["t"].options == {"retention.ms": "9", "segment.ms": "7"}


async def test_a_change_that_the_catalogue_does_not_take_is_not_made(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.make_topic("t")

    def full(*_: object) -> None:
        raise StorageError(f"no room: {errno.ENOSPC}")

    for method in ("set_options", "set_broker_options", "set_partitions"):
        monkeypatch.setattr(broker.catalog, method, full)
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert (await change(client, TOPIC, "t", ("retention.ms", SET, "1")))[0] == failed
    assert (await change(client, BROKER, "1", ("log.retention.ms", SET, "1")))[0] == failed
    assert (await grow(client, ("t", 3, None)))["t"][0] == failed
    topic = broker.topics.by_name["t"]
    assert (topic.options, len(topic.partitions), broker.config.topic.retention_ms) == (
        {},
        1,
        TOPIC_OPTIONS["retention.ms"].default,
    )
    assert not list(broker.logs.directory.glob("t-[12]"))


async def test_where_too_much_waits_to_be_changed_clients_are_told_to_ask_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.make_topic("t")
    monkeypatch.setattr(Quota, "hold", lambda *_: None)
    throttled = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, TOO_MANY_WAIT)
    assert await grow(client, ("t", 3, None)) == {"t": throttled}
    assert await change(client, TOPIC, "t", ("retention.ms", SET, "1")) == throttled
    assert await replace(client, TOPIC, "t", {}) == throttled
    assert await delete(client, ("t", 0, -1)) == [(ErrorCode.THROTTLING_QUOTA_EXCEEDED, -1)]


# -- What one node has to tell ------------------------------------------------------------------------------------


@versions(log_dirs.DESCRIBE_LOG_DIRS)
async def test_describe_log_dirs(broker: Broker, client: Client, version: int) -> None:
    await client.make_topic("t", 2, segment_bytes="200")
    await client.make_topic("u")
    for _ in range(3):
        await client.produce("t", records(b"x" * 100))
    folder = broker.logs.directory

    async def ask(*topics: tuple[str, list[int]], every: bool = False) -> Any:
        wanted = [log_dirs.DescribableLogDirTopic(topic=name, partitions=each) for name, each in topics]
        request = log_dirs.DescribeLogDirsRequest(topics=None if every else wanted)
        answer = await client.ask(log_dirs.DESCRIBE_LOG_DIRS, version, request)
        (found,) = answer.results
        assert (answer.error_code, found.error_code, found.log_dir) == (NONE, NONE, str(folder.absolute()))
        if version >= 4:
            assert 0 < found.usable_bytes <= found.total_bytes
        else:
            assert (found.usable_bytes, found.total_bytes) == (-1, -1)
        return {
            (topic.name, each.partition_index): each.partition_size
            for topic in found.topics
            for each in topic.partitions
        }

    def size(name: str) -> int:
        return sum(path.stat().st_size for path in (folder / name).glob("*.log"))

    assert await ask(every=True) == {("t", 0): size("t-0"), ("t", 1): 0, ("u", 0): 0}
    assert size("t-0") > 300
    assert await ask(("t", [0, 0, 5, -1]), ("nowhere", [0])) == {("t", 0): size("t-0")}
    assert await ask(("t", [0]), ("t", [1, 2])) == {("t", 0): size("t-0"), ("t", 1): 0}


async def test_the_sizes_of_very_many_partitions_are_told(client: Client) -> None:
    for number in range(3):
        await client.make_topic(f"t{number}", 400)
    request = log_dirs.DescribeLogDirsRequest(topics=None)
    (found,) = (await client.ask(log_dirs.DESCRIBE_LOG_DIRS, 4, request)).results
    assert [len(topic.partitions) for topic in found.topics] == [400] * 3


@versions(elect.ELECT_LEADERS)
async def test_elect_leaders(client: Client, version: int) -> None:
    await client.make_topic("t")

    async def ask(asked: list[tuple[str, list[int]]] | None, kind: int = 0) -> Any:
        wanted = None
        if asked is not None:
            wanted = [elect.TopicPartitions(topic=name, partitions=numbers) for name, numbers in asked]
        request = elect.ElectLeadersRequest(
            election_type=kind if version else 0, topic_partitions=wanted, timeout_ms=1000
        )
        answer = await client.ask(elect.ELECT_LEADERS, version, request)
        return answer.error_code, [
            (topic.topic, each.partition_id, each.error_code)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        ]

    unknown, needless = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ELECTION_NOT_NEEDED
    expected = [("t", 0, needless), ("t", 1, unknown), ("u", 0, unknown)]
    for kind in (0, 1):
        assert await ask([("t", [0, 1]), ("u", [0])], kind) == (NONE, expected)
    assert await ask(None) == (NONE, [])
    if version:
        assert await ask(None, 2) == (ErrorCode.INVALID_REQUEST, [])


async def test_the_name_of_an_unknown_topic_is_not_repeated_for_each_of_its_partitions(
    client: Client,
) -> None:
    wanted = [elect.TopicPartitions(topic="x" * 10_000, partitions=list(range(1000)))]
    client.send(
        elect.ELECT_LEADERS,
        2,
        1,
        elect.ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=1000),
    )
    assert len(await client.frame()) < 60_000, "it was 10 MB"


@versions(reassign.ALTER_PARTITION_REASSIGNMENTS)
async def test_alter_partition_reassignments(client: Client, version: int) -> None:
    await client.make_topic("t")
    wanted = [
        reassign.ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in ((0, [1]), (0, [2]), (0, [1, 2]), (0, []), (0, None), (1, [1]))
    ]
    topics = [reassign.ReassignableTopic(name=name, partitions=wanted) for name in ("t", "nowhere")]
    request = reassign.AlterPartitionReassignmentsRequest(topics=topics)
    answer = await client.ask(reassign.ALTER_PARTITION_REASSIGNMENTS, version, request)
    assert (answer.error_code, [topic.name for topic in answer.responses]) == (NONE, ["t", "nowhere"])
    elsewhere, unknown = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [[each.error_code for each in topic.partitions] for topic in answer.responses] == [
        [NONE, elsewhere, elsewhere, elsewhere, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, unknown],
        [unknown] * 6,
    ]


@versions(reassignments.LIST_PARTITION_REASSIGNMENTS)
async def test_list_partition_reassignments(client: Client, version: int) -> None:
    request = reassignments.ListPartitionReassignmentsRequest(topics=None)
    answer = await client.ask(reassignments.LIST_PARTITION_REASSIGNMENTS, version, request)
    assert (answer.error_code, answer.topics) == (NONE, [])


@versions(producers.DESCRIBE_PRODUCERS)
async def test_describe_producers(served: Served, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    served.broker.clock.hold(T0 + 9)
    client = await served.connect()
    await client.make_topic("t", 2)
    for sequence in (0, 2):
        made = [Record(i, T0 + i, None, b"v") for i in range(2)]
        data = build_batch(made, producer_id=77, producer_epoch=3, base_sequence=sequence)
        await client.produce("t", memoryview(data))

    async def ask() -> Any:
        topics = [
            producers.TopicRequest(name="t", partition_indexes=[0, 1, 2]),
            producers.TopicRequest(name="nowhere", partition_indexes=[0]),
        ]
        request = producers.DescribeProducersRequest(topics=topics)
        answer = await client.ask(producers.DESCRIBE_PRODUCERS, version, request)
        return [
            (each.error_code, each.active_producers) for topic in answer.topics for each in topic.partitions
        ]

    sender = producers.ProducerState(
        producer_id=77, producer_epoch=3, last_sequence=3, last_timestamp=T0 + 9, coordinator_epoch=-1
    )
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert await ask() == [(NONE, [sender]), (NONE, []), unknown, unknown]
    monkeypatch.setattr("tidelog.broker.handlers.describe_producers.MOST_PRODUCERS", 0)
    assert (await ask())[0] == (ErrorCode.INVALID_REQUEST, [])


@versions(resources.LIST_CONFIG_RESOURCES)
async def test_list_config_resources(client: Client, version: int) -> None:
    await client.make_topic("t")

    async def ask(*types: int) -> Any:
        request = resources.ListConfigResourcesRequest(resource_types=list(types))
        answer = await client.ask(resources.LIST_CONFIG_RESOURCES, version, request)
        return answer.error_code, [
            (each.resource_type, each.resource_name) for each in answer.config_resources
        ]

    if version == 0:
        assert await ask() == (NONE, [])
        return
    assert await ask() == (NONE, [(BROKER, "1"), (TOPIC, "t")])
    assert await ask(TOPIC) == (NONE, [(TOPIC, "t")])
    assert await ask(8, 16, 32) == (NONE, [])
    assert await ask(TOPIC, 3) == (ErrorCode.UNSUPPORTED_VERSION, [])


@versions(topic_partitions.DESCRIBE_TOPIC_PARTITIONS)
async def test_describe_topic_partitions(client: Client, version: int) -> None:
    topic_id = await client.make_topic("b", 3)
    await client.make_topic("a", 2)
    await client.make_topic("__consumer_offsets")

    async def ask(names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
        request = topic_partitions.DescribeTopicPartitionsRequest(
            topics=[topic_partitions.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor and topic_partitions.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        return await client.ask(topic_partitions.DESCRIBE_TOPIC_PARTITIONS, version, request)

    async def page(names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> Any:
        answer = await ask(names, limit, cursor)
        following = answer.next_cursor
        found = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]
        return found, following and (following.topic_name, following.partition_index)

    (found,) = (await ask(["b"])).topics
    assert (found.error_code, found.topic_id, found.is_internal) == (NONE, topic_id, False)
    assert found.topic_authorized_operations == 3576
    one = found.partitions[2]
    assert (one.partition_index, one.leader_id, one.leader_epoch) == (2, 1, 0)
    assert (one.replica_nodes, one.isr_nodes, one.offline_replicas) == ([1], [1], [])
    assert (one.eligible_leader_replicas, one.last_known_elr) == ([], []), "Java fails on null"
    internal = ("__consumer_offsets", [0])
    assert await page([], 2000) == ([internal, ("a", [0, 1]), ("b", [0, 1, 2])], None)
    assert await page([], 2) == ([internal, ("a", [0])], ("a", 1))
    assert await page([], 2, ("a", 1)) == ([("a", [1]), ("b", [0])], ("b", 1))
    assert await page([], 1, ("a", 1)) == ([("a", [1])], ("b", 0))
    assert await page([], 2, ("b", 1)) == ([("b", [1, 2])], None)
    assert await page(["b", "a"], 2) == ([("a", [0, 1])], ("b", 0))
    assert await page(["b", "a"], -5, ("b", 2)) == ([("b", [2])], None)
    assert await page([], 5, ("aa", 1)) == ([("b", [0, 1, 2])], None)
    assert await page(["a", "aa", "b"], 2) == ([("a", [0, 1])], ("aa", 0))
    assert await page(["a", "aa", "b"], 2, ("aa", 0)) == ([("aa", []), ("b", [0, 1])], ("b", 2))
    codes = {topic.name: topic.error_code for topic in (await ask(["nowhere", "no/name", "a"])).topics}
    assert codes == {
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a": NONE,
    }
    for cursor in (("b", -1), ("c", 0)):
        assert [topic.error_code for topic in (await ask(["b"], 1, cursor)).topics] == [
            ErrorCode.INVALID_REQUEST
        ]
    everything = await client.topics()
    assert {name for name, topic in everything.items() if topic.is_internal} == {"__consumer_offsets"}
    missing = metadata_request("__transaction_state", create=False)
    assert (await client.ask(METADATA, 12, missing)).topics[0].is_internal


async def test_more_replicas_than_there_are_nodes_are_refused_or_taken_as_one(serve: Serve) -> None:
    async def ask(client: Client, name: str, replicas: int) -> Any:
        request = create_request(creatable(name, 1, replicas=replicas))
        found = (await client.ask(CREATE_TOPICS, 7, request)).topics[0]
        return found.error_code, found.replication_factor

    served = await serve()
    assert await ask(await served.connect(), "t", 3) == (ErrorCode.INVALID_REPLICATION_FACTOR, -1)
    await served.stop()
    client = await (await serve(tidelog_tolerate_replication_factor="true")).connect()
    assert await ask(client, "t", 3) == (NONE, 1)
    for replicas in (0, -2):
        assert await ask(client, "u", replicas) == (ErrorCode.INVALID_REPLICATION_FACTOR, -1)
