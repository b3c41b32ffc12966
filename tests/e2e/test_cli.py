"""The verbs of the command line against a running broker, as a person or a script would use them."""

import itertools
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer

from bench.kafka import QUICK_JVM, ApacheKafka
from tests.support.broker import COMMAND, Broker, Running, environment
from tests.support.command import Done, command, ok, rows, tidelog
from tests.support.java import jars, needs_java
from tidelog.broker.clock import Clock
from tidelog.cli import ping
from tidelog.cli.main import app
from tidelog.config.times import show

pytestmark = pytest.mark.e2e

START_MS = 1_709_283_600_000  # 2024-03-01 09:00 UTC
# Up to seven seconds late, some together, over two partitions.
LATE_MS = (0, 0, 7000, 100, 6999, 3500, 0, 2500, 1)
SENT = [(number % 2, START_MS + number * 1000 - LATE_MS[number * 5 % 9]) for number in range(60)]


@pytest.fixture
def late(shared_broker: Running, topic: str) -> str:
    """A topic of two partitions whose timestamps are out of order."""
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", "2"))
    with closing(KafkaProducer(bootstrap_servers=shared_broker.address)) as to:
        for number, (partition, at) in enumerate(SENT):
            to.send(topic, b"%d" % number, partition=partition, timestamp_ms=at)
        to.flush()
    return topic


def test_bash_completes_topics_and_groups_of_the_broker(
    shared_broker: Running, topic: str, tmp_path: Path
) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic))
    (tmp_path / "a-file").touch()

    def completed(*words: str, bootstrap: str = shared_broker.address) -> list[str]:
        script = f"""
            eval "$(tidelog completion bash)"
            COMP_WORDS=(tidelog {" ".join(words)}) COMP_CWORD={len(words)}
            _tidelog_completion tidelog
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        path = f"{COMMAND.parent}:{os.environ['PATH']}"
        found = subprocess.run(
            ["bash", "-c", script],
            env={**environment(), "TIDELOG_BOOTSTRAP": bootstrap, "PATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert not found.stderr
        return found.stdout.split()

    begun = topic[:-2]
    assert topic in completed("tail", begun)
    assert completed("topics", "describe", topic) == [topic]
    assert completed("configs", "describe", "--topic", topic) == [topic]
    assert completed("groups", "describe", "no-such-") == []
    assert completed("topics", "desc") == ["describe"]
    # A broker that does not answer, and one that is not there.
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        assert completed("tail", begun, bootstrap=f"127.0.0.1:{port}") == []
    assert completed("tail", begun, bootstrap=f"127.0.0.1:{port}") == []


def test_the_life_of_a_topic(shared_broker: Running, topic: str) -> None:
    create = ("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=100000")
    assert ok(tidelog(shared_broker, *create)) == f"topic {topic} created, 3 partitions\n"
    again = tidelog(shared_broker, *create)
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (1, "", 1)
    assert again.stderr.startswith(f"tidelog: topic {topic} was not created: ")

    listed = {
        row["topic"]: row["partitions"] for row in rows(tidelog(shared_broker, "topics", "list", "--json"))
    }
    assert listed[topic] == 3
    (described,) = rows(tidelog(shared_broker, "topics", "describe", topic, "--json"))
    assert described["options"] == {"retention.ms": "100000"}
    assert [part["end"] for part in described["partitions"]] == [0, 0, 0]

    kept = tidelog(shared_broker, "topics", "delete", topic, text="n\n")
    assert (kept.returncode, kept.stdout) == (1, f"topic {topic} kept\n")
    unanswered = tidelog(shared_broker, "topics", "delete", topic)
    assert (unanswered.returncode, unanswered.stdout) == (1, f"topic {topic} kept\n")
    assert ok(tidelog(shared_broker, "topics", "delete", topic, "--yes")) == f"topic {topic} deleted\n"
    gone = tidelog(shared_broker, "topics", "describe", topic)
    assert (gone.returncode, gone.stderr.count("\n")) == (1, 1)
    assert "does not exist" in gone.stderr


def test_a_topic_that_exists_is_no_error_if_that_is_asked_for(shared_broker: Running, topic: str) -> None:
    create = ("topics", "create", topic, "--config", "retention.ms=5000")
    assert ok(tidelog(shared_broker, *create)) == f"topic {topic} created, 1 partition\n"
    assert tidelog(shared_broker, *create).returncode == 1
    assert ok(tidelog(shared_broker, *create, "--if-not-exists")) == f"topic {topic} exists\n"
    assert tidelog(shared_broker, "topics", "create", "a/b", "--if-not-exists").returncode == 1
    (described,) = rows(tidelog(shared_broker, "topics", "describe", topic, "--json"))
    assert described["options"] == {"retention.ms": "5000"}


def test_ping(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    assert re.fullmatch(rf"{broker.address} answers, [0-9.]+ ms\n", ok(tidelog(broker, "ping")))
    broker.stop()
    done = tidelog(broker, "ping")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


def test_ping_ends_in_time_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ping, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = CliRunner().invoke(app, ["ping", "--bootstrap", address])
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith(f"tidelog: the broker at {address} does not answer")


def test_ping_of_what_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            peer, _ = server.accept()
            with peer, suppress(ConnectionError):
                peer.sendall(b"SSH-2.0-OpenSSH\r\n")
                while peer.recv(1000):
                    pass

        greeter = threading.Thread(target=greet)
        greeter.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = CliRunner().invoke(app, ["ping", "--bootstrap", address])
        greeter.join()
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith(f"tidelog: {address} is not a Kafka broker: ")
    assert CliRunner().invoke(app, ["ping", "--bootstrap", "a:b:c"]).exit_code == 2


def test_a_topic_option_that_is_wrong(shared_broker: Running, topic: str) -> None:
    wrong = tidelog(shared_broker, "topics", "create", topic, "--config", "segment.bytes=many")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert "segment.bytes" in wrong.stderr


def test_lines_in_and_lines_out(shared_broker: Running, topic: str) -> None:
    lines = "harbour:3.2 m\nbr\u00fccke:a:b\n:no key\nempty:\n"
    done = tidelog(shared_broker, "produce", topic, "--key-separator", ":", text=lines)
    assert ok(done) == "4 records acknowledged\n"
    assert ok(tidelog(shared_broker, "tail", topic, "--format", "{key}:{value}")) == lines
    texts = ok(tidelog(shared_broker, "tail", topic, "--first", "1")).rstrip("\n").split("\t")
    assert texts[1:] == ["0:0", "harbour", "3.2 m"]
    assert [row["key"] for row in rows(tidelog(shared_broker, "tail", topic, "--format", "json"))] == [
        "harbour",
        "br\u00fccke",
        "",
        "empty",
    ]


def test_a_rejected_line_is_named_and_what_came_before_is_counted(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--config", "max.message.bytes=1000"))
    lines = "".join(f"{number}\n" for number in range(500)) + "x" * 2000 + "\nafter\n"
    done = tidelog(shared_broker, "produce", topic, text=lines)
    assert (done.returncode, done.stdout) == (1, "500 records acknowledged\n")
    assert done.stderr.startswith(
        "tidelog: line 501 was rejected, no more lines were read, and some after it may be on disk: larger than"
    )
    assert done.stderr.count("\n") == 1
    (part,) = rows(tidelog(shared_broker, "offsets", topic, "--json"))
    assert part["end"] == 500

    done = tidelog(shared_broker, "produce", topic, "--key-separator", ":", "--json", text="a:b\nc\nd:e\n")
    assert done.returncode == 1
    assert json.loads(done.stdout)["acknowledged"] == 1
    assert "line 2 was rejected" in done.stderr


def test_a_partition_that_is_not_there_is_named(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", "3"))
    for number in (3, 1 << 31, 1 << 64):
        done = tidelog(shared_broker, "tail", topic, "-p", str(number))
        assert (done.returncode, done.stdout) == (1, "")
        missing = f"tidelog: topic {topic} has no partition {number}; it has 3 partitions, "
        assert done.stderr.startswith(missing)


def in_range(since: int, until: int) -> list[int]:
    """Return by hand what `tail` promises: behind the first at or after since, since <= timestamp < until, merged."""
    queues = [
        [n for n, (part, _) in enumerate(SENT) if part == which and since <= SENT[n][1]] for which in (0, 1)
    ]
    merged = []
    while any(queues):
        first = min(
            (queue for queue in queues if queue), key=lambda queue: (SENT[queue[0]][1], queues.index(queue))
        )
        merged.append(first.pop(0))
    return [number for number in merged if SENT[number][1] < until]


def epoch(ms: int) -> str:
    return f"@{ms // 1000}.{ms % 1000:03d}"


def test_tail_by_time_is_exact_for_records_out_of_order(shared_broker: Running, late: str) -> None:
    for since, until in ((START_MS + 20_000, START_MS + 30_000), (START_MS + 33_001, START_MS + 90_000)):
        span = ("--since", epoch(since), "--until", epoch(until), "--format", "{value}")
        found = [int(line) for line in ok(tidelog(shared_broker, "tail", late, *span)).split()]
        # Which record of one partition waits for which of the other is known only for what is there already.
        assert sorted(found) == sorted(in_range(since, until))
        for which in (0, 1):
            assert [n for n in found if n % 2 == which] == [
                n for n in in_range(since, until) if n % 2 == which
            ]
        assert found == in_range(since, until)


def test_I6_tail_by_append_time_where_the_topic_is_searched_by_it(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--config", "lookup.clock=append"))
    bounds = []
    for part in (b"one", b"two"), (b"three",), (b"four",):
        with closing(KafkaProducer(bootstrap_servers=shared_broker.address)) as to:
            for value in part:
                to.send(topic, value, timestamp_ms=START_MS)
        bounds.append(epoch(Clock().now_ms() + 1))
    since, until, _ = bounds
    tail = ("tail", topic, "--format", "{value}")
    assert ok(tidelog(shared_broker, *tail, "--since", since, "--until", until)) == "three\n"
    assert ok(tidelog(shared_broker, *tail, "--since", since)) == "three\nfour\n"
    assert ok(tidelog(shared_broker, *tail, "--until", since)) == "one\ntwo\n"


def test_records_from_the_future_are_printed(shared_broker: Running, topic: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=shared_broker.address)) as to:
        to.send(topic, b"now")
        to.send(topic, b"to come", timestamp_ms=Clock().now_ms() + 2_000_000)
    done = tidelog(
        shared_broker, "tail", topic, "--since", epoch(Clock().now_ms() + 1_000_000), "--format", "{value}"
    )
    assert (done.returncode, done.stdout) == (0, "to come\n")
    assert "is in the future" in done.stderr


def test_V10_tail_names_what_is_damaged_and_reads_on_after_it(
    new_broker: Callable[..., Broker], topic: str
) -> None:
    broker = new_broker()
    ok(tidelog(broker, "topics", "create", topic, "--partitions", "2"))
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as to:
        for number in range(6):
            to.send(topic, b"%d" % number, partition=number % 2).get()
    broker.stop()
    log = broker.data_dir / f"{topic}-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    broker.start()
    done = tidelog(broker, "tail", topic, "--format", "{value}")
    assert (done.returncode, sorted(done.stdout.split())) == (1, ["0", "1", "3", "5"])
    assert done.stderr.startswith(f"tidelog: partition 0 of {topic} is damaged at offset 1, ")
    assert done.stderr.count("\n") == 1
    assert ok(tidelog(broker, "tail", topic, "-p", "0", "--offset", "2", "--format", "{value}")) == "4\n"


def test_times_are_local(shared_broker: Running, late: str) -> None:
    span = ("--since", "2024-03-01 10:00:55", "--until", "2024-03-01T09:00:58Z", "--partition", "1")
    line, variables = command(shared_broker, "tail", late, *span)
    variables["TZ"] = "Europe/Berlin"
    out = subprocess.run(line, capture_output=True, text=True, timeout=30, env=variables, check=True).stdout
    lines = out.splitlines()
    expected = [n for n in in_range(START_MS + 55_000, START_MS + 58_000) if n % 2 == 1]
    assert [line.split("\t")[3] for line in lines] == [str(number) for number in expected]
    assert all(line.startswith("2024-03-01T10:00:5") for line in lines)
    assert all("+01:00\t1:" in line for line in lines)


def test_offsets_at_a_time_equal_a_linear_scan(shared_broker: Running, late: str) -> None:
    for at in (0, START_MS + 20_500, START_MS + 58_000, START_MS + 99_000):
        expected = []
        for which in (0, 1):
            there = [when for part, when in SENT if part == which]
            found = next(((n, when) for n, when in enumerate(there) if when >= at), (None, None))
            expected.append({"partition": which, "offset": found[0], "timestamp": found[1]})
        assert rows(tidelog(shared_broker, "offsets", late, "--at", epoch(at), "--json")) == expected


def test_where_there_is_no_record_offsets_says_so(shared_broker: Running, late: str) -> None:
    out = ok(tidelog(shared_broker, "offsets", late, "--at", epoch(START_MS + 56_500)))
    assert [line.split(maxsplit=2)[1:] for line in out.splitlines()[1:]] == [
        ["-", "none at or after"],
        ["28", show(START_MS + 57_000)],
    ]


def test_offsets_without_a_time(shared_broker: Running, late: str) -> None:
    parts = rows(tidelog(shared_broker, "offsets", late, "--json"))
    assert [(part["start"], part["end"]) for part in parts] == [(0, 30), (0, 30)]
    assert parts[0]["max_timestamp"] == max(when for part, when in SENT if part == 0)


def test_of_a_topic_without_times_all_but_those_is_told(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--config", "message.format.version=0"))
    assert tidelog(shared_broker, "produce", topic, text="a\nb\n").returncode == 0
    assert ok(tidelog(shared_broker, "tail", topic, "--first", "1")) == "-\t0:0\t\\N\ta\n"
    (line,) = rows(tidelog(shared_broker, "tail", topic, "--first", "1", "--format", "json"))
    assert (line["timestamp"], line["timestamp_type"]) == (-1, None)
    (part,) = rows(tidelog(shared_broker, "offsets", topic, "--json"))
    none = {"max_timestamp": None, "max_timestamp_offset": None}
    assert part == {"partition": 0, "start": 0, "end": 2, **none}
    assert ok(tidelog(shared_broker, "offsets", topic)).splitlines()[1].split() == ["0", "0", "2", "-", "-"]
    (described,) = rows(tidelog(shared_broker, "topics", "describe", topic, "--json"))
    assert described["partitions"] == [part | {"takes_writes": True}]
    for verb, *more in (
        ("offsets", "--at", "-1h"),
        ("tail", "--since", "-1h"),
        ("tail", "--until", "now"),
        ("delete-records", "--before", "-1h", "--yes"),
    ):
        refused = tidelog(shared_broker, verb, topic, *more)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert refused.stderr.startswith(f"tidelog: topic {topic} has no timestamps: ")
    ok(tidelog(shared_broker, "topics", "alter", topic, "--config", "lookup.clock=append"))
    (part,) = rows(tidelog(shared_broker, "offsets", topic, "--at", "-1h", "--json"))
    assert part["offset"] == 0


class Following:
    """A `tail --follow` in the background, and its lines."""

    def __init__(self, broker: Running, *arguments: str) -> None:
        line, variables = command(broker, "tail", *arguments, "--follow", "--format", "{value}")
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=variables
        )

    def line(self) -> bytes:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 20)
        assert ready, "no line for 20 s"
        return self.process.stdout.readline()

    def end(self, how: signal.Signals) -> tuple[int, bytes]:
        self.process.send_signal(how)
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err


def test_follow_until_ctrl_c(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker()
    ok(tidelog(broker, "produce", topic, text="before\n"))
    following = Following(broker, topic, "--since", "1 hour ago")
    try:
        assert following.line() == b"before\n"
        ok(tidelog(broker, "produce", topic, text="one\n"))
        assert following.line() == b"one\n"
        broker.restart()
        ok(tidelog(broker, "produce", topic, text="two\n"))
        assert following.line() == b"two\n"
    finally:
        status = following.end(signal.SIGINT)
    following_from = f"tidelog: following {topic} from ".encode()
    assert (status[0], status[1].startswith(following_from), status[1].count(b"\n")) == (0, True, 1)


def test_follow_the_last_records_and_what_comes_after(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "produce", topic, text="1\n2\n3\n"))
    following = Following(shared_broker, topic, "-n", "1")
    try:
        assert following.line() == b"3\n"
        ok(tidelog(shared_broker, "produce", topic, text="4\n"))
        assert following.line() == b"4\n"
    finally:
        status, err = following.end(signal.SIGINT)
    assert status == 0
    assert err == f"tidelog: following {topic} from the last 1 record; Ctrl-C ends it\n".encode()


def test_a_topic_is_copied_by_tail_and_produce(shared_broker: Running, topic: str, tmp_path: Path) -> None:
    """Keys, values, headers, times and partitions are those of the source, tombstones and raw bytes included."""
    target, input_file = f"{topic}-copy", tmp_path / "lines"
    for name in (topic, target):
        ok(tidelog(shared_broker, "topics", "create", name, "--partitions", "3"))
    at = ("--timestamp", "2024-03-01T09:00Z")
    ok(tidelog(shared_broker, "produce", topic, "-p", "2", "--header", "unit=m", *at, text="a\n\n"))
    ok(tidelog(shared_broker, "produce", topic, "--key", "k", "--null-value", text="\n"))
    input_file.write_bytes(b"tab\t\xff\xfe\nlast line without an end\t")
    ok(tidelog(shared_broker, "produce", topic, str(input_file), "--key-separator", "\\t"))
    lines = ok(tidelog(shared_broker, "tail", topic, "--json"))
    done = tidelog(shared_broker, "produce", target, "--json", text=lines)
    assert json.loads(ok(done)) == {"topic": target, "acknowledged": 5, "error": None}
    copied = rows(tidelog(shared_broker, "tail", target, "--json"))
    assert [{**row, "topic": topic} for row in copied] == [json.loads(line) for line in lines.splitlines()]
    first = next(row for row in copied if row["partition"] == 2 and row["value"] == "a")
    assert (first["timestamp"], first["headers"]) == (1709283600000, [{"name": "unit", "value": "m"}])

    assert ok(tidelog(shared_broker, "tail", topic, target, "--count")) == "10\n"
    assert ok(tidelog(shared_broker, "tail", f"{topic}*", "--count", "--key", "k")) == "2\n"
    assert ok(tidelog(shared_broker, "tail", topic, "--count", "--grep", "^unit$|last")) == "3\n"
    (later,) = [row["offset"] for row in copied if row["partition"] == 2][1:][:1]
    counted = sum(row["partition"] == 2 and row["offset"] >= later for row in copied)
    assert ok(tidelog(shared_broker, "tail", topic, "--offset", f"2:{later}", "--count")) == f"{counted}\n"
    assert len(ok(tidelog(shared_broker, "tail", topic, "--offset", "-1")).splitlines()) == len(
        {row["partition"] for row in copied}
    )
    (line,) = ok(tidelog(shared_broker, "tail", f"{topic}*", "--key", "k", "--first", "1")).splitlines()
    assert line.split("\t")[1].startswith(f"{topic}:")
    assert line.endswith("\tk\t\\N")


def test_a_line_for_a_partition_that_is_not_there_is_refused(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic))
    done = tidelog(shared_broker, "produce", topic, "--json", text='{"value": "a"}\n{"partition": 7}\n')
    assert (done.returncode, json.loads(done.stdout)["acknowledged"]) == (1, 1)
    assert (
        f"line 2 was rejected, and no line was read after it: topic {topic} has no partition 7; "
        in done.stderr
    )
    done = tidelog(shared_broker, "tail", f"{topic}-none*")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no topic matches" in done.stderr


def test_a_reader_that_has_had_enough_is_no_error(shared_broker: Running, topic: str) -> None:
    text = "".join(f"line {number} of very many\n" for number in range(20_000))
    ok(tidelog(shared_broker, "produce", topic, text=text))
    line, variables = command(shared_broker, "tail", topic)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"line 0 of" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


def test_what_does_not_exist_is_one_line(shared_broker: Running, topic: str) -> None:
    for verbs in (["tail"], ["offsets"], ["topics", "describe"], ["topics", "delete"]):
        done = tidelog(shared_broker, *verbs, topic)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert f"topic {topic} does not exist; " in done.stderr
    assert topic not in ok(tidelog(shared_broker, "topics", "list"))


def test_produce_without_lines_says_that_it_sent_nothing(shared_broker: Running, topic: str) -> None:
    done = tidelog(shared_broker, "produce", topic)
    assert (done.returncode, done.stdout) == (0, "0 records acknowledged\n")
    assert done.stderr == "tidelog: the input has no lines, so nothing was sent\n"


def test_a_verb_as_a_process_of_its_own(shared_broker: Running, topic: str) -> None:
    line, variables = command(shared_broker, "produce", topic)
    done = subprocess.run(line, input=b"x", capture_output=True, timeout=30, env=variables, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1 record acknowledged\n", b"")


def test_a_table_on_a_terminal(shared_broker: Running, late: str) -> None:
    line, variables = command(shared_broker, "offsets", late, "--at", "2024-03-01T09:00:10")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(line, stdout=theirs, env=variables | {"TZ": "UTC", "COLUMNS": "100"})
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:  # how a terminal says that nobody writes to it any more
        pass
    finally:
        os.close(ours)
    assert process.wait(20) == 0
    caption, titles, *_ = shown.decode().splitlines()
    assert caption == f"{late}: the first record at or after 2024-03-01T09:00:10.000+00:00"
    assert "offset" in titles


def dumped(path: Path, *options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["dump", str(path), "--json", *options])
    return rows(Done(result.exit_code, result.stdout, result.stderr))


def test_dump_of_live_files(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker()
    ok(tidelog(broker, "topics", "create", topic, "--config", "index.interval.bytes=100"))
    grown, stop = threading.Event(), threading.Event()
    with closing(KafkaProducer(bootstrap_servers=broker.address, batch_size=2000)) as to:

        def keep_sending() -> None:
            for sent in itertools.count():
                if stop.is_set():
                    return
                to.send(topic, os.urandom(50), timestamp_ms=START_MS).get(timeout=20)
                if sent == 200:
                    grown.set()

        sender = threading.Thread(target=keep_sending)
        sender.start()
        folder = broker.data_dir / f"{topic}-0"
        log = folder / f"{0:020d}.log"
        try:
            assert grown.wait(20)
            deadline = time.monotonic() + 20
            sizes: list[int] = []
            while len(sizes) < 3 or sizes[-1] == sizes[0]:
                assert time.monotonic() < deadline
                parts = [part for part in dumped(log, "--records") if part["kind"] != "torn"]
                records = [part["offset"] for part in parts if part["kind"] == "record"]
                assert records == list(range(len(records)))
                assert all(part["crc_ok"] for part in parts if part["kind"] == "batch")
                sizes.append(len(records))
            assert 0 < sizes[0] < sizes[-1]
        finally:
            stop.set()
            sender.join()
    broker.stop()
    batches = {part["position"]: part["last_offset"] for part in dumped(log)}
    entries = dumped(log.with_suffix(".index"))
    assert len(entries) > 10
    assert all(batches[entry["position"]] == entry["offset"] for entry in entries)
    assert dumped(log.with_suffix(".timeindex"))[-1]["timestamp"] == START_MS
    (summary,) = dumped(log.with_suffix(".summary"))
    assert summary["batch_count"] == len(batches)


@needs_java
@pytest.mark.java
@pytest.mark.slow
def test_the_verbs_talk_to_apache_kafka(tmp_path: Path) -> None:
    with ApacheKafka(jars(), QUICK_JVM) as kafka:
        broker: Any = kafka.start(0, tmp_path / "data", {"log.retention.ms": "-1"})
        created = ok(tidelog(broker, "topics", "create", "t", "--partitions", "2"))
        assert created == "topic t created, 2 partitions\n"
        ok(tidelog(broker, "topics", "alter", "t", "--config", "max.message.bytes=1000"))
        lines = "".join(f"key{number % 5}:{number}\n" for number in range(200))
        assert ok(tidelog(broker, "produce", "t", "--key-separator", ":", text=lines)) == (
            "200 records acknowledged\n"
        )
        too_large = tidelog(broker, "produce", "t", text="x" * 2000 + "\n")
        assert (too_large.returncode, too_large.stdout) == (1, "0 records acknowledged\n")
        assert (
            "line 1 was rejected, no more lines were read, and some after it may be on disk: larger than"
            in too_large.stderr
        )
        printed = ok(tidelog(broker, "tail", "t", "--since", "-1h", "--format", "{value}")).split()
        assert sorted(map(int, printed)) == list(range(200))
        ends = [row["end"] for row in rows(tidelog(broker, "offsets", "t", "--json"))]
        assert sum(ends) == 200
        assert [row["offset"] for row in rows(tidelog(broker, "offsets", "t", "--at", "-1h", "--json"))] == [
            0,
            0,
        ]
        made = tidelog(broker, "groups", "reset", "g", "--topic", "t:0", "--to-offset", "1", "--yes")
        assert (made.returncode, made.stdout.splitlines()[-1]) == (0, "group g set: 1 offset")
        (listed,) = rows(tidelog(broker, "groups", "list", "--json"))
        assert (listed["group"], listed["state"]) == ("g", "Empty")
        (found,) = rows(tidelog(broker, "groups", "describe", "g", "--json"))
        (row,) = found["partitions"]
        assert (row["committed"], row["lag"], row["clock"]) == (1, ends[0] - 1, "record")
        assert row["late_ms"] >= row["lag_ms"] >= 0
        behind = rows(tidelog(broker, "audit", "keys", "t", "--group", "g", "--json"))
        assert sum(each["behind"] for each in behind) == 199
        deleted = tidelog(broker, "delete-records", "t", "-p", "0", "--offset", "2", "--yes", "--json")
        assert rows(deleted) == [{"partition": 0, "start": 2}]
        sizes = rows(tidelog(broker, "log-dirs", "--topic", "t", "--json"))
        assert [each["kind"] for each in sizes] == ["partition", "partition", "log_dir"]
        options = rows(tidelog(broker, "configs", "describe", "--topic", "t", "--json"))
        assert ("max.message.bytes", "1000") in [(each["option"], each["value"]) for each in options]
        ok(tidelog(broker, "configs", "describe", "--broker", "1", "--all"))
        assert ok(tidelog(broker, "groups", "delete", "g", "--yes")) == "group g deleted\n"
        assert ok(tidelog(broker, "topics", "delete", "t", "--yes")) == "topic t deleted\n"
