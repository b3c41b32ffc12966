"""A broker that compacts: which topics, since when, what it tells of it, and that a stop waits for no pass."""

import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.integration.test_administration import BROKER, NONE, SET, TOPIC, change
from tests.integration.test_metrics import all_of, scraped, value
from tests.support.group_member import GroupMember
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.broker.cleaners import Cleaners
from tidelog.broker.metrics.health import health
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.topic_names import OFFSETS_TOPIC
from tidelog.storage.errors import Mismatch, StorageError
from tidelog.storage.log import Log

SMALL = {"segment_bytes": "400", "min_cleanable_dirty_ratio": "0"}


async def fill(client: Client, topic: str, count: int = 40) -> None:
    """Write the same two keys over and over, a batch each."""
    for number in range(count):
        batch = build_batch([Record(0, -1, b"k%d" % (number % 2), b"v%d" % number)])
        assert (await client.produce(topic, memoryview(batch))).error_code == NONE


def kept(log: Log) -> list[int]:
    """Return the offsets of the batches that have records, before the active segment."""
    end = log.active.base_offset
    return [
        header.base_offset
        for _, _, header in log.headers(0)
        if header.record_count and header.base_offset < end
    ]


async def compacted(log: Log, to: int = 2) -> None:
    """Wait until so many records are left before the active segment."""

    def is_so() -> bool:
        try:
            return len(kept(log)) <= to
        except Mismatch:
            return False  # A segment was replaced while it was walked over.

    await until(is_so)


async def soon(served: Served) -> None:
    """Have the cleaners look, and end what they find."""
    served.broker.clock.advance(minutes=20)


async def test_a_topic_is_compacted_from_when_its_policy_says_so(serve: Serve, unused_tcp_port: int) -> None:
    served = await serve(http_port=str(unused_tcp_port))
    client = await served.connect()
    await client.make_topic("t", **SMALL)
    await fill(client, "t")
    log = log_of(served.broker, "t")
    sealed = len(log.segments) - 1
    assert sealed > 5
    await soon(served)
    assert served.broker.cleaners._served == {}
    assert await change(client, TOPIC, "t", ("cleanup.policy", SET, "compact")) == (NONE, None)
    await compacted(log)
    await until(lambda: served.broker.cleaners.figures().passes["done"] > 0)
    found = scraped(served.broker)
    assert value(found, "tidelog_compaction_passes_total", outcome="done") == 1
    dropped = log.active.base_offset - 2
    assert value(found, "tidelog_compaction_dropped_records_total") == dropped
    assert cast(float, value(found, "tidelog_compaction_read_bytes_total")) > 0
    assert value(found, "tidelog_compaction_dirty_ratio_max") is not None
    assert value(found, "tidelog_compaction_failing") == 0
    # It is looked after no more once it has another policy, or is gone.
    assert await change(client, TOPIC, "t", ("cleanup.policy", SET, "delete")) == (NONE, None)
    await until(lambda: served.broker.cleaners._served == {})
    await client.make_topic("u", cleanup_policy="compact,delete")
    await until(lambda: len(served.broker.cleaners._served) == 1)
    assert await client.delete("u") == NONE
    await until(lambda: served.broker.cleaners._served == {})


async def test_what_nobody_appends_to_is_sealed_in_time_to_be_compacted(
    served: Served, client: Client
) -> None:
    await client.make_topic("t", cleanup_policy="compact", max_compaction_lag_ms="20000")
    log = log_of(served.broker, "t")
    for _ in range(2):  # The second time nothing but the round before tells when to look.
        await fill(client, "t", 6)
        served.broker.clock.advance(seconds=21)
        await until(lambda: log.active.size == 0)


async def test_what_groups_have_committed_is_compacted(serve: Serve) -> None:
    options = {"offsets_topic_segment_bytes": "1000", "log_cleaner_min_cleanable_ratio": "0"}
    served = await serve(**options)
    member = GroupMember(await served.connect())
    await member.client.make_topic("t")
    for offset in range(60):
        codes = await member.commit("t", offset)
        while codes != [NONE]:  # the groups are being loaded
            codes = await member.commit("t", offset)
    log = log_of(served.broker, OFFSETS_TOPIC)
    assert len(log.segments) > 3
    await soon(served)
    await compacted(log, to=1)
    await served.stop()
    member.client = await (await serve(**options)).connect()
    codes = await member.commit("t", 60)
    while codes != [NONE]:
        codes = await member.commit("t", 60)
    assert await member.offsets() == {("t", 0): 60}


async def test_what_was_compacted_when_the_broker_started_is_known_then(serve: Serve) -> None:
    served = await serve(log_cleaner_enable="false")
    client = await served.connect()
    await client.make_topic("t", cleanup_policy="compact", **SMALL)
    await fill(client, "t")
    await soon(served)
    assert served.broker.cleaners._threads == {}
    await served.stop()
    await compacted(log_of((await serve()).broker, "t"))


async def test_P13_a_log_whose_compaction_fails_is_named_and_the_broker_is_well(
    serve: Serve, unused_tcp_port: int
) -> None:
    served = await serve(http_port=str(unused_tcp_port))
    client, cleaners = await served.connect(), served.broker.cleaners
    passes = cleaners._passes

    def clean(log: Log, plan: object, **given: Any) -> Generator[int, None, Any]:
        raise StorageError("made up")
        yield 0

    cleaners._passes = passes._replace(clean=clean)
    await client.make_topic("t", cleanup_policy="compact", **SMALL)
    await fill(client, "t")
    await soon(served)
    await until(lambda: bool(cleaners.failing()))
    found = scraped(served.broker)
    assert value(found, "tidelog_compaction_failing") == 1
    assert value(found, "tidelog_partition_compaction_failing", topic="t", partition="0") == 1
    status, answer = cast("tuple[int, dict[str, Any]]", all_of(cast(Any, health(served.broker, False))))
    assert (status, answer["status"], answer["compaction_failing"]) == (200, "ok", 1)
    assert answer["not_compacted"] == [{"log": "t-0", "reason": "StorageError: made up"}]
    cleaners._passes = passes
    await soon(served)
    await compacted(log_of(served.broker, "t"))
    await until(lambda: not cleaners.failing())
    assert (
        value(scraped(served.broker), "tidelog_partition_compaction_failing", topic="t", partition="0")
        is None
    )


async def test_options_of_cleaners_change_while_the_broker_runs(serve: Serve) -> None:
    served = await serve(log_cleaner_threads="0")
    client = await served.connect()
    await client.make_topic("t", cleanup_policy="compact", **SMALL)
    await fill(client, "t")
    assert served.broker.cleaners._threads == {}
    assert await change(client, BROKER, "1", ("log.cleaner.threads", SET, "2")) == (NONE, None)
    await compacted(log_of(served.broker, "t"))
    assert len(served.broker.cleaners._threads) == 2


async def test_a_stop_waits_for_no_pass_and_leaves_nothing_of_it(serve: Serve, tmp_path: Path) -> None:
    served = await serve(log_cleaner_io_max_bytes_per_second="1")
    client = await served.connect()
    await client.make_topic("t", cleanup_policy="compact", **SMALL)
    await fill(client, "t")
    served.broker.clock.hold()
    await soon(served)
    await until(lambda: served.broker.cleaners.figures().under_way == 1)
    assert len(kept(log_of(served.broker, "t"))) > 5
    await served.stop()
    assert served.broker.cleaners.figures().passes["given_up"] == 1
    assert not [path for path in (tmp_path / "data" / "t-0").iterdir() if path.suffix not in KNOWN]
    await compacted(log_of((await serve()).broker, "t"))


KNOWN = {".log", ".index", ".timeindex", ".appendindex", ".summary", ".snapshot", ".metadata", ""}


async def test_a_pass_that_comes_to_need_the_maintenance_thread_does_not_hold_up_a_stop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaners, broker = served.broker.cleaners, served.broker
    begun, gate, reached = threading.Event(), threading.Event(), list[str]()

    def clean(log: Log, plan: object, **given: Any) -> Generator[int, None, Any]:
        begun.set()
        gate.wait(10)
        try:
            given["structural"](lambda: reached.append("never"))
        finally:
            reached.append("closed")
        yield 1

    def stop() -> None:
        gate.set()  # The loop stands still from here on, as `Broker.stop` is called on it.
        Cleaners.stop(cleaners)

    cleaners._passes = cleaners._passes._replace(clean=clean)
    monkeypatch.setattr(cleaners, "stop", stop)
    client = await served.connect()
    await client.make_topic("t", cleanup_policy="compact", **SMALL)
    await fill(client, "t")
    await soon(served)
    await until(begun.is_set)
    await served.stop()
    assert reached == ["closed"]
    assert broker.failure is None
