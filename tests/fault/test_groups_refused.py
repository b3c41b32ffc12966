"""Groups on a full or failing disk: acknowledged changes are on disk, and refused ones are not visible."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.group_member import ConsumerGroupMember, GroupMember, consumer_member, subscribed_member
from tests.support.served import Client, Serve, Served, until
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.log import Changes, Stored, WriteBehind
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from tidelog.protocol.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

NONE, REFUSED = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR


async def restarted(served: Served, serve: Serve) -> Served:
    """Restart a broker and wait until it has loaded its groups."""
    await served.stop()
    served = await serve()
    await until(lambda: not served.broker.groups.is_loading)
    return served


def reset(client: Client) -> None:
    """End a connection so that the broker sees at once that nobody listens."""
    sock = client.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


async def delete_offset(client: Client) -> int:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    response = await client.ask(OFFSET_DELETE, 0, OffsetDeleteRequest(group_id="g", topics=topics))
    return response.error_code or response.topics[0].partitions[0].error_code  # type: ignore[no-any-return]


async def test_commits_whose_flush_failed_are_told_to_nobody(serve: Serve, disk: FaultyDisk) -> None:
    """Neither commits that replaced each other, nor the group created for one."""
    served = await serve()
    one, other, new = [GroupMember(await served.connect(), group) for group in ("g", "g", "new")]
    await one.client.make_topic("t", 2)
    assert await one.commit("t", 5) == [NONE]
    held_bytes = served.broker.groups.memory.held_bytes
    log = served.broker.topics.by_name["__consumer_offsets"].partitions[0].log
    flushes = disk.hold("sync", "syncfs")
    first = asyncio.create_task(one.commit("t", 6))
    await flushes.met()
    then = [asyncio.create_task(each.commit("t", 7, 8)) for each in (other, new)]
    await until(lambda: log.log_end_offset == 6)
    flushes.fail()
    assert await asyncio.gather(first, *then) == [[REFUSED], [REFUSED] * 2, [REFUSED] * 2]
    assert await one.offsets(t=2) == {("t", 0): 5, ("t", 1): -1}
    assert list(served.broker.groups.groups) == ["g"]
    assert served.broker.groups.memory.held_bytes == held_bytes


async def test_an_offset_whose_flush_failed_is_taken_back_though_its_client_has_left(
    serve: Serve, disk: FaultyDisk
) -> None:
    served = await serve()
    one, other = GroupMember(await served.connect(), "g"), GroupMember(await served.connect(), "g")
    await one.client.make_topic("t", 1)
    assert await one.commit("t", 5) == [ErrorCode.NONE]
    flushes = disk.hold("sync", "syncfs")
    committing = asyncio.create_task(one.commit("t", 6))
    await flushes.met()
    connections = len(served.server.connections)
    reset(one.client)
    await until(lambda: len(served.server.connections) == connections - 1)
    flushes.fail()
    await until(lambda: served.broker.flusher.is_settled)
    committing.cancel()
    assert await other.offsets(t=1) == {("t", 0): 5}


async def test_an_offset_that_was_deleted_is_said_to_be_once_that_is_on_disk_whoever_asks(
    serve: Serve, disk: FaultyDisk
) -> None:
    served = await serve()
    one = GroupMember(await served.connect())
    clients = [await served.connect(), await served.connect()]
    await one.client.make_topic("t", 1)
    assert await one.commit("t", 5) == [NONE]
    flushes = disk.hold("sync", "syncfs")
    first = asyncio.create_task(delete_offset(clients[0]))
    await flushes.met()
    second = asyncio.create_task(delete_offset(clients[1]))
    assert [await one.offsets(), await one.offsets()] == [{}, {}], "time for the second to be looked at"
    flushes.fail()
    assert await asyncio.gather(first, second) == [REFUSED] * 2


@pytest.mark.parametrize("kind", ["classic", "consumer"])
async def test_F7_P12_a_group_on_a_full_disk_refuses_tells_what_was_before_and_heals(
    serve: Serve, disk: FaultyDisk, kind: str
) -> None:
    served = await serve()
    one: GroupMember | ConsumerGroupMember = GroupMember(await served.connect())
    if kind == "consumer":
        one = await consumer_member(served)
    reader = GroupMember(await served.connect())
    await one.client.make_topic("t", 1)

    async def come(member: GroupMember | ConsumerGroupMember) -> int:
        if isinstance(member, ConsumerGroupMember):
            return (await member.heartbeat()).error_code  # type: ignore[no-any-return]
        joined = await member.join()
        return joined.error_code or (await member.sync(3, **{member.id: b"all"})).error_code  # type: ignore[no-any-return]

    async def commit(offset: int) -> int:
        writer = GroupMember(one.client)
        writer.id = one.member_id if isinstance(one, ConsumerGroupMember) else one.id
        writer.generation = one.epoch if isinstance(one, ConsumerGroupMember) else one.generation
        return (await writer.commit("t", offset, version=9))[0]

    assert await come(one) == NONE
    assert await commit(5) == NONE
    disk.fill("*.log")
    for _ in range(2):
        assert await commit(6) == REFUSED
        assert await reader.offsets() == {("t", 0): 5}
    late: GroupMember | ConsumerGroupMember = GroupMember(await served.connect())
    if kind == "consumer":
        late = await consumer_member(served, "late")
        # That it has come is not on disk, so it is not told so, however often it asks.
        assert [await come(late), await come(late)] == [REFUSED] * 2
    else:
        assert await one.heartbeat() == NONE  # type: ignore[call-arg, comparison-overlap]
    disk.heal()
    assert await commit(7) == NONE
    if kind == "consumer":
        assert await come(late) == NONE
    assert await reader.offsets() == {("t", 0): 7}
    served = await restarted(served, serve)
    one.client, late.client = await served.connect(), await served.connect()
    assert await GroupMember(one.client).offsets() == {("t", 0): 7}
    assert await commit(8) == NONE
    for each in (one, late) if kind == "consumer" else (one,):
        if isinstance(each, ConsumerGroupMember):
            code = (await each.heartbeat()).error_code
        else:
            code = await each.heartbeat()
        assert code == NONE


async def test_F7_what_a_full_disk_refused_of_a_group_that_changed_its_kind_does_not_come_back(
    serve: Serve, disk: FaultyDisk
) -> None:
    served = await serve()
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.client.make_topic("t", 4)
    await old.join()
    await old.sync()
    await new.heartbeat()
    disk.fill("*.log")
    await new.heartbeat(member_epoch=-1)
    assert not isinstance(served.broker.groups.groups["g"], ConsumerGroup)
    await old.leave()
    disk.heal()
    response = await new.client.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert response.results[0].error_code == NONE
    served = await restarted(served, serve)
    assert served.broker.groups.groups == {}


async def test_F7_a_group_that_became_another_kind_on_a_full_disk_and_back_is_there_after_a_restart(
    serve: Serve, disk: FaultyDisk
) -> None:
    served = await serve()
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.client.make_topic("t", 4)
    await old.join()
    await old.sync()
    disk.fill("*.log")
    assert (await new.heartbeat()).error_code == REFUSED
    disk.heal()
    await new.heartbeat(member_epoch=-1)
    group = served.broker.groups.groups["g"]
    assert not isinstance(group, ConsumerGroup)
    served = await restarted(served, serve)
    again = served.broker.groups.groups["g"]
    assert not isinstance(again, ConsumerGroup)
    assert list(again.members) == list(group.members) == [old.id]


# Of what is on its way to disk the last holds.


class Disk:
    """Takes writes and answers them when the test says so."""

    def __init__(self) -> None:
        self.stored: Changes = {}
        self.waiting: list[tuple[Changes, Stored]] = []

    def store(self, _group: str, changes: Changes, then: Stored) -> None:
        self.waiting.append((changes, then))

    def take(self, number: int = 0, code: ErrorCode = NONE) -> None:
        changes, then = self.waiting.pop(number)
        if not code:
            self.stored.update(changes)
        then(code)


def refuse_both(disk: Disk) -> None:
    disk.take(0, REFUSED)
    disk.take(0, REFUSED)


def refuse_the_first_when_the_second_is_stored(disk: Disk) -> None:
    disk.take(1)
    disk.take(0, REFUSED)


def refuse_the_second_first(disk: Disk) -> None:
    disk.take(1, REFUSED)
    disk.take(0, REFUSED)


@pytest.mark.parametrize(
    "refuse", [refuse_both, refuse_the_first_when_the_second_is_stored, refuse_the_second_first]
)
def test_what_was_refused_is_not_written_over_what_was_said_later(refuse: Callable[[Disk], None]) -> None:
    disk = Disk()
    writing = WriteBehind("g", disk.store)
    codes: list[ErrorCode] = []
    for value in (b"1", b"2"):
        writing.put(b"epoch", value)
        writing.put(b"of " + value, value)
        writing.flush(codes.append)
    refuse(disk)
    assert len(codes) == 2
    writing.put(b"more", b"3")
    writing.flush(codes.append)
    disk.take()
    assert disk.stored == {b"epoch": b"2", b"of 1": b"1", b"of 2": b"2", b"more": b"3"}
    assert codes[-1] == NONE
    assert writing.keys() == []


def test_who_has_nothing_new_to_say_waits_for_what_is_on_its_way() -> None:
    disk = Disk()
    writing = WriteBehind("g", disk.store)
    codes: list[ErrorCode] = []
    writing.put(b"key", b"1")
    writing.flush(codes.append)
    writing.flush(codes.append)
    writing.flush(None)
    assert codes == []
    disk.take(0, REFUSED)
    assert codes == [REFUSED] * 2
    writing.flush(codes.append)
    assert len(codes) == 2, "what was refused is on its way again"
    disk.take()
    writing.flush(codes.append)
    assert codes == [REFUSED] * 2 + [NONE] * 2


async def test_who_leaves_is_told_once_what_the_group_becomes_is_on_disk(
    serve: Serve, disk: FaultyDisk
) -> None:
    """The last consumer member leaves, and a classic group replaces this one."""
    served = await serve()
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.client.make_topic("t", 4)
    await old.join()
    await old.sync()
    await new.heartbeat()
    flushes = disk.hold("sync", "syncfs")
    leaving = asyncio.create_task(new.heartbeat(member_epoch=-1))
    await flushes.met()
    assert not isinstance(served.broker.groups.groups["g"], ConsumerGroup)
    flushes.fail()
    assert (await leaving).error_code == REFUSED
