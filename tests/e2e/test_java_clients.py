"""Apache's Java producer and consumer, at their defaults (idempotent, acks=all), against a running broker."""

import pytest

from tests.support.broker import Running
from tests.support.java import needs_java, run_java

pytestmark = [needs_java, pytest.mark.java, pytest.mark.e2e]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 200
START_MS = 1_700_000_000_000


def lines(command: str, *arguments: object) -> list[str]:
    done = run_java("JavaClient", command, *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_java_producer_and_consumer(shared_broker: Running, topic: str) -> None:
    acks = lines("produce", shared_broker.address, topic, COUNT, START_MS, *CODECS)
    total = COUNT * len(CODECS)
    sent = [(codec, i) for codec in CODECS for i in range(COUNT)]
    assert acks == [f"{codec} {at} {START_MS + at}" for at, (codec, _) in enumerate(sent)]

    read = lines("consume", shared_broker.address, topic, total)
    assert read == [
        f"{at} {START_MS + at} {None if i % 10 == 0 else f'key-{i}'} "
        f"{None if i % 10 == 1 else f'{codec}-{i}'} {codec}".replace("None", "null")
        for at, (codec, i) in enumerate(sent)
    ]

    inside = START_MS + COUNT + COUNT // 2
    last = START_MS + total - 1
    found = lines("offsets", shared_broker.address, topic, 0, inside, last, last + 1)
    assert found == [
        f"0 0 {START_MS}",
        f"{inside} {inside - START_MS} {inside}",
        f"{last} {total - 1} {last}",
        f"{last + 1} -",
    ]
