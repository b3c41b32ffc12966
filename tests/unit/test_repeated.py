"""Requests that are like the one before: whatever comes, the answer is that of a broker that decodes each."""

import asyncio
import errno
import os
import random
from typing import Any, NamedTuple

import pytest

from tests.support.served import Client, Connect, Serve, Served, connect, serve, until
from tidelog.broker.repeated import requests
from tidelog.broker.repeated.requests import RepeatedRequests
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
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
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.runtime import uvarint
from tidelog.storage.errors import StorageError
from tidelog.storage.files import File

__all__ = ["connect", "serve"]

NOW = 1_700_000_000_000
VERSIONS = range(PRODUCE.min_version, PRODUCE.max_version + 1)
KEEP = {"log_retention_ms": "-1"}


class Both(NamedTuple):
    """A broker with a topic "t", a client that it knows again, and one whose requests it decodes, each of them."""

    served: Served
    topic_id: bytes
    first: Client
    second: Client
    known_again: list[int]  # key and version of the requests that were served without decoding


def records(*values: bytes, base_offset: int = 0, first_ms: int = NOW) -> memoryview:
    made = [Record(n, first_ms + n, None, value, ()) for n, value in enumerate(values)]
    return memoryview(build_batch(made, base_offset=base_offset))


def request(
    topic: str, index: int, data: memoryview | None, topic_id: bytes, version: int, acks: int = 1
) -> ProduceRequest:
    named: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"name": topic}
    topic_data = TopicProduceData(**named, partition_data=[PartitionProduceData(index=index, records=data)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic_data])


async def make_topic(client: Client, name: str, partitions: int = 2) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    response = await client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    return bytes(response.topics[0].topic_id)


@pytest.mark.parametrize("version", VERSIONS)
async def test_answers_are_those_of_a_broker_that_decodes_each_request(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    served = await serve(**KEEP)
    again, each = await connect(served), await connect(served)
    topics = {name: await make_topic(again, name) for name in ("again", "each")}
    unlearned, learn = served.connection_of(each).repeated, RepeatedRequests.learn
    monkeypatch.setattr(
        RepeatedRequests, "learn", lambda self, *rest: None if self is unlearned else learn(self, *rest)
    )
    rng = random.Random(version)
    batches = [
        records(b"a"),
        records(b"a" * 100),
        records(*[b"b" * 300] * 20),
        records(b"c" * 40_000),
        records(b"x", base_offset=5),
        records(b"damaged")[:-1],
        memoryview(b""),
        None,
    ]
    for _ in range(60):
        index, data, acks = rng.choice((0, 0, 0, 1, 7)), rng.choice(batches), rng.choice((1, 1, 1, -1, 2))
        for _ in range(rng.choice((1, 3))):
            answers = [
                (await client.ask(PRODUCE, version, request(name, index, data, topics[name], version, acks)))
                for client, name in ((again, "again"), (each, "each"))
            ]
            for answer, name in zip(answers, topics, strict=True):
                assert answer.responses[0].name in (name, "")
                answer.responses[0].name = ""
                answer.responses[0].topic_id = bytes(16)
            first, second = (answer.responses[0].partition_responses[0] for answer in answers)
            if first.error_message is not None:
                first.error_message = first.error_message.replace("again", "each")
            assert answers[0] == answers[1], (first, second)
    assert bool(served.connection_of(again).repeated.shapes) == (version >= 7)


async def test_the_correlation_id_is_that_of_the_request(serve: Serve, connect: Connect) -> None:
    client = await connect(await serve(**KEEP))
    topic_id = await make_topic(client, "t")
    for number in range(10):
        client.send(PRODUCE, 9, number * 7, request("t", 0, records(b"%d" % number), topic_id, 9))
    assert [(await client.receive(PRODUCE, 9))[0] for _ in range(10)] == [n * 7 for n in range(10)]


async def test_a_topic_that_was_deleted_and_made_again_is_another(serve: Serve, connect: Connect) -> None:
    client = await connect(await serve(**KEEP))
    codes = []
    for _ in range(2):
        topic_id = await make_topic(client, "t")
        offsets = []
        for _ in range(4):
            answer = await client.ask(PRODUCE, 9, request("t", 0, records(b"v"), topic_id, 9))
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
        assert offsets == [0, 1, 2, 3]
        await client.ask(DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000))
        answer = await client.ask(PRODUCE, 9, request("t", 0, records(b"v"), topic_id, 9))
        codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def remembered(served: Served) -> int:
    """Return how many requests are known."""
    return sum(
        len(shape.known) for shapes in served.server.known_requests._shapes.values() for shape in shapes
    )


async def test_what_is_remembered_is_bounded_and_forgotten_after_a_while(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20
    one = requests.ENTRY_BYTES + 4 * 22  # so much is compared of such a request
    monkeypatch.setattr(requests, "MOST_REMEMBERED_BYTES", most * one)
    monkeypatch.setattr(requests, "FORGET_AFTER", 3 * most - 1)
    served = await serve(**KEEP)
    client = await connect(served)
    topic_id = await make_topic(client, "t", partitions=most + 10)
    sizes = []
    for index in range(most + 10):
        for _ in range(4):
            await client.ask(PRODUCE, 9, request("t", index, records(b"v"), topic_id, 9))
        sizes.append(remembered(served))
        assert served.server.known_requests.remembered_bytes == sizes[-1] * one
    # Two of each partition's requests are decoded, and all four where nothing more is remembered.
    assert sizes == [*range(1, most + 1), most, most, most, most, *range(1, 7)], (
        "all was forgotten after a while"
    )


async def test_topics_with_names_of_very_many_lengths_are_not_all_remembered(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 5
    monkeypatch.setattr(requests, "MOST_SHAPES_IN_ALL", most)
    served = await serve(**KEEP)
    client = await connect(served)
    for length in range(1, 2 * most):
        topic_id = await make_topic(client, "t" * length, partitions=1)
        for offset in range(4):
            answer = await client.ask(PRODUCE, 9, request("t" * length, 0, records(b"v"), topic_id, 9))
            assert answer.responses[0].partition_responses[0].base_offset == offset
        assert remembered(served) == min(length, most)


async def test_what_one_client_asked_is_known_from_the_next(both: Both, connect: Connect) -> None:
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=NOW)])]
    lookup = ListOffsetsRequest(replica_id=-1, topics=topics)
    for _ in range(3):
        await alike(both, LIST_OFFSETS, 7, lookup)
    assert len(both.known_again) == 1
    another = await connect(both.served)
    for _ in range(3):
        await another.ask(LIST_OFFSETS, 7, lookup)
    assert len(both.known_again) == 1 + 2


async def test_what_a_client_without_a_name_asked_is_known_again(both: Both) -> None:
    for number in range(3):
        both.first.writer.write(encode_request(LIST_OFFSETS, 7, number, None, lookup()))
        assert (await both.first.receive(LIST_OFFSETS, 7))[0] == number
    assert len(both.known_again) == 1


async def test_partitions_in_turn_and_topics_with_long_and_short_names_are_remembered(
    both: Both,
) -> None:
    names = ["t", "another", "a-third-one"]
    for name in names[1:]:
        await make_topic(both.first, name)
    for number in range(5):
        for name in names:
            for index in (0, 1):
                partitions = [ListOffsetsPartition(partition_index=index, timestamp=NOW + number)]
                topics = [ListOffsetsTopic(name=name, partitions=partitions)]
                await alike(both, LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=topics))
    assert len(both.known_again) == 3 * len(names) * 2


@pytest.fixture
async def both(serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Both:
    served = await serve(**KEEP, log_segment_bytes="20000")
    first, second = await connect(served), await connect(served)
    topic_id = await make_topic(first, "t")
    unlearned, learn = served.connection_of(second).repeated, RepeatedRequests.learn
    monkeypatch.setattr(
        RepeatedRequests, "learn", lambda self, *rest: None if self is unlearned else learn(self, *rest)
    )
    for number in range(60):
        data = records(*[b"v" * (1 + number * 37 % 900)] * (1 + number % 7), first_ms=NOW + 10 * number)
        await first.ask(PRODUCE, 9, request("t", 0, data, topic_id, 9))
    served.connection_of(first).repeated.shapes.clear()
    known_again: list[int] = []
    serve_again = RepeatedRequests.serve

    def count(self: RepeatedRequests, view: memoryview, position: int, end: int) -> Any:
        answer = serve_again(self, view, position, end)
        if answer is not None:
            known_again.append(int.from_bytes(view[position : position + 4], "big"))
        return answer

    monkeypatch.setattr(RepeatedRequests, "serve", count)
    return Both(served, topic_id, first, second, known_again)


async def alike(both: Both, api: Api, version: int, request: object) -> None:
    """Ask both; demand the same answer to the byte."""
    for client in (both.first, both.second):
        client.send(api, version, 5, request)
    assert await both.first.frame() == await both.second.frame(), request


@pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
async def test_fetches_are_answered_as_if_each_was_decoded(both: Both, version: int) -> None:
    rng = random.Random(version)
    named: dict[str, Any] = {"topic_id": both.topic_id} if version >= 13 else {"topic": "t"}
    end = both.served.broker.topics.by_name["t"].partitions[0].log.log_end_offset
    for _ in range(40):
        options: dict[str, Any] = {
            "min_bytes": rng.choice((1, 1, 1, 5000)),
            "isolation_level": rng.choice((0, 0, 1)),
        }
        partition: dict[str, Any] = {
            "partition": rng.choice((0, 0, 0, 1, 7)),
            "partition_max_bytes": rng.choice((1, 1000, 10**6)),
        }
        if version >= 9:
            partition["current_leader_epoch"] = rng.choice((-1, 0, 0, 9))
        if version >= 12:
            partition["last_fetched_epoch"] = rng.choice((-1, 0, 0, 9))
        for _ in range(rng.choice((1, 8))):
            want = FetchPartition(
                fetch_offset=rng.choice((0, end - 1, end, end + 9, *rng.sample(range(end), 8))), **partition
            )
            topics = [FetchTopic(**named, partitions=[want])]
            await alike(both, FETCH, version, FetchRequest(max_wait_ms=1, **options, topics=topics))
    assert len(both.known_again) > 10


@pytest.mark.parametrize("version", range(LIST_OFFSETS.min_version, LIST_OFFSETS.max_version + 1))
async def test_lookups_are_answered_as_if_each_was_decoded(both: Both, version: int) -> None:
    rng = random.Random(version)
    for _ in range(40):
        partition: dict[str, Any] = {"partition_index": rng.choice((0, 0, 0, 1, 7))}
        if version >= 4:
            partition["current_leader_epoch"] = rng.choice((-1, 0, 0, 9))
        for _ in range(rng.choice((1, 4))):
            timestamp = rng.choice((-3, -2, -1, 0, 1, NOW, NOW + 10**6, NOW + rng.randrange(700)))
            topics = [
                ListOffsetsTopic(
                    name="t", partitions=[ListOffsetsPartition(timestamp=timestamp, **partition)]
                )
            ]
            await alike(both, LIST_OFFSETS, version, ListOffsetsRequest(replica_id=-1, topics=topics))
    assert len(both.known_again) > 10 or not version


async def test_a_request_of_another_size_is_decoded(both: Both) -> None:
    for name in ("t", "t", "t", "t", "u", "tt"):
        for timestamp in (NOW, NOW + 50):
            partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            for topics in (
                [ListOffsetsTopic(name=name, partitions=partitions)],
                [ListOffsetsTopic(name=name, partitions=partitions * 2)],
            ):
                for _ in range(3):
                    await alike(both, LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=topics))


async def test_what_is_fetched_and_searched_of_a_deleted_topic_is_gone(both: Both) -> None:
    for version in (4, 12):
        fetch = FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic="t",
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)],
                )
            ],
        )
        for _ in range(3):
            await alike(both, FETCH, version, fetch)
    lookup = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=NOW)])
        ],
    )
    for _ in range(3):
        await alike(both, LIST_OFFSETS, 6, lookup)
    assert len(both.known_again) == 3
    first = both.first
    await first.ask(DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000))
    for version in (4, 12):
        await alike(both, FETCH, version, fetch)
    answer = await first.ask(FETCH, 12, fetch)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = await first.ask(LIST_OFFSETS, 6, lookup)
    assert found.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await until(lambda: remembered(both.served) == 0)
    assert not both.served.server.known_requests._seen


@pytest.mark.parametrize("min_bytes", [1, 100, 100_000])
async def test_a_fetch_that_waits_gets_what_comes(both: Both, connect: Connect, min_bytes: int) -> None:
    served = both.served
    log = served.broker.topics.by_name["t"].partitions[0].log
    producer = await connect(served)
    for _ in range(5):
        want = FetchPartition(partition=0, fetch_offset=log.log_end_offset, partition_max_bytes=10**6)
        topics = [FetchTopic(topic="t", partitions=[want])]
        fetch = FetchRequest(max_wait_ms=100, min_bytes=min_bytes, topics=topics)
        for client in (both.first, both.second):
            client.send(FETCH, 11, 5, fetch)
        await until(lambda: len(served.broker.parked) == 2)
        for _ in range(2):
            await producer.ask(PRODUCE, 9, request("t", 0, records(b"new"), both.topic_id, 9))
        answer = await both.first.receive(FETCH, 11)
        assert answer == await both.second.receive(FETCH, 11)
        assert answer[1].responses[0].partitions[0].records
        assert not served.broker.parked
        assert not served.broker.topics.by_name["t"].partitions[0].waiters.count
    assert len([key_version for key_version in both.known_again if key_version == 1 << 16 | 11]) == 3


async def test_nothing_is_kept_of_a_request_that_is_large(serve: Serve, connect: Connect) -> None:
    """A tag of megabytes that nobody knows, in a fetch and behind the records of a produce."""
    served = await serve(**KEEP)
    client = await connect(served)
    topic_id = await make_topic(client, "t")
    await client.ask(PRODUCE, 9, request("t", 0, records(b"v"), topic_id, 9))
    want = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    fetch = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[want])])
    known = served.server.known_requests
    for frame, api, version in (
        (encode_request(FETCH, 12, 1, "test", fetch), FETCH, 12),
        (encode_request(PRODUCE, 9, 1, "test", request("t", 0, records(b"v"), topic_id, 9)), PRODUCE, 9),
    ):
        before = known.remembered_bytes
        for size in (requests.MOST_COMPARED_BYTES, 3_000_000):
            for _ in range(4):
                tagged = frame[4:-1] + b"\x01\x63" + uvarint(size) + bytes(size)
                client.writer.write(len(tagged).to_bytes(4, "big") + tagged)
                _, answer = await client.receive(api, version)
                assert answer.responses[0]
        assert known.remembered_bytes == before


async def test_a_malformed_produce_is_refused_though_it_begins_as_one_that_came_before(both: Both) -> None:
    """Behind the records of that one were tags: its records began earlier than its end would have them."""
    data = records(b"v" * 200)
    frame = encode_request(PRODUCE, 10, 5, "test", request("t", 0, data, both.topic_id, 10))[4:]
    length = uvarint(len(data) + 1)
    at, tags = frame.index(length + bytes(data)), b"\0\0\x01\x63\x01x"
    tagged = frame[:-3] + tags
    for _ in range(4):
        both.first.writer.write(len(tagged).to_bytes(4, "big") + tagged)
        _, answer = await both.first.receive(PRODUCE, 10)
        assert answer.responses[0].partition_responses[0].error_code == 0
    small = bytes(records(b"small"))
    malformed = tagged[: at + len(tags) - 3] + uvarint(len(small) + 1) + small + bytes(3)
    both.first.writer.write(len(malformed).to_bytes(4, "big") + malformed)
    assert await asyncio.wait_for(both.first.reader.read(), 10) == b""


async def test_tags_behind_the_records_are_read_though_they_were_not_there_before(both: Both) -> None:
    """And where a length does not end with the frame, the request is not what it seems."""
    data = records(b"v" * 20)
    plain = encode_request(PRODUCE, 10, 5, "test", request("t", 0, data, both.topic_id, 10))[4:]
    log = both.served.broker.topics.by_name["t"].partitions[0].log
    for frame in (plain, plain, plain, plain[:-3] + b"\0\0\x01\x63\x01x", plain[:-3] + b"\x01\x63\x01x\0\0"):
        end = log.log_end_offset
        both.first.writer.write(len(frame).to_bytes(4, "big") + frame)
        _, answer = await both.first.receive(PRODUCE, 10)
        part = answer.responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset, log.log_end_offset) == (0, end, end + 1)
    assert len(both.known_again) == 1
    end = log.log_end_offset
    cut = plain[:-4]
    both.first.writer.write(len(cut).to_bytes(4, "big") + cut)
    assert await asyncio.wait_for(both.first.reader.read(), 10) == b""
    assert log.log_end_offset == end


@pytest.mark.parametrize("spare", [b"\0", b"\0\0\0", b"\x07" * 100])
async def test_bytes_behind_a_request_change_nothing_whichever_way_it_takes(both: Both, spare: bytes) -> None:
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=NOW)])]
    want = FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=1000)
    asked: list[tuple[Api, int, object]] = [
        (LIST_OFFSETS, version, ListOffsetsRequest(replica_id=-1, topics=topics)) for version in (5, 7)
    ]
    for version in (11, 12):
        fetched = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[want])])
        asked.append((FETCH, version, fetched))
    for api, version, question in asked:
        frame = encode_request(api, version, 5, "test", question)[4:]
        answers = []
        for sent in [frame, frame + spare] * 4:
            both.first.writer.write(len(sent).to_bytes(4, "big") + sent)
            answers.append(await both.first.frame())
        assert len(set(answers)) == 1
    for version in (8, 9):
        frame = encode_request(
            PRODUCE, version, 5, "test", request("t", 1, records(b"v"), both.topic_id, version)
        )[4:]
        for _ in range(4):
            for sent in (frame, frame + spare):
                both.first.writer.write(len(sent).to_bytes(4, "big") + sent)
                _, answer = await both.first.receive(PRODUCE, version)
                assert answer.responses[0].partition_responses[0].error_code == 0
    log = both.served.broker.topics.by_name["t"].partitions[1].log
    assert log.log_end_offset == 16


@pytest.mark.parametrize("more", [0, 1])
async def test_a_fetch_with_exactly_min_bytes_is_answered_at_once(both: Both, more: int) -> None:
    log = both.served.broker.topics.by_name["t"].partitions[0].log
    there = log.read(0, 10**6, at_least_one=True).length
    want = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)
    topics = [FetchTopic(topic="t", partitions=[want])]
    fetch = FetchRequest(max_wait_ms=600_000, min_bytes=there + more, topics=topics)
    for _ in range(4):
        for client in (both.first, both.second):
            client.send(FETCH, 11, 5, fetch)
            if more:
                await until(lambda: len(both.served.broker.parked) == 1)
                both.served.broker.parked.release()
            _, answer = await client.receive(FETCH, 11)
            assert len(answer.responses[0].partitions[0].records) == there
    assert not both.served.broker.parked


async def test_a_fetch_with_one_failed_partition_among_good_ones_does_not_wait(both: Both) -> None:
    wants = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        for index, offset in ((1, 0), (0, 10**6))
    ]
    topics = [FetchTopic(topic="t", partitions=wants)]
    answer = await both.first.ask(FETCH, 11, FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics))
    codes = [part.error_code for part in answer.responses[0].partitions]
    assert codes == [0, ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_a_fetch_from_before_any_offset_is_refused_each_time(both: Both) -> None:
    """Clients that ask from -1 again and again: OFFSET_OUT_OF_RANGE, and the connection stays."""
    want = FetchPartition(partition=0, fetch_offset=-1, partition_max_bytes=100)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[want])])
    for _ in range(4):
        for client in (both.first, both.second):
            (topic,) = (await client.ask(FETCH, 11, request)).responses
            assert topic.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- the boundaries of what is remembered ---------------------------------------------------------------------


def lookup(name: str = "t", index: int = 0, timestamp: int = NOW) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=partitions)])


def fetch_from(offset: int, **partition: Any) -> FetchRequest:
    want = FetchPartition(
        **{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000, **partition}
    )
    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[want])])


@pytest.mark.parametrize("offset", [-1, int.from_bytes(b"\xff\xff\xff\xff\0\0\0\1", "big", signed=True)])
async def test_the_place_of_an_offset_is_found_though_its_bytes_stand_elsewhere_too(
    both: Both, offset: int
) -> None:
    """In the epoch before it and its own first half; in the epoch of the session and the number of topics."""
    for _ in range(3):
        await alike(both, FETCH, 11, fetch_from(offset))
    assert not both.known_again, "there is no such offset: that goes the long way"
    for known, again in enumerate((3, 7, 0), 1):
        await alike(both, FETCH, 11, fetch_from(again))
        assert len(both.known_again) == known


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("api", [LIST_OFFSETS, PRODUCE])
async def test_so_much_of_a_request_is_compared_and_no_more(both: Both, api: Api, more: int) -> None:
    data = records(b"v")
    question = lookup() if api is LIST_OFFSETS else request("t", 1, data, both.topic_id, 8)
    version = 5 if api is LIST_OFFSETS else 8
    behind_bytes = 0 if api is LIST_OFFSETS else 4 + len(data)
    compared = len(encode_request(api, version, 5, "", question)) - 12 - behind_bytes
    client_id = "c" * (requests.MOST_COMPARED_BYTES - compared + more)
    for number in range(4):
        both.first.writer.write(encode_request(api, version, number, client_id, question))
        assert (await both.first.receive(api, version))[0] == number
    assert len(both.known_again) == (0 if more else 2)


async def test_the_first_moment_is_a_time_and_what_is_below_a_question(both: Both) -> None:
    for _ in range(2):
        await alike(both, LIST_OFFSETS, 7, lookup())
    for timestamp, times_known in ((0, 1), (-1, 1), (-2, 1), (0, 2)):
        await alike(both, LIST_OFFSETS, 7, lookup(timestamp=timestamp))
        assert len(both.known_again) == times_known


async def test_requests_that_came_once_are_forgotten_when_there_are_too_many(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = both.served.server.known_requests
    known._seen.clear()
    monkeypatch.setattr(requests, "MOST_SEEN", 2)
    await make_topic(both.first, "u", partitions=1)
    seen = []
    for name, index in (("t", 0), ("t", 1), ("u", 0)):
        await both.first.ask(LIST_OFFSETS, 7, lookup(name, index))
        seen.append(len(known._seen))
    assert seen == [1, 2, 1]
    for times_known in (0, 0, 1):
        await alike(both, LIST_OFFSETS, 7, lookup("t", 0))
        assert len(both.known_again) == times_known


async def test_a_connection_remembers_few_shapes_and_begins_anew(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MOST_SHAPES", 2)
    shapes = both.served.connection_of(both.first).repeated.shapes
    remembered_shapes = []
    for name in ("t", "another", "a-third-one"):
        if name != "t":
            await make_topic(both.first, name)
        for _ in range(3):
            await alike(both, LIST_OFFSETS, 7, lookup(name))
        remembered_shapes.append(len(shapes[2 << 16 | 7]))
    assert remembered_shapes == [1, 2, 1]
    assert len(both.known_again) == 3


async def test_of_several_partitions_none_is_remembered(both: Both) -> None:
    """Nor of a topic that is asked for twice, nor of a session, nor in a request with a tag in its header."""
    parts = [PartitionProduceData(index=index, records=records(b"v")) for index in (0, 1)]
    twice = [TopicProduceData(name="t", partition_data=[part]) for part in parts]
    whole = [TopicProduceData(name="t", partition_data=parts)]
    wants = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100) for index in (0, 1)]
    asked: list[tuple[Api, int, object]] = [
        (PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=twice)),
        (PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=whole)),
        (LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=lookup().topics * 2)),
        *(
            (FETCH, 11, FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics))
            for topics in (
                [FetchTopic(topic="t", partitions=wants)],
                [FetchTopic(topic="t", partitions=[want]) for want in wants],
            )
        ),
    ]
    for api, version, question in asked:
        for _ in range(3):
            await both.first.ask(api, version, question)
    session = FetchRequest(
        max_wait_ms=1, min_bytes=1, session_id=7, session_epoch=1, topics=fetch_from(0).topics
    )
    for _ in range(3):
        answer = await both.first.ask(FETCH, 11, session)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    header = 4 + 8 + 2 + len("test")
    for api, version, question in ((FETCH, 12, fetch_from(0)), (LIST_OFFSETS, 7, lookup())):
        plain = encode_request(api, version, 5, "test", question)
        tagged = plain[4:header] + b"\x01\x07\x01x" + plain[header + 1 :]
        both.second.writer.write(plain)
        expected = await both.second.frame()
        for _ in range(3):
            both.first.writer.write(len(tagged).to_bytes(4, "big") + tagged)
            assert await both.first.frame() == expected
    assert not both.known_again


async def test_a_request_that_names_no_partition_is_answered_each_time(both: Both) -> None:
    lookups, fetched = lookup(), fetch_from(0)
    lookups.topics[0].partitions, fetched.topics[0].partitions = [], []
    produced = request("t", 0, None, both.topic_id, 9)
    produced.topic_data[0].partition_data = []
    for _ in range(3):
        await alike(both, LIST_OFFSETS, 7, lookups)
        await alike(both, FETCH, 11, fetched)
        await alike(both, PRODUCE, 9, produced)
    assert not both.known_again


async def test_acks_that_do_not_exist_and_no_records_are_refused_each_time(both: Both) -> None:
    for acks, data, code in (
        (2, records(b"v"), ErrorCode.INVALID_REQUIRED_ACKS),
        (1, None, ErrorCode.INVALID_RECORD),
    ):
        for _ in range(3):
            answers = [
                (await client.ask(PRODUCE, 9, request("t", 1, data, both.topic_id, 9, acks)))
                .responses[0]
                .partition_responses[0]
                for client in (both.first, both.second)
            ]
            assert answers[0] == answers[1]
            assert answers[0].error_code == code
    assert not both.known_again


async def test_a_reader_with_an_older_leader_epoch_is_fenced_and_with_a_newer_one_told_so(both: Both) -> None:
    log = both.served.broker.topics.by_name["t"].partitions[0].log
    fetches = [fetch_from(0, current_leader_epoch=epoch) for epoch in (0, 1, 2, -1)]
    for _ in range(3):  # remembered, all of them, also those that are refused
        for fetch in fetches:
            await alike(both, FETCH, 11, fetch)
    log.leader_epoch = 1
    codes = []
    for fetch in fetches:
        await alike(both, FETCH, 11, fetch)
        codes.append((await both.first.ask(FETCH, 11, fetch)).responses[0].partitions[0].error_code)
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH, 0]


# -- what goes wrong below --------------------------------------------------------------------------------------


async def test_a_produce_whose_flush_fails_is_answered_so_whichever_way_it_takes(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = request("t", 1, records(b"v"), both.topic_id, 9, acks=-1)
    for _ in range(3):
        answer = await both.first.ask(PRODUCE, 9, one)
        assert answer.responses[0].partition_responses[0].error_code == 0
    flusher, partitions = both.served.broker.flusher, both.served.broker.topics.by_name["t"].partitions
    failing = {partitions[1].log: StorageError("the disk is gone")}
    monkeypatch.setattr(flusher, "_flush", lambda logs: {log: failing[log] for log in logs if log in failing})
    known = len(both.known_again)
    for client in (both.first, both.second):
        failed = (await client.ask(PRODUCE, 9, one)).responses[0].partition_responses[0]
        assert (failed.error_code, failed.error_message) == (
            ErrorCode.KAFKA_STORAGE_ERROR,
            "the disk is gone",
        )
        assert (failed.base_offset, failed.log_append_time_ms) == (-1, -1)
    assert len(both.known_again) == known + 1
    end = partitions[0].log.log_end_offset
    parts = [PartitionProduceData(index=index, records=records(b"v")) for index in (0, 1)]
    topic_data = [TopicProduceData(name="t", partition_data=parts)]
    answer = await both.first.ask(PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topic_data))
    codes = [(part.error_code, part.base_offset) for part in answer.responses[0].partition_responses]
    assert codes == [(0, end), (ErrorCode.KAFKA_STORAGE_ERROR, -1)]


async def test_what_cannot_be_read_fails_its_partition_alone(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, and on a reader thread where it is not."""
    for _ in range(3):
        await both.first.ask(PRODUCE, 9, request("t", 1, records(b"good"), both.topic_id, 9))
        await alike(both, FETCH, 11, fetch_from(0))
    good = await both.first.ask(FETCH, 11, fetch_from(0, partition=1))
    broken = both.served.broker.topics.by_name["t"].partitions[0].log.directory

    def bad(file: File, count: int, position: int, pread: Any = File.pread) -> Any:
        if file.path.parent == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(file, count, position)

    wants = [*fetch_from(0).topics[0].partitions, *fetch_from(0, partition=1).topics[0].partitions]
    several = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=wants)])
    monkeypatch.setattr(File, "pread", bad)
    monkeypatch.setattr(File, "read_nowait", lambda *_: None)
    await alike(both, FETCH, 11, fetch_from(0))
    answer = (await both.first.ask(FETCH, 11, several)).responses[0].partitions
    assert [part.error_code for part in answer] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert not answer[0].records
    assert bytes(answer[1].records) == bytes(good.responses[0].partitions[0].records)
