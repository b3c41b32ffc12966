"""Topics that come and go beside those who ask for them: whose they are, and what a full disk or a flood leaves."""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.builders import (
    creatable,
    create_request,
    delete_request,
    fetch_request,
    metadata_request,
    produce_request,
    records,
)
from tests.support.faulty_disk import FaultyDisk
from tests.support.raw_client import FETCH, PRODUCE
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.broker import maintenance as maintenance_module
from tidelog.broker import serve as serve_module
from tidelog.broker import topic_changes, work
from tidelog.broker.broker import Broker, BrokerFailed
from tidelog.broker.catalog import CATALOG_FILE, Catalog
from tidelog.broker.handlers import create_topics, delete_topics
from tidelog.broker.handlers import metadata as metadata_handler
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.net.server import CannotListen
from tidelog.broker.quota import Quota
from tidelog.broker.topic_rules import TopicExists
from tidelog.broker.topics import FEW_TOPICS_BYTES
from tidelog.broker.work import step
from tidelog.config.kinds import Listener
from tidelog.config.load import load
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import CREATE_TOPICS
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS
from tidelog.protocol.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tidelog.protocol.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
)
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.steps import at_once
from tidelog.protocol.registry import APIS
from tidelog.storage import files
from tidelog.storage.errors import StorageError
from tidelog.storage.layout import CLEAN_SHUTDOWN
from tidelog.storage.log_manager import LogManager

NONE = ErrorCode.NONE


async def produce(client: Client, topic: str, acks: int = -1, partition: int = 0) -> int:
    return int((await client.produce(topic, records(b"v"), partition, acks=acks)).error_code)


# -- Metadata names each topic once -----------------------------------------------------------------------------------


async def test_a_topic_is_described_once_however_often_it_is_named(client: Client) -> None:
    topic_id = (await client.create("t", 3)).topic_id
    topics = (await client.ask(METADATA, 9, metadata_request(*["t", "no/name"] * 1000))).topics
    assert [topic.name for topic in topics] == ["t", "no/name"]
    asked = [
        MetadataRequestTopic(name="", topic_id=topic_id),  # as Java's describeTopics by id
        MetadataRequestTopic(name=None, topic_id=topic_id),
        MetadataRequestTopic(name="t"),
        MetadataRequestTopic(name="x", topic_id=b"?" * 16),
        MetadataRequestTopic(name=None, topic_id=b"?" * 16),
    ]
    topics = (await client.ask(METADATA, 12, MetadataRequest(topics=asked))).topics
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in topics] == [
        ("t", topic_id, NONE),
        ("", b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_what_metadata_says_of_all_topics_is_made_from_a_copy(broker: Broker, client: Client) -> None:
    await client.create("a")
    before = broker.topics.all()
    await client.create("b")
    assert [topic.name for topic in before] == ["a"]
    assert [topic.name for topic in broker.topics.all()] == ["a", "b"]
    await client.delete("a")
    assert [topic.name for topic in broker.topics.all()] == ["b"]


# -- what a flood leaves to others --------------------------------------------------------------------------------


async def test_thirty_thousand_new_names_hold_up_nobody(served: Served, serve: Serve) -> None:
    flooding, other = await served.connect(), await served.connect()
    flooding.send(METADATA, 9, 1, metadata_request(*(f"n{number}" for number in range(30_000))))
    await until(lambda: len(served.broker.topics.by_name) > 3)
    begin_s = time.monotonic()
    assert (await other.create("mine")).error_code == NONE
    assert (await other.ask(INIT_PRODUCER_ID, 4, _init())).error_code == NONE
    assert time.monotonic() - begin_s < 3
    assert len(served.broker.topics.by_name) < 5000
    begin_s = time.monotonic()
    await served.stop()
    assert time.monotonic() - begin_s < 10
    topics = (await flooding.receive(METADATA, 9))[1].topics
    assert len(topics) == 30_000
    assert {topic.error_code for topic in topics} == {NONE, ErrorCode.LEADER_NOT_AVAILABLE}
    again = await serve()
    assert len(again.broker.topics.by_name) == 1 + sum(not topic.error_code for topic in topics)


def _init() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


async def test_names_beyond_the_bound_are_created_when_they_are_asked_for_again(serve: Serve) -> None:
    served = await serve(queued_max_topic_bytes="4096")
    client = await served.connect()
    room = FEW_TOPICS_BYTES // metadata_handler.NAME_BYTES
    names = [f"n{number}" for number in range(3 * room)]
    for times in (1, 2, 3):
        topics = (await client.ask(METADATA, 9, metadata_request(*names))).topics
        created = [topic.name for topic in topics if not topic.error_code]
        assert created == names[: times * room]
        assert {topic.error_code for topic in topics[times * room :]} <= {ErrorCode.LEADER_NOT_AVAILABLE}
    assert served.broker.queued_topics.total_bytes == 0


async def test_creations_beyond_the_bound_are_refused_so_that_clients_ask_again(serve: Serve) -> None:
    """One connection waits for one such request at a time; what is too much comes at once, or from several."""
    served = await serve(queued_max_topic_bytes="4096")
    greedy, creating, deleting, modest = [await served.connect() for _ in range(4)]
    gate = _hold_up(served)
    greedy.send(METADATA, 9, 1, metadata_request(*(f"n{number}" for number in range(100))))
    await until(lambda: served.broker.queued_topics.total_bytes > 0)
    many = [f"more-{number}" for number in range(FEW_TOPICS_BYTES // 100)]
    creation, deletion = create_request(creatable("more")), delete_request("more")
    creation.topics = [create_request(creatable(name)).topics[0] for name in many]
    deletion.topic_names = many
    # Refused at once, while the thread is busy.
    created = (await creating.ask(CREATE_TOPICS, 7, creation)).topics
    deleted = (await deleting.ask(DELETE_TOPICS, 5, deletion)).responses
    assert {answer.error_code for answer in (*created, *deleted)} == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    modest.send(CREATE_TOPICS, 7, 1, create_request(creatable("mine")))
    gate.set()
    await greedy.receive(METADATA, 9)
    assert (await modest.receive(CREATE_TOPICS, 7))[1].topics[0].error_code == NONE


async def test_very_many_topics_beyond_the_bound_are_refused_beside_the_event_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may name 260,000: an answer for each takes seconds, of which the others have their part."""
    served = await serve(queued_max_topic_bytes="4096")
    greedy, client = await served.connect(), await served.connect()
    gate = _hold_up(served)
    greedy.send(METADATA, 9, 1, metadata_request(*(f"n{number}" for number in range(100))))
    await until(lambda: served.broker.queued_topics.total_bytes > 0)
    threads: set[str] = set()

    def watched(of: Callable[..., Any]) -> Callable[..., Any]:
        def made(*what: Any) -> Any:
            threads.add(threading.current_thread().name)
            return of(*what)

        return made

    monkeypatch.setattr(delete_topics, "_result", watched(delete_topics._result))
    monkeypatch.setattr(create_topics, "_failure", watched(create_topics._failure))
    names = [f"t{number}" for number in range(work.MANY + 1)]
    deletion, creation = delete_request("more"), create_request(creatable("more"))
    deletion.topic_names = names
    creation.topics = [create_request(creatable(name)).topics[0] for name in names]
    deleted = (await client.ask(DELETE_TOPICS, 5, deletion)).responses
    assert [(each.name, each.error_code) for each in deleted] == [
        (name, ErrorCode.THROTTLING_QUOTA_EXCEEDED) for name in names
    ]
    created = (await client.ask(CREATE_TOPICS, 7, creation)).topics
    assert {each.name for each in created} == set(names)
    assert all("reader" in name for name in threads), threads
    gate.set()
    await greedy.receive(METADATA, 9)


def test_metadata_of_very_many_topics_is_made_in_the_lane_of_what_takes_long(broker: Broker) -> None:
    session: Any = SimpleNamespace(broker=broker)
    lanes = []
    for count in (metadata_handler.MOST_BRIEF, metadata_handler.MOST_BRIEF + 1):
        topics = [MetadataRequestTopic(name=f"t{number}") for number in range(count)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer: Any = metadata_handler.handle(session, request, 9)
        lanes.append(next(answer.__await__()))
    assert lanes == [work.SHORT, work.LONG]


async def test_what_is_deleted_while_it_waits_for_the_disk_is_no_fault_of_the_disk(
    served: Served, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    client, busy, other = [await served.connect() for _ in range(3)]
    await client.create("t")
    await client.create("busy")
    flushes = disk.hold("sync", of="*.log")
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"v")])
    busy.send(APIS[PRODUCE], 9, 1, produce_request("busy", batch, 0, acks=-1))
    await flushes.met()
    client.send(APIS[PRODUCE], 9, 1, produce_request("t", batch, 0, acks=-1))
    await until(lambda: log_of(served.broker, "t").log_end_offset == 1)
    assert await other.delete("t") == NONE
    flushes.let_go()
    answer = (await client.receive(APIS[PRODUCE], 9))[1].responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "was deleted" in answer.error_message
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def _hold_up(served: Served) -> threading.Event:
    """Keep the maintenance thread busy until the event is set."""
    gate = threading.Event()

    async def wait() -> None:
        assert gate.wait(20)

    served.broker.maintenance.submit(wait(), "somebody")
    return gate


async def test_what_was_asked_for_does_not_wait_for_what_can_wait(serve: Serve) -> None:
    """A creation by request goes before those on first use, however many connections of its address want those."""
    maintenance = (served := await serve()).broker.maintenance
    gate = _hold_up(served)
    done: list[str] = []

    async def task(name: str) -> None:
        done.append(name)

    for number in range(20):
        maintenance.submit(task(f"can wait {number}"), number, can_wait=True)
    for number in range(3):
        maintenance.submit(task(f"asked {number}"), f"client {number}")
    gate.set()
    await until(lambda: len(done) == 23)
    # They take turns: neither is starved by the other.
    assert done[:6] == [f"{kind} {number}" for number in range(3) for kind in ("can wait", "asked")]


async def test_a_name_exists_while_it_is_being_created(serve: Serve) -> None:
    """And is no other name that is like it."""
    topics = (await serve()).broker.topics
    creation = topics.create("t", 2, {})
    creation.send(None)
    with pytest.raises(TopicExists, match="Topic 't' already exists"):
        topics.check_new("t")
    at_once(creation)


@pytest.mark.parametrize(
    "fault", [RuntimeError("nobody expected it"), StorageError("the disk"), GeneratorExit()]
)
async def test_a_creation_that_any_fault_ends_gives_its_name_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    topics = (await serve()).broker.topics

    def fail(_: object) -> None:
        raise fault

    with monkeypatch.context() as during:
        during.setattr(LogManager, "sync_made", lambda *_: map(fail, [None]))
        with pytest.raises(type(fault)):
            at_once(topics.create("a.b", 2, {}))
    at_once(topics.create("a_b", 1, {}))  # The same in the names of metrics.
    at_once(topics.delete(topics.find("a_b", b"")))
    assert len(at_once(topics.create("a.b", 2, {})).partitions) == 2


async def test_a_request_for_one_topic_does_not_stand_behind_those_for_many(served: Served) -> None:
    greedy, modest = [await served.connect() for _ in range(10)], await served.connect()
    gate = _hold_up(served)
    for number, client in enumerate(greedy):
        creation = create_request(creatable("t"))
        creation.topics = [create_request(creatable(f"t-{number}-{i}")).topics[0] for i in range(5)]
        client.send(CREATE_TOPICS, 7, 1, creation)
    await until(lambda: served.broker.queued_topics.total_bytes >= 50_000)
    modest.send(CREATE_TOPICS, 7, 1, create_request(creatable("mine")))
    await until(lambda: served.broker.queued_topics.total_bytes >= 51_000)
    gate.set()
    await modest.receive(CREATE_TOPICS, 7)
    # Each of them has a slice of 20 ms, and this one the second.
    assert len(served.broker.topics.all()) < 25
    for client in greedy:
        assert {topic.error_code for topic in (await client.receive(CREATE_TOPICS, 7))[1].topics} == {NONE}


async def test_where_many_wait_slices_are_so_short_that_all_have_a_turn_soon(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = _hold_up(served)
    now_s = time.monotonic()
    begun: dict[int, float] = {}

    async def task(number: int) -> None:
        nonlocal now_s
        begun[number] = now_s
        for _ in range(50):
            now_s += 0.001
            await step()

    count = 200
    for number in range(count):
        served.broker.maintenance.submit(task(number), number)
    monkeypatch.setattr(maintenance_module.time, "monotonic", lambda: now_s)
    gate.set()
    await until(lambda: len(begun) == count)
    assert max(begun.values()) - min(begun.values()) <= 2 * maintenance_module.ROUND_S + 0.2
    monkeypatch.undo()


async def test_what_is_little_is_bounded_in_all() -> None:
    """However many connections an address has, what waits for it is no more than the bound and as much again."""

    class Somebody:
        address = "10.0.0.1"

    quota = Quota(100_000, little_bytes=2000)
    holds = [quota.hold(Somebody(), 1000) for _ in range(1000)]
    assert quota.total_bytes == 200_000
    assert holds.count(None) == 800
    first = next(hold for hold in holds if hold)
    first.give_back()
    assert quota.hold(Somebody(), 1000) is not None


async def test_producer_ids_do_not_wait_for_maintenance(served: Served, client: Client) -> None:
    first = (await client.ask(INIT_PRODUCER_ID, 4, _init())).producer_id
    gate = _hold_up(served)
    given = [(await client.ask(INIT_PRODUCER_ID, 4, _init())).producer_id for _ in range(100)]
    gate.set()
    assert given == list(range(first + 1, first + 101))


# -- a full disk -------------------------------------------------------------------------------------------------


async def test_a_full_disk_wedges_no_name_and_is_said_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a creation that failed could not take back, the next one of that name does."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def cannot(_: Catalog, name: str) -> None:
        raise StorageError(f"{name}: database or disk is full")

    served = await serve()
    client = await served.connect()
    with monkeypatch.context() as disk:
        disk.setattr(files, "_write_all", full)
        disk.setattr(Catalog, "remove_topic", cannot)
        for _ in range(3):
            answer = await client.create("t", 2)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left" in answer.error_message
        served.broker.logs.disk.look()
        assert (await client.ask(METADATA, 9, metadata_request("t"))).topics[
            0
        ].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    begin_s = time.monotonic()
    assert (await client.create("t", 2)).error_code == NONE
    assert await produce(client, "t") == NONE
    assert time.monotonic() - begin_s < 2
    # The maintenance thread says it after it is so.
    await asyncio.wait_for(until(lambda: "disk no longer full" in caplog.text), 5)
    said = [record for record in caplog.records if "disk" in record.name]
    assert [record.levelname for record in said] == ["WARNING"] * 2
    assert "disk full" in said[0].getMessage()
    assert "disk no longer full" in said[1].getMessage()
    assert all(f"folder={served.broker.logs.directory} free_bytes=" in record.getMessage() for record in said)
    assert len([record for record in caplog.records if "not undone" in record.getMessage()]) == 1
    await served.stop()
    assert [len(topic.partitions) for topic in (await serve()).broker.topics.all()] == [2]


@pytest.mark.parametrize("dirty_bytes", [0, 1 << 40])
async def test_I1_the_partitions_of_a_new_topic_are_on_disk_before_it_is_told(
    serve: Serve, disk: FaultyDisk, telling_file_system: None, dirty_bytes: int
) -> None:
    """Else a power cut takes a folder, and a start makes it again where records were acknowledged."""
    disk.dirty_bytes = dirty_bytes
    served = await serve()
    client = await served.connect()
    disk.calls.clear()
    assert (await client.create("t", 3)).error_code == NONE
    data = served.broker.logs.directory
    folders = [data / f"t-{number}" for number in range(3)]
    each = {data, *folders, *(folder / "partition.metadata" for folder in folders)}
    if dirty_bytes:
        assert set(disk.paths("sync")) == each
    else:
        assert (disk.paths("syncfs"), disk.paths("sync")) == ([data], [])


async def create_many(client: Client, *names: str) -> dict[str, Any]:
    request = create_request(creatable(""))
    request.topics = [create_request(creatable(name)).topics[0] for name in names]
    return {topic.name: topic for topic in (await client.ask(CREATE_TOPICS, 7, request)).topics}


@pytest.mark.parametrize(("made_at_once", "count"), [(50, 1), (20, 3)])
async def test_the_topics_of_a_request_share_a_sync_and_a_change_of_the_catalogue(
    serve: Serve,
    disk: FaultyDisk,
    telling_file_system: None,
    monkeypatch: pytest.MonkeyPatch,
    made_at_once: int,
    count: int,
) -> None:
    disk.dirty_bytes = 0
    monkeypatch.setattr(topic_changes, "MADE_AT_ONCE", made_at_once)
    served = await serve()
    client = await served.connect()
    served.broker.catalog._db.set_trace_callback((statements := []).append)
    disk.calls.clear()
    names = [f"t-{number}" for number in range(50)]
    answers = await create_many(client, *names)
    assert {name: answer.error_code for name, answer in answers.items()} == dict.fromkeys(names, NONE)
    assert (statements.count("COMMIT"), len(disk.paths("syncfs"))) == (count, count)
    ids = {name: served.broker.topics.by_name[name].id for name in names}
    assert {name: answer.topic_id for name, answer in answers.items()} == ids


async def test_a_topic_that_cannot_be_made_leaves_those_of_its_request_alone(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b", "c"]
    (broker.logs.directory / "b-0").touch()
    answers = await create_many(client, *names)
    assert [answers[name].error_code for name in names] == [NONE, ErrorCode.KAFKA_STORAGE_ERROR, NONE]
    assert "b-0: exists already" in answers["b"].error_message
    assert [await produce(client, name) for name in "ac"] == [NONE, NONE]
    assert [record.name for record in broker.catalog.topics()] == ["a", "c"]
    (broker.logs.directory / "b-0").unlink()

    def cannot(_: object, topics: object) -> None:
        raise StorageError("database or disk is full")

    with monkeypatch.context() as disk:
        disk.setattr(Catalog, "add_topics", cannot)
        answers = await create_many(client, "b", "d")
        assert {answer.error_code for answer in answers.values()} == {ErrorCode.KAFKA_STORAGE_ERROR}
    answers = await create_many(client, "b", "d")
    assert [answer.error_code for answer in answers.values()] == [NONE, NONE]


@pytest.mark.parametrize("found", [None, b"", bytes(41), b"version: 0\ntopic_id: AAEC"])
async def test_a_start_writes_the_topic_id_again_that_a_folder_has_lost(
    served: Served, found: bytes | None, serve: Serve
) -> None:
    await (await served.connect()).create("t", 2)
    await served.stop()
    folder = served.broker.logs.directory
    lost, other = (folder / f"t-{number}" / "partition.metadata" for number in range(2))
    written = lost.read_bytes()
    lost.unlink()
    if found is not None:
        lost.write_bytes(found)
    of_another = written.replace(b"topic_id: ", b"topic_id: A")[:-2] + b"\n"
    other.write_bytes(of_another)
    await serve()
    assert lost.read_bytes() == written
    assert other.read_bytes() == of_another  # Another id may be there for a reason: it stays.


async def test_a_catalogue_that_cannot_be_written_fails_one_request_and_nothing_else(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    db = broker.catalog._db

    def pages(count: int | None = None) -> None:
        db.execute(f"PRAGMA max_page_count = {count or db.execute('PRAGMA page_count').fetchone()[0]}")

    db.execute("VACUUM")  # There is room in the file, for deletions.
    pages()
    names = [f"{number:0200d}" for number in range(60)]
    codes = {(await client.create(name)).error_code for name in names}
    assert codes == {NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    pages(1_000_000)
    codes = {(await client.create(name)).error_code for name in names}
    assert codes == {NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    assert any("disk full" in record.getMessage() for record in caplog.records)


# -- topics that go while somebody waits for them -------------------------------------------------------------------


async def test_a_fetch_that_waits_on_a_topic_is_answered_when_it_is_deleted(served: Served) -> None:
    client, other = await served.connect(), await served.connect()
    topic_id = (await client.create("t")).topic_id
    api = APIS[FETCH]
    client.send(api, 13, 1, fetch_request(topic_id, max_wait_ms=60_000))
    by_its_name = await served.connect()
    by_its_name.send(api, 12, 1, fetch_request("t", max_wait_ms=60_000))
    await until(lambda: len(served.broker.parked) == 2)
    begin_s = time.monotonic()
    assert await other.delete("t") == NONE
    for who, version, code in (
        (client, 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (by_its_name, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        answer = (await who.receive(api, version))[1]
        assert answer.responses[0].partitions[0].error_code == code
    assert time.monotonic() - begin_s < 5
    # And what comes now does not wait at all.
    answer = await other.ask(api, 12, fetch_request("t", max_wait_ms=60_000))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_name_is_free_when_its_deletion_is_done_and_not_before(
    broker: Broker, client: Client
) -> None:
    await client.create("t", 3)
    topics = broker.topics
    deletion = topics.delete(topics.by_name["t"])
    for _ in range(4):
        deletion.send(None)
        with pytest.raises(TopicExists, match="being deleted"):
            topics.check_new("t")
        assert topics.find("t", bytes(16)) is None
    at_once(deletion)
    topics.check_new("t")
    assert (await client.create("t")).error_code == NONE


async def test_a_topic_that_is_made_again_begins_an_epoch_that_it_has_never_had(
    served: Served, client: Client, serve: Serve
) -> None:
    """Else clients that knew it take what they hear of it for old."""
    epochs = []
    for name, raised, restarts in (("t", 2, False), ("t", 0, True), ("t", 3, False), ("other", 0, False)):
        assert (await client.create(name)).error_code == NONE
        (partition,) = served.broker.topics.by_name[name].partitions
        epochs.append(partition.log.leader_epoch)
        for _ in range(raised):
            partition.raise_leader_epoch()
        assert await client.delete(name) == NONE
        if restarts:
            await served.stop()
            served = await serve()
            client = await served.connect()
    assert epochs == [0, 3, 4, 8]


def no_file(folder: Path) -> None:
    (folder / "leader-epoch-checkpoint").unlink()


def empty_file(folder: Path) -> None:
    (folder / "leader-epoch-checkpoint").write_bytes(b"")


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lose", [shutil.rmtree, no_file, empty_file])
async def test_a_partition_that_lost_its_epochs_does_not_go_back(
    served: Served, lose: Callable[[Path], None], is_clean: bool, serve: Serve
) -> None:
    """A client that has seen a later epoch ignores what it hears of an earlier one."""
    data = served.broker.logs.directory
    await (await served.connect()).create("t")
    for epoch in (1, 2):
        await served.stop()
        (data / CLEAN_SHUTDOWN).unlink()
        served = await serve()
        assert log_of(served.broker, "t").leader_epoch == epoch
    await served.stop()
    lose(data / "t-0")
    if not is_clean:
        (data / CLEAN_SHUTDOWN).unlink()
    served = await serve()
    assert log_of(served.broker, "t").leader_epoch == (2 if is_clean else 3)


async def test_a_topic_whose_epochs_could_not_be_read_does_not_go_back_when_it_is_made_again(
    served: Served, serve: Serve
) -> None:
    data = served.broker.logs.directory
    await (await served.connect()).create("t")
    await served.stop()
    (data / CLEAN_SHUTDOWN).unlink()
    served = await serve()
    seen = log_of(served.broker, "t").leader_epoch
    await served.stop()
    shutil.rmtree(data / "t-0")
    (data / "t-0").touch()
    served = await serve()
    client = await served.connect()
    assert log_of(served.broker, "t").unopened
    assert await client.delete("t") == NONE
    assert (await client.create("t")).error_code == NONE
    assert log_of(served.broker, "t").leader_epoch > seen


async def test_a_start_whose_catalogue_takes_no_epochs_serves(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, serve: Serve
) -> None:
    await (await served.connect()).create("t")
    await served.stop()
    (served.broker.logs.directory / CLEAN_SHUTDOWN).unlink()

    def full(*_: object) -> None:
        raise StorageError("full")

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "raise_first_epoch", full)
        served = await serve()
    assert "leader epochs not noted" in caplog.text
    assert log_of(served.broker, "t").leader_epoch == 1
    await served.stop()
    served = await serve()
    assert served.broker.catalog.first_epoch() == 1


async def test_an_epoch_that_is_near_the_largest_is_not_carried_on(
    served: Served, client: Client, serve: Serve
) -> None:
    """It is of a log from elsewhere, or damage: new topics must not come to an end of epochs."""
    await client.create("evil")
    await served.stop()
    (served.broker.logs.directory / "evil-0" / "leader-epoch-checkpoint").write_text("0\n1\n2147483647 0\n")
    (served.broker.logs.directory / CLEAN_SHUTDOWN).unlink()
    served = await serve()
    client = await served.connect()
    assert log_of(served.broker, "evil").leader_epoch == 2147483647
    assert await client.delete("evil") == NONE
    await client.create("new")
    assert log_of(served.broker, "new").leader_epoch == 0


async def test_a_folder_in_the_place_of_a_topic_id_keeps_no_broker_from_starting(
    served: Served, serve: Serve
) -> None:
    await (await served.connect()).create("t")
    await served.stop()
    file = served.broker.logs.directory / "t-0" / "partition.metadata"
    file.unlink()
    file.mkdir()
    assert "t" in (await serve()).broker.topics.by_name


async def test_a_deletion_under_way_holds_up_no_stop_and_the_next_start_removes_the_rest(
    served: Served, client: Client, serve: Serve
) -> None:
    await client.create("t", 3)
    topics, folder = served.broker.topics, served.broker.logs.directory
    deletion = topics.delete(topics.by_name["t"])
    deletion.send(None)
    topics.is_stopping = True
    at_once(deletion)
    assert list(folder.glob("t-*"))
    assert topics.find("t", bytes(16)) is None
    await served.stop()
    assert (folder / CLEAN_SHUTDOWN).exists()
    served = await serve()
    assert not list(folder.glob("t-*"))
    assert served.broker.topics.by_name == {}


async def test_P12_a_deletion_that_a_start_cannot_finish_keeps_it_from_nothing(
    served: Served, client: Client, disk: FaultyDisk, serve: Serve
) -> None:
    await client.create("t", 3)
    await client.create("other", 1)
    topics, folder = served.broker.topics, served.broker.logs.directory
    deletion = topics.delete(topics.by_name["t"])
    deletion.send(None)
    topics.is_stopping = True
    at_once(deletion)
    await served.stop()
    with disk.failing("rename", of="t-*", error=errno.ENOSPC):
        served = await serve()
        assert list(served.broker.topics.by_name) == ["other"]
        await served.stop()
    served = await serve()
    assert not list(folder.glob("t-*"))
    assert list(served.broker.topics.by_name) == ["other"]


async def test_a_fetch_that_comes_while_its_topic_is_being_deleted_does_not_wait(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its logs take no more and before the loop knows of it: parked then, and answered with the others."""
    client, other = await served.connect(), await served.connect()
    await client.create("t")
    for _ in range(3):
        await client.ask(APIS[FETCH], 12, fetch_request("t", max_wait_ms=1))
    topics, gate, closed = served.broker.topics, threading.Event(), threading.Event()
    log_of = topics.by_name["t"].partitions[0].log
    refuse = log_of.delete

    def refusing() -> None:
        refuse()
        if not closed.is_set():
            closed.set()
            assert gate.wait(20)

    monkeypatch.setattr(log_of, "delete", refusing)
    deleting = asyncio.create_task(other.delete("t"))
    assert await asyncio.to_thread(closed.wait, 10)
    client.send(APIS[FETCH], 12, 1, fetch_request("t", max_wait_ms=60_000))
    await until(lambda: len(served.broker.parked) == 1)
    gate.set()
    assert await deleting == NONE
    answer = (await asyncio.wait_for(client.receive(APIS[FETCH], 12), 10))[1]
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_come_and_go_beside_all_that_ask_for_them(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    until_s = time.monotonic() + 1.5
    asked = 0
    names = [f"t{number}" for number in range(8)]

    async def change(number: int) -> None:
        client = await served.connect()
        while time.monotonic() < until_s:
            for name in names[number::2]:
                await client.create(name, 3)
                await produce(client, name, acks=1)
            for name in names[number::2]:
                await client.delete(name)

    async def ask(number: int) -> None:
        nonlocal asked
        client = await served.connect()
        while time.monotonic() < until_s:
            asked += 1
            name = names[asked % len(names)]
            if number == 0:
                answer: Any = await client.ask(METADATA, 9, MetadataRequest(topics=None))
                assert {topic.error_code for topic in answer.topics} <= {NONE}
                assert {len(topic.partitions) for topic in answer.topics} <= {3}
            elif number == 1:
                answer = await client.ask(APIS[FETCH], 12, fetch_request(name, max_wait_ms=20))
                code = answer.responses[0].partitions[0].error_code
                assert code in (NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE)
            elif number == 2:
                assert await client.list_offsets(name, asked % 3 - 1)
            else:
                resource = DescribeConfigsResource(
                    resource_type=2, resource_name=name, configuration_keys=None
                )
                answer = await client.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource]))
                assert answer.results[0].error_code in (NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    await asyncio.gather(*(change(number) for number in range(2)), *(ask(number) for number in range(4)))
    assert asked > 100
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


# -- the end of a thread is the end of the broker ------------------------------------------------------------------


async def test_the_end_of_a_thread_stops_the_broker_in_order_and_not_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(*given: Any) -> None:
        given[-1].close()  # the job
        raise KeyError("nobody expected this")

    config = load(None, {}, {"log.dir": str(tmp_path / "data")}).on_port(0)

    def ready(broker: Broker, _: Any) -> None:
        monkeypatch.setattr(Maintenance, "_work_on", fault)

    with pytest.raises(BrokerFailed, match="thread maintenance was ended by KeyError"):
        await asyncio.wait_for(serve_module.serve(config, ready), 20)
    assert [record.levelname for record in caplog.records if record.exc_info] == ["CRITICAL"]
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with contextlib.suppress(NotImplementedError):
        for number in (2, 15):
            asyncio.get_running_loop().remove_signal_handler(number)


def _steps(value: Any) -> Generator[None, None, Any]:
    """Return a task without a step."""
    return value
    yield


async def test_retention_comes_round_when_the_next_record_expires(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = (await serve()).broker
    for due_ms, wait_s in ((broker.clock.now_ms() + 90_000, 90), (None, None)):
        monkeypatch.setattr(broker.logs, "enforce_retention", lambda due_ms=due_ms: _steps(due_ms))
        assert at_once(broker._retain()) == (wait_s and pytest.approx(wait_s, abs=30))


# -- a stop, and the start after it --------------------------------------------------------------------------------


async def test_at_a_stop_what_has_not_begun_is_left_and_clients_ask_again(
    served: Served, serve: Serve
) -> None:
    creating, deleting, naming = [await served.connect() for _ in range(3)]
    await creating.create("t")
    gate = _hold_up(served)
    waiting = served.broker.maintenance._queues
    await until(lambda: not any(map(len, waiting)))
    creating.send(CREATE_TOPICS, 7, 1, create_request(creatable("new")))
    deleting.send(DELETE_TOPICS, 5, 1, delete_request("t"))
    naming.send(METADATA, 9, 1, metadata_request("named", "t"))
    await until(lambda: sum(map(len, waiting)) == 3)
    served.broker.release()
    gate.set()
    created = (await creating.receive(CREATE_TOPICS, 7))[1].topics[0]
    assert (created.error_code, created.num_partitions) == (ErrorCode.NOT_CONTROLLER, -1)
    deleted = (await deleting.receive(DELETE_TOPICS, 5))[1].responses[0]
    assert (deleted.name, deleted.error_code) == ("t", ErrorCode.NOT_CONTROLLER)
    named = (await naming.receive(METADATA, 9))[1].topics
    assert {topic.name: topic.error_code for topic in named} == {
        "named": ErrorCode.LEADER_NOT_AVAILABLE,
        "t": NONE,
    }
    await served.stop()
    assert [topic.name for topic in (await serve()).broker.topics.all()] == ["t"]


async def test_a_topic_that_is_half_made_at_a_stop_is_not_there_at_the_next_start(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    make = served.broker.logs.create

    def stop_behind_the_first(*args: Any) -> Any:
        made = make(*args)
        served.broker.topics.is_stopping = True
        return made

    monkeypatch.setattr(served.broker.logs, "create", stop_behind_the_first)
    answer = await client.create("t", 3)
    assert (answer.error_code, answer.num_partitions) == (ErrorCode.NOT_CONTROLLER, -1)
    assert served.broker.logs.directory.joinpath("t-0").exists()
    assert not served.broker.topics.all()
    monkeypatch.undo()
    served.broker.topics.is_stopping = False
    assert (await client.create("t_0")).error_code == NONE
    assert (await client.create("t.0")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    await served.stop()
    served = await serve()
    assert [topic.name for topic in served.broker.topics.all()] == ["t_0"]
    assert not list(served.broker.logs.directory.glob("t-*"))
    assert not served.broker.catalog.deletions()
    assert (await (await served.connect()).create("t", 2)).error_code == NONE


@pytest.mark.parametrize("has_id", [True, False])
async def test_partitions_that_the_catalogue_does_not_know_are_adopted(
    served: Served, client: Client, has_id: bool, serve: Serve
) -> None:
    topic_id = (await client.create("t", 3)).topic_id
    await client.create("u", 1)
    for _ in range(2):
        await produce(client, "t")
    await served.stop()
    folder = served.broker.logs.directory
    for name in (CATALOG_FILE, "recovery-point-offset-checkpoint"):
        (folder / name).unlink()
    if not has_id:
        for index in range(3):
            (folder / f"t-{index}" / "partition.metadata").unlink()
    served = await serve()
    topics = {topic.name: topic for topic in served.broker.topics.all()}
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 3, "u": 1}
    log = topics["t"].partitions[0].log
    assert (log.recovery_point, log.log_end_offset) == (2, 2)
    assert "t 0 2" in (folder / "recovery-point-offset-checkpoint").read_text().splitlines()
    if has_id:
        assert topics["t"].id == topic_id
    else:
        assert any(topics["t"].id)
        assert topics["t"].id != topic_id
    known = [(record.name, record.id, record.partitions) for record in served.broker.catalog.topics()]
    assert known == [(name, topics[name].id, len(topics[name].partitions)) for name in ("t", "u")]


async def test_a_topic_is_adopted_once_all_of_its_partitions_can_be_opened(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture, serve: Serve
) -> None:
    await client.create("t", 2)
    await produce(client, "t")
    await served.stop()
    folder = served.broker.logs.directory
    (folder / CATALOG_FILE).unlink()
    path = folder / "t-1" / f"{0:020d}.log"
    path.rename(folder / "aside")
    path.mkdir()
    served = await serve()
    assert served.broker.topics.all() == ()
    assert "folders not adopted topic=t" in caplog.text
    await served.stop()
    path.rmdir()
    (folder / "aside").rename(path)
    served = await serve()
    (topic,) = served.broker.topics.all()
    assert [partition.log.log_end_offset for partition in topic.partitions] == [1, 0]


async def test_a_copied_folder_becomes_a_topic_with_an_id_of_its_own(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture, serve: Serve
) -> None:
    await client.create("t", 1)
    await produce(client, "t")
    await served.stop()
    folder = served.broker.logs.directory
    shutil.copytree(folder / "t-0", folder / "copy-0")
    for _ in range(2):
        served = await serve()
        copy, original = (served.broker.topics.by_name[name] for name in ("copy", "t"))
        assert copy.id != original.id
        assert [each.partitions[0].log.topic_id for each in (copy, original)] == [copy.id, original.id]
        assert [each.partitions[0].log.log_end_offset for each in (copy, original)] == [1, 1]
        await served.stop()
    assert caplog.text.count("topic gets a new id topic=copy: its folders had the id of t") == 1


@pytest.mark.parametrize("retention_ms", ["604800000", "-1"])
async def test_of_what_is_adopted_it_is_said_that_it_is_about_to_expire(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture, retention_ms: str, serve: Serve
) -> None:
    """Its own options, if it had others, are not in its folder; nor is what Kafka's controllers keep a topic."""
    await client.create("old", 1)
    await produce(client, "old")
    await served.stop()
    folder = served.broker.logs.directory
    (folder / CATALOG_FILE).unlink()
    (folder / "__cluster_metadata-0").mkdir()
    served = await serve(log_retention_ms=retention_ms)
    assert [topic.name for topic in served.broker.topics.all()] == ["old"]
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("topic=old" in message and "log.retention.ms=-1" in message for message in warned) == (
        retention_ms != "-1"
    )


async def test_a_topic_that_cannot_be_deleted_says_so_and_stays(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_: Catalog, name: str, _next_epoch: int) -> None:
        raise StorageError(f"{name}: database or disk is full")

    client = await (await serve()).connect()
    await client.create("t")
    with monkeypatch.context() as disk:
        disk.setattr(Catalog, "remove_topic", cannot)
        assert await client.delete("t") == ErrorCode.KAFKA_STORAGE_ERROR
    assert await produce(client, "t") == NONE
    assert await client.delete("t") == NONE


async def test_where_no_producer_id_can_be_reserved_clients_try_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_: Catalog) -> range:
        raise StorageError("database or disk is full")

    client = await (await serve()).connect()
    with monkeypatch.context() as disk:
        disk.setattr(Catalog, "reserve_producer_ids", cannot)
        refused = await client.ask(INIT_PRODUCER_ID, 4, _init())
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)
    assert (await client.ask(INIT_PRODUCER_ID, 4, _init())).error_code == NONE


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRINUSE, "[Errno 98] ... (as asyncio says it)"), "Address already in use"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("no number"), "no number"),
    ],
)
def test_an_address_that_cannot_be_had_is_named_with_the_reason(error: OSError, said: str) -> None:
    refused = CannotListen(Listener("PLAINTEXT", "::1", 9092), error)
    assert str(refused) == f"cannot listen on PLAINTEXT://[::1]:9092: {said}"
    assert refused.error is error


async def test_an_address_that_is_taken_is_not_listened_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = load(None, {}, {"log.dir": str(tmp_path / "data")}).on_port(port)
        with pytest.raises(CannotListen, match=f":{port}: Address already in use"):
            await asyncio.wait_for(serve_module.serve(config, lambda *_: None), 20)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with contextlib.suppress(NotImplementedError):
        for number in (2, 15):
            asyncio.get_running_loop().remove_signal_handler(number)


def test_the_ready_file_holds_the_address(tmp_path: Path) -> None:
    serve_module.write_ready_file(tmp_path / "ready", ("127.0.0.1", 9092))
    assert (tmp_path / "ready").read_text() == "127.0.0.1:9092\n"
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]
