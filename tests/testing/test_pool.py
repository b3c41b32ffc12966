"""The brokers that tests share, between two tests: whatever one has done, the next finds none of it."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidelog.testing import Broker, BrokerDied
from tidelog.testing.pool import Pool

pytestmark = pytest.mark.e2e


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool({}, 30)
    yield pool
    pool.close()


def _died(broker: Broker) -> None:
    os.kill(broker.pid, 9)
    with pytest.raises(BrokerDied):
        broker.ask("now")


def test_a_broker_that_died_between_two_tests_is_replaced(pool: Pool) -> None:
    first = pool.broker({}, None)
    _died(first)
    second = pool.broker({}, None)
    assert second is not first
    assert second.ask("now")
    assert not first.is_running


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_clock_that_was_held_at_the_end_goes_on(pool: Pool, end: str) -> None:
    broker = pool.broker({}, None)
    broker.clock.hold()
    getattr(broker, end)()
    pool.put_back(broker)
    assert pool.broker({}, None) is broker
    assert not broker.ask("now")["held"]


def test_what_was_done_by_the_control_channel_is_undone(pool: Pool) -> None:
    broker = pool.broker({}, None)
    broker.ask("fault", api="produce", error=3, times=None)
    told = [
        sys.executable,
        "-m",
        "tidelog",
        "test-control",
        "advance",
        "1h",
        "--data-dir",
        str(broker.data_dir),
    ]
    subprocess.run(told, check=True, capture_output=True)
    pool.put_back(broker)
    assert not broker.ask("now")["held"]
    assert broker.ask("clear_faults") == {}


def test_the_clock_of_a_mark_is_set_anew(pool: Pool) -> None:
    broker = pool.broker({}, 1_000)
    broker.ask("advance", ms=5)
    pool.put_back(broker)
    assert pool.broker({}, 1_000).clock.now_ms == 1_000
