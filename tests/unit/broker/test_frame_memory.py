"""What connections hold together: bounds, turns, and that somebody can always go on."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.net.frame_memory import FREE_BUFFER_BYTES, NO_LIMIT, SMALL_FRAME_BYTES, FrameMemory, Share

MIB = 1 << 20


@dataclass(eq=False)
class Client:
    """A connection that takes note of what it was granted."""

    name: str
    address: str = "here"
    granted: list[str] = field(default_factory=list)

    def memory_granted(self) -> None:
        self.granted.append(self.name)


def share(limit: int, address_limit: int = NO_LIMIT) -> Share:
    return Share(limit, address_limit)


def test_who_does_not_fit_waits_and_is_served_in_order() -> None:
    held, log = share(100), list[str]()
    first, second, third = (Client(name, granted=log) for name in ("first", "second", "third"))
    assert held.take(first, 60)
    assert held.take(second, 40)
    assert not held.take(third, 1)
    assert not held.take(fourth := Client("fourth", granted=log), 1)
    held.give_back(second)
    assert log == ["third", "fourth"]
    assert (held.total_bytes, held.held[third], held.held[fourth]) == (62, 1, 1)
    assert not held.waiting


def test_growing_counts_what_is_held_already() -> None:
    held = share(100)
    first, second = Client("first"), Client("second")
    assert held.take(first, 40)
    assert held.take(second, 40)
    assert held.take(first, 60)
    assert held.total_bytes == 100
    assert not held.take(first, 61)


def test_addresses_take_turns() -> None:
    held, log = share(100), list[str]()
    greedy = [Client(f"greedy {n}", "far", log) for n in range(3)]
    holder, late = Client("holder"), Client("late", "near", log)
    held.take(holder, 100)
    for client in (*greedy, late):
        assert not held.take(client, 50)
    held.give_back(holder)
    assert log == ["greedy 0", "late"]
    held.give_back(greedy[0])
    assert log[2:] == ["greedy 1"]


def test_an_address_that_holds_its_part_waits_and_the_others_do_not() -> None:
    held, log = share(100, 50), list[str]()
    first, second = Client("first", "far"), Client("second", "far", log)
    assert held.take(first, 50)
    assert not held.take(second, 10)
    assert held.take(Client("other", "near"), 50)
    assert not log
    held.give_back(first)
    assert log == ["second"]


def test_what_the_others_of_an_address_hold_still_counts_when_one_gives_back() -> None:
    held = share(200, 50)
    first, second, third = (Client(name, "far") for name in ("first", "second", "third"))
    assert held.take(first, 20)
    assert held.take(second, 30)
    held.give_back(first)
    assert not held.take(third, 21)
    assert held.take(Client("other", "near"), 50)


def test_one_alone_gets_what_it_needs_and_where_all_wait_one_goes_on() -> None:
    held = share(100, 50)
    first, second = Client("first"), Client("second")
    assert held.take(first, 60), "alone, beyond the part of an address"
    held.give_back(first)
    assert held.take(first, 40)
    assert held.take(second, 10)
    assert not held.take(first, 60)
    assert not held.take(second, 200)
    assert first.granted == ["first"], "it waited for the second, which waits now: the first must go on"
    held.give_back(first)
    assert second.granted == ["second"]
    assert held.total_bytes == 200


def test_who_waits_may_leave() -> None:
    held = share(10)
    first, second, third = Client("first"), Client("second"), Client("third")
    held.take(first, 10)
    assert not held.take(second, 5)
    assert not held.take(third, 5)
    held.give_back(second)
    held.give_back(first)
    assert (second.granted, third.granted) == ([], ["third"])
    held.give_back(third)
    assert (held.total_bytes, held.held, held.waiting) == (0, {}, {})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 120)), max_size=60))
def test_somebody_can_always_go_on_and_nothing_is_lost(steps: list[tuple[int, int]]) -> None:
    """A size of 0 stands for giving back. Clients 0-2 share an address."""
    held = share(100, 50)
    clients = [Client(str(n), "far" if n < 3 else f"near {n}") for n in range(6)]
    for number, size in steps:
        client = clients[number]
        is_waiting = client in held.waiting.get(client.address, ())
        if not size:
            held.give_back(client)
        elif not is_waiting and size > held.held.get(client, 0):
            held.take(client, size)
        assert held.total_bytes == sum(held.held.values())
        waiting = [each for queue in held.waiting.values() for each in queue]
        assert not waiting or any(each not in waiting for each in held.held), "all wait for one another"
    for client in clients:
        held.give_back(client)
    assert (held.total_bytes, held.held, held.waiting) == (0, {}, {})


def test_small_buffers_are_free_and_small_frames_have_a_share_of_their_own() -> None:
    frames = FrameMemory(4 * MIB)
    large = [Client(f"large {n}", f"far {n}") for n in range(3)]
    assert frames.take(large[0], 2 * MIB, 9 * MIB)
    assert not frames.take(large[1], MIB // 8, 9 * MIB)
    assert frames.take(Client("free"), FREE_BUFFER_BYTES, 9 * MIB)
    assert frames.small.total_bytes == 0
    small = [Client(f"small {n}") for n in range(3)]
    assert frames.take(small[0], MIB, SMALL_FRAME_BYTES)
    assert frames.take(small[1], MIB, SMALL_FRAME_BYTES)
    assert not frames.take(small[2], FREE_BUFFER_BYTES + 1, SMALL_FRAME_BYTES)
    assert frames.is_waited_for
    frames.give_back(small[1])
    assert small[2].granted == ["small 2"]
    assert large[1].granted == []
    frames.give_back(large[0])
    assert large[1].granted == ["large 1"]
    assert not frames.is_waited_for


def test_a_buffer_is_in_the_share_of_its_latest_frame() -> None:
    frames = FrameMemory(8 * MIB)
    client = Client("one")
    assert frames.take(client, MIB, SMALL_FRAME_BYTES)
    assert (frames.small.total_bytes, frames.large.total_bytes) == (MIB, 0)
    assert frames.take(client, 2 * MIB, SMALL_FRAME_BYTES + 1)
    assert (frames.small.total_bytes, frames.large.total_bytes) == (0, 2 * MIB)
    assert frames.take(client, MIB, SMALL_FRAME_BYTES)
    assert (frames.small.total_bytes, frames.large.total_bytes) == (MIB, 0)
    frames.give_back(client)
    assert (frames.small.total_bytes, frames.large.total_bytes) == (0, 0)


def test_an_address_leaves_half_of_what_large_frames_may_take_to_others() -> None:
    frames = FrameMemory(16 * MIB)
    assert frames.take(Client("one", "far"), 3 * MIB, 9 * MIB)
    assert frames.take(Client("two", "far"), MIB, 9 * MIB)
    assert not frames.take(Client("three", "far"), MIB, 9 * MIB)
    assert frames.take(Client("other", "near"), 4 * MIB, 9 * MIB)
