"""The ledger can say no: a log that lost, changed or repeated a batch does not pass it.

Each damage is done to the files of a stopped broker; what the broker then serves must not satisfy the ledger.
Without these cases "the ledger had no objection" would mean nothing.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.ledger import Ledger, Producer
from tests.support.raw_client import RawClient
from tidelog.protocol.records import batch

pytestmark = pytest.mark.e2e


def batches_of(log: bytes) -> list[bytes]:
    found, position = [], 0
    while position < len(log):
        size = batch.read_header(log, position).size_bytes
        found.append(log[position : position + size])
        position += size
    return found


def lose_the_later_half(batches: list[bytes]) -> list[bytes]:
    """Cut more than was ever in flight, so that some of it was acknowledged."""
    return batches[: len(batches) // 2]


def flip_a_bit(batches: list[bytes]) -> list[bytes]:
    middle = len(batches) // 2
    data = bytearray(batches[middle])
    data[-2] ^= 1
    return [*batches[:middle], bytes(data), *batches[middle + 1 :]]


def repeat_the_last(batches: list[bytes]) -> list[bytes]:
    again = bytearray(batches[-1])
    batch.set_base(again, 0, batch.read_header(batches[-1]).last_offset + 1, 0)
    return [*batches, bytes(again)]


def swap_two(batches: list[bytes]) -> list[bytes]:
    """Exchange the first two batches, each with the offset that belongs to its new place."""
    first, second = (bytearray(data) for data in batches[:2])
    count = batch.read_header(second).record_count
    batch.set_base(second, 0, 0, 0)
    batch.set_base(first, 0, count, 0)
    return [bytes(second), bytes(first), *batches[2:]]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_the_later_half, "acknowledged and lost"),
        (flip_a_bit, "error 2"),
        (repeat_the_last, "is due|has moved"),
        (swap_two, "has moved"),
    ],
)
def test_damage_is_noticed(tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], words: str) -> None:
    ledger = Ledger("ledger", 1)
    with Broker(tmp_path / "data") as broker:
        broker.start()
        with RawClient(broker) as client:
            client.create("ledger")
            who = client.init_producer_id()
        producer = Producer(ledger, 0, f"damage {random.Random(words).random()}", (who.producer_id, 0))
        producer.load(broker)
        while len(ledger.acknowledged) < 20:
            producer.join(0.01)
            assert producer.is_alive(), ledger.faults
        broker.kill()
        producer.join(20)
        log = broker.data_dir / "ledger-0" / f"{0:020}.log"
        ledger.judge(broker.start())
        broker.kill()
        log.write_bytes(b"".join(damage(batches_of(log.read_bytes()))))
        # The ledger's memory of what it read before would notice too; here its book-keeping has to.
        ledger.history.clear()
        with pytest.raises(AssertionError, match=words):
            ledger.judge(broker.start())
