"""A turn of the event loop is shared by those who have much to ask."""

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from tests.support.served import Client, Served, until
from tidelog.broker import turns as turns_module
from tidelog.broker.net.connection import QUICK_S, TURN
from tidelog.broker.turns import TURN_S, Turns
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)


class Clock:
    """A clock of which what is done moves the hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(turns_module, "monotonic", lambda: self.now_s)

    def work(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def turns_of() -> Turns:
    return Turns(asyncio.get_running_loop())


async def a_turn() -> None:
    await asyncio.sleep(0)


async def test_no_time_is_kept_where_nobody_asks_for_much() -> None:
    turns = turns_of()
    assert turns.ends_s == 0
    turns.begin()
    assert turns.ends_s > 0
    await a_turn()
    await a_turn()
    assert turns.ends_s == 0


async def test_time_counts_from_where_what_took_long_began(clock: Clock) -> None:
    turns = turns_of()
    began_s = clock.now_s
    clock.work(TURN_S / 2)
    turns.begin(began_s)
    assert turns.ends_s == began_s + TURN_S
    turns.begin()
    assert turns.ends_s == began_s + TURN_S


async def test_many_share_one_turn(clock: Clock) -> None:
    turns = turns_of()
    shares: list[float] = []

    def ask() -> None:
        shares.append(turns.share_ends_s() - clock.now_s)
        clock.work(shares[-1])

    ask()
    assert shares == [pytest.approx(TURN_S)]
    for _ in range(40):
        turns.wait(ask)
    shares.clear()
    began_s = clock.now_s
    await a_turn()
    assert len(shares) >= 39
    assert max(shares) <= TURN_S / 40 + 1e-9
    assert clock.now_s - began_s <= 1.1 * TURN_S


async def test_as_many_as_there_is_time_for_are_served_in_a_turn_in_the_order_in_which_they_came(
    clock: Clock,
) -> None:
    turns = turns_of()
    served: list[str] = []

    def go_on(name: str, seconds: float) -> None:
        served.append(name)
        clock.work(seconds)

    for name, seconds in (("long", 2 * TURN_S), ("short", TURN_S / 4), ("longer", 3 * TURN_S), ("last", 0)):
        turns.wait(partial(go_on, name, seconds))
    await a_turn()
    # The one that has waited longest, however long that takes, and beside it what there is time for.
    assert served == ["long", "short", "longer"]
    await a_turn()
    assert served[3:] == ["last"]
    assert turns.ends_s > clock.now_s
    await a_turn()
    assert turns.ends_s == 0


async def test_who_has_waited_longest_has_its_share_however_long_it_took_to_come_to_it(clock: Clock) -> None:
    turns = turns_of()
    left_s: list[float] = []

    def go_on() -> None:
        clock.work(2 * TURN_S)
        left_s.append(turns.share_ends_s() - clock.now_s)

    for _ in range(2):
        turns.wait(go_on)
    await a_turn()
    assert left_s == pytest.approx([TURN_S / 2, -TURN_S])


async def test_who_waits_again_has_another_turn(clock: Clock) -> None:
    turns = turns_of()
    served: list[int] = []

    def go_on() -> None:
        served.append(len(served))
        turns.wait(go_on)

    turns.wait(go_on)
    await a_turn()
    assert served == [0]
    await a_turn()
    assert served == [0, 1]


async def test_one_that_fails_takes_no_other_with_it(clock: Clock) -> None:
    turns, faults, served = turns_of(), [], []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))

    def fail() -> None:
        raise LookupError("a slip")

    turns.wait(fail)
    turns.wait(partial(served.append, 1))
    turns.wait(partial(served.append, 2))
    for _ in range(4):
        await a_turn()
    assert served == [1, 2]
    assert len(faults) == 1


def costly() -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True)


async def test_first_requests_of_many_connections_leave_others_their_turn(served: Served) -> None:
    """Forty at once take a second: a quick client is answered long before that, and nobody is forgotten."""
    many: list[Client] = [await served.connect() for _ in range(40)]
    other = await served.connect()
    await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
    connection_of_other = served.connection_of(other)
    dispatch = served.server.shared.dispatch
    served_of_many = 0

    def slow(session: Any, view: memoryview, position: int, end: int) -> Any:
        nonlocal served_of_many
        answer = dispatch(session, view, position, end)
        if view[position + 1] == DESCRIBE_CONFIGS.key:
            served_of_many += 1
            time.sleep(0.025)
        return answer

    served.dispatch_by(slow)
    for client in many:
        client.send(DESCRIBE_CONFIGS, 4, 7, costly())
    await asyncio.gather(*(client.writer.drain() for client in many))
    await until(lambda: served_of_many > 0)
    for _ in range(3):
        before = served_of_many
        connection_of_other._usual_s = QUICK_S / 2  # a busy machine may have made its requests slow
        await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
        assert served_of_many - before < 15, "the first requests of many were served before"
    for client in many:
        assert (await client.receive(DESCRIBE_CONFIGS, 4))[0] == 7
    assert served_of_many == 40


@pytest.mark.parametrize(("usual_s", "waits"), [(QUICK_S / 2, False), (2 * QUICK_S, True)])
async def test_who_is_quick_as_a_rule_goes_on_where_a_turn_is_used_up(
    served: Served, client: Client, usual_s: float, waits: bool
) -> None:
    await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    connection, turns = served.connection_of(client), served.broker.turns
    connection._usual_s = usual_s
    turns.begin()
    turns.ends_s = time.monotonic() - 1
    frame = encode_request(API_VERSIONS, 2, 7, "test", ApiVersionsRequest())
    connection.get_buffer(-1)[: len(frame)] = frame
    connection.buffer_updated(len(frame))
    assert connection._reading.reasons == (TURN if waits else 0)
    assert (await client.receive(API_VERSIONS, 2))[0] == 7
