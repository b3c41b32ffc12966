"""`tidelog groups` against a running broker, and groups of kafka-python's consumers."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.support.broker import Running
from tests.support.command import Done, ok, rows, tidelog
from tidelog.pipeline.jobs import lag
from tidelog.pipeline.jobs.parts.committed import Reads

pytestmark = pytest.mark.e2e

START_MS = 1_709_283_600_000  # 2024-03-01 09:00 UTC
EACH = 10  # records of each partition, a minute apart; partition 1 an hour later


def make(broker: Running, topic: str, *options: str) -> None:
    given = [word for option in options for word in ("--config", option)]
    ok(tidelog(broker, "topics", "create", topic, "--partitions", "2", *given))
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as to:
        for partition in range(2):
            for number in range(EACH):
                at_ms = START_MS + partition * 3_600_000 + number * 60_000
                to.send(topic, b"value", partition=partition, timestamp_ms=at_ms)
        to.flush()


def commit(broker: Running, group: str, topic: str, *offsets: int) -> None:
    """Commit an offset of partition 0, of 1, ... without becoming a member."""
    with closing(KafkaConsumer(bootstrap_servers=broker.address, group_id=group)) as simple:
        given = {TopicPartition(topic, n): OffsetAndMetadata(each, "", -1) for n, each in enumerate(offsets)}
        simple.assign(list(given))
        simple.commit(given)


@contextmanager
def member(broker: Running, group: str, topic: str) -> Iterator[KafkaConsumer]:
    """Be a member of a group, with every partition assigned."""
    # It assigns itself nothing where it has not heard of the partitions, until it asks for them again.
    settings = {"client_id": "reader", "enable_auto_commit": False, "metadata_max_age_ms": 200}
    with closing(KafkaConsumer(bootstrap_servers=broker.address, group_id=group, **settings)) as joined:
        joined.subscribe([topic])
        until = time.monotonic() + 30
        while len(joined.assignment()) < 2 and time.monotonic() < until:
            joined.poll(100)
        yield joined


def committed(broker: Running, group: str) -> list[int | None]:
    return [row["committed"] for row in described(broker, group)["partitions"]]


def described(broker: Running, group: str) -> dict[str, Any]:
    (found,) = rows(tidelog(broker, "groups", "describe", group, "--json"))
    return found


@pytest.fixture
def sent(shared_broker: Running, topic: str) -> str:
    """A topic of two partitions and the name of a group, which has read on to 3 and to the end."""
    make(shared_broker, topic)
    commit(shared_broker, topic, topic, 3, EACH)
    return topic


def reset(broker: Running, group: str, *arguments: str, text: str = "") -> Done:
    return tidelog(broker, "groups", "reset", group, *arguments, text=text)


def test_a_group_is_listed_and_its_lag_is_told_in_records_and_in_time(
    shared_broker: Running, sent: str
) -> None:
    listed = {row["group"]: row for row in rows(tidelog(shared_broker, "groups", "list", "--json"))}
    assert listed[sent] == {"group": sent, "state": "Empty", "type": "classic", "protocol_type": ""}
    before_ms = time.time_ns() // 1_000_000
    found = described(shared_broker, sent)
    assert (found["state"], found["type"], found["members"]) == ("Empty", "classic", [])
    first, second = found["partitions"]
    late_ms = first.pop("late_ms")
    assert 0 <= late_ms - (before_ms - START_MS - 3 * 60_000) < 60_000
    assert first == {
        "topic": sent,
        "partition": 0,
        "committed": 3,
        "end": EACH,
        "lag": 7,
        "lag_ms": 6 * 60_000,  # from the record that is next to the last one
        "past_end": 0,
        "clock": "record",
        "member": None,
    }
    assert [second[name] for name in ("lag", "lag_ms", "late_ms")] == [0, 0, 0]
    told = ok(tidelog(shared_broker, "groups", "describe", sent)).splitlines()
    assert told[0] == f"group {sent}, Empty, type classic, protocol -"
    assert told[2].split()[:6] == [sent, "0", "3", "10", "7", "6m"]
    assert told[-1] == "0 members"


def test_an_offset_past_the_end_is_told_as_such(shared_broker: Running, sent: str) -> None:
    commit(shared_broker, sent, sent, EACH + 16, EACH)
    first, second = described(shared_broker, sent)["partitions"]
    assert [first[name] for name in ("past_end", "lag", "lag_ms", "late_ms")] == [16, None, None, None]
    assert (second["past_end"], second["lag"]) == (0, 0)
    told = ok(tidelog(shared_broker, "groups", "describe", sent))
    assert (
        f"{sent}-0: the committed offset is 16 past the end: the log was cut, or the topic was created again"
        in told
    )
    assert f"{sent}-1: " not in told
    # The job asks the broker by the same API.
    wanted = {Reads(sent, sent, 0): EACH + 16, Reads(sent, sent, 1): EACH}
    found = list(lag.at_broker(shared_broker.address, wanted, "record", START_MS))
    assert [(row["lag"], row["lag_s"], row["past_end"]) for row in found] == [(None, None, 16), (0, 0.0, 0)]


def test_lag_by_append_time_is_that_of_the_appends(shared_broker: Running, topic: str) -> None:
    make(shared_broker, topic, "lookup.clock=append")
    with closing(KafkaProducer(bootstrap_servers=shared_broker.address)) as to:
        to.send(topic, b"later", partition=0, timestamp_ms=START_MS).get()
    commit(shared_broker, topic, topic, 3, EACH)
    first, second = described(shared_broker, topic)["partitions"]
    assert (first["clock"], first["lag"], second["lag_ms"]) == ("append", 8, 0)
    assert 0 < first["lag_ms"] <= first["late_ms"] < 60_000


def test_of_a_topic_without_times_the_lag_is_known_in_records_alone(
    shared_broker: Running, sent: str
) -> None:
    bare = f"{sent}-bare"
    make(shared_broker, bare, "message.format.version=0")
    commit(shared_broker, sent, bare, 1)
    *others, found = described(shared_broker, sent)["partitions"]
    assert [row["lag_ms"] for row in others] == [6 * 60_000, 0]
    assert (found["topic"], found["committed"], found["lag"]) == (bare, 1, EACH - 1)
    assert (found["lag_ms"], found["late_ms"]) == (None, None)
    line = ok(tidelog(shared_broker, "groups", "describe", sent)).splitlines()[4]
    assert line.split() == [bare, "0", "1", str(EACH), str(EACH - 1), "-", "-", "record", "-"]
    refused = reset(shared_broker, sent, "--topic", sent, "--topic", bare, "--to-time", "-1h", "--yes")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"tidelog: topic {bare} has no timestamps: ")
    assert committed(shared_broker, sent) == [3, EACH, 1]


def test_the_members_of_a_group_are_named_and_keep_it_from_being_reset_or_deleted(
    shared_broker: Running, sent: str
) -> None:
    with member(shared_broker, sent, sent):
        found = described(shared_broker, sent)
        (one,) = found["members"]
        assert (found["state"], found["assignor"], found["protocol_type"]) == ("Stable", "range", "consumer")
        assert (one["client_id"], one["instance"]) == ("reader", None)
        assert one["assignment"] == [{"topic": sent, "partitions": [0, 1]}]
        assert [row["member"] for row in found["partitions"]] == [one["member"]] * 2
        assert f"{sent}:0,1" in ok(tidelog(shared_broker, "groups", "describe", sent))
        who = f"it has 1 member: reader at {one['host']} ({one['member']})"
        for verb, done in (
            (["reset", sent, "--all-topics", "--to-offset", "earliest"], "reset"),
            (["delete", sent], "deleted"),
        ):
            refused = tidelog(shared_broker, "groups", *verb, "--yes")
            words = f"tidelog: group {sent} was not {done}: {who}; stop them first\n"
            assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", words)
        planned = reset(shared_broker, sent, "--all-topics", "--to-offset", "earliest", "--dry-run")
        assert (planned.returncode, planned.stderr) == (
            0,
            f"tidelog: group {sent} would not be reset now: {who}\n",
        )
        assert committed(shared_broker, sent) == [3, EACH]


def test_a_member_of_the_newer_protocol_is_named_too(shared_broker: Running, sent: str) -> None:
    group = f"{sent}-new"
    settings = {
        "bootstrap.servers": shared_broker.address,
        "group.id": group,
        "group.protocol": "consumer",
        "client.id": "newer",
    }
    with closing(Consumer(settings)) as joined:
        joined.subscribe([sent])
        until = time.monotonic() + 30
        while not joined.assignment() and time.monotonic() < until:
            joined.poll(0.1)
        found = described(shared_broker, group)
        (one,) = found["members"]
        assert (found["state"], found["type"], found["assignor"]) == ("Stable", "consumer", "uniform")
        assert (one["client_id"], one["assignment"]) == ("newer", [{"topic": sent, "partitions": [0, 1]}])
        refused = reset(shared_broker, group, "--topic", sent, "--to-offset", "1", "--yes")
        assert refused.returncode == 1
        assert f"group {group} was not reset: it has 1 member: newer at " in refused.stderr


def test_a_reset_shows_its_plan_and_asks(shared_broker: Running, sent: str) -> None:
    how = ("--topic", sent, "--to-offset", "5")
    plan = [
        f"group {sent}: to offset 5",
        "topic partition from to skipped read again",
        f"{sent} 0 3 5 2 0",
        f"{sent} 1 10 5 0 5",
    ]

    def lines(done: Done) -> list[str]:
        return [" ".join(line.split()) for line in done.stdout.splitlines()]

    assert lines(reset(shared_broker, sent, *how, "--dry-run")) == plan
    kept = reset(shared_broker, sent, *how, text="n\n")
    assert (kept.returncode, lines(kept)) == (1, [*plan, f"group {sent} kept"])
    assert kept.stderr == f"Set 2 offsets of group {sent}? [y/N] "
    assert committed(shared_broker, sent) == [3, EACH]
    done = reset(shared_broker, sent, *how, text="y\n")
    assert (done.returncode, lines(done)) == (0, [*plan, f"group {sent} set: 2 offsets"])
    assert committed(shared_broker, sent) == [5, 5]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--to-offset", "earliest"], [0, 0]),
        (["--to-offset", "latest"], [EACH, EACH]),
        (["--shift-by", "-2"], [1, EACH - 2]),
        # Between two records of partition 0: the later one. All of partition 1 is later still.
        (["--to-time", f"@{START_MS + 5 * 60_000 + 1}"], [6, 0]),
        (["--to-time", f"@{START_MS + 3_600_000 + 60_000}"], [EACH, 1]),
        (["--by-duration", "9000w"], [0, 0]),
        (["--by-duration", "1h"], [EACH, EACH]),
    ],
)
def test_where_a_reset_leads(shared_broker: Running, sent: str, how: list[str], expected: list[int]) -> None:
    plan = rows(reset(shared_broker, sent, "--all-topics", *how, "--yes", "--json"))
    assert [(row["old"], row["new"]) for row in plan] == list(zip((3, EACH), expected, strict=True))
    assert [row["skipped"] - row["read_again"] for row in plan] == [expected[0] - 3, expected[1] - EACH]
    assert committed(shared_broker, sent) == expected


def test_a_reset_by_time_says_which_record_it_found_and_by_which_clock(
    shared_broker: Running, sent: str
) -> None:
    first, second = rows(
        reset(
            shared_broker,
            sent,
            "--topic",
            sent,
            "--to-time",
            f"@{START_MS + 3_500_000}",
            "--dry-run",
            "--json",
        )
    )
    assert (first["new"], first["clock"], first["timestamp"]) == (EACH, "record", None)
    assert (second["new"], second["clock"], second["timestamp"]) == (0, "record", START_MS + 3_600_000)
    told = ok(
        reset(
            shared_broker, sent, "--topic", f"{sent}:0", "--to-time", f"@{START_MS + 3_500_000}", "--dry-run"
        )
    )
    assert told.splitlines()[-1].endswith("record      none at or after")


def test_a_reset_by_time_goes_by_append_time_where_the_topic_does(shared_broker: Running, topic: str) -> None:
    make(shared_broker, topic, "lookup.clock=append")
    commit(shared_broker, topic, topic, 3, 3)
    # Long before the appends, and long after what the records bear.
    plan = rows(reset(shared_broker, topic, "--all-topics", "--by-duration", "1h", "--yes", "--json"))
    assert [(row["new"], row["clock"]) for row in plan] == [(0, "append"), (0, "append")]
    assert committed(shared_broker, topic) == [0, 0]


def test_an_offset_that_is_not_there_is_said_to_be_another(shared_broker: Running, sent: str) -> None:
    done = reset(shared_broker, sent, "--topic", f"{sent}:1", "--to-offset", "99", "--yes", "--json")
    assert done.stderr == f"tidelog: {sent}-1: offset 99 is not in 0 to 10; using 10\n"
    assert committed(shared_broker, sent) == [3, EACH]


def test_a_group_can_be_made_where_it_is_to_begin(shared_broker: Running, sent: str) -> None:
    group = f"{sent}-new"
    missing = reset(shared_broker, group, "--all-topics", "--to-offset", "earliest", "--yes")
    assert (missing.returncode, missing.stderr.count("does not exist")) == (1, 1)
    done = reset(shared_broker, group, "--topic", f"{sent}:0", "--to-offset", "4", "--yes", "--json")
    assert done.stderr == f"tidelog: group {group} does not exist; the first offset creates it\n"
    assert '"old": null, "new": 4, "skipped": null, "read_again": null' in done.stdout
    assert committed(shared_broker, group) == [4]
    shifted = reset(shared_broker, group, "--topic", sent, "--shift-by", "1", "--yes")
    assert shifted.returncode == 1
    assert f"partition 1 of {sent} has no committed offset" in shifted.stderr


def test_what_a_reset_cannot_mean(shared_broker: Running, sent: str) -> None:
    gone = reset(shared_broker, sent, "--topic", f"{sent}:7", "--to-offset", "4")
    assert (gone.returncode, gone.stderr) == (
        1,
        f"tidelog: topic {sent} has no partition 7; it has 2 partitions, from 0 on\n",
    )
    gone = reset(shared_broker, sent, "--topic", f"{sent}-not", "--to-offset", "4")
    assert (gone.returncode, gone.stderr.count("does not exist")) == (1, 1)


def test_what_is_wrong_with_the_name_of_a_group_is_said(shared_broker: Running, sent: str) -> None:
    to = ["--topic", sent, "--to-offset", "4", "--yes"]
    for verb in (["reset", *to], ["describe"], ["delete"]):
        done = tidelog(shared_broker, "groups", verb[0], "é" * 16_384, *verb[1:])
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "has 32,768 bytes; the protocol allows 32,767" in done.stderr
    longest = "x" * 32_767
    assert reset(shared_broker, longest, *to).returncode == 0
    ok(tidelog(shared_broker, "groups", "delete", longest, "--yes"))


def test_a_group_is_deleted_after_a_yes(shared_broker: Running, sent: str) -> None:
    kept = tidelog(shared_broker, "groups", "delete", sent, text="\n")
    assert (kept.returncode, kept.stdout) == (1, f"group {sent} kept\n")
    assert ok(tidelog(shared_broker, "groups", "delete", sent, "--yes")) == f"group {sent} deleted\n"
    for verb in ("describe", "delete"):
        gone = tidelog(shared_broker, "groups", verb, sent)
        assert (gone.returncode, gone.stdout) == (1, "")
        assert gone.stderr == f"tidelog: group {sent} does not exist; tidelog groups list shows all groups\n"
    commit(shared_broker, sent, sent, 1)
    (told,) = rows(tidelog(shared_broker, "groups", "delete", sent, "--yes", "--json"))
    assert told == {"group": sent, "deleted": True}


def test_what_was_deleted_is_no_lag(shared_broker: Running, sent: str) -> None:
    ok(tidelog(shared_broker, "delete-records", sent, "-p", "0", "--offset", "6", "--yes"))
    first, _ = described(shared_broker, sent)["partitions"]
    assert (first["committed"], first["lag"], first["lag_ms"]) == (3, 4, 3 * 60_000)


def test_who_has_committed_is_shown_and_several_groups_are_deleted_at_once(
    shared_broker: Running, sent: str
) -> None:
    for number in range(12):
        commit(shared_broker, f"{sent}-flood-{number}", sent, 1, 2)
    listed = {row["group"]: row for row in rows(tidelog(shared_broker, "groups", "list", "--held", "--json"))}
    one = listed[f"{sent}-flood-3"]
    assert (one["state"], one["offsets"], one["address"]) == ("Empty", 2, "127.0.0.1")
    assert 2000 < one["held_bytes"] < 4000
    assert 0 <= time.time() * 1000 - one["committed_ms"] < 60_000
    told = ok(tidelog(shared_broker, "groups", "list", "--held")).splitlines()
    assert told[0].split() == [
        "group",
        "state",
        "offsets",
        "held",
        "bytes",
        "committed",
        "by",
        "last",
        "commit",
    ]

    with member(shared_broker, f"{sent}-flood-5", sent):
        nobodys = ("groups", "delete", f"{sent}-flood-*", "--address", "10.1.2.3", "--yes")
        refused = tidelog(shared_broker, *nobodys)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "no group without members matches" in refused.stderr
        kept = tidelog(shared_broker, "groups", "delete", f"{sent}-flood-?", text="n\n")
        assert (kept.returncode, kept.stdout) == (1, "9 groups kept\n")
        done = tidelog(shared_broker, "groups", "delete", f"{sent}-flood-1*", f"{sent}-flood-5", "--yes")
        assert done.returncode == 0
        assert done.stdout.splitlines() == [f"group {sent}-flood-{n} deleted" for n in (1, 10, 11)]
        assert done.stderr == "tidelog: 1 group with members not deleted; stop them first\n"
    ok(tidelog(shared_broker, "groups", "delete", f"{sent}-flood-*", "--address", "127.0.0.1", "--yes"))
    left = [row["group"] for row in rows(tidelog(shared_broker, "groups", "list", "--json"))]
    assert [group for group in left if group.startswith(f"{sent}-flood-")] == []
