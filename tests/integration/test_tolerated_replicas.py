"""What asks for more replicas than one node has: an error that says what to do, or tolerated where that is wanted."""

import logging
from typing import Any

import pytest

from tests.integration.test_administration import BROKER, NONE, SET, TOPIC, change, grow, options_of
from tests.support.builders import create_request, records
from tests.support.served import Client, Serve
from tidelog.config.errors import ConfigError
from tidelog.config.load import load
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic

TOLERATED = {"tidelog.tolerate.replication.factor": "true"}
ONE_COPY = "there is one node, so a topic has one replica, and acks=all is answered when that has the records"


async def create(client: Client, topic: CreatableTopic) -> Any:
    return (await client.ask(CREATE_TOPICS, 7, create_request(topic))).topics[0]


@pytest.mark.parametrize("name", ["min.insync.replicas", "default.replication.factor"])
def test_of_the_broker_more_than_one_replica_is_refused_or_tolerated(name: str) -> None:
    with pytest.raises(ConfigError, match="larger values are accepted") as error:
        load(flags={name: "2"})
    assert f"{name}=2 (command line)" in str(error.value)
    assert "with tidelog.tolerate.replication.factor=true" in str(error.value)
    assert load(flags={name: "3"} | TOLERATED).notes == (
        f"{name} (command line): 3 is tolerated: {ONE_COPY}",
    )
    assert load(flags={name: "1"} | TOLERATED).notes == ()


async def test_of_a_topic_more_than_one_replica_in_sync_is_refused_or_tolerated(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    option = CreatableTopicConfig(name="min.insync.replicas", value="2")
    wanted = CreatableTopic(name="u", num_partitions=1, replication_factor=1, configs=[option])

    async def change_both(client: Client) -> list[tuple[int, str | None]]:
        return [
            await change(client, type_, name, ("min.insync.replicas", SET, "3"))
            for type_, name in ((TOPIC, "t"), (BROKER, ""))
        ]

    served = await serve()
    client = await served.connect()
    await client.make_topic("t")
    refused = await create(client, wanted)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "with tidelog.tolerate.replication.factor=true larger values are accepted" in refused.error_message
    codes = [code for code, _ in await change_both(client)]
    assert codes == [ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST]
    await served.stop()

    served = await serve(tidelog_tolerate_replication_factor="true")
    client = await served.connect()
    assert (await create(client, wanted)).error_code == NONE
    assert await change_both(client) == [(NONE, None), (NONE, None)]
    line = f"option has no effect topic=u option=min.insync.replicas value=2 reason={ONE_COPY!r}"
    assert line in caplog.messages
    for name in ("t", "u"):
        assert (await client.produce(name, records(b"v"), acks=-1)).error_code == NONE
    await served.stop()

    # What there is is served without the option, too, and told as it is.
    client = await (await serve()).connect()
    assert (await options_of(client, TOPIC, "t"))["min.insync.replicas"].value == "3"
    assert (await client.produce("t", records(b"v"), acks=-1)).base_offset == 1


async def test_an_assignment_with_other_nodes_is_tolerated_if_this_one_is_among_them(serve: Serve) -> None:
    async def make(client: Client, name: str, *nodes: list[int]) -> Any:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(nodes)
        ]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        found = await create(client, topic)
        return found.error_code, found.num_partitions, found.replication_factor

    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT, -1, -1
    served = await serve()
    assert await make(await served.connect(), "t", [1, 2, 3]) == refused
    await served.stop()
    client = await (await serve(tidelog_tolerate_replication_factor="true")).connect()
    assert await make(client, "t", [1, 2, 3], [2, 3, 1]) == (NONE, 2, 1)
    for bad in ([2, 3], [1, 1], [1, -1], []):
        assert await make(client, "u", bad) == refused
    assert (await grow(client, ("t", 3, [[3, 1]])))["t"] == (NONE, None)
    assert (await grow(client, ("t", 4, [[3, 2]])))["t"][0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    (topic,) = (await client.ask(METADATA, 12, asked)).topics
    assert [partition.replica_nodes for partition in topic.partitions] == [[1], [1], [1]]
