"""Members of groups that send single requests, also ones that real clients would not send."""

import asyncio
from typing import Any

import pytest

from tests.support.served import Client, Served
from tidelog.broker.answers import Later
from tidelog.broker.session import ADMIN_CLIENT
from tidelog.protocol.coordinator.consumer_protocol import written_subscription
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tidelog.protocol.messages.delete_groups import DELETE_GROUPS
from tidelog.protocol.messages.describe_groups import DESCRIBE_GROUPS
from tidelog.protocol.messages.find_coordinator import FIND_COORDINATOR
from tidelog.protocol.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from tidelog.protocol.messages.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from tidelog.protocol.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_delete import OFFSET_DELETE
from tidelog.protocol.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log

# The APIs that `tests/integration/test_group_handlers.py` asks in every version.
ASKED = {FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, OFFSET_COMMIT, OFFSET_FETCH}
ASKED |= {DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE}


class GroupMember:
    """A member by the classic protocol, over its own connection; attributes may be changed to lie."""

    def __init__(self, client: Client, group: str = "g", instance: str | None = None) -> None:
        self.client, self.group, self.instance = client, group, instance
        self.id, self.generation = "", -1
        self.protocol_type, self.protocols = "consumer", [("range", b"r")]

    def join_request(self, session_timeout_ms: int = 10_000) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=60_000,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=said) for name, said in self.protocols],
        )

    async def join(self, version: int = 5, **asked: Any) -> Any:
        """Join; if the answer gives an id, join again with it."""
        response = await self.client.ask(JOIN_GROUP, version, self.join_request(**asked))
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = response.member_id
            return await self.join(version, **asked)
        if not response.error_code:
            self.id, self.generation = response.member_id, response.generation_id
        return response

    async def sync(self, version: int = 3, **assignments: bytes) -> Any:
        """Sync; `assignments` are by member id."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type if version >= 5 else None,
            protocol_name=self.protocols[0][0] if version >= 5 else None,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assigned)
                for member, assigned in assignments.items()
            ],
        )
        return await self.client.ask(SYNC_GROUP, version, request)

    async def join_and_sync(self) -> None:
        """Be the one member of a stable group."""
        assert (await self.join()).error_code == ErrorCode.NONE
        assert (await self.sync(**{self.id: b"all"})).assignment == b"all"

    async def heartbeat(self, version: int = 3) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        return int((await self.client.ask(HEARTBEAT, version, request)).error_code)

    async def leave(self, version: int = 3) -> Any:
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.id)
        else:
            identity = MemberIdentity(member_id=self.id, group_instance_id=self.instance)
            request = LeaveGroupRequest(group_id=self.group, members=[identity])
        return await self.client.ask(LEAVE_GROUP, version, request)

    async def commit(
        self, topic: str, *offsets: int, version: int = 7, metadata: str | None = None, **fields: Any
    ) -> list[int]:
        """Commit these offsets of partitions 0, 1, 2 ...; return their codes."""
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation if version else -1,
            member_id=self.id if version else "",
            group_instance_id=self.instance,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                        for index, offset in enumerate(offsets)
                    ],
                )
            ],
            **fields,
        )
        response = await self.client.ask(OFFSET_COMMIT, version, request)
        return [each.error_code for each in response.topics[0].partitions]

    async def fetch(self, version: int = 9, **topics: int) -> Any:
        """Ask for what was committed of so many partitions of topics, of all if none is named."""
        names = {name: list(range(count)) for name, count in topics.items()}
        if version >= 8:
            wanted = [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in names.items()
            ]
            group = OffsetFetchRequestGroup(group_id=self.group, topics=wanted if topics else None)
            response = (
                await self.client.ask(OFFSET_FETCH, version, OffsetFetchRequest(groups=[group]))
            ).groups[0]
        else:
            older = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in names.items()
            ]
            request = OffsetFetchRequest(group_id=self.group, topics=older if topics else None)
            response = await self.client.ask(OFFSET_FETCH, version, request)
        assert response.error_code == ErrorCode.NONE
        return response.topics

    async def offsets(self, **topics: int) -> dict[tuple[str, int], int]:
        """Return the offsets that were committed, by topic and partition."""
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in await self.fetch(**topics)
            for each in topic.partitions
        }


class ConsumerGroupMember:
    """A member by the consumer protocol, over its own connection; attributes may be changed to lie."""

    def __init__(self, client: Client, member_id: str = "m", group: str = "g") -> None:
        self.client, self.member_id, self.group = client, member_id, group
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    async def heartbeat(self, version: int = 1, **said: Any) -> Any:
        full = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": self.owned,
        }
        fields = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch, **full}
        request = ConsumerGroupHeartbeatRequest(**{**fields, **said})
        response = await self.client.ask(CONSUMER_GROUP_HEARTBEAT, version, request)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.owned = response.assignment.topic_partitions
        return response

    @property
    def partitions(self) -> list[int]:
        return sorted(index for topic in self.owned for index in topic.partitions)


async def classic_member(served: Served, group: str = "g", **named: Any) -> GroupMember:
    return GroupMember(await served.connect(), group, **named)


async def subscribed_member(served: Served, group: str = "g") -> GroupMember:
    """Return a classic member that reads the topic `t`, so its group can be upgraded."""
    member = await classic_member(served, group)
    member.protocols = [("range", written_subscription(["t"]))]
    return member


async def consumer_member(served: Served, member_id: str = "m", group: str = "g") -> ConsumerGroupMember:
    return ConsumerGroupMember(await served.connect(), member_id, group)


async def loaded(client: Client) -> None:
    """Wait until the groups are loaded after a start."""
    while (
        await client.ask(LIST_GROUPS, 5, ListGroupsRequest())
    ).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass


async def delete_topic(client: Client, name: str) -> None:
    client.client_id = ADMIN_CLIENT  # which may delete an internal topic
    assert await client.delete(name) == ErrorCode.NONE
    client.client_id = "test"


def fail_flushes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail all flushes that groups wait for."""

    def commit(logs: list[Log], response: Any, failed: Any, size_bytes: int = 0) -> Later:
        later = Later()
        asyncio.get_running_loop().call_soon(lambda: later.resolve(failed(StorageError("no"))))
        return later

    monkeypatch.setattr(served.broker.groups.log._flusher, "commit", commit)
