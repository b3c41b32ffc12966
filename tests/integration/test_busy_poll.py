"""Looking for the next request before sleeping: for how long, and when not."""

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.support.served import Client, Served
from tidelog.broker.net import busy_poll
from tidelog.broker.net.busy_poll import MOST_SKIPPED, POLL_NS, BusyPoll
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest

TURN_NS = 5_000


class Loop:
    """Turns by hand; each takes the same time."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.ready: list[Callable[[], None]] = []
        self.call_soon = self.ready.append

    def run(self, turns: int = 1000) -> int:
        """Run until nothing is ready, or so many turns; return the turns."""
        for turn in range(turns):
            if not self.ready:
                return turn
            due, self.ready[:] = self.ready[:], []
            for call in due:
                call()
            self.now_ns += TURN_NS
        return turns


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(busy_poll.time, "monotonic_ns", lambda: loop.now_ns)
    return loop


def test_the_loop_stays_awake_for_a_moment_after_a_request(loop: Loop) -> None:
    poll = BusyPoll(cast(Any, loop))
    assert loop.run() == 0
    poll.request_came()
    assert loop.run() == POLL_NS // TURN_NS + 1


def test_a_request_that_comes_in_time_begins_another_moment(loop: Loop) -> None:
    poll = BusyPoll(cast(Any, loop))
    for _ in range(100):
        poll.request_came()
        assert loop.run(5) == 5
    assert loop.run() == POLL_NS // TURN_NS + 1 - 5
    poll.request_came()
    assert loop.run() > 0, "it was worth it: the next request is waited for again"


def test_where_none_comes_in_time_there_are_ever_fewer_tries(loop: Loop) -> None:
    poll = BusyPoll(cast(Any, loop))
    tries = []
    for number in range(2000):
        poll.request_came()
        if loop.run():
            tries.append(number)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert gaps[:3] == [2, 4, 8]
    assert gaps[-1] == MOST_SKIPPED + 1


def test_one_hit_ends_the_skipping(loop: Loop) -> None:
    poll = BusyPoll(cast(Any, loop))
    for _ in range(3):
        poll.request_came()
        loop.run()
    while not loop.ready:
        poll.request_came()
    loop.run(3)
    poll.request_came()
    loop.run()
    poll.request_came()
    assert loop.ready


def test_after_a_hit_misses_are_skipped_as_before(loop: Loop) -> None:
    poll = BusyPoll(cast(Any, loop))
    poll.request_came()
    loop.run(3)
    poll.request_came()
    loop.run()
    tries = []
    for number in range(8):
        poll.request_came()
        if loop.run():
            tries.append(number)
    assert tries == [0, 2, 6]


async def test_each_request_of_a_client_keeps_the_loop_awake(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[BusyPoll] = []
    monkeypatch.setattr(BusyPoll, "request_came", lambda poll: kept.append(poll))
    for number in range(3):
        await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
        assert kept == [served.server.shared.busy_poll] * (number + 1)


async def test_nobody_waits_for_a_request_of_a_client_that_waits_for_its_answer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.make_topic("t")
    kept: list[BusyPoll] = []
    monkeypatch.setattr(BusyPoll, "request_came", lambda poll: kept.append(poll))
    await client.fetch("t", max_wait_ms=10)
    assert not kept
