"""Timers: in order, by a clock that can be held, however many are cancelled."""

import asyncio
import time
from functools import partial

import pytest

from tests.support.served import until
from tidelog.broker.clock import Clock
from tidelog.broker.timers import CANCELLED_MAX, TURN_S, Timers


def new_timers() -> tuple[Clock, Timers]:
    clock = Clock()
    clock.hold()
    return clock, Timers(asyncio.get_running_loop(), clock)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_timers_come_in_the_order_of_their_times_as_the_clock_is_moved() -> None:
    clock, timers = new_timers()
    done: list[str] = []
    for name, delay_ms in (("c", 3000), ("a", 1000), ("b", 2000), ("b2", 2000)):
        timers.call_later(delay_ms, lambda name=name: done.append(name))  # type: ignore[misc]
    clock.advance(milliseconds=999)
    await turns()
    assert done == []
    clock.advance(milliseconds=1)
    await turns()
    assert done == ["a"]
    clock.advance(hours=1)
    await turns()
    assert done == ["a", "b", "b2", "c"]


async def test_a_timer_comes_by_itself_where_the_clock_is_not_held() -> None:
    clock = Clock()
    timers = Timers(asyncio.get_running_loop(), clock)
    done = asyncio.Event()
    began_ms = clock.monotonic_ms()
    timers.call_later(60_000, done.set)
    timers.call_later(5, done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert clock.monotonic_ms() - began_ms >= 5


async def test_a_timer_that_is_due_never_comes_in_the_turn_that_made_it() -> None:
    _, timers = new_timers()
    done: list[int] = []

    def again() -> None:
        done.append(len(done))
        if len(done) < 3:
            timers.call_later(0, again)

    timers.call_later(0, again)
    assert done == []
    await until(lambda: len(done) == 3)


async def test_a_clock_that_is_let_go_goes_on_for_who_waits() -> None:
    clock, timers = new_timers()
    done = asyncio.Event()
    timers.call_later(1, done.set)
    await turns()
    assert not done.is_set()
    clock.release()
    await asyncio.wait_for(done.wait(), 10)


async def test_what_was_cancelled_is_not_done_and_holds_nothing() -> None:
    clock, timers = new_timers()
    done: list[str] = []
    last = timers.call_later(1000, lambda: done.append("last"))
    first = timers.call_later(1, last.cancel)
    made = [timers.call_later(500, lambda: done.append("cancelled")) for _ in range(1000)]
    for timer in made:
        timer.cancel()
        timer.cancel()
    assert len(timers._heap) <= CANCELLED_MAX + 2
    clock.advance(hours=1)
    await turns()
    assert done == []
    assert not timers._heap
    assert timers._cancelled == 0
    first.cancel()


async def test_one_that_fails_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    clock, timers = new_timers()
    done: list[str] = []

    def fail() -> None:
        raise ValueError("on purpose")

    timers.call_later(1, fail)
    timers.call_later(1, lambda: done.append("other"))
    clock.advance(milliseconds=1)
    await turns()
    assert done == ["other"]
    assert "a timer failed" in caplog.text


async def test_those_that_are_due_at_once_take_more_than_one_turn_of_the_loop() -> None:
    """Thousands of members may be given up at the same moment; others are served meanwhile."""
    clock, timers = new_timers()
    came: list[int] = []

    def come(number: int) -> None:
        came.append(number)
        time.sleep(TURN_S)

    for number in range(4):
        timers.call_later(10, partial(come, number))
    last = timers.call_later(10, partial(come, 4))
    clock.advance(milliseconds=10)
    counts = []
    while len(came) < 4:
        await asyncio.sleep(0)
        counts.append(len(came))
    last.cancel()
    await asyncio.sleep(0)
    assert came == [0, 1, 2, 3]
    assert [each for each in counts if each] == [1, 2, 3, 4]


async def test_those_that_are_left_come_in_order_however_many_were_cancelled() -> None:
    clock, timers = new_timers()
    done: list[int] = []
    made = [(number * 7919 % 1000, number) for number in range(1000)]
    for delay_ms, number in made:
        timer = timers.call_later(1 + delay_ms, lambda delay_ms=delay_ms: done.append(delay_ms))  # type: ignore[misc]
        if number % 10:
            timer.cancel()
    clock.advance(hours=1)
    await turns()
    assert done == sorted(delay_ms for delay_ms, number in made if not number % 10)


async def test_after_the_first_the_loop_wakes_for_the_next() -> None:
    timers = Timers(asyncio.get_running_loop(), Clock())
    done = asyncio.Event()
    timers.call_later(1, lambda: None)
    timers.call_later(20, done.set)
    await asyncio.wait_for(done.wait(), 10)
