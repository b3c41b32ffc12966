"""What dashboards ask for when they start and for their main pages, by the client that each is built on.

Kafbat UI, AKHQ and Kafdrop are built on Apache's Java clients, Redpanda Console and kminion on franz-go. The calls are
theirs, and so is what the answers are taken for.
"""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.support.broker import Running
from tests.support.builds import go_built, needs_go
from tests.support.java import needs_java, run_java

pytestmark = pytest.mark.e2e

RECORDS = 10
COMMITTED = 6


class Shown(NamedTuple):
    """What a dashboard has to show: a topic, and a group with one member that has read a part of it."""

    broker: Running
    topic: str
    group: str


@pytest.fixture
def shown(shared_broker: Running, topic: str) -> Iterator[Shown]:
    address, group = shared_broker.address, f"{topic}-group"
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "-1"})])
    with closing(KafkaProducer(bootstrap_servers=address)) as to:
        for number in range(RECORDS):
            to.send(topic, b"%d" % number, partition=number % 2)
        to.flush()
    member = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=COMMITTED,
    )
    with closing(member):
        read = 0
        while read < COMMITTED:
            polled = member.poll(timeout_ms=5000, max_records=COMMITTED - read)
            assert polled, "the member was given nothing"
            read += sum(map(len, polled.values()))
        member.commit()
        yield Shown(shared_broker, topic, group)


def told(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def java(dashboard: str, shown: Shown) -> dict[str, str]:
    done = run_java("Dashboards", dashboard, shown.broker.address, shown.topic, shown.group)
    assert done.returncode == 0, done.stderr
    return told(done.stdout)


@cache
def go_program() -> Path:
    return go_built("dashboards", Path(__file__).with_name("dashboards"))


def go(dashboard: str, shown: Shown) -> dict[str, str]:
    command = [str(go_program()), dashboard, shown.broker.address, shown.topic, shown.group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return told(done.stdout)


@needs_java
@pytest.mark.java
def test_kafbat_sees_a_cluster_without_zookeeper(shown: Shown) -> None:
    assert java("kafbat", shown) == {
        "version.of.older.releases": "4.0-IV3",
        "version": "4.0-IV3",
        "topic.deletion": "true",
        "acls": "false",
        "controller.type": "KRAFT, 1 voter, leads true, lag 0",
        "may.alter": "true",
        "nodes": "1",
        "bytes.on.disk": "true",
        "topic.config.has.documentation": "true",
        "topic.config.synonyms": "3",
        "topic.producers": "2",
        "records": str(RECORDS),
        "groups": "1",
        "group.state": "Stable",
        "group.reads": "[0, 1]",
        "committed": str(COMMITTED),
        "quotas": "0",
    }


@needs_java
@pytest.mark.java
def test_akhq_shows_its_pages(shown: Shown) -> None:
    assert java("akhq", shown) == {
        "cluster.is.named": "true",
        "controller.is.a.node": "true",
        "bytes.on.disk": "true",
        "replicas": "1",
        "broker.configs": "true",
        "retention.ms": "-1",
        "groups": "1",
        "group.state": "Stable",
        "group.reads": "[0, 1]",
        "committed": str(COMMITTED),
        "acls": "false",
        "records": f"{RECORDS} of {RECORDS}",
    }


@needs_java
@pytest.mark.java
def test_kafdrop_shows_its_pages(shown: Shown) -> None:
    assert java("kafdrop", shown) == {
        "controller": "1",
        "retention.ms": "-1",
        "groups": "1",
        "committed": str(COMMITTED),
        "acls": "false",
        "in.sync": "true",
        "offline": "false",
        "records": f"{RECORDS} of {RECORDS}",
    }


@needs_go
def test_redpanda_console_shows_its_pages(shown: Shown) -> None:
    assert go("console", shown) == {
        "missing": "[create or delete users]",
        "cluster.is.named": "true",
        "controller": "1",
        "partitions.hurt": "0",
        "acls": "false",
        "bytes.on.disk": "true",
        "broker.configs": "true",
        "retention.ms": "-1",
        "records": str(RECORDS),
        "group.state": "Stable",
        "lag": str(RECORDS - COMMITTED),
        "reassignments": "0",
        "quotas": "0",
        "users": "0",
        "quorum": "leader 1 of 1",
    }


@needs_go
def test_kminion_exports_its_figures(shown: Shown) -> None:
    assert go("kminion", shown) == {
        "log.dirs": "true",
        "group": "Stable consumer 1",
        "group.reads": "[0 1]",
        "committed": str(COMMITTED),
        "offsets": "map[0:0 1:0] to map[0:5 1:5]",
        "committed.by.topic": str(COMMITTED),
    }
