"""Consumers of the classic protocol over raw connections, many in one process, for a bench.

Owns: one connection, a fetch session, a group as its members know it, and a member from its joining to its leaving.
Knows nothing of what is measured. A member has two connections, as clients have: one for its group and its heartbeats,
and one for a long poll in a fetch session.
"""

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, Self

import numpy as np

from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.frame import decode_response, encode_request
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.protocol.messages.find_coordinator import FIND_COORDINATOR
from tidelog.protocol.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from tidelog.protocol.messages.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.offset_commit import OFFSET_COMMIT
from tidelog.protocol.messages.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.protocol.wire.api import Api

# Those that librdkafka asks in, and the last one of Fetch that names topics.
VERSIONS: Final = {
    FETCH: 12,
    FIND_COORDINATOR: 2,
    HEARTBEAT: 3,
    JOIN_GROUP: 5,
    LEAVE_GROUP: 3,
    OFFSET_COMMIT: 7,
    SYNC_GROUP: 3,
}
WAIT_MS: Final = 500
GROUP_PARTITIONS: Final = 10
# What clients say inside a group: a version, topics and the length of the first one's name; then the name, the
# partitions where they are assigned, and no data of their own.
HEAD, NO_DATA = Struct(">hih"), b"\xff" * 4


class Connection:
    """A connection that asks one thing at a time, and counts what passes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.bytes = 0

    @classmethod
    async def to(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, api: Api, request: object) -> Any:
        return await self.exchange(api, encode_request(api, VERSIONS[api], 1, "bench", request))

    async def exchange(self, api: Api, frame: bytes) -> Any:
        self._writer.write(frame)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        self.bytes += len(frame) + 4 + size
        return decode_response(api, VERSIONS[api], await self._reader.readexactly(size))[1]

    def close(self) -> None:
        self._writer.close()


class Session:
    """A fetch session over partitions of one topic: says what has changed only, once there is one."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._told: dict[int, int] = {}
        self.id = self._epoch = 0

    def request(self, offsets: dict[int, int], max_wait_ms: int) -> FetchRequest:
        changed = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in offsets.items()
            if self._told.get(index) != offset
        ]
        gone = [index for index in self._told if index not in offsets]
        self._told = dict(offsets)
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=self.id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=self._topic, partitions=changed)] if changed else [],
            forgotten_topics_data=[ForgottenTopic(topic=self._topic, partitions=gone)] if gone else [],
        )

    def take(self, response: Any) -> None:
        if response.error_code or not response.session_id:
            self.id, self._epoch, self._told = 0, 0, {}
        else:
            self.id, self._epoch = response.session_id, self._epoch + 1


class Group:
    """The generation that each member of a group has its assignment in; stable once it is the same one for all."""

    def __init__(self, number: int, size: int) -> None:
        self.name, self.topic, self._size = f"group-{number}", f"topic-{number}", size
        self._generations: dict[Any, int] = {}
        self.stable = asyncio.Event()

    def synced(self, member: object, generation: int) -> None:
        self._generations[member] = generation
        if len(self._generations) == self._size and len(set(self._generations.values())) == 1:
            self.stable.set()

    def unsettled(self, member: object) -> None:
        self._generations.pop(member, None)
        self.stable.clear()


class Member:
    """A consumer from its joining to its leaving."""

    def __init__(self, group: Group, port: int, heartbeat_s: float) -> None:
        self._group, self._port, self._heartbeat_s = group, port, heartbeat_s
        self._id, self._generation = "", -1
        self._offsets: dict[int, int] = {}
        self.leaving = asyncio.Event()

    async def live(self) -> None:
        connection = await Connection.to(self._port)
        fetching: asyncio.Task[None] | None = None
        try:
            while not self.leaving.is_set():
                await self._join(connection)
                fetching = fetching or asyncio.create_task(self._fetch())
                await self._stay(connection)
            identity = MemberIdentity(member_id=self._id)
            await connection.ask(
                LEAVE_GROUP, LeaveGroupRequest(group_id=self._group.name, members=[identity])
            )
            if fetching and fetching.done():
                fetching.result()
        finally:
            if fetching:
                fetching.cancel()
            connection.close()

    async def _join(self, connection: Connection) -> None:
        """Ask until there is an assignment."""
        topic = self._group.topic.encode()
        said = HEAD.pack(0, 1, len(topic)) + topic + NO_DATA
        while True:
            self._group.unsettled(self)
            request = JoinGroupRequest(
                group_id=self._group.name,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id=self._id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=said)],
            )
            joined = await connection.ask(JOIN_GROUP, request)
            if joined.error_code:
                known = joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
                self._id = joined.member_id if known else ""
                continue
            self._id, self._generation = joined.member_id, joined.generation_id
            asked = SyncGroupRequest(
                group_id=self._group.name,
                generation_id=self._generation,
                member_id=self._id,
                assignments=assigned(topic, [member.member_id for member in joined.members]),
            )
            synced = await connection.ask(SYNC_GROUP, asked)
            if not synced.error_code:
                self._offsets = dict.fromkeys(partitions_of(synced.assignment, topic), 0)
                self._group.synced(self, self._generation)
                return

    async def _stay(self, connection: Connection) -> None:
        """Send heartbeats until the group has to be joined again, or left."""
        request = HeartbeatRequest(
            group_id=self._group.name, generation_id=self._generation, member_id=self._id
        )
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    await self.leaving.wait()
                    return
            except TimeoutError:
                answer = await connection.ask(HEARTBEAT, request)
            if answer.error_code:
                return

    async def _fetch(self) -> None:
        connection = await Connection.to(self._port)
        session = Session(self._group.topic)
        try:
            while True:
                response = await connection.ask(FETCH, session.request(self._offsets, WAIT_MS))
                if any(part.error_code for topic in response.responses for part in topic.partitions):
                    raise RuntimeError(f"{self._group.topic} cannot be fetched from")  # or it would not wait
                session.take(response)
        finally:
            connection.close()


def assigned(topic: bytes, members: Sequence[str]) -> list[SyncGroupRequestAssignment]:
    """Deal the partitions out to the members, as the leader does; to none for those who are not told of any."""
    head = HEAD.pack(0, 1, len(topic)) + topic
    dealt = [np.arange(place, GROUP_PARTITIONS, len(members), dtype=">i4") for place in range(len(members))]
    return [
        SyncGroupRequestAssignment(
            member_id=member, assignment=head + len(part).to_bytes(4, "big") + part.tobytes() + NO_DATA
        )
        for member, part in zip(members, dealt, strict=True)
    ]


def partitions_of(assignment: bytes, topic: bytes) -> list[int]:
    """Return the partitions of the one topic of an assignment."""
    first = HEAD.size + len(topic) + 4
    partitions: list[int] = np.frombuffer(assignment[first : -len(NO_DATA)], ">i4").tolist()
    return partitions
