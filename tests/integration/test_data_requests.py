"""Produce, Fetch and ListOffsets as bytes on the wire: shapes that few clients send, bounds, and disks that fail."""

import asyncio
import itertools
import threading
from typing import Any, NamedTuple

import pytest

from tests.support import builders
from tests.support.builders import fetch_request, list_offsets_request, produce_request
from tests.support.faulty_disk import FaultyDisk
from tests.support.served import Client, Serve, Served, log_of, until
from tests.support.wire import uvarint
from tidelog.broker.clock import Clock
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.frame import decode_response, encode_request
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.wire.api import Api
from tidelog.storage import converted
from tidelog.storage.errors import StorageError, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.sources import WAITING, WARM

NOW = 1_700_000_000_000
KEEP = {"log_retention_ms": "-1"}


def records(*values: bytes, first_ms: int = NOW, **options: int) -> memoryview:
    return builders.records(*values, first_ms=first_ms, step_ms=1, **options)


def request(
    topic: str, index: int, data: memoryview | None, topic_id: bytes, version: int, acks: int = 1
) -> ProduceRequest:
    return produce_request(topic_id if version >= 13 else topic, data, index, acks=acks)


def lookup(name: str = "t", index: int = 0, timestamp: int = NOW) -> ListOffsetsRequest:
    return list_offsets_request(name, timestamp, index)


def fetch_from(offset: int, **partition: Any) -> FetchRequest:
    return fetch_request("t", offset, **{"max_wait_ms": 1, "partition_max_bytes": 1000, **partition})


class Asked(NamedTuple):
    """A broker with a topic "t" of some records and small segments, and a client of it."""

    served: Served
    topic_id: bytes
    client: Client

    async def frame(self, frame: bytes) -> bytes:
        """Send a frame, without its size; return its answer."""
        self.client.writer.write(len(frame).to_bytes(4, "big") + frame)
        return await self.client.frame()

    async def answer(self, api: Api, version: int, frame: bytes) -> Any:
        """Send a frame, without its size; return its answer as a message."""
        return decode_response(api, version, await self.frame(frame))[1]

    async def is_refused(self, frame: bytes) -> bool:
        """Send a frame, without its size; tell whether the connection is closed without an answer."""
        self.client.writer.write(len(frame).to_bytes(4, "big") + frame)
        return await asyncio.wait_for(self.client.reader.read(), 10) == b""


@pytest.fixture
async def asked(serve: Serve) -> Asked:
    served = await serve(**KEEP, log_segment_bytes="20000")
    client = await served.connect()
    topic_id = await client.make_topic("t", 2)
    for number in range(60):
        data = records(*[b"v" * (1 + number * 37 % 900)] * (1 + number % 7), first_ms=NOW + 10 * number)
        await client.ask(PRODUCE, 9, request("t", 0, data, topic_id, 9))
    return Asked(served, topic_id, client)


@pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
async def test_a_fetch_gets_what_the_log_has_from_its_offset_on(asked: Asked, version: int) -> None:
    log = log_of(asked.served.broker, "t")
    named: dict[str, Any] = {"topic_id": asked.topic_id} if version >= 13 else {"topic": "t"}
    end = log.log_end_offset
    for offset in (0, 1, 57, end - 1, end, end + 1):
        for partition_max_bytes in (1, 1000, 10**6):
            want = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
            topics = [FetchTopic(**named, partitions=[want])]
            answer = await asked.client.ask(
                FETCH, version, FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics)
            )
            (part,) = answer.responses[0].partitions
            if offset > end:
                assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                continue
            stable = end if version >= 4 else -1
            assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, end, stable)
            if version < 4:
                magic = 1 if version >= 2 else 0
                steps = converted.steps(log, offset, magic, partition_max_bytes, True)
                stored = b"".join(bytes(step) for step in steps)
            else:
                stored = log.read(offset, partition_max_bytes, at_least_one=True, source=WAITING).read()
            assert bytes(part.records) == bytes(stored)


async def test_the_correlation_id_is_that_of_the_request(serve: Serve) -> None:
    client = await (await serve(**KEEP)).connect()
    topic_id = await client.make_topic("t", 2)
    for number in range(10):
        client.send(PRODUCE, 9, number * 7, request("t", 0, records(b"%d" % number), topic_id, 9))
    assert [(await client.receive(PRODUCE, 9))[0] for _ in range(10)] == [n * 7 for n in range(10)]


@pytest.mark.parametrize("version", [1, 4, 7, 9])
async def test_S44_with_lookup_clock_append_a_time_is_that_of_the_append(serve: Serve, version: int) -> None:
    served = await serve(**KEEP, lookup_clock="append")
    client = await served.connect()
    topic_id = await client.make_topic("t", 2)
    log = log_of(served.broker, "t")
    for number in range(3):
        await client.ask(PRODUCE, 9, request("t", 0, records(b"v", b"w", first_ms=NOW - number), topic_id, 9))
        await until(lambda: served.broker.clock.now_ms() > log.last_append_ms)
    times = [log.active.append_index.time_at(offset).time_ms for offset in (0, 2, 4)]
    for at, found in ((0, (times[0], 0)), (times[1], (times[1], 2)), (times[1] + 1, (times[2], 4))):
        answer = await client.ask(LIST_OFFSETS, version, lookup(timestamp=at))
        (part,) = answer.topics[0].partitions
        assert (part.error_code, (part.timestamp, part.offset)) == (0, found)
    answer = await client.ask(LIST_OFFSETS, version, lookup(timestamp=times[2] + 1))
    assert (answer.topics[0].partitions[0].timestamp, answer.topics[0].partitions[0].offset) == (-1, -1)


async def test_S43_the_clock_is_read_for_each_batch_that_is_appended(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once in a turn of the loop, which takes several requests, nor once for a request of several batches."""
    client = await (await serve(**KEEP, num_partitions="3")).connect()
    await client.make_topic("t")
    reads = itertools.count(NOW)
    seen: list[int] = []
    append = Log.append

    def noting(log: Log, data: Any, now_ms: int, *more: Any) -> Any:
        seen.append(now_ms - next(reads))
        return append(log, data, now_ms, *more)

    loop = threading.get_ident()
    monkeypatch.setattr(Clock, "now_ms", lambda _: next(reads) if threading.get_ident() == loop else NOW)
    monkeypatch.setattr(Log, "append", noting)
    parts = [PartitionProduceData(index=index, records=records(b"v")) for index in range(3)]
    named = [TopicProduceData(name="t", partition_data=parts)]
    together = ProduceRequest(acks=1, timeout_ms=1000, topic_data=named)
    for number in range(3):
        client.send(PRODUCE, 9, number, request("t", 0, records(b"v"), b"", 9))
        client.send(PRODUCE, 9, number, together)
    for _ in range(6):
        await client.receive(PRODUCE, 9)
    assert seen == [-1] * 12


async def test_a_topic_that_was_deleted_and_made_again_is_another(serve: Serve) -> None:
    client = await (await serve(**KEEP)).connect()
    codes = []
    for _ in range(2):
        topic_id = await client.make_topic("t", 2)
        offsets = []
        for _ in range(4):
            answer = await client.ask(PRODUCE, 9, request("t", 0, records(b"v"), topic_id, 9))
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
        assert offsets == [0, 1, 2, 3]
        await client.delete("t")
        answer = await client.ask(PRODUCE, 9, request("t", 0, records(b"v"), topic_id, 9))
        codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


async def test_what_is_fetched_and_searched_of_a_deleted_topic_is_gone(asked: Asked) -> None:
    client, gone = asked.client, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for code in (0, gone):
        for version in (4, 12):
            answer = await client.ask(FETCH, version, fetch_from(0))
            assert answer.responses[0].partitions[0].error_code == code
        found = await client.ask(LIST_OFFSETS, 6, lookup())
        assert found.topics[0].partitions[0].error_code == code
        await client.delete("t")


@pytest.mark.parametrize("min_bytes", [1, 100, 100_000])
async def test_a_fetch_that_waits_gets_what_comes(asked: Asked, min_bytes: int) -> None:
    served, client = asked.served, asked.client
    partition = served.broker.topics.by_name["t"].partitions[0]
    producer = await served.connect()
    for _ in range(3):
        end = partition.log.log_end_offset
        client.send(FETCH, 11, 5, fetch_request("t", end, max_wait_ms=100, min_bytes=min_bytes))
        await until(lambda: len(served.broker.parked) == 1)
        for _ in range(2):
            await producer.ask(PRODUCE, 9, request("t", 0, records(b"new"), asked.topic_id, 9))
        correlation_id, answer = await client.receive(FETCH, 11)
        assert (correlation_id, answer.responses[0].partitions[0].error_code) == (5, 0)
        assert answer.responses[0].partitions[0].records
        assert not served.broker.parked
        assert not partition.waiters.count


async def test_a_produce_cut_among_tags_behind_its_records_is_refused(asked: Asked) -> None:
    data = records(b"v" * 200)
    frame = encode_request(PRODUCE, 10, 5, "test", request("t", 0, data, asked.topic_id, 10))[4:]
    length = uvarint(len(data) + 1)
    at, tags = frame.index(length + bytes(data)), b"\0\0\x01\x63\x01x"
    tagged = frame[:-3] + tags
    answer = await asked.answer(PRODUCE, 10, tagged)
    assert answer.responses[0].partition_responses[0].error_code == 0
    small = bytes(records(b"small"))
    assert await asked.is_refused(tagged[: at + len(tags) - 3] + uvarint(len(small) + 1) + small + bytes(3))


async def test_tags_behind_the_records_are_read(asked: Asked) -> None:
    """And where a length does not end with the frame, the request is not what it seems."""
    plain = encode_request(PRODUCE, 10, 5, "test", request("t", 0, records(b"v" * 20), asked.topic_id, 10))[
        4:
    ]
    log = log_of(asked.served.broker, "t")
    for frame in (plain, plain[:-3] + b"\0\0\x01\x63\x01x", plain[:-3] + b"\x01\x63\x01x\0\0"):
        end = log.log_end_offset
        part = (await asked.answer(PRODUCE, 10, frame)).responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset, log.log_end_offset) == (0, end, end + 1)
    end = log.log_end_offset
    assert await asked.is_refused(plain[:-4])
    assert log.log_end_offset == end


@pytest.mark.parametrize("size", [100, 3_000_000])
async def test_a_tag_that_nobody_knows_is_passed_over_however_large(asked: Asked, size: int) -> None:
    """In a fetch, and behind the records of a produce."""
    for api, version, question in (
        (FETCH, 12, fetch_from(0)),
        (PRODUCE, 9, request("t", 0, records(b"v"), asked.topic_id, 9)),
    ):
        frame = encode_request(api, version, 1, "test", question)[4:-1]
        answer = await asked.answer(api, version, frame + b"\x01\x63" + uvarint(size) + bytes(size))
        assert answer.responses[0]


@pytest.mark.parametrize("spare", [b"\0", b"\0\0\0", b"\x07" * 100])
async def test_bytes_behind_a_request_change_nothing(asked: Asked, spare: bytes) -> None:
    questions: list[tuple[Api, int, object]] = [(LIST_OFFSETS, version, lookup()) for version in (5, 7)]
    questions += [(FETCH, version, fetch_from(3)) for version in (11, 12)]
    for api, version, question in questions:
        frame = encode_request(api, version, 5, "test", question)[4:]
        assert await asked.frame(frame) == await asked.frame(frame + spare)
    for version in (8, 9):
        frame = encode_request(
            PRODUCE, version, 5, "test", request("t", 1, records(b"v"), asked.topic_id, version)
        )[4:]
        for sent in (frame, frame + spare):
            answer = await asked.answer(PRODUCE, version, sent)
            assert answer.responses[0].partition_responses[0].error_code == 0
    log = log_of(asked.served.broker, "t", 1)
    assert log.log_end_offset == 4


async def test_a_tag_in_the_header_and_no_name_of_the_client_change_nothing(asked: Asked) -> None:
    header = 4 + 8 + 2 + len("test")
    for api, version, question in ((FETCH, 12, fetch_from(0)), (LIST_OFFSETS, 7, lookup())):
        plain = encode_request(api, version, 5, "test", question)
        expected = await asked.frame(plain[4:])
        tagged = plain[4:header] + b"\x01\x07\x01x" + plain[header + 1 :]
        assert await asked.frame(tagged) == expected
        assert await asked.frame(encode_request(api, version, 5, None, question)[4:]) == expected


@pytest.mark.parametrize("more", [0, 1])
async def test_a_fetch_with_exactly_min_bytes_is_answered_at_once(asked: Asked, more: int) -> None:
    log = log_of(asked.served.broker, "t")
    there = log.read(0, 10**6, at_least_one=True, source=WAITING).length
    want = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)
    topics = [FetchTopic(topic="t", partitions=[want])]
    fetch = FetchRequest(max_wait_ms=600_000, min_bytes=there + more, topics=topics)
    asked.client.send(FETCH, 11, 5, fetch)
    if more:
        await until(lambda: len(asked.served.broker.parked) == 1)
        asked.served.broker.parked.release()
    _, answer = await asked.client.receive(FETCH, 11)
    assert len(answer.responses[0].partitions[0].records) == there
    assert not asked.served.broker.parked


async def test_a_fetch_with_one_failed_partition_among_good_ones_does_not_wait(asked: Asked) -> None:
    wants = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        for index, offset in ((1, 0), (0, 10**6))
    ]
    topics = [FetchTopic(topic="t", partitions=wants)]
    answer = await asked.client.ask(FETCH, 11, FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics))
    codes = [part.error_code for part in answer.responses[0].partitions]
    assert codes == [0, ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_a_fetch_from_before_any_offset_is_refused_each_time(asked: Asked) -> None:
    """Clients that ask from -1 again and again: OFFSET_OUT_OF_RANGE, and the connection stays."""
    for _ in range(2):
        answer = await asked.client.ask(FETCH, 11, fetch_from(-1))
        assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_topic_may_stand_twice_in_a_request(asked: Asked) -> None:
    parts = [PartitionProduceData(index=index, records=records(b"v")) for index in (0, 1)]
    twice = [TopicProduceData(name="t", partition_data=[part]) for part in parts]
    produced = await asked.client.ask(PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=twice))
    codes = [[part.error_code for part in each.partition_responses] for each in produced.responses]
    assert codes == [[0], [0]]
    looked_up = ListOffsetsRequest(replica_id=-1, topics=[*lookup().topics, *lookup(index=1).topics])
    found = (await asked.client.ask(LIST_OFFSETS, 7, looked_up)).topics
    assert [[part.partition_index for part in each.partitions] for each in found] == [[0], [1]]
    wants = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100) for index in (0, 1)]
    topics = [FetchTopic(topic="t", partitions=[want]) for want in wants]
    fetched = await asked.client.ask(FETCH, 11, FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics))
    assert [part.partition_index for each in fetched.responses for part in each.partitions] == [0, 1]


async def test_a_question_is_another_one_where_any_part_of_it_is(asked: Asked) -> None:
    """What is asked again is looked up once: by all that its answer depends on."""
    await asked.client.make_topic("other", 2)

    def ask(name: str, timestamp: int, most: int = 1, epoch: int = -1) -> ListOffsetsTopic:
        want = ListOffsetsPartition(
            partition_index=0, timestamp=timestamp, max_num_offsets=most, current_leader_epoch=epoch
        )
        return ListOffsetsTopic(name=name, partitions=[want])

    async def answers(version: int, *topics: ListOffsetsTopic) -> list[Any]:
        wanted = ListOffsetsRequest(replica_id=-1, topics=list(topics))
        return [
            topic.partitions[0] for topic in (await asked.client.ask(LIST_OFFSETS, version, wanted)).topics
        ]

    log = log_of(asked.served.broker, "t")
    found = await answers(7, ask("t", -1), ask("other", -1), ask("t", -2), ask("t", -1))
    assert [each.offset for each in found] == [log.log_end_offset, 0, 0, log.log_end_offset]
    found = await answers(7, ask("t", -1), ask("t", -1, epoch=1000))
    assert [each.error_code for each in found] == [ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]
    found = await answers(0, ask("t", -1, most=1), ask("t", -1, most=2))
    assert [len(each.old_style_offsets) for each in found] == [1, 2]


async def test_a_fetch_does_not_wait_for_what_came_while_it_was_looked_for_elsewhere(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look of a reader thread and the wait on the loop nobody tells a waiter of what is appended."""
    served, client = asked.served, asked.client
    other = await served.connect()
    log = log_of(served.broker, "t")
    wanted = fetch_from(log.log_end_offset)
    wanted.max_wait_ms = 60_000
    looked, gate, read = threading.Event(), threading.Event(), Log.read

    def slow(log: Log, *what: Any) -> Any:
        if what[-1] is WARM:
            raise TakesLong("as if it had to walk far")
        found = read(log, *what)
        looked.set()
        gate.wait(20)
        return found

    monkeypatch.setattr(Log, "read", slow)
    client.send(FETCH, 11, 1, wanted)
    assert await asyncio.to_thread(looked.wait, 20)
    await other.ask(PRODUCE, 9, request("t", 0, records(b"new"), asked.topic_id, 9))
    gate.set()
    _, answer = await client.receive(FETCH, 11)
    assert answer.responses[0].partitions[0].records


@pytest.mark.parametrize("index", [-1, 2, 99])
async def test_the_only_batch_of_a_produce_may_be_for_a_partition_that_is_not_there(
    asked: Asked, index: int
) -> None:
    for acks in (1, -1):
        wanted = request("t", index, records(b"v"), asked.topic_id, 9, acks)
        answer = (await asked.client.ask(PRODUCE, 9, wanted)).responses[0].partition_responses[0]
        assert (answer.index, answer.error_code) == (index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_large_batch_is_fetched_whole_after_partitions_that_have_nothing(asked: Asked) -> None:
    data = records(b"v" * 500)
    await asked.client.ask(PRODUCE, 9, request("t", 1, data, asked.topic_id, 9))
    end = log_of(asked.served.broker, "t").log_end_offset
    wanted = fetch_from(end)
    wanted.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=10))
    nothing, found = (await asked.client.ask(FETCH, 11, wanted)).responses[0].partitions
    assert (len(nothing.records), len(found.records)) == (0, len(data))


async def test_a_question_that_no_version_knows_is_refused(asked: Asked) -> None:
    found = await asked.client.ask(LIST_OFFSETS, 7, lookup(timestamp=-7))
    assert found.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_request_that_names_no_partition_is_answered(asked: Asked) -> None:
    lookups, fetched = lookup(), fetch_from(0)
    lookups.topics[0].partitions, fetched.topics[0].partitions = [], []
    produced = request("t", 0, None, asked.topic_id, 9)
    produced.topic_data[0].partition_data = []
    assert (await asked.client.ask(LIST_OFFSETS, 7, lookups)).topics[0].partitions == []
    assert (await asked.client.ask(FETCH, 11, fetched)).responses == []
    assert (await asked.client.ask(PRODUCE, 9, produced)).responses[0].partition_responses == []


async def test_acks_that_do_not_exist_and_no_records_are_refused(asked: Asked) -> None:
    for acks, data, code in (
        (2, records(b"v"), ErrorCode.INVALID_REQUIRED_ACKS),
        (1, None, ErrorCode.INVALID_RECORD),
    ):
        answer = await asked.client.ask(PRODUCE, 9, request("t", 1, data, asked.topic_id, 9, acks))
        assert answer.responses[0].partition_responses[0].error_code == code


async def test_a_reader_with_an_older_leader_epoch_is_fenced_and_with_a_newer_one_told_so(
    asked: Asked,
) -> None:
    log_of(asked.served.broker, "t").leader_epoch = 1
    codes = []
    for epoch in (0, 1, 2, -1):
        answer = await asked.client.ask(FETCH, 11, fetch_from(0, current_leader_epoch=epoch))
        codes.append(answer.responses[0].partitions[0].error_code)
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH, 0]


# -- what goes wrong below --------------------------------------------------------------------------------------


async def test_a_produce_whose_flush_fails_is_answered_so(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = request("t", 1, records(b"v"), asked.topic_id, 9, acks=-1)
    flusher, partitions = asked.served.broker.flusher, asked.served.broker.topics.by_name["t"].partitions
    failing = {partitions[1].log: StorageError("the disk is gone")}
    monkeypatch.setattr(flusher, "_flush", lambda logs: {log: failing[log] for log in logs if log in failing})
    failed = (await asked.client.ask(PRODUCE, 9, one)).responses[0].partition_responses[0]
    assert (failed.error_code, failed.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
    assert (failed.base_offset, failed.log_append_time_ms) == (-1, -1)
    end = partitions[0].log.log_end_offset
    parts = [PartitionProduceData(index=index, records=records(b"v")) for index in (0, 1)]
    topic_data = [TopicProduceData(name="t", partition_data=parts)]
    answer = await asked.client.ask(
        PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topic_data)
    )
    codes = [(part.error_code, part.base_offset) for part in answer.responses[0].partition_responses]
    assert codes == [(0, end), (ErrorCode.KAFKA_STORAGE_ERROR, -1)]


async def test_what_cannot_be_read_fails_its_partition_alone(asked: Asked, disk: FaultyDisk) -> None:
    """On a reader thread, as it is not in memory."""
    await asked.client.ask(PRODUCE, 9, request("t", 1, records(b"good"), asked.topic_id, 9))
    good = await asked.client.ask(FETCH, 11, fetch_from(0, partition=1))
    wants = [*fetch_from(0).topics[0].partitions, *fetch_from(0, partition=1).topics[0].partitions]
    several = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=wants)])
    disk.is_cold = True
    disk.fail("read", of="t-0/*")
    answer = (await asked.client.ask(FETCH, 11, several)).responses[0].partitions
    assert [part.error_code for part in answer] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert not answer[0].records
    assert bytes(answer[1].records) == bytes(good.responses[0].partitions[0].records)


@pytest.mark.parametrize("partitions", [1, 2])
async def test_acks_0_is_not_answered_where_others_would_wait_for_the_disk_and_holds_up_what_follows(
    serve: Serve, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(flush_policy="interval", log_flush_interval_messages="1")
    client = await served.connect()
    topic_id = await client.make_topic("t", 2)
    sent = request("t", 0, records(b"one"), topic_id, 9, acks=0)
    if partitions == 2:
        more = PartitionProduceData(index=1, records=records(b"two"))
        sent.topic_data[0].partition_data.append(more)
    slow, flusher = threading.Event(), served.broker.flusher
    flush = flusher._flush
    monkeypatch.setattr(flusher, "_flush", lambda logs: flush(logs) if slow.wait(20) else {})
    client.send(PRODUCE, 9, 1, sent)
    client.send(LIST_OFFSETS, 7, 2, lookup(timestamp=-1))
    receiving = asyncio.create_task(client.receive(LIST_OFFSETS, 7))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not receiving.done(), "what waits for the disk stops the reading of its connection in the end"
    slow.set()
    correlation_id, answer = await receiving
    assert (correlation_id, answer.topics[0].partitions[0].offset) == (2, 1)
