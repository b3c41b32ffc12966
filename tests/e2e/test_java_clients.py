"""Apache's Java producer and consumer, at their defaults (idempotent, acks=all), against a running broker."""

import subprocess
from collections.abc import Callable

import pytest

from tests.support.broker import Broker, Running
from tests.support.java import java_command, needs_java, run_java

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


def test_a_producer_goes_on_with_another_broker_at_its_brokers_address(
    new_broker: Callable[..., Broker],
) -> None:
    """Its metadata and its producer id are those of the first one."""
    broker = new_broker()
    command = java_command("JavaClient", "replaced", broker.address, "t")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        broker.stop()
        broker.data_dir.rename(broker.data_dir.with_name("old"))
        broker.start()
        assert process.communicate("go on\n", timeout=60)[0] == "0\n"
        assert process.returncode == 0
