"""The verbs of an operator against a running broker."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.broker import Broker, Running
from tests.support.command import ok, rows, tidelog
from tidelog.cli import top as cli_top
from tidelog.cli.exit_codes import FAILED
from tidelog.client.cluster import Cluster

pytestmark = pytest.mark.e2e


def test_the_doctor_looks_at_the_machine_the_broker_and_its_folder(
    shared_broker: Running, topic: str
) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic))
    found = {row["check"]: row for row in rows(tidelog(shared_broker, "doctor", "--json"))}
    assert list(found) == [
        "compiled",
        "clock",
        "reachable",
        "partitions",
        "disk",
        "flush",
        "file system",
        "descriptors",
    ]
    assert shared_broker.address in found["reachable"]["found"]
    assert {found[check]["state"] for check in ("reachable", "partitions")} == {"ok"}
    lines = ok(tidelog(shared_broker, "doctor")).splitlines()
    assert len(lines) == len(found)
    assert {line.split()[0] for line in lines} <= {"ok", "warning"}


def test_the_doctor_names_a_broker_that_does_not_answer_and_a_folder_that_is_missing(
    shared_broker: Running, tmp_path: Path
) -> None:
    for words in (
        ["--bootstrap", "127.0.0.1:1"],
        ["--data-dir", tmp_path / "none"],
        ["--data-dir", __file__],
    ):
        done = tidelog(shared_broker, "doctor", *words)
        assert (done.returncode, done.stderr) == (FAILED, "")
        assert done.stdout.splitlines()[-1].startswith("problem  ")
    before = list(tmp_path.iterdir())
    ok(tidelog(shared_broker, "doctor", "--data-dir", tmp_path))
    assert list(tmp_path.iterdir()) == before


def test_a_long_list_has_the_contents_of_each_topic(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", "2"))
    plain = {row["topic"]: row for row in rows(tidelog(shared_broker, "topics", "list", "--json"))}
    empty = {row["topic"]: row for row in rows(tidelog(shared_broker, "topics", "list", "-l", "--json"))}
    assert empty[topic] == plain[topic] | {"records": 0, "bytes": 0, "max_timestamp": None}
    lines = "".join(
        f'{{"value": "x", "partition": {n % 2}, "timestamp": {1_700_000_000_000 + n}}}\n' for n in range(5)
    )
    ok(tidelog(shared_broker, "produce", topic, "--json", text=lines))
    full = {row["topic"]: row for row in rows(tidelog(shared_broker, "topics", "list", "-l", "--json"))}[
        topic
    ]
    assert (full["partitions"], full["records"], full["max_timestamp"]) == (2, 5, 1_700_000_000_004)
    assert full["bytes"] > 0
    (line,) = [
        line
        for line in ok(tidelog(shared_broker, "topics", "list", "-l")).splitlines()
        if line.split()[0] == topic
    ]
    assert line.split()[1:3] == ["2", "5"]
    assert line.endswith(" ago")


def test_the_level_of_the_log_changes_while_the_broker_runs_and_its_form_at_a_start(
    new_broker: Callable[..., Broker],
) -> None:
    broker = new_broker(overrides={"log.format": "json"})
    to_error = ("configs", "alter", "--broker", "1", "--config", "log.level=error")
    ok(tidelog(broker, *to_error))
    ok(tidelog(broker, "topics", "create", "unseen"))
    ok(tidelog(broker, "configs", "alter", "--broker", "1", "--delete-config", "log.level"))
    ok(tidelog(broker, "topics", "create", "seen"))
    events = [json.loads(line)["message"] for line in broker.printed.splitlines() if line.startswith("{")]
    assert any("topic created topic=seen" in event for event in events)
    assert not any("unseen" in event for event in events)
    wrong = tidelog(broker, *to_error[:-1], "log.level=loud")
    assert (wrong.returncode, "must be one of: debug, info" in wrong.stderr) == (FAILED, True)


def test_a_diff_has_the_options_of_brokers_and_topics_that_were_set_and_their_defaults(
    new_broker: Callable[..., Broker],
) -> None:
    broker = new_broker(overrides={"num.partitions": "3"})
    ok(tidelog(broker, "topics", "create", "plain"))
    ok(tidelog(broker, "topics", "create", "short", "--config", "retention.ms=5"))
    ok(tidelog(broker, "configs", "alter", "--broker", "1", "--config", "log.segment.bytes=2000000"))
    found = {(row["of"], row["option"]): row for row in rows(tidelog(broker, "configs", "diff", "--json"))}
    topics = [key for key in found if key[0].startswith("topic")]
    assert topics == [("topic short", "retention.ms")]
    of_topic = found["topic short", "retention.ms"]
    assert (of_topic["value"], of_topic["source"]) == ("5", "topic")
    assert of_topic["default"] == "log.retention.hours=168"
    given, set_later = found["broker 1", "num.partitions"], found["broker 1", "log.segment.bytes"]
    assert (given["value"], given["default"], given["source"]) == ("3", "1", "broker")
    assert (set_later["value"], set_later["default"]) == ("2000000", str(1 << 30))
    assert set_later["source"] == "dynamic broker"
    assert "short" in ok(tidelog(broker, "configs", "diff"))


def test_top_has_the_rate_of_topics_and_the_lag_of_groups(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "produce", topic, text="a\nb\nc\n"))
    reset = tidelog(shared_broker, "groups", "reset", topic, "--topic", topic, "--to-offset", "1", "--yes")
    assert reset.returncode == 0
    looks = rows(tidelog(shared_broker, "top", "--interval", "1", "--count", "2", "--json"))
    of_topic = [row for row in looks if (row["kind"], row["name"]) == ("topic", topic)]
    of_group = [row for row in looks if (row["kind"], row["name"]) == ("group", topic)]
    assert [(row["records_per_s"], row["bytes"] > 0, row["lag"]) for row in of_topic] == [(0, True, None)] * 2
    assert [(row["records_per_s"], row["bytes"], row["lag"]) for row in of_group] == [(0, None, 2)] * 2
    table = ok(tidelog(shared_broker, "top", "--interval", "1", "--count", "1"))
    assert table.split()[:3] == ["kind", "name", "records/s"]
    assert topic in table


def test_top_has_the_rates_of_clients(shared_broker: Running, topic: str) -> None:
    with Cluster([(shared_broker.host, shared_broker.port)], topic) as cluster:
        cluster.metadata([])
        looks = rows(tidelog(shared_broker, "top", "--interval", "1", "--count", "1", "--json"))
        (silent,) = [row for row in looks if (row["kind"], row["name"]) == ("client", topic)]
        (itself,) = [row for row in looks if (row["kind"], row["name"]) == ("client", "tidelog-cli")]
        lines = ok(tidelog(shared_broker, "top", "--interval", "1", "--count", "1")).splitlines()
    assert (silent["address"], silent["connections"], silent["requests_per_s"]) == ("127.0.0.1", 1, 0)
    assert (silent["received_bytes_per_s"], silent["bytes"] > 0) == (0, True)
    assert looks.index(itself) < looks.index(silent)
    assert min(itself[f"{what}_per_s"] for what in ("requests", "received_bytes", "sent_bytes")) > 0
    assert [line.split()[:3] for line in lines if line.startswith(topic)] == [[topic, "127.0.0.1", "1"]]


def test_top_counts_what_came_between_two_looks_and_sorts_by_it(
    shared_broker: Running, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, idle, now = f"{topic}-z", f"{topic}-a", [0.0]

    def reset(group: str, offset: int) -> None:
        words = ("groups", "reset", group, "--topic", group, "--to-offset", str(offset), "--yes")
        assert tidelog(shared_broker, *words).returncode == 0

    for name in (busy, idle):
        ok(tidelog(shared_broker, "produce", name, text="a\nb\nc\n"))
        reset(name, 1)

    def sleep(seconds: float) -> None:
        if not now[0]:
            ok(tidelog(shared_broker, "produce", busy, text="d\n" * 8))
            reset(busy, 5)
        now[0] += seconds

    monkeypatch.setattr(cli_top, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
    looks = rows(tidelog(shared_broker, "top", "--interval", "4", "--count", "2", "--json"))
    moments = sorted({row["time"] for row in looks})
    assert len(moments) == 2
    for moment, of_busy in zip(moments, (2, 0), strict=True):
        found = [row for row in looks if row["time"] == moment and row["name"] in (busy, idle)]
        topics = [(row["name"], row["records_per_s"]) for row in found if row["kind"] == "topic"]
        assert topics == ([(busy, 2), (idle, 0)] if of_busy else [(idle, 0), (busy, 0)])
        groups = [(row["name"], row["records_per_s"], row["lag"]) for row in found if row["kind"] == "group"]
        assert groups == [(busy, of_busy / 2, 6), (idle, 0, 2)]
