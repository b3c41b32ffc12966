"""A long compaction pass, which runs in a separate process: how the process ends with the broker and without it."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from bench.kafka import free_port
from bench.machine import children
from tests.support.broker import Broker, wait_until
from tests.support.examples import EXAMPLES
from tests.support.processes import command_line, is_running
from tests.support.raw_client import RawClient
from tidelog.protocol.records.build import Record, build_batch, read_records

pytestmark = pytest.mark.e2e

NEW_BROKER = Callable[..., Broker]
BATCHES, KEYS = 90, 7
CLEANER = {"log.cleaner.backoff.ms": "100", "log.segment.bytes": str(8 << 20)}
WORKER = "compaction.worker"
RATE = "log.cleaner.io.max.bytes.per.second"


def begun(new_broker: NEW_BROKER, **options: str) -> tuple[Broker, int]:
    """Return a broker that compacts slowly, and the process of the pass, which reads the log already."""
    broker = new_broker({**CLEANER, "log.cleaner.enable": "false", RATE: str(4 << 20), **options})
    with RawClient(broker) as client:
        client.create("t", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        for n in range(BATCHES):
            record = Record(0, 1_790_000_000_000 + n, b"%d" % (n % KEYS), bytes([n]) * 1_000_000)
            client.produce("t", bytearray(build_batch([record])))
    broker.overrides.pop("log.cleaner.enable")  # Nothing was compacted before all records were there.
    broker.restart()
    wait_until(lambda: any(map(is_reading, children(broker.pid))))
    return broker, children(broker.pid).pop()


def is_reading(pid: int) -> bool:
    if WORKER not in " ".join(
        command_line(pid)
    ):  # Until it runs its own program, it has the broker's files open.
        return False
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It has just been closed.
            if file.readlink().suffix == ".log":
                return True
    return False


def unfinished(broker: Broker) -> list[str]:
    return [path.name for path in (broker.data_dir / "t-0").iterdir() if path.suffix in {".cleaned", ".swap"}]


def log_bytes(broker: Broker) -> int:
    size_bytes = 0
    for path in broker.data_dir.glob("t-0/*.log"):
        with suppress(FileNotFoundError):  # A copy has just replaced it.
            size_bytes += path.stat().st_size
    return size_bytes


def latest(broker: Broker) -> dict[bytes, tuple[int, bytes]]:
    """Return the offset and the first byte of each key's last record."""
    with RawClient(broker) as client:
        found = [record for _, data in client.batches("t") for record in read_records(data)]
    return {each.key: (each.offset, each.value[:1]) for each in found if each.key and each.value}


EXPECTED = {b"%d" % (n % KEYS): (n, bytes([n])) for n in range(BATCHES - KEYS, BATCHES)}


def compacted(broker: Broker) -> None:
    """Wait until sealed segments have lost records; compare the records that are left."""
    wait_until(lambda: log_bytes(broker) < 40 << 20, timeout_s=60)
    assert latest(broker) == EXPECTED


def shown(broker: Broker) -> str:
    """Return the arguments of the process that docs/compaction.md shows, with the names of this broker."""
    (example,) = (each for each in EXAMPLES if each.text.startswith(f"$ pgrep -af {WORKER}\n"))
    arguments = example.text.rstrip().partition(" python ")[2]
    code, pid, folder = arguments.rsplit(" ", 2)
    assert pid.isdecimal()
    assert folder == "data/prices-0"
    return f"{code} {broker.pid} {broker.data_dir / 't-0'}"


def test_S87_a_long_pass_runs_in_a_process_and_a_stop_ends_it(new_broker: NEW_BROKER) -> None:
    broker, pid = begun(new_broker)
    assert " ".join(command_line(pid)[1:]) == shown(broker)
    assert latest(broker) == EXPECTED
    broker.stop()
    assert not is_running(pid)
    assert unfinished(broker) == []
    assert "ERROR" not in broker.printed
    broker.overrides.pop(RATE)
    compacted(broker.start())
    wait_until(lambda: not children(broker.pid))


def test_P13_the_process_ends_when_the_broker_is_killed(new_broker: NEW_BROKER) -> None:
    broker, pid = begun(new_broker)
    os.kill(pid, signal.SIGSTOP)  # It sees nothing itself, as when it waits for the disk.
    broker.kill()
    wait_until(lambda: not is_running(pid))
    broker.overrides.pop(RATE)
    compacted(broker.start())
    broker.stop()
    assert unfinished(broker) == []


def test_P13_the_broker_says_that_the_process_was_killed_and_tries_again(new_broker: NEW_BROKER) -> None:
    port = free_port()
    broker, pid = begun(new_broker, **{"http.port": str(port)})
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "compaction fails log=t-0" in broker.printed)
    with urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as answer:
        health = json.load(answer)
    assert health["status"] == "ok"
    (failing,) = health["not_compacted"]
    assert "the process of a compaction pass ended early, with status -9" in failing["reason"]
    wait_until(lambda: bool(children(broker.pid) - {pid}))
    assert latest(broker) == EXPECTED
