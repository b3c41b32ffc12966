"""Topics and clients of the older message formats, over the wire: what is stored, and what each version is given."""

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from tests.support.builders import fetch_request, produce_request
from tests.support.logs import read_records
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.broker import running
from tidelog.broker.broker import Broker
from tidelog.broker.handlers import fetch as fetch_handler
from tidelog.broker.work import Lane
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.produce import (
    PRODUCE,
)
from tidelog.protocol.records import compression, message_set
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.steps import Steps
from tidelog.storage import converted
from tidelog.storage.batch_rules import Checked
from tidelog.storage.errors import CorruptLog
from tidelog.storage.files import FileSlice
from tidelog.storage.log import Log
from tidelog.storage.summary import Damage

NOW = 1_700_000_000_000
RECORDS = [Record(n, NOW + n, b"k%d" % n, None if n == 2 else b"v" * n * 30) for n in range(5)]
HEADERS = [dataclasses.replace(record, headers=(("h", b"x"),)) for record in RECORDS]


def sent_as(magic: int, codec: int = 0, records: list[Record] = HEADERS) -> bytes:
    if magic == 2:
        return build_batch(records, codec=codec)
    return message_set.build_message_set(records, magic=magic, codec=codec)


async def produced(client: Client, topic: str, data: bytes, version: int) -> Any:
    return await client.produce(topic, data, version=version)


async def fetched(client: Client, topic: str, offset: int, version: int, most_bytes: int = 1 << 20) -> Any:
    return await client.fetch(topic, offset, version=version, min_bytes=0, max_bytes=most_bytes)


async def looked_up(client: Client, topic: str, timestamp: int, version: int = 1) -> tuple[int, int, int]:
    answer = await client.list_offsets(topic, timestamp, version=version)
    return answer.error_code, answer.offset, answer.timestamp


def stored(log: Log) -> bytes:
    return b"".join(
        segment.file.pread(header.size_bytes, position) for segment, position, header in log.headers(0)
    )


@pytest.fixture
async def served(served: Served) -> Served:
    served.broker.clock.hold(NOW)
    return served


@pytest.mark.parametrize("spelled", ["0", "0.9.0", "1", "0.10.2-IV0", "2", "3.9"])
@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4])
async def test_S68_S70_S71_S72_S73_S74_S75_S76_C9_every_version_writes_and_reads_every_format(
    served: Served, client: Client, spelled: str, codec: int
) -> None:
    await client.make_topic("t", message_format_version=spelled)
    magic = {"0": 0, "0.9.0": 0, "1": 1, "0.10.2-IV0": 1}.get(spelled, 2)
    log, end = log_of(served.broker, "t"), 0
    times: list[int] = []
    for version, sent in ((0, 0), (1, 0), (2, 1), (3, 2), (9, 2)):
        answer = await produced(client, "t", sent_as(sent, codec), version)
        assert (answer.error_code, answer.base_offset) == (0, end)
        end += len(RECORDS)
        known = magic and sent
        times += [record.timestamp if known else -1 for record in RECORDS]
    for segment, position, header in log.headers(0):
        assert header.magic == magic, "S68"
        assert header.codec == codec
        if magic < 2:
            rows = read_records(segment.file.pread(header.size_bytes, position))
            assert all(not row.headers for row in rows)
    for version, most in ((0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (12, 2)):
        for offset in (0, 3, 7, end):
            answer = await fetched(client, "t", offset, version)
            assert (answer.error_code, answer.high_watermark) == (0, end)
            rows, data = [], bytes(answer.records)
            while data:
                size = 12 + int.from_bytes(data[8:12], "big")
                assert data[16] == min(magic, most), "S70, S76: no newer format than the client knows"
                rows += read_records(data[:size])
                data = data[size:]
            rows = [row for row in rows if row.offset >= offset]
            assert [row.offset for row in rows] == list(range(offset, end))
            wanted = [RECORDS[n % len(RECORDS)] for n in range(offset, end)]
            assert [(row.key, row.value) for row in rows] == [(each.key, each.value) for each in wanted]
            assert [row.timestamp for row in rows] == [at if most else -1 for at in times[offset:]]
            if magic <= most and not offset:
                assert bytes(answer.records) == stored(log), "S69, S73, S76: as it is stored"


async def test_S75_a_payload_of_the_topics_format_stays_as_it_came(served: Served, client: Client) -> None:
    await client.make_topic("t", message_format_version="1")
    log = log_of(served.broker, "t")
    for number in range(2):
        data = sent_as(1, compression.GZIP)
        assert (await produced(client, "t", data, 2)).error_code == 0
        last = 5 * number + 4
        assert stored(log)[-len(data) :] == last.to_bytes(8, "big") + data[8:]


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
async def test_S77_S78_V7_a_log_of_all_formats_is_read_and_searched_through(
    served: Served, codec: int, serve: Serve
) -> None:
    """The format goes up, and back to 0: what is there stays, old readers have it converted, after a restart too."""
    served.broker.clock.hold(NOW + 100)
    client = await served.connect()
    await client.make_topic("t", index_interval_bytes="0", retention_ms="-1")
    log = log_of(served.broker, "t")
    for format_version in ("0", "1", "2", "0", "1"):
        log.update_config(log.config.override({"message.format.version": format_version}))
        assert (await produced(client, "t", sent_as(2, codec), 9)).error_code == 0
    magics = [header.magic for _, _, header in log.headers(0)]
    assert [magic for n, magic in enumerate(magics) if n == 0 or magics[n - 1] != magic] == [0, 1, 2, 0, 1]
    expected = [-1] * 5 + [NOW + n for n in range(5)] * 2 + [-1] * 5 + [NOW + n for n in range(5)]
    for restarted in (False, True):
        if restarted:
            await served.stop()
            served = await serve()
            client, log = await served.connect(), log_of(served.broker, "t")
        for version, magic in ((1, 0), (2, 1)):
            data = bytes((await fetched(client, "t", 0, version)).records)
            rows = list(message_set.read_records(data))
            assert [row.offset for row in rows] == list(range(25))
            assert [row.timestamp for row in rows] == [at if magic else -1 for at in expected]
            assert {entry.magic for entry in message_set.entries(data)} == ({0} if magic == 0 else {0, 1})
        for wanted in (0, NOW, NOW + 3, NOW + 4, NOW + 5):
            first = next(((n, at) for n, at in enumerate(expected) if at >= wanted), (-1, -1))
            # What the topic is set to now does not hide what is there.
            assert await looked_up(client, "t", wanted) == (0, *first)
        assert await looked_up(client, "t", -3, 7) == (0, 9, NOW + 4)


async def test_a_time_in_a_topic_without_timestamps_is_43_but_by_append_time(
    broker: Broker, client: Client
) -> None:
    await client.make_topic("t", message_format_version="0")
    await produced(client, "t", sent_as(2), 9)
    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert await looked_up(client, "t", NOW) == (code, -1, -1)
    assert await looked_up(client, "t", -3, 7) == (code, -1, -1)
    assert (await looked_up(client, "t", -1))[:2] == (0, 5)
    assert (await looked_up(client, "t", -2))[:2] == (0, 0)
    await client.make_topic("by-append", message_format_version="0", lookup_clock="append")
    broker.clock.hold(NOW + 50)
    for codec in (compression.NONE, compression.GZIP):
        await produced(client, "by-append", sent_as(0, codec), 1)
        broker.clock.advance(seconds=1)
    assert await looked_up(client, "by-append", NOW) == (0, 0, NOW + 50)
    assert await looked_up(client, "by-append", NOW + 51) == (0, 5, NOW + 1050)
    assert await looked_up(client, "by-append", NOW + 1051) == (0, -1, -1)


async def test_from_produce_3_on_only_batches_are_taken(served: Served, client: Client) -> None:
    for spelled in ("0", "1", "2"):
        await client.make_topic(f"t{spelled}", message_format_version=spelled)
        for magic in (0, 1):
            answer = await produced(client, f"t{spelled}", sent_as(magic), 3)
            assert answer.error_code == ErrorCode.INVALID_RECORD
        assert log_of(served.broker, f"t{spelled}").log_end_offset == 0


async def test_an_older_reader_gets_what_lies_before_damage(served: Served, client: Client) -> None:
    await client.make_topic("t", message_format_version="1", index_interval_bytes="0")
    for _ in range(3):
        await produced(client, "t", sent_as(1), 2)
    log = log_of(served.broker, "t")
    (position,) = [position for _, position, header in log.headers(7) if header.base_offset == 7]
    log.active.summary.damage = (Damage(position, position + 1, 8),)
    for version in (0, 2):
        data = bytes((await fetched(client, "t", 0, version)).records)
        assert [row.offset for row in message_set.read_records(data)] == list(range(7))
        assert (await fetched(client, "t", 7, version)).error_code == ErrorCode.CORRUPT_MESSAGE


async def test_a_message_set_of_very_many_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.protocol.records.legacy_validate.MESSAGES_MAX", 10)
    client = await served.connect()
    await client.make_topic("t", message_format_version="1")
    many = [Record(n, NOW, None, b"x") for n in range(11)]
    for codec in (compression.NONE, compression.GZIP):
        answer = await produced(client, "t", sent_as(1, codec, many), 2)
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await produced(client, "t", sent_as(1, codec, many[:10]), 2)).error_code == 0


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
async def test_large_message_sets_are_converted_on_another_thread_in_order(
    served: Served, client: Client, codec: int
) -> None:
    await client.make_topic("t", message_format_version="1")
    many = [Record(n, NOW, None, b"%d" % n * 20) for n in range(3000)]
    for n, records in enumerate((many, RECORDS, many)):
        client.send(PRODUCE, 1, n, produce_request("t", sent_as(0, codec, records), acks=1))
    bases = []
    for n in range(3):
        correlation_id, response = await client.receive(PRODUCE, 1)
        assert correlation_id == n
        bases.append(response.responses[0].partition_responses[0].base_offset)
    assert bases == [0, 3000, 3005]
    rows = [
        row
        for segment, position, header in log_of(served.broker, "t").headers(0)
        for row in read_records(segment.file.pread(header.size_bytes, position))
    ]
    assert [row.value for row in rows] == [record.value for record in (*many, *RECORDS, *many)]


@pytest.mark.parametrize("losses", [1, 3, 4, 20])
async def test_S71_what_is_compressed_for_an_offset_that_is_taken_is_made_again_elsewhere(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    """Some times; then it is stored uncompressed, wherever that is: nothing is compressed on the event loop."""
    await client.make_topic("t", message_format_version="0")
    log = log_of(served.broker, "t")
    check, checks = Log.check, []

    def overtaken(self: Log, *how: Any, **named: Any) -> Steps[Checked]:
        checked = yield from check(self, *how, **named)
        checks.append(threading.current_thread() is not threading.main_thread())
        if len(checks) <= losses:
            log.append(bytearray(sent_as(0)), NOW, any_format=True)
        return checked

    monkeypatch.setattr(Log, "check", overtaken)
    many = [Record(n, NOW, None, b"%d" % n * 20) for n in range(3000)]
    answer = await produced(client, "t", sent_as(1, compression.GZIP, many), 2)
    lost = min(losses, 4)
    assert (answer.error_code, answer.base_offset) == (0, lost * len(RECORDS))
    assert checks == [True] * min(losses + 1, 4)
    rows = list(message_set.read_records(stored(log)))
    assert [row.offset for row in rows] == list(range(lost * len(RECORDS) + 3000))
    assert [row.value for row in rows[-3000:]] == [record.value for record in many]
    codecs = {
        entry.codec for entry in message_set.entries(stored(log)) if entry.offset >= lost * len(RECORDS)
    }
    assert codecs == ({compression.GZIP} if losses < 3 else {compression.NONE})


async def test_what_others_are_always_ahead_of_is_given_up(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is too large to be stored uncompressed; its client may have left long ago."""
    await client.make_topic("t", message_format_version="0", max_message_bytes="2000")
    log, check, tries = log_of(served.broker, "t"), Log.check, []

    def overtaken(self: Log, *how: Any, **named: Any) -> Steps[Checked]:
        checked = yield from check(self, *how, **named)
        tries.append(checked)
        log.append(bytearray(sent_as(0, records=RECORDS[:1])), NOW, any_format=True)
        return checked

    monkeypatch.setattr(Log, "check", overtaken)
    large = [Record(0, NOW, None, bytes(100_000))]
    answer = await produced(client, "t", sent_as(0, compression.GZIP, large), 0)
    assert (answer.error_code, len(tries)) == (ErrorCode.REQUEST_TIMED_OUT, 20)
    assert log.log_end_offset == 20


async def test_more_messages_at_once_than_a_segment_takes_are_refused(served: Served, client: Client) -> None:
    await client.make_topic("t", message_format_version="1", segment_bytes="20000")
    many = [Record(n, NOW, None, b"x" * 100) for n in range(200)]
    answer = await produced(client, "t", sent_as(1, 0, many), 2)
    assert answer.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert (await produced(client, "t", sent_as(1, compression.GZIP, many), 2)).error_code == 0


async def test_zstd_and_what_is_not_to_be_converted_are_refused_to_older_readers(
    served: Served, client: Client
) -> None:
    """What comes before zstd is given first."""
    await client.make_topic("t")
    await produced(client, "t", sent_as(2), 9)
    await produced(client, "t", sent_as(2, compression.ZSTD), 9)
    for version in range(4):
        data = bytes((await fetched(client, "t", 0, version)).records)
        assert [row.offset for row in message_set.read_records(data)] == list(range(5))
        answer = await fetched(client, "t", 5, version)
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    await client.make_topic("kept", message_downconversion_enable="false")
    await produced(client, "kept", sent_as(2), 9)
    for version in range(4):
        assert (await fetched(client, "kept", 0, version)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await fetched(client, "kept", 0, 4)).error_code == 0
    await client.make_topic("old", message_downconversion_enable="false", message_format_version="0")
    await produced(client, "old", sent_as(2), 9)
    assert (await fetched(client, "old", 0, 0)).error_code == 0


async def test_an_older_reader_gets_a_bounded_answer_and_every_partition_in_time(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converted, "READ_BYTES", 20_000)
    monkeypatch.setattr("tidelog.broker.handlers.fetch.CONVERTED_BYTES_MAX", 30_000)
    batches = [[Record(n, NOW, None, bytes(1000)) for n in range(9)] for _ in range(10)]
    for topic in ("a", "b"):
        await client.make_topic(topic)
        for records in batches:
            await produced(client, topic, sent_as(2, 0, records), 9)
    served_first = set()
    for offset in range(30):
        topics = [
            FetchTopic(
                topic=name,
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
            for name in ("a", "b")
        ]
        response = await client.ask(FETCH, 0, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics))
        sizes = {topic.topic: len(topic.partitions[0].records or b"") for topic in response.responses}
        assert 20_000 < sum(sizes.values()) <= 30_000
        served_first.add(max(sizes, key=lambda name: sizes[name]))
    assert served_first == {"a", "b"}


async def test_an_older_reader_gets_the_messages_of_a_second_partition_that_fit_though_their_batch_does_not(
    served: Served, client: Client
) -> None:
    await client.make_topic("t", 2)
    await produced(client, "t", sent_as(2, 0, [Record(0, NOW, None, bytes(100))]), 9)
    many = sent_as(2, 0, [Record(n, NOW, None, bytes(500)) for n in range(10)])
    await client.produce("t", many, 1, version=9)
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=3000) for number in range(2)
    ]
    request = FetchRequest(
        max_wait_ms=5000, min_bytes=1000, topics=[FetchTopic(topic="t", partitions=wanted)]
    )
    response = await client.ask(FETCH, 2, request)
    sizes = {part.partition_index: len(part.records) for part in response.responses[0].partitions}
    assert 0 < sizes[0] < 500 < sizes[1] <= 3000


@pytest.mark.parametrize("bound", ["bytes", "time"])
async def test_no_more_is_converted_once_an_answer_is_full_or_has_taken_long(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    for name in "abc":
        await client.make_topic(name)
        await produced(client, name, sent_as(2, compression.GZIP), 3)
    begun: list[int] = []
    steps = converted.steps
    monkeypatch.setattr(converted, "steps", lambda *how: (begun.append(1), steps(*how))[1])
    if bound == "time":
        monkeypatch.setattr("tidelog.broker.handlers.fetch.CONVERTS_S", -1.0)
    most_bytes = 1 << 20 if bound == "time" else 0
    want = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=most_bytes)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=name, partitions=want) for name in "abc"]
    )
    answer = await client.ask(FETCH, 2, request)
    sizes = [len(topic.partitions[0].records or b"") for topic in answer.responses]
    assert (len(begun), sum(size > 0 for size in sizes)) == (1, 1)


async def test_what_is_converted_in_many_steps_gives_way_to_others_and_to_a_stop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient, other = [await served.connect() for _ in range(2)]
    await patient.make_topic("t")
    await produced(patient, "t", sent_as(2), 9)
    begun, is_over = threading.Event(), threading.Event()
    steps = converted.steps

    def many(log: Log, offset: int, *how: Any) -> Iterator[bytearray | FileSlice]:
        while offset and not is_over.is_set():
            begun.set()
            yield bytearray()
        yield from steps(log, offset, *how)

    monkeypatch.setattr(converted, "steps", many)

    def ask(correlation_id: int) -> None:
        patient.send(FETCH, 2, correlation_id, fetch_request("t", 3, min_bytes=0))

    ask(1)
    await until(begun.is_set)
    data = bytes((await fetched(other, "t", 0, 2)).records)
    assert [row.offset for row in message_set.read_records(data)] == list(range(5))
    is_over.set()
    _, response = await patient.receive(FETCH, 2)
    (answer,) = response.responses[0].partitions
    assert [row.offset for row in message_set.read_records(bytes(answer.records))] == [3, 4]
    is_over.clear()
    begun.clear()
    ask(2)
    await until(begun.is_set)
    stopping = asyncio.create_task(served.stop())
    _, response = await patient.receive(FETCH, 2)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await stopping


@pytest.mark.parametrize("room_bytes", [1000, 0])
async def test_very_many_messages_are_checked_in_turns_with_those_of_others_while_there_is_room(
    served: Served, monkeypatch: pytest.MonkeyPatch, room_bytes: int
) -> None:
    """Where more is held than there is room for, a check that has begun goes on to its end."""
    monkeypatch.setattr("tidelog.broker.work.HELD_BYTES_MAX", room_bytes)
    monkeypatch.setitem(running.SLICES_S, Lane.LONG, 0.0)
    patient, other = [await served.connect() for _ in range(2)]
    await patient.make_topic("t", message_format_version="1")
    check, begun, is_other_there, is_over = Log.check, threading.Event(), threading.Event(), threading.Event()

    def many(self: Log, *how: Any, **named: Any) -> Steps[Checked]:
        is_first = not begun.is_set()
        begun.set()
        checked = yield from check(self, *how, **named)
        if is_first:
            assert is_other_there.wait(20)
            for number in count():
                yield 500
                if is_over.is_set() or (not room_bytes and number == 3):
                    break
        return checked

    monkeypatch.setattr(Log, "check", many)

    def send(client: Client) -> None:
        data = sent_as(1, 0, [Record(n, NOW, None, b"x" * 100) for n in range(400)])
        client.send(PRODUCE, 2, 1, produce_request("t", data, acks=1))

    async def base_offset(client: Client) -> int:
        _, response = await client.receive(PRODUCE, 2)
        offset: int = response.responses[0].partition_responses[0].base_offset
        return offset

    send(patient)
    await until(begun.is_set)
    send(other)
    await until(lambda: len(served.broker.readers._queues[Lane.LONG]) > 0)
    is_other_there.set()
    assert await base_offset(other) == (0 if room_bytes else 400)
    is_over.set()
    assert await base_offset(patient) == (400 if room_bytes else 0)
    assert served.broker.held.total_bytes == 0


@pytest.mark.parametrize("ends", ["well", "by an error", "by a client that leaves"])
async def test_a_fetch_that_converts_counts_as_what_it_holds_until_its_end(
    served: Served, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    client, held = await served.connect(), served.broker.held
    await client.make_topic("t")
    await produced(client, "t", sent_as(2), 9)

    def steps(*_: Any) -> Iterator[bytearray | FileSlice]:
        yield from [bytearray(1000)] * 3
        if ends == "by an error":
            raise CorruptLog("damaged")

    monkeypatch.setattr(converted, "steps", steps)
    want = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[want, want])]
    )

    def look() -> list[int]:
        """Go through the steps; return what was held at each."""
        work = fetch_handler._Fetch(served.broker, request, 2).look()
        lane = work.send(None)
        while lane is not Lane.LONG:
            lane = work.send(Lane.LOOP if lane is Lane.ANYWHERE else lane)
        found: list[int] = []
        with suppress(StopIteration):
            while True:
                work.send(Lane.LONG)
                found.append(held.total_bytes - others_bytes)
                if ends == "by a client that leaves":
                    work.close()
                    break
        return found

    others_bytes = 0
    assert set(look()) == {3 << 20}
    assert held.total_bytes == 0
    # Where others hold all that there is room for it gives way to nobody.
    others_bytes = held.total_bytes = 1 << 40
    assert look() == []
    assert held.total_bytes == others_bytes


async def test_a_batch_of_an_idempotent_producer_is_stored_once_in_an_older_format_too(
    served: Served, client: Client
) -> None:
    await client.make_topic("t", message_format_version="1")
    data = build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0)
    assert [(await produced(client, "t", data, 9)).base_offset for _ in range(2)] == [0, 0]
    data = build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=9)
    assert (await produced(client, "t", data, 9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("magic", [0, 1, 2])
async def test_LogAppendTime_counts_in_every_format_that_has_times(
    served: Served, client: Client, magic: int
) -> None:
    served.broker.clock.hold(NOW + 10**6)
    await client.make_topic("t", message_format_version=str(magic), message_timestamp_type="LogAppendTime")
    for codec in (compression.NONE, compression.GZIP):
        for version, sent in ((1, 0), (2, 1), (9, 2)):
            answer = await produced(client, "t", sent_as(sent, codec), version)
            assert answer.error_code == 0
            if version >= 2:
                assert answer.log_append_time_ms == NOW + 10**6
    rows = [
        row
        for segment, position, header in log_of(served.broker, "t").headers(0)
        for row in read_records(segment.file.pread(header.size_bytes, position))
    ]
    assert {row.timestamp for row in rows} == ({-1} if magic == 0 else {NOW + 10**6})
    assert len(rows) == 30
