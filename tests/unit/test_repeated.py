"""Produces that are like the one before: whatever comes, the answer is that of a broker that decodes each."""

import random
from typing import Any

import pytest

from tests.support.served import Client, Connect, Serve, connect, serve
from tidelog.broker.repeated import MOST_PARTITIONS, RepeatedProduces
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records.build import Record, build_batch

__all__ = ["connect", "serve"]

NOW = 1_700_000_000_000
VERSIONS = range(PRODUCE.min_version, PRODUCE.max_version + 1)
KEEP = {"log_retention_ms": "-1"}


def records(*values: bytes, base_offset: int = 0) -> memoryview:
    made = [Record(n, NOW + n, None, value, ()) for n, value in enumerate(values)]
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
    unlearned, learn = served.connection_of(each).repeated, RepeatedProduces.learn
    monkeypatch.setattr(
        RepeatedProduces, "learn", lambda self, *rest: None if self is unlearned else learn(self, *rest)
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
    assert bool(served.connection_of(again).repeated.known) == (version >= 5)


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


async def test_what_is_remembered_of_a_connection_is_bounded(serve: Serve, connect: Connect) -> None:
    served = await serve(**KEEP)
    client = await connect(served)
    topic_id = await make_topic(client, "t", partitions=MOST_PARTITIONS + 5)
    repeated: RepeatedProduces = served.connection_of(client).repeated
    sizes = []
    for index in range(MOST_PARTITIONS + 5):
        for _ in range(2):
            await client.ask(PRODUCE, 9, request("t", index, records(b"v"), topic_id, 9))
        sizes.append(len(repeated.known))
    assert max(sizes) == MOST_PARTITIONS
    assert sizes[-1] == 5
