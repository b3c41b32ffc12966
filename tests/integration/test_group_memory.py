"""The memory of groups: the count, the bound, and the half of it for one address."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.group_member import ConsumerGroupMember, GroupMember, classic_member, delete_topic, loaded
from tests.support.groups import ClassicClient, SlowWorld, classic_group
from tests.support.served import Serve, Served, until
from tidelog.broker.groups.consumer_member import MEMBER_BYTES
from tidelog.broker.groups.memory import GROUP_BYTES, Memory
from tidelog.broker.groups.offsets import Committed
from tidelog.broker.routes import SERVED
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment

NONE = ErrorCode.NONE


async def elsewhere(served: Served, group: str, address: str = "10.0.0.2") -> GroupMember:
    """Return a member at another address."""
    client = await served.connect()
    await client.create("t")  # if no other has
    served.connection_of(client).session.address = address
    return GroupMember(client, group)


async def fill(served: Served) -> GroupMember:
    """Let one address use all the memory that it may; return the last member that fitted."""
    found = await classic_member(served, "fill")
    await found.join_and_sync()
    for size in (100_000, 10_000, 1_000, 10):
        while True:
            one = await classic_member(served, f"fill-{served.broker.groups.memory.held_bytes}")
            one.protocols = [("range", b"x" * size)]
            if (await one.join(3)).error_code:
                break
    return found


async def test_one_address_has_half_of_the_memory_and_another_one_goes_on(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    memory = served.broker.groups.memory
    there = await elsewhere(served, "there")
    await there.join_and_sync()
    here = await fill(served)
    assert 500_000 < memory.held_bytes < 540_000
    late = await classic_member(served, "late")
    assert (await late.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert await here.commit("t", 1, metadata="x" * 4096) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]

    assert await there.commit("t", 5) == [NONE]
    there.protocols = [("range", b"x" * 100_000)]
    await there.join_and_sync()
    new = await elsewhere(served, "new", "10.0.0.3")
    await new.join_and_sync()

    new.protocols = [("range", b"x" * 600_000)]
    assert (await new.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await new.heartbeat() == NONE, "it stays"
    new.protocols = [("range", b"r")]
    await new.join_and_sync()


async def test_what_an_address_had_held_is_given_back_to_it(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    memory = served.broker.groups.memory
    one, other = await elsewhere(served, "g"), await elsewhere(served, "g", "10.0.0.3")
    await one.join_and_sync()
    assert await one.commit("t", 5, metadata="x" * 1000) == [NONE]
    rejoining = asyncio.create_task(one.join())
    await other.join(3)
    await rejoining
    await asyncio.gather(one.sync(**{one.id: b"1", other.id: b"2" * 1000}), other.sync())
    assert await other.commit("t", 6, metadata="y" * 1000) == [NONE]
    assert not memory.has_room("10.0.0.3", (1 << 19) - 3500)
    assert memory.has_room("10.0.0.2", (1 << 19) - 4500)
    assert (await other.leave()).error_code == (await one.leave()).error_code == NONE
    assert not memory.has_room("10.0.0.3", 1 << 19), "it has committed last"
    await delete_topic(one.client, "t")
    await until(lambda: not served.broker.groups.offsets and served.broker.groups._cleaning is None)
    served.broker.groups._clean(with_groups=True)
    await until(lambda: not served.broker.groups.groups)
    assert memory.held_bytes == 0
    assert memory.has_room("10.0.0.2", 1 << 19)
    assert memory.has_room("10.0.0.3", 1 << 19)


async def test_no_address_has_more_than_half_of_the_memory_over_restarts(serve: Serve) -> None:
    """A group is charged to a host that has committed for it, or else to its first member."""
    for _ in range(3):
        served = await serve(group_state_max_bytes=str(1 << 20))
        memory = served.broker.groups.memory
        one = await elsewhere(served, "")
        await loaded(one.client)
        for number in range(1000):
            one.group = f"{number:0100}"
            if await one.commit("t", 5, metadata="x" * 1000) != [NONE]:
                break
        assert not memory.has_room("10.0.0.2", 4000)
        assert 500_000 < memory.held_bytes < 1 << 19
        await served.stop()
    served = await serve(group_state_max_bytes=str(1 << 20))
    other = await elsewhere(served, "other", "10.0.0.3")
    await loaded(other.client)
    assert served.broker.groups.memory.has_room("10.0.0.3", 450_000)
    assert await other.commit("t", 5) == [NONE]


async def test_groups_that_were_loaded_are_of_their_members(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    one = await elsewhere(served, "g")
    one.protocols = [("range", b"x" * 100_000)]
    await one.join_and_sync()
    new = await elsewhere(served, "new", "10.0.0.3")
    assert (await ConsumerGroupMember(new.client, group="new").heartbeat()).error_code == NONE
    await served.stop()
    served = await serve(group_state_max_bytes=str(1 << 20))
    await loaded(await served.connect())
    by_address = served.broker.groups.memory.by_address
    assert set(by_address) == {"10.0.0.2", "10.0.0.3"}
    assert by_address["10.0.0.2"] > 102_000
    assert by_address["10.0.0.3"] > GROUP_BYTES + MEMBER_BYTES


async def test_assignments_find_room_or_the_leader_tries_again(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    memory = served.broker.groups.memory
    one = await classic_member(served)
    await one.join()
    assert (await one.sync(**{one.id: b"x" * 600_000})).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert memory.held_bytes < 10_000
    assert (await one.join()).error_code == NONE
    assert (await one.sync(**{one.id: b"x" * 400_000})).error_code == NONE
    assert memory.held_bytes > 400_000
    await one.join()
    assert (await one.sync(**{one.id: b"y" * 400_000})).error_code == NONE, "in place of the other one"
    # What is not for members is not kept, and so not counted.
    await one.join()
    assert (await one.sync(**{one.id: b"", "who": b"x" * 600_000})).error_code == NONE
    assert memory.held_bytes < 10_000
    one.protocols = [("range", b"r" * 400_000)]
    await one.join()
    assert (await one.sync(**{one.id: b"x" * 200_000})).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_the_names_of_groups_are_counted(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    memory = served.broker.groups.memory
    one = await classic_member(served)
    codes = []
    for number in range(12):
        one.id, one.group = "", f"{number:030000}"
        codes.append((await one.client.ask(JOIN_GROUP, 5, one.join_request())).error_code)
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 8 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 4
    await one.client.make_topic("t")
    one.id, one.group = "", "x" * 30_000
    assert await one.commit("t", 5) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    assert (len(served.broker.groups.groups), memory.held_bytes < 1 << 19) == (8, True)


async def test_a_request_names_no_more_than_clients_do(served: Served) -> None:
    one = await classic_member(served)
    one.protocols = [(f"p{number}", b"") for number in range(100)]
    await one.join_and_sync()
    one.protocols *= 1000
    assert (await one.join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    one.protocols = one.protocols[:101]
    assert (await one.join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    others = {f"m{number}": b"" for number in range(9_999)}
    assert (await one.sync(**others, **{one.id: b"x"}, more=b"")).error_code == ErrorCode.INVALID_REQUEST
    assert (await one.sync(**others, **{one.id: b"x"})).assignment == b"all"
    for count, code in ((10_001, ErrorCode.INVALID_REQUEST), (10_000, NONE)):
        leaving = [MemberIdentity(member_id=f"m{number}", group_instance_id=None) for number in range(count)]
        response = await one.client.ask(LEAVE_GROUP, 3, LeaveGroupRequest(group_id="g", members=leaving))
        assert (response.error_code, len(response.members)) == (code, 0 if code else count)
    assert await one.heartbeat() == NONE


def test_what_will_be_refused_is_dropped_where_it_is_decoded() -> None:
    """Freeing a hundred thousand elements would block the event loop as long as reading them."""
    joining = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=9000,
        member_id="",
        protocol_type="",
        protocols=[JoinGroupRequestProtocol(name="", metadata=b"")] * 1000,
    )
    syncing = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="",
        assignments=[SyncGroupRequestAssignment(member_id="", assignment=b"")] * 20_000,
    )
    leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="")] * 20_000)
    for api, request in ((JOIN_GROUP, joining), (SYNC_GROUP, syncing), (LEAVE_GROUP, leaving)):
        keep = SERVED[api.key].keep
        assert keep is not None
        assert keep(request, 3) is request
    assert (len(joining.protocols), len(syncing.assignments), len(leaving.members)) == (101, 10_001, 10_001)


async def test_who_asks_for_no_more_has_room_however_much_is_held() -> None:
    memory = Memory(1600)
    memory.hold("/a", 600)
    memory.hold("a", 300)
    assert [memory.has_room("a", size_bytes) for size_bytes in (1, 0, -1)] == [False, True, True]
    assert [memory.has_room("b", size_bytes) for size_bytes in (600, 601)] == [True, False]
    memory.hold("b", 590)
    # The last sixteenth is for those that hold no more than a 64th.
    assert [memory.has_room("b", size_bytes) for size_bytes in (10, 11)] == [True, False]
    assert [memory.has_room("c", size_bytes) for size_bytes in (25, 26)] == [True, False]


async def flood(served: Served, address: str, most: int = 1000) -> list[str]:
    """Commit for groups without members until memory is full; return their names."""
    one = await elsewhere(served, "", address)
    taken = []
    for number in range(most):
        one.group = f"{address}-{number}"
        if await one.commit("t", number, metadata="x" * 1000) != [NONE]:
            break
        taken.append(one.group)
    return taken


async def settled(served: Served) -> None:
    async with asyncio.timeout(60):
        await until(lambda: served.broker.groups.is_settled)
    assert not served.broker.groups.memory.is_short


async def test_groups_that_nobody_joined_give_way_to_who_comes(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    groups = served.broker.groups
    # What two addresses may have held is not all: there is room for others.
    flooded = {address: await flood(served, address) for address in ("10.0.0.2", "10.0.0.3")}
    assert groups.memory.held_bytes > 950_000
    assert not groups.memory.is_short
    for number in range(20):
        one = await elsewhere(served, f"new-{number}", f"10.0.1.{number}")
        await one.join_and_sync()
        assert await one.commit("t", number) == [NONE]
    await settled(served)
    assert all(f"new-{number}" in groups.groups for number in range(20))
    left = {address: [name for name in names if name in groups.groups] for address, names in flooded.items()}
    gone = {address: len(names) - len(left[address]) for address, names in flooded.items()}
    assert gone["10.0.0.2"] > gone["10.0.0.3"] + 5, "of who holds the most"
    for address, names in flooded.items():
        assert left[address] == names[gone[address] :], "what was used least"
    told = [record.getMessage() for record in caplog.records]
    assert any("no memory for more address=10.0.0.2" in line for line in told)
    assert any("were deleted address=10.0.0.2 groups=" in line for line in told)
    there, held = set(groups.groups), groups.memory.held_bytes
    await served.stop()
    served = await serve(group_state_max_bytes=str(1 << 20))
    await loaded(await served.connect())
    assert set(served.broker.groups.groups) == there
    assert served.broker.groups.memory.held_bytes <= held


async def test_who_floods_takes_nothing_from_who_has_less(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    groups = served.broker.groups
    quiet = await flood(served, "10.0.0.9", most=100)
    many = [f"10.0.0.{number}" for number in range(2, 8)]
    for address in [*many, *many]:
        await flood(served, address)
    await settled(served)
    assert all(name in groups.groups for name in quiet)


def delete(served: Served, group: str) -> None:
    """Delete a group to make room for a member."""
    for _ in served.broker.groups.delete(served.broker.groups.groups[group]).__await__():
        pass


async def test_groups_with_members_do_not_give_way(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    groups = served.broker.groups
    names = await flood(served, "10.0.0.2")
    kept = await elsewhere(served, names[0], "10.0.0.2")
    kept.protocols = [("range", b"x")]
    left = await elsewhere(served, names[1], "10.0.0.2")
    left.protocols = [("range", b"x")]
    delete(served, names[-1])
    await kept.join_and_sync()
    await left.join_and_sync()
    await left.leave()
    await flood(served, "10.0.0.3")
    for number in range(40):
        await (await elsewhere(served, f"new-{number}", f"10.0.1.{number}")).join_and_sync()
    await settled(served)
    assert names[0] in groups.groups, "it has a member"
    assert names[1] in groups.groups, "others were never joined"
    assert names[2] not in groups.groups


def test_what_members_and_offsets_take_is_counted_as_it_is() -> None:
    """Even with many small parts, and with wide characters."""

    def taken(make: Callable[[], Any]) -> int:
        gc.collect()
        tracemalloc.start()
        made = make()
        size_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert made
        return size_bytes

    def members() -> list[Any]:
        world = SlowWorld()
        group = classic_group(world)
        for number in range(50):
            name = f"{number}"
            protocols = [(f"{name}-{each}", bytes(1)) for each in range(99)]
            ClassicClient(group, name, protocols=[("all", b""), *protocols]).join()
        counted.append(group.memory.size_bytes)
        return [group, world]

    def offsets() -> list[Any]:
        made = [
            Committed(each << 40, each, f"{each}\N{GRINNING FACE}" + "x" * 1000, each, -1, b"t")
            for each in range(100)
        ]
        counted.append(sum(each.size_bytes for each in made))
        return made

    counted: list[int] = []
    for make_some in (members, offsets):
        really = taken(make_some)
        assert really < 1.2 * counted[-1] < 2.5 * really
