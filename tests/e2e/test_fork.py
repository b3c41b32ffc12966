"""`tidelog fork` beside a running broker: under load, killed at any moment, and with what cannot be forked."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.support.broker import Broker, environment, serve_command
from tests.support.command import Done, ok, rows, tidelog

pytestmark = pytest.mark.e2e

SMALL = ("--config", "segment.bytes=4096", "--config", "message.timestamp.type=LogAppendTime")

# `tidelog serve` that kills itself at the n-th call of a fork into the system's files.
KILLED = """
import os, signal, sys
left, begun = int(sys.argv[1]), False
def hook(event, args):
    global left, begun
    if event not in ("open", "os.mkdir", "os.link", "os.rename"):
        return
    begun = begun or (event == "os.mkdir" and "/data/new-0." in str(args[0]))
    if begun and "/data/" in str(args[0]):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
from tidelog.cli.main import app
app(sys.argv[2:])
"""


def _read(broker: Broker, topic: str) -> list[tuple[int, int, str]]:
    read = rows(tidelog(broker, "tail", topic, "--format", "json"))
    return sorted((each["partition"], each["offset"], each["value"]) for each in read)


def _produced(broker: Broker, topic: str, count: int = 400) -> None:
    ok(tidelog(broker, "topics", "create", topic, "--partitions", "2", *SMALL))
    with_keys = "".join(f"{number}:{number}\n" for number in range(count))
    ok(tidelog(broker, "produce", topic, "--key-separator", ":", text=with_keys))


def test_a_fork_of_two_partitions_while_they_are_written_to(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    ok(tidelog(broker, "topics", "create", "tides", "--partitions", "2", *SMALL))
    acked: list[tuple[int, int, str, int]] = []
    enough, stop = threading.Event(), threading.Event()

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=broker.address, linger_ms=0)
        while not stop.is_set():
            value = f"{len(acked)} " + "x" * 100
            done = producer.send("tides", value.encode(), partition=len(acked) % 2).get(20)
            acked.append((done.partition, done.offset, value, done.timestamp))
            if len(acked) == 300:
                enough.set()
        producer.close()

    writer = threading.Thread(target=produce)
    writer.start()
    try:
        assert enough.wait(60)
        at_ms = int(time.time() * 1000)
        done = tidelog(broker, "fork", "tides", "--at", f"@{at_ms}", "then", "--json")
        made = rows(done)
    finally:
        stop.set()
        writer.join()
    expected = sorted(each[:3] for each in acked if each[3] < at_ms)
    assert len(acked) > len(expected) > 200  # the last of 300 may have the time of the cut
    assert _read(broker, "then") == expected
    assert [each["end_offset"] for each in made] == [
        sum(each[0] == partition for each in expected) for partition in range(2)
    ]
    assert sum(each["records"] for each in made) == len(expected)
    assert _read(broker, "tides") == sorted(each[:3] for each in acked)
    ok(tidelog(broker, "topics", "delete", "tides", "--yes"))
    assert _read(broker, "then") == expected
    broker.kill()
    broker.start()
    assert _read(broker, "then") == expected
    ok(tidelog(broker, "produce", "then", text="more\n"))
    broker.stop()
    checked = subprocess.run(
        [sys.executable, "-m", "tidelog", "fsck", str(broker.data_dir), "--deep"],
        capture_output=True, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_fork_has_the_options_of_its_source(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    _produced(broker, "tides")
    done = tidelog(broker, "fork", "tides", "--at", "now", "then", "--config", "retention.ms=-1")
    assert ok(done).split("\n")[0].split() == [
        "partition",
        "starts",
        "at",
        "ends",
        "before",
        "records",
        "bytes",
        "copied",
    ]
    (described,) = rows(tidelog(broker, "topics", "describe", "then", "--json"))
    assert described["options"] == {
        "segment.bytes": "4096", "message.timestamp.type": "LogAppendTime", "retention.ms": "-1",
    }  # fmt: skip
    (source,) = rows(tidelog(broker, "topics", "describe", "tides", "--json"))
    assert source["id"] != described["id"]


def test_what_cannot_be_forked(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    began_ms = int(time.time() * 1000) - 1000
    _produced(broker, "tides")
    ok(tidelog(broker, "topics", "create", "empty"))

    def refused(*arguments: str) -> Done:
        done = tidelog(broker, "fork", *arguments)
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
        return done

    for arguments, status, words in (
        (("none", "--at", "now", "new"), 1, "topic none does not exist"),
        (("tides", "--at", "now", "empty"), 1, "'empty' already exists"),
        (("tides", "--at", "now", "tides"), 1, "'tides' already exists"),
        (("tides", "--at", "now", "a/b"), 1, "other than ASCII"),
        (("tides", "--at", "now", "__consumer_offsets"), 1, "is internal"),
        (("tides", "--at", "now", "__cluster_metadata"), 1, "is internal"),
        (("tides", "--at", f"@{began_ms + 86_400_000}", "new"), 1, "is in the future"),
        (("tides", "--at", f"@{began_ms}", "new"), 1, "has no record before"),
        (("empty", "--at", "now", "new"), 1, "has no record before"),
        (("tides", "--at", "soon", "new"), 2, "soon"),
        (("tides", "--at", "now", "new", "--config", "segment.bytes=x"), 1, "segment.bytes"),
        (("tides", "--at", "now", "new", "--config", "nonsense=1"), 1, "nonsense"),
    ):
        done = refused(*arguments)
        assert done.returncode == status, done
        assert words in done.stderr, done
    assert {each["topic"] for each in rows(tidelog(broker, "topics", "list", "--json"))} == {"tides", "empty"}
    assert not list(broker.data_dir.glob("new*"))


def test_what_retention_will_delete_is_noted(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker({"log.retention.check.interval.ms": "3600000"})
    _produced(broker, "tides", 4000)
    ok(tidelog(broker, "produce", "tides", "--partition", "1", text="more\n"))
    done = tidelog(broker, "fork", "tides", "--at", "now", "then", "--config", "retention.bytes=10")
    assert done.returncode == 0
    assert "then-1: retention soon deletes its first" in done.stderr


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_all_of_a_fork_or_nothing(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    _produced(broker, "tides", 2000)
    expected = _read(broker, "tides")
    outcomes = []
    for call in range(1, 1000, 9):
        broker.stop()
        line = serve_command(broker.data_dir, broker.port, broker.ready_file, {})
        broker.ready_file.unlink()
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(call), *line[1:]],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
        ) as killed:  # fmt: skip
            while not broker.ready_file.exists():
                assert killed.poll() is None
                time.sleep(0.005)
            done = tidelog(broker, "fork", "tides", "--at", "now", "new")
            if done.returncode == 0:
                killed.send_signal(signal.SIGKILL)
            assert killed.wait(20) == -signal.SIGKILL
        broker.start()
        names = {each["topic"] for each in rows(tidelog(broker, "topics", "list", "--json"))}
        assert _read(broker, "tides") == expected
        outcomes.append("new" in names)
        if "new" in names:
            assert _read(broker, "new") == expected
            ok(tidelog(broker, "topics", "delete", "new", "--yes"))
        assert not list(Path(broker.data_dir).glob("new*"))
        if done.returncode == 0:
            break
    assert len(outcomes) > 5
    assert outcomes[-1]
    assert outcomes == sorted(outcomes)
