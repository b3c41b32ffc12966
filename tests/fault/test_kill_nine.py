"""kill -9 under load: what was acknowledged is there afterwards, at its offset, with its bytes.

I1 nothing acknowledged is lost; I2 no gap, duplicate or reordering; I3 an offset's bytes never change; I4 what
was not acknowledged survives only as a prefix; I5 indexes are what a rebuild gives; I9 restarting again changes
nothing. A few producers write with acks=all; a ledger of their acknowledgements is kept in this process.
"""

import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.broker import Broker, wait_until
from tests.support.java import DEEP, MISSING, SANITY, complaints_about
from tests.support.ledger import PLAIN, Ledger, Producer
from tests.support.raw_client import RawClient
from tests.support.reference_index import differences

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC, PARTITIONS, INTERVAL_BYTES = "ledger", 2, 1024
ROUNDS = 5  # `make soak` makes a thousand
SETTINGS = {"log.retention.ms": "-1", "log.index.interval.bytes": str(INTERVAL_BYTES)}
# Large segments; rolling often; rolling at every few batches, so that most kills fall near a roll.
EPISODES: dict[str, Mapping[str, str]] = {
    "one segment": {},
    "one segment, again": {},
    "a few segments": {"log.segment.bytes": "300000"},
    "many segments": {"log.segment.bytes": "65536"},
    "very many segments": {"log.segment.bytes": "16384"},
}


# Like others, but for their seeds and sizes.
SELDOM = ("many segments", "very many segments", "one segment, again")


@pytest.mark.parametrize(
    "episode",
    [pytest.param(name, marks=[pytest.mark.all] if name in SELDOM else [], id=name) for name in EPISODES],
)
def test_what_was_acknowledged_survives_kill_nine(tmp_path: Path, episode: str) -> None:
    rng = random.Random(episode)
    ledger = Ledger(TOPIC, PARTITIONS)
    with Broker(tmp_path / "data", {**SETTINGS, **EPISODES[episode]}) as broker:
        producers = first_producers(broker.start(), ledger, episode)
        for _ in range(ROUNDS):
            under_load(broker, producers, rng, broker.kill)
            if rng.random() < 0.3:
                kill_while_starting(broker, rng)
            ledger.judge(broker.start())
            assert not leftovers(broker.data_dir)
            producers = [producer.reborn() for producer in producers]
        check_files_when_stopped(broker)
        ledger.judge(broker.start())
        assert len(ledger.acknowledged) > 10 * ROUNDS


def test_killed_while_it_stops(tmp_path: Path) -> None:
    """An orderly stop that is cut short is a crash, not a licence to believe what it had not yet written."""
    rng = random.Random("killed while it stops")
    ledger = Ledger(TOPIC, PARTITIONS)
    with Broker(tmp_path / "data", {**SETTINGS, "log.segment.bytes": "65536"}) as broker:
        producers = first_producers(broker.start(), ledger, "stops")

        def stop_and_kill() -> None:
            broker.send_signal(signal.SIGTERM)
            time.sleep(rng.uniform(0, 0.05))
            broker.kill()

        for _ in range(ROUNDS):
            under_load(broker, producers, rng, stop_and_kill)
            ledger.judge(broker.start())
            producers = [producer.reborn() for producer in producers]
        check_files_when_stopped(broker)


def test_orderly_stop_under_load_loses_nothing(tmp_path: Path) -> None:
    """SIGTERM in the middle of a load: what is in flight is finished or refused, and the status is 0."""
    rng = random.Random("orderly stop")
    ledger = Ledger(TOPIC, PARTITIONS)
    with Broker(tmp_path / "data", SETTINGS) as broker:
        producers = first_producers(broker.start(), ledger, "orderly")
        for _ in range(3):
            under_load(broker, producers, rng, broker.stop)
            assert differences_everywhere(broker.data_dir) == []
            ledger.judge(broker.start())
            producers = [producer.reborn() for producer in producers]


def test_F12_a_broker_that_stands_still_for_a_while_goes_on_in_order_and_loses_nothing(
    tmp_path: Path,
) -> None:
    rng = random.Random("stopped")
    ledger = Ledger(TOPIC, PARTITIONS)
    with Broker(tmp_path / "data", SETTINGS) as broker:
        producers = first_producers(broker.start(), ledger, "stopped")

        def stand_still_and_go_on() -> None:
            for _ in range(3):
                broker.send_signal(signal.SIGSTOP)
                time.sleep(rng.uniform(0.2, 0.5))
                answered = len(ledger.acknowledged)
                broker.send_signal(signal.SIGCONT)
                wait_until(lambda more=answered + 100: len(ledger.acknowledged) > more, 20)
            broker.kill()

        under_load(broker, producers, rng, stand_still_and_go_on)
        ledger.judge(broker.start())


def first_producers(broker: Broker, ledger: Ledger, seed: str) -> list[Producer]:
    """Make the topic, and producers: three idempotent ones on two partitions, and one that is not."""
    with RawClient(broker) as client:
        assert client.create(TOPIC, PARTITIONS).error_code == 0
        answers = [client.init_producer_id() for _ in range(3)]
        ids = [(answer.producer_id, answer.producer_epoch) for answer in answers]
    assert len(set(ids)) == len(ids)
    return [
        Producer(ledger, number % PARTITIONS, f"{seed} {number}", producer)
        for number, producer in enumerate([*ids, (PLAIN, PLAIN)])
    ]


def under_load(
    broker: Broker, producers: list[Producer], rng: random.Random, end: Callable[[], None]
) -> None:
    """Let the producers run for 10 to 500 ms, then end the broker and wait for them to notice."""
    for producer in producers:
        producer.load(broker)
    for producer in producers:
        assert producer.sending.wait(20)
    time.sleep(rng.uniform(0.010, 0.500))
    end()
    for producer in producers:
        producer.join(20)
        assert not producer.is_alive(), f"{producer.name} still waits for an answer"


def kill_while_starting(broker: Broker, rng: random.Random) -> None:
    """Cut a recovery short; it must be possible to do it all over again."""
    broker.spawn()
    time.sleep(rng.uniform(0, 0.4))
    broker.kill()


def leftovers(data_dir: Path) -> list[Path]:
    """Return half-written files; recovery must have dealt with all of them."""
    return [path for path in data_dir.rglob("*") if path.suffix in {".tmp", ".swap", ".cleaned"}]


def differences_everywhere(data_dir: Path) -> list[str]:
    return [
        line
        for partition in range(PARTITIONS)
        for line in differences(data_dir / f"{TOPIC}-{partition}", INTERVAL_BYTES)
    ]


def check_files_when_stopped(broker: Broker) -> None:
    """Stop in order; indexes must equal a rebuild, and Apache's own tool must have no complaint."""
    broker.stop()
    assert differences_everywhere(broker.data_dir) == []
    if not MISSING:
        assert complaints_about(broker.data_dir, [DEEP, SANITY]) == []
