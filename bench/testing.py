"""What a broker in somebody's tests costs: `python -m bench.testing`.

Prints, in milliseconds unless it says otherwise, the median of some runs: from importing `tidelog.testing` to the first
record that is acknowledged; a topic for a test, made and deleted; a hundred tests with a topic each, by pytest; a
broker from a snapshot of a gigabyte; and what a request of one record takes with the control channel and without it.
With `--kafka`, which needs Java and Maven, Apache Kafka stands beside the first two.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.wire import Wire
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records.build import Record, build_batch
from tidelog.testing import Broker

TOPIC = "bench"
VERSION = 9
BATCH_BYTES = 1_000_000
SEGMENT_BYTES = 256 << 20
NOW_MS = 1_700_000_000_000

# A process of its own, which loads nothing before; the request is made beforehand, as clients differ.
FIRST = """
import socket, sys, time
request = open(sys.argv[1], "rb").read()
started = time.perf_counter()
from tidelog.testing import Broker
with Broker() as broker:
    topic = broker.topic("bench")
    with socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(request)
        assert client.recv(1000)
        print(time.perf_counter() - started)
"""
TESTS = """
import pytest

@pytest.mark.parametrize("n", range(100))
def test_it(tidelog_topic, n):
    assert tidelog_topic.bootstrap
"""
BARE = TESTS.replace("tidelog_topic, n", "n").replace("tidelog_topic.bootstrap", "n >= 0")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        show("import to first acknowledged record", measured(arguments.runs, lambda: first_record(folder)))
        show("a topic, made and deleted", topics(arguments.runs * 20))
        if arguments.kafka:
            kafka(folder, arguments.runs)
        for what, code in (("100 tests of pytest with a topic each", TESTS), ("100 tests without", BARE)):
            show(what, measured(max(arguments.runs // 2, 1), lambda code=code: pytest_run(folder, code)))
        show(f"start from {arguments.gigabytes:g} GB", snapshot(arguments.gigabytes, arguments.runs))
    for is_controlled, taken in requests(arguments.runs, arguments.requests).items():
        show(f"produce one record, {'with' if is_controlled else 'without'} control", taken, digits=4)


def show(what: str, taken_s: list[float], digits: int = 1) -> None:
    """Print the median in milliseconds, the least and the most."""
    shown = [
        f"{value * 1000:.{digits}f}" for value in (statistics.median(taken_s), min(taken_s), max(taken_s))
    ]
    print(f"{what:48} {shown[0]:>9} ms  ({shown[1]} to {shown[2]}, {len(taken_s)} runs)", flush=True)


def measured(runs: int, once: Callable[[], float]) -> list[float]:
    """Do it once for the caches, then so many times."""
    once()
    return [once() for _ in range(runs)]


def request(batch: bytes) -> ProduceRequest:
    """Return a request to store a batch."""
    part = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[part])],
    )


def batch(size_bytes: int) -> bytes:
    """Return a batch of one record."""
    return build_batch([Record(0, NOW_MS, None, bytes(size_bytes))])


def first_record(folder: Path) -> float:
    """Return the seconds from the import of `tidelog.testing` to an acknowledgement."""
    frame = folder / "request"
    frame.write_bytes(encode_request(PRODUCE, VERSION, 1, "bench", request(batch(100))))
    done = subprocess.run([sys.executable, "-c", FIRST, str(frame)], check=True, capture_output=True)
    return float(done.stdout)


def topics(count: int) -> list[float]:
    """Return the seconds for each topic that is made and deleted."""

    def once() -> float:
        started = time.perf_counter()
        broker.topic().delete()
        return time.perf_counter() - started

    with Broker() as broker:
        return measured(count, once)


def kafka(folder: Path, runs: int) -> None:
    """Print what Apache Kafka takes, on a JVM told to start soon: a start to the first record, a hundred topics."""
    from bench.kafka import QUICK_JVM, ApacheKafka
    from tests.support.java import jars  # needs Java and Maven

    def started() -> float:
        begun = time.perf_counter()
        with ApacheKafka(jars(), QUICK_JVM) as broker:
            broker.start(0, Path(tempfile.mkdtemp(dir=folder)) / "data")
            with Wire(broker.port) as wire:
                wire.create_topics([TOPIC])
                wire.ask(PRODUCE, VERSION, request(batch(100)))
                return time.perf_counter() - begun

    def once() -> float:
        begun = time.perf_counter()
        name = f"topic-{next(numbers)}"
        wire.create_topics([name])
        wire.delete_topics([name])
        return time.perf_counter() - begun

    show("Apache Kafka: start to first acknowledged record", [started() for _ in range(max(runs // 2, 1))])
    numbers = itertools.count()
    with ApacheKafka(jars(), QUICK_JVM) as broker:
        broker.start(0, Path(tempfile.mkdtemp(dir=folder)) / "data")
        with Wire(broker.port) as wire:
            show("Apache Kafka: a topic, made and deleted", measured(100, once))


def pytest_run(folder: Path, code: str) -> float:
    """Return the seconds that pytest takes for these tests, from its start to its end."""
    (folder / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidelog.testing.plugin", "test_it.py"]
    # Without the other plugins of this environment, which take longer than all the tests.
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=alone)
    return time.perf_counter() - started


def snapshot(gigabytes: float, runs: int) -> list[float]:
    """Return the seconds to start a broker from a snapshot of so much, until it answers."""
    config = {"log.segment.bytes": SEGMENT_BYTES, "log.retention.ms": -1}
    with Broker(config=config) as broker:
        broker.topic(TOPIC)
        with Wire(broker.port, 120) as wire:
            data = batch(BATCH_BYTES)
            for _ in range(int(gigabytes * 1e9 / len(data))):
                wire.ask(PRODUCE, VERSION, request(data))
        with broker.snapshot() as taken:

            def once() -> float:
                copy = Broker.from_snapshot(taken)
                started = time.perf_counter()
                with copy:
                    return time.perf_counter() - started

            return measured(runs, once)


def requests(runs: int, count: int) -> dict[bool, list[float]]:
    """Return the seconds of a request of one record, with the control channel and without, taken in turns."""
    found: dict[bool, list[float]] = {True: [], False: []}
    data = batch(100)
    # Beside one another, on the same file system.
    with Broker() as controlled, plain(controlled.data_dir.parent / "plain") as port:
        controlled.topic(TOPIC)
        for is_controlled in itertools.islice(itertools.cycle(found), 2 * runs + 2):
            with Wire(controlled.port if is_controlled else port) as wire:
                started = time.perf_counter()
                for _ in range(count):
                    wire.send_batch(TOPIC, data, acks=-1)
                    wire.receive_ack()
                found[is_controlled].append((time.perf_counter() - started) / count)
    return {is_controlled: taken[1:] for is_controlled, taken in found.items()}


@contextmanager
def plain(folder: Path) -> Iterator[int]:
    """Give the port of a broker that no test controls."""
    command = [sys.executable, "-m", "tidelog", "serve", "--data-dir", str(folder / "data"), "--port", "0"]
    with subprocess.Popen(
        [*command, "--stop-at-eof"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split(b";")[0].rpartition(b":")[2])
        with Wire(port) as wire:
            wire.create_topics([TOPIC])
        yield port


if __name__ == "__main__":
    main()
