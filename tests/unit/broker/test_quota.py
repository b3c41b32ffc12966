"""What clients may hold of one kind, and how long the garbage collector may be held off for them."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from tidelog.broker import collector as collector_module
from tidelog.broker.answers import HOLDS_UP, Later
from tidelog.broker.broker import Broker
from tidelog.broker.collector import LONGEST_S, Collector
from tidelog.broker.quota import LITTLE_BYTES, Quota
from tidelog.broker.running import Running


class Client:
    def __init__(self, address: str) -> None:
        self.address = address


def test_an_address_has_half_of_all_and_each_connection_a_little() -> None:
    limit = 10 * LITTLE_BYTES
    quota = Quota(limit)
    first, second, third = Client("here"), Client("here"), Client("there")
    assert quota.room_bytes(first) == limit // 2
    held = [quota.hold(first, limit // 2)]
    assert [quota.room_bytes(client) for client in (first, second, third)] == [0, LITTLE_BYTES, limit // 2]
    assert quota.hold(second, LITTLE_BYTES + 1) is None
    held.append(quota.hold(second, LITTLE_BYTES))
    assert quota.room_bytes(third) == limit // 2 - LITTLE_BYTES, "that is left of all"
    held.append(quota.hold(third, limit // 2 - LITTLE_BYTES - 1))
    assert not quota.is_full
    assert quota.room_bytes(third) == 1
    held.append(quota.hold(third, 1))
    assert quota.is_full
    assert quota.hold(third, 1) is None
    held.append(quota.hold(Client("elsewhere"), 3 * limit))  # alone: whatever it asks for
    assert all(held)
    for hold in held:
        assert hold is not None
        hold.give_back()
    assert quota.total_bytes == 0
    assert not quota._by_address
    assert not quota._by_owner
    assert quota.room_bytes(first) == limit // 2


def test_a_little_is_there_for_each_until_twice_the_limit_is_held() -> None:
    limit = 2 * LITTLE_BYTES
    quota = Quota(limit)
    assert quota.hold(Client("here"), 2 * limit - LITTLE_BYTES)
    late, later = Client("there"), Client("there")
    assert quota.room_bytes(late) == LITTLE_BYTES
    assert quota.hold(late, LITTLE_BYTES - 1)
    assert quota.room_bytes(later) == 1
    assert quota.hold(later, 2) is None


@pytest.fixture
def _collecting() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.usefixtures("_collecting")
def test_the_collector_waits_until_the_last_lets_it_go_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(collector_module, "monotonic", lambda: now_s)
    collector = Collector()
    for step, is_enabled in ((1, False), (1, False), (-1, False), (-1, True), (1, False)):
        if step > 0:
            collector.hold_off()
        else:
            collector.let_go()
        assert gc.isenabled() == is_enabled
    now_s += LONGEST_S - 1
    collector.hold_off()
    assert not gc.isenabled()
    now_s += 1
    collector.let_go()
    assert gc.isenabled(), "it was held off for long enough, by whomever"
    collector.hold_off()
    assert gc.isenabled()
    for _ in range(2):
        collector.let_go()
    collector.hold_off()
    assert not gc.isenabled(), "nobody held it off before"


@pytest.mark.usefixtures("_collecting")
@pytest.mark.parametrize(
    ("is_large", "weight_bytes", "held_off"), [(True, HOLDS_UP, 1), (True, 1000, 0), (False, HOLDS_UP, 0)]
)
def test_the_collector_waits_for_what_another_thread_makes_of_a_large_request(
    is_large: bool, weight_bytes: int, held_off: int
) -> None:
    """Not for a fetch that is parked, which weighs little."""
    collector = Collector()
    broker = cast(Broker, SimpleNamespace(collector=collector))

    async def wait() -> None:
        await Later(weight_bytes)

    running = Running(broker, "me", wait(), is_large=is_large)
    running.begin()
    assert collector._holders == held_off
    running.cancel()
    assert collector._holders == 0
