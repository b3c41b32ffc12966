"""`tidelog audit keys` against a running broker, on what kafka-python sent and committed."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.e2e.test_cli_groups import START_MS, commit
from tests.support.broker import Broker, Running
from tests.support.command import ok, rows, tidelog
from tidelog.cli.exit_codes import FAILED, USAGE
from tidelog.client import fetching

pytestmark = pytest.mark.e2e

SENT = [(0, b"a"), (0, b"b"), (0, b"a"), (1, b"a"), (0, None), (0, b"\xff\x00"), (1, b"c"), (0, b"b")]


@pytest.fixture
def sent(shared_broker: Running, topic: str) -> str:
    """A topic, and the name of a group that has read two records of its first partition."""
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", "2"))
    with closing(KafkaProducer(bootstrap_servers=shared_broker.address)) as to:
        for number, (partition, key) in enumerate(SENT):
            to.send(topic, b"value", key, partition=partition, timestamp_ms=START_MS + number)
        to.flush()
    commit(shared_broker, topic, topic, 2)
    return topic


def audit(broker: Running, topic: str, *arguments: str) -> list[dict[str, object]]:
    return rows(tidelog(broker, "audit", "keys", topic, "--group", topic, "--json", *arguments))


@pytest.mark.parametrize("most_bytes", [fetching.MOST_BYTES, 1])
def test_S101_each_key_that_is_behind_is_a_line(
    shared_broker: Running, sent: str, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(fetching, "LEAST_BYTES", min(most_bytes, fetching.LEAST_BYTES))
    before_ms = time.time_ns() // 1_000_000
    found = audit(shared_broker, sent)
    for row, number in zip(found, (2, 4, 5, 7, 3, 6), strict=True):
        waits_ms = row.pop("behind_ms")
        assert isinstance(waits_ms, int)
        assert 0 <= waits_ms - (before_ms - START_MS - number) < 60_000
    assert found == [
        {"partition": 0, "key": "a", "produced_offset": 2, "delivered_offset": 0, "behind": 1},
        {"partition": 0, "key": None, "produced_offset": 3, "delivered_offset": None, "behind": 1},
        {"partition": 0, "key_base64": "/wA=", "produced_offset": 4, "delivered_offset": None, "behind": 1},
        {"partition": 0, "key": "b", "produced_offset": 5, "delivered_offset": 1, "behind": 1},
        {"partition": 1, "key": "a", "produced_offset": 0, "delivered_offset": None, "behind": 1},
        {"partition": 1, "key": "c", "produced_offset": 1, "delivered_offset": None, "behind": 1},
    ]
    assert [row["key"] for row in audit(shared_broker, sent, "--partition", "1", "--memory", "1")] == [
        "a",
        "c",
    ]
    commit(shared_broker, sent, sent, 6, 2)
    assert audit(shared_broker, sent) == []


def test_without_json_it_is_a_table_and_a_sum(
    shared_broker: Running, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ok(tidelog(shared_broker, "audit", "keys", sent, "--group", sent)).splitlines()
    assert told[0].split() == ["partition", "key", "produced", "delivered", "behind", "waits"]
    assert told[1].split()[:5] == ["0", "a", "2", "0", "1"]
    assert told[-1] == "6 keys behind, by 6 records"
    monkeypatch.setattr("tidelog.cli.audit.SHOWN", 2)
    told = ok(tidelog(shared_broker, "audit", "keys", sent, "--group", sent)).splitlines()
    assert [line.split()[:2] for line in told[1:-1]] == [["0", "a"], ["1", "a"]]
    assert told[-1] == "6 keys behind, by 6 records; the 2 that wait longest are shown"
    commit(shared_broker, sent, sent, 6, 2)
    assert (
        ok(tidelog(shared_broker, "audit", "keys", sent, "--group", sent)) == "0 keys behind, by 0 records\n"
    )


def test_what_is_not_there_is_said(shared_broker: Running, sent: str) -> None:
    for words, status, why in (
        ([sent, "--group", "nobody"], FAILED, "group nobody does not exist"),
        (["nothing", "--group", sent], FAILED, "topic nothing does not exist"),
        ([sent, "--group", sent, "-p", "7"], FAILED, "has no partition 7"),
        ([sent], USAGE, "Missing option '--group'"),
    ):
        done = tidelog(shared_broker, "audit", "keys", *words)
        assert done.returncode == status
        assert why in done.stderr


def test_what_was_delivered_and_is_deleted_is_told(shared_broker: Running, sent: str) -> None:
    ok(tidelog(shared_broker, "delete-records", sent, "-p", "0", "--offset", "2", "--yes"))
    found = {row.get("key"): row for row in audit(shared_broker, sent, "-p", "0")}
    assert (found["a"]["delivered_offset"], found["a"]["delivered"]) == (None, "deleted")


def test_damage_ends_it(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", {"log.retention.ms": "-1"}) as broker:
        broker.start()
        with closing(KafkaProducer(bootstrap_servers=broker.address)) as to:
            for number in range(3):
                to.send("t", b"value", b"k%d" % number, partition=0).get(10)
        commit(broker, "g", "t", 1)
        broker.stop()
        (log,) = (tmp_path / "data" / "t-0").glob("*.log")
        data = bytearray(log.read_bytes())
        data[-3] ^= 1
        log.write_bytes(data)
        broker.start()
        done = tidelog(broker, "audit", "keys", "t", "--group", "g", "--json")
        assert done.returncode == FAILED
        assert "partition 0 of t is damaged at offset" in done.stderr
        broker.stop()
