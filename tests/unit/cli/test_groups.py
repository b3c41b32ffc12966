"""How far behind a group is in time, and what a plan of `groups reset` says, against a broker of a few lines."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tidelog.cli import client, group_reset, groups, lag
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, UNREACHABLE
from tidelog.cli.lag import Lag, in_time

NOW_MS = 1_000_000


class Key(NamedTuple):
    topic: str
    partition: int = 0


T = Key("t")


class Broker:
    """Both sessions, on logs of (offset, record time, append time); `ends` are past them where records were taken."""

    def __init__(self, logs: Mapping[Key, Sequence[tuple[int, int, int]]], end: int) -> None:
        self.logs, self.end = logs, end
        self.positions: dict[Key, int] = {}
        self.paused: set[Key] = set()
        self.damaged: set[Key] = set()
        self.questions = 0
        self._fetcher = SimpleNamespace(damaged={}, refused=set())

    def assign(self, keys: Sequence[Key]) -> None:
        self.positions = dict.fromkeys(keys, 0)

    def pause(self, *keys: Key) -> None:
        self.paused |= set(keys)

    def resume(self, *keys: Key) -> None:
        self.paused -= set(keys)

    def seek(self, key: Key, offset: int) -> None:
        self.positions[key] = offset

    def position(self, key: Key) -> int:
        return self.positions[key]

    def poll(self, _timeout_ms: int) -> dict[Key, list[Any]]:
        found = {}
        for key in self.positions.keys() - self.paused:
            if key in self.damaged:
                self._fetcher.damaged[key] = self.positions[key]
                continue
            records = [
                SimpleNamespace(offset=offset, timestamp=record_ms)
                for offset, record_ms, _ in self.logs[key]
                if offset >= self.positions[key]
            ]
            self.positions[key] = self.end
            if records:
                found[key] = records
        return found

    def list_partition_offsets(self, wanted: Mapping[Key, int]) -> dict[Key, Any]:
        self.questions += 1
        return {
            key: next(
                (
                    SimpleNamespace(offset=offset, timestamp=append_ms)
                    for offset, _, append_ms in self.logs[key]
                    if append_ms >= at_ms
                ),
                SimpleNamespace(offset=-1, timestamp=-1),
            )
            for key, at_ms in wanted.items()
        }


def lag_of(log: Sequence[tuple[int, int, int]], position: int, end: int = 10, clock: str = "record") -> Lag:
    broker = Broker({T: log}, end)
    by_append = frozenset({T.topic} if clock == "append" else ())
    (found,) = in_time(broker, broker, {T: position}, {T: end}, by_append, NOW_MS).values()
    return found


LOG = [(0, 5_000, 7_000), (4, 1_000, 8_000), (9, 3_000, 60_000)]


@pytest.mark.parametrize(
    ("position", "clock", "expected"),
    [
        (0, "record", Lag(0, NOW_MS - 5_000)),  # the last is older: there is none
        (1, "record", Lag(2_000, NOW_MS - 1_000)),  # 1 to 3 were taken by compaction
        (4, "record", Lag(2_000, NOW_MS - 1_000)),
        (9, "record", Lag(0, NOW_MS - 3_000)),
        (10, "record", Lag(0, 0)),
        (0, "append", Lag(53_000, NOW_MS - 7_000)),
        (1, "append", Lag(52_000, NOW_MS - 8_000)),
        (9, "append", Lag(0, NOW_MS - 60_000)),
        (12, "append", Lag(0, 0)),
    ],
)
def test_S56_lag_is_from_the_next_record_to_the_last_and_to_now(
    position: int, clock: str, expected: Lag
) -> None:
    assert lag_of(LOG, position, clock=clock) == expected


def test_S56_a_record_without_a_time_has_no_lag_that_is_known() -> None:
    assert lag_of([(0, -1, 5), (9, 3_000, 6)], 0) == Lag(None, None)
    assert lag_of([(0, 1_000, 5), (9, -1, 6)], 0) == Lag(None, NOW_MS - 1_000)
    assert lag_of([(0, -1, 5), (9, -1, 6)], 0, clock="append") == Lag(1, NOW_MS - 5)


def test_what_is_no_record_is_no_lag() -> None:
    assert lag_of([(0, 1_000, 5)], 1, end=3) == Lag(0, 0)
    assert lag_of([], 0, end=3, clock="append") == Lag(0, 0)


def test_a_record_of_the_future_does_not_wait() -> None:
    assert lag_of([(0, NOW_MS + 9, 5), (9, NOW_MS + 10, 6)], 0) == Lag(1, 0)


def test_partitions_of_both_clocks_are_asked_for_together() -> None:
    keys = [Key("a"), Key("a", 1), Key("b"), Key("b", 1)]
    broker = Broker(dict.fromkeys(keys, LOG), 10)
    found = in_time(broker, broker, dict.fromkeys(keys, 4), dict.fromkeys(keys, 10), frozenset("b"), NOW_MS)
    assert found == {key: lag_of(LOG, 4, clock="append" if key.topic == "b" else "record") for key in keys}
    assert broker.questions <= 2 * 43


def test_of_damage_no_lag_is_known_and_the_others_are_told() -> None:
    broken = Key("t", 1)
    broker = Broker({T: LOG, broken: LOG}, 10)
    broker.damaged = {broken}
    found = in_time(broker, broker, {T: 4, broken: 4}, {T: 10, broken: 10}, frozenset(), NOW_MS)
    assert found == {T: lag_of(LOG, 4), broken: Lag(None, None)}


def test_a_broker_that_sends_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({T: LOG}, 5)
    monkeypatch.setattr(broker, "poll", lambda _: {})
    monkeypatch.setattr(lag, "STALLED_S", -1)
    with pytest.raises(CommandError, match="sent nothing") as raised:
        in_time(broker, broker, {T: 4}, {T: 10}, frozenset(), NOW_MS)
    assert raised.value.exit_code == UNREACHABLE


def test_what_is_before_the_start_or_past_the_end_is_neither_skipped_nor_read_again() -> None:
    part = group_reset._Partition(2, 5, 9)
    assert group_reset._row(T, part, 7) | {"topic": 0} == {
        "topic": 0,
        "partition": 0,
        "old": 2,
        "new": 7,
        "skipped": 2,
        "read_again": 0,
    }
    assert group_reset._row(T, part._replace(old=20), 7)["read_again"] == 2


def test_a_whole_topic_is_more_than_some_of_its_partitions() -> None:
    parsed = group_reset._parse_topics(["a:0,2", "b:1", "a:3", "b"])
    assert parsed == {"a": {0, 2, 3}, "b": set()}


def test_of_many_members_three_are_named() -> None:
    members = [{"client_id": "c", "host": "/h", "member": str(number)} for number in range(5)]
    assert groups.in_words(members) == "it has 5 members: c at /h (0), c at /h (1), c at /h (2), 2 more"
    assert groups.in_words(members[:1]) == "it has 1 member: c at /h (0)"


class Coordinator:
    """A session that has one group, and answers requests about it."""

    def __init__(self, kind: str, answer: dict[str, Any]) -> None:
        self._kind, self._answer = kind, answer
        self.sent: list[Any] = []
        self._manager = SimpleNamespace(run=self._run, send=self._send)

    def list_groups(self) -> list[dict[str, Any]]:
        return [
            {"group_id": "g", "group_state": "Stable", "group_type": self._kind, "protocol_type": "consumer"}
        ]

    async def _find_coordinator_id(self, _group: str) -> int:
        return 1

    async def _send(self, request: Any, node_id: int) -> Any:
        self.sent.append((request, node_id))
        told = {
            "error_code": 0,
            "error_message": None,
            "group_id": "g",
            "group_state": "Stable",
            "members": [],
        }
        return SimpleNamespace(groups=[SimpleNamespace(**(told | self._answer))])

    def _run(self, ask: Any) -> Any:
        with pytest.raises(StopIteration) as ended:
            ask().send(None)
        return ended.value.value


def test_a_group_of_the_newer_protocol_is_asked_for_by_its_own_request() -> None:
    topics = [
        SimpleNamespace(topic_name="u", partitions=[1]),
        SimpleNamespace(topic_name="t", partitions=[2, 0]),
    ]
    assignment = SimpleNamespace(topic_partitions=topics)
    member = SimpleNamespace(
        member_id="m", instance_id=None, client_id="c", client_host="/h", assignment=assignment
    )
    given = {"assignor_name": "uniform", "members": [member]}
    session = Coordinator("consumer", given)
    found = client.group(session, "g")
    assert found == {
        "group": "g",
        "state": "Stable",
        "type": "consumer",
        "protocol_type": "consumer",
        "assignor": "uniform",
        "members": [
            {
                "member": "m",
                "instance": None,
                "client_id": "c",
                "host": "/h",
                "assignment": [{"topic": "t", "partitions": [0, 2]}, {"topic": "u", "partitions": [1]}],
            }
        ],
    }
    ((request, _),) = session.sent
    # Kafka's form of version 1, as of 0: a compact array of compact strings, a boolean, no tagged fields.
    assert (request.API_KEY, bytes(request.encode(version=1))) == (69, b"\x02\x02g\x00\x00")
    assert client.group(session, "other") is None


def test_a_group_that_is_gone_between_two_questions_is_not_there() -> None:
    assert client.group(Coordinator("classic", {"error_code": 69}), "g") is None


@pytest.mark.parametrize("assignment", [b"", b"\x00", b"what Connect says of its tasks"])
def test_an_assignment_in_another_form_than_that_of_consumers_is_none(assignment: bytes) -> None:
    member = SimpleNamespace(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        member_assignment=assignment,
    )
    found = client.group(Coordinator("classic", {"protocol_data": "x", "members": [member]}), "g")
    assert found is not None
    assert found["members"] == [
        {"member": "m", "instance": "i", "client_id": "c", "host": "/h", "assignment": []}
    ]


def test_members_that_came_after_the_plan_are_told_of() -> None:
    session = SimpleNamespace(
        alter_group_offsets=lambda _group, wanted: {
            key: SimpleNamespace(errno=25, message="UNKNOWN_MEMBER_ID", description="") for key in wanted
        }
    )
    with pytest.raises(CommandError, match="group g was not reset: it has members by now") as raised:
        client.commit(session, "g", {T: 1})
    assert raised.value.exit_code == FAILED


def test_a_partition_that_is_gone_is_left_out() -> None:
    told = [{"name": "t", "partitions": [{"partition_index": 0}]}, {"name": "gone", "partitions": []}]
    session = SimpleNamespace(describe_topics=lambda _: told)
    assert client.existing(session, [T, Key("t", 1), Key("gone")]) == [T]
    assert client.existing(session, []) == []
