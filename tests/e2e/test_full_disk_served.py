"""P12: a broker on a disk that is full, and still is when it starts again: what clients are told, and that it heals."""

import time
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.support.broker import Broker, wait_until
from tests.support.builders import produce_request
from tests.support.raw_client import PRODUCE, RawClient
from tests.support.small_disk import fill
from tests.support.workload import one_batch
from tidelog.protocol.error_codes import ErrorCode

pytestmark = pytest.mark.e2e

HEALED_S = 10


def code_of(broker: Broker, acks: int) -> int:
    """Produce more than fits in what is left of a page; return the code."""
    with RawClient(broker) as client:
        return client.produce("t", one_batch(50, value_bytes=1000), acks=acks).error_code


def is_closed(broker: Broker) -> bool:
    """Tell whether a producer that hears no answer has its connection closed."""
    with RawClient(broker) as client:
        client.send(PRODUCE, 9, produce_request("t", one_batch(50, value_bytes=1000), acks=0))
        return client.is_closed_by_peer()


def readable(broker: Broker) -> list[int]:
    with RawClient(broker) as client:
        assert client.list_offsets("t", 0).offset == 0
        return [offset for offset, _ in client.batches("t")]


def test_P12_a_full_disk_is_told_whatever_the_acks_is_read_from_and_heals(
    small_disk: Path, tmp_path: Path
) -> None:
    (small_disk / "data").mkdir()
    (tmp_path / "data").symlink_to(small_disk / "data")  # The ready file lies where there is room.
    with Broker(tmp_path / "data", {"log.retention.ms": "-1"}) as broker:
        with RawClient(broker.start()) as client:
            client.create("t")
            offsets = [client.produce("t", one_batch(3)).base_offset for _ in range(5)]
        fill(small_disk)
        for how in ("as it runs", "after a stop", "after a kill"):
            if how == "after a stop":
                broker.send_signal(SIGTERM)
                broker.wait()
            if how != "as it runs":
                broker.kill()
                broker.start()
            assert [code_of(broker, acks) for acks in (1, -1)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2, how
            assert is_closed(broker), how
            assert readable(broker) == offsets, how
        (small_disk / "filler").unlink()
        began_s = time.monotonic()
        wait_until(lambda: not code_of(broker, -1), HEALED_S)
        assert not code_of(broker, 1)
        assert time.monotonic() - began_s < HEALED_S
        assert readable(broker)[: len(offsets)] == offsets
        broker.stop()
