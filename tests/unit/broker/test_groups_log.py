"""Loading `__consumer_offsets` with the records of all versions of Kafka."""

import logging
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import changed
from tests.support.groups import World, restore
from tests.support.logs import open_log
from tests.support.strategies import messages
from tidelog.broker.groups.consumer_member import NEW, NOTHING, Classic, Current, Progress, Subscription
from tidelog.broker.groups.consumer_records import current_value, member_value, target_value
from tidelog.broker.groups.loading import Loaded, replay
from tidelog.broker.groups.log import partition_of
from tidelog.broker.groups.offsets import NEVER, Committed, Expiry, GroupOffsets
from tidelog.broker.work import Stopping
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.consumer_protocol import subscribed_topics
from tidelog.protocol.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.message_set import build_message_set
from tidelog.protocol.records.steps import at_once
from tidelog.protocol.wire.errors import EncodeError, WireError
from tidelog.storage.log import Log

T_ID, NO_ID = b"t" * 16, bytes(16)
KEY = records.offset_key("g", "t", 0)


def log_of(folder: Path, *batches: bytes) -> Log:
    """Open a log that another broker has written."""
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(b"".join(batches))
    return open_log(folder, was_cut_off=False)


def batch(base: int, *entries: tuple[bytes, bytes | None], **options: object) -> bytes:
    made = [Record(base + number, 1, key, value) for number, (key, value) in enumerate(entries)]
    return build_batch(made, **options)  # type: ignore[arg-type]


def replayed(*logs: Log) -> Loaded:
    return at_once(replay(logs, {"t": T_ID}, World().services))


def value(offset: int, **fields: object) -> bytes:
    return records.offset_value(
        OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1, topic_id=T_ID, **fields)  # type: ignore[arg-type]
    )


def offsets(found: Loaded, group: str = "g") -> dict[tuple[str, int], int]:
    if group not in found.offsets:
        return {}
    return {(topic, partition): each.offset for topic, partition, each in found.offsets[group]}


# As Kafka writes them, byte for byte (group-coordinator, GroupCoordinatorRecordSerde).
OFFSETS = {
    "0": ("0000 0000000000000007 0001 6d 0000000000000009", Committed(7, -1, "m", 9, -1, T_ID)),
    "1": (
        "0001 0000000000000007 0001 6d 0000000000000009 000000000000000b",
        Committed(7, -1, "m", 9, 11, T_ID),
    ),
    "2": ("0002 0000000000000007 0001 6d 0000000000000009", Committed(7, -1, "m", 9, -1, T_ID)),
    "3": ("0003 0000000000000007 00000005 0001 6d 0000000000000009", Committed(7, 5, "m", 9, -1, T_ID)),
    "4": ("0004 0000000000000007 00000005 02 6d 0000000000000009 00", Committed(7, 5, "m", 9, -1, T_ID)),
    "4 with an id": (
        "0004 0000000000000007 00000005 02 6d 0000000000000009 01 00 10" + "69" * 16,
        Committed(7, 5, "m", 9, -1, b"i" * 16),
    ),
}


@pytest.mark.parametrize("version", OFFSETS)
@pytest.mark.parametrize("key", ["0000", "0001"])
def test_an_offset_is_read_in_every_version(tmp_path: Path, version: str, key: str) -> None:
    written, expected = OFFSETS[version]
    entry = bytes.fromhex(key + "0001 67 0001 74 00000003"), bytes.fromhex(written)
    found = replayed(log_of(tmp_path / "__consumer_offsets-0", batch(0, entry)))
    assert list(found.offsets["g"]) == [("t", 3, expected)]
    assert found.damaged == 0


GROUPS = {
    0: "0000 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 61 00000001 "
    "0001 61 0001 63 0001 68 00000064 00000001 73 00000001 78",
    1: "0001 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 61 00000001 "
    "0001 61 0001 63 0001 68 000000c8 00000064 00000001 73 00000001 78",
    2: "0002 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 61 0000000000000009 00000001 "
    "0001 61 0001 63 0001 68 000000c8 00000064 00000001 73 00000001 78",
    3: "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 61 0000000000000009 00000001 "
    "0001 61 0001 69 0001 63 0001 68 000000c8 00000064 00000001 73 00000001 78",
    4: "0004 09 636f6e73756d6572 00000004 06 72616e6765 02 61 0000000000000009 02 "
    "02 61 02 69 02 63 02 68 000000c8 00000064 02 73 02 78 00 00",
}


@pytest.mark.parametrize("version", GROUPS)
def test_a_group_is_read_in_every_version(tmp_path: Path, version: int) -> None:
    entry = bytes.fromhex("0002 0001 67"), bytes.fromhex(GROUPS[version])
    found = replayed(log_of(tmp_path / "__consumer_offsets-0", batch(0, entry)))
    member = MemberMetadata(
        member_id="a",
        group_instance_id="i" if version >= 3 else None,
        client_id="c",
        client_host="h",
        rebalance_timeout=200 if version else 0,
        session_timeout=100,
        subscription=b"s",
        assignment=b"x",
    )
    expected = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="a",
        current_state_timestamp=9 if version >= 2 else -1,
        members=[member],
    )
    assert found.classic == {"g": expected}
    if version == 3:
        assert (records.group_key("g"), records.group_value(expected)) == entry


@given(messages(OffsetCommitValue, 4), messages(GroupMetadataValue, 3))
def test_what_is_written_is_read_back(committed: OffsetCommitValue, group: GroupMetadataValue) -> None:
    assert records.read(KEY, records.written_value(committed, 4)) == (
        OffsetCommitKey(group="g", topic="t", partition=0),
        committed,
    )
    key = records.group_key("g")
    assert records.read(key, records.group_value(group)) == (GroupMetadataKey(group="g"), group)


def test_an_offset_is_written_in_the_version_that_says_all_there_is_to_say() -> None:
    assert value(7)[:2] == b"\0\4"
    assert value(7, expire_timestamp=11)[:2] == b"\0\1"
    with pytest.raises(EncodeError):
        records.group_key("x" * 32_768)


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_bytes_are_a_record_or_a_wire_error(key: bytes, said: bytes) -> None:
    with suppress(WireError):
        records.read(key, said)
    subscribed_topics(said)


def test_the_last_record_of_a_key_holds_and_null_takes_it_back(tmp_path: Path) -> None:
    other = records.offset_key("g", "t", 1)
    gone = records.offset_key("gone", "t", 1)
    empty = GroupMetadataValue(protocol_type="", generation=1, protocol=None, leader=None, members=[])
    group = records.group_key("gone")
    log = log_of(
        tmp_path / "__consumer_offsets-0",
        batch(0, (KEY, value(1)), (other, value(2)), (gone, value(3)), (group, records.group_value(empty))),
        batch(4, (KEY, value(5)), (other, None), (gone, None), (group, None), (group, None)),
    )
    found = replayed(log)
    assert (offsets(found), list(found.offsets), found.classic) == ({("t", 0): 5}, ["g"], {})


def test_what_is_in_a_transaction_counts_once_that_is_committed(tmp_path: Path) -> None:
    marker = {"commit": b"\0\0\0\1", "abort": b"\0\0\0\0"}
    other = records.offset_key("g", "t", 1)

    def transaction(base: int, producer: int, *entries: tuple[bytes, bytes], control: bool = False) -> bytes:
        return batch(
            base, *entries, transactional=True, control=control, producer_id=producer, producer_epoch=0
        )

    log = log_of(
        tmp_path / "__consumer_offsets-0",
        transaction(0, 1, (KEY, value(5))),
        transaction(1, 2, (other, value(6))),
        transaction(2, 2, (marker["abort"], b""), control=True),
        transaction(3, 1, (marker["commit"], b""), control=True),
        transaction(4, 1, (KEY, value(7))),  # nobody has decided on that
    )
    assert offsets(replayed(log)) == {("t", 0): 5}
    log = log_of(
        tmp_path / "__consumer_offsets-1",
        transaction(0, 1, (KEY, value(5))),
        transaction(1, 1, (marker["commit"], b""), control=True),
        batch(2, (KEY, value(6))),
        transaction(3, 1, (marker["commit"], b""), control=True),
    )
    assert offsets(replayed(log)) == {("t", 0): 6}, "what was decided is not told again"


def test_what_lies_before_the_start_of_the_log_is_not_read(tmp_path: Path) -> None:
    other = records.offset_key("g", "t", 1)
    log = log_of(tmp_path / "__consumer_offsets-0", batch(0, (KEY, value(1)), (other, value(2))))
    log.advance_start(1)
    assert offsets(replayed(log)) == {("t", 1): 2}


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("", 0),
        ("hello", 99162322),
        ("Hello World", -862545276),
        ("polygenelubricants", -(1 << 31)),
        ("\N{WATER WAVE}", 1_773_134),
    ],
)
def test_a_group_is_in_the_partition_that_java_s_hash_of_its_name_says(group: str, code: int) -> None:
    for count in (1, 50, 1 << 30):
        assert partition_of(group, count) == (code & 0x7FFFFFFF) % count


def test_older_formats_and_all_codecs_are_read(tmp_path: Path) -> None:
    for name, entry in {
        "m0": build_message_set([Record(0, -1, KEY, value(5))], magic=0),
        "m1": build_message_set([Record(0, 1, KEY, value(5))], magic=1, codec=1),
        "m2": batch(0, (KEY, value(5)), codec=3),
    }.items():
        assert offsets(replayed(log_of(tmp_path / f"{name}-0", bytes(entry)))) == {("t", 0): 5}, name


# A consumer group, as Kafka writes it (4.0, 4.1: with a hash of topics), byte for byte.
CONSUMERS = {
    "0005 0001 67 0001 6d": "0000 00 00 02 63 02 68 02 02 74 03 742a 0000ea60 00 00",
    "0003 0001 67": "0000 00000005 01 00 08 0000000000000007",
    "0004 0001 67": "0000 01 00",
    "0007 0001 67 0001 6d": "0000 02" + "74" * 16 + "03 00000000 00000001 00 00",
    "0006 0001 67": "0000 00000005 00",
    "0008 0001 67 0001 6d": "0000 00000004 00000003 01 02"
    + "74" * 16
    + "02 00000000 00 02"
    + "74" * 16
    + "02 00000001 00 00",
    "0010 0001 67 0002 742a": "0000 02 02 74 0000000000000001 0000000000000009 00",
}


def consumers(*left_out: str) -> list[tuple[bytes, bytes | None]]:
    return [(bytes.fromhex(key), bytes.fromhex(CONSUMERS[key])) for key in CONSUMERS if key not in left_out]


def test_a_consumer_group_is_read_as_kafka_writes_it(tmp_path: Path) -> None:
    found = replayed(log_of(tmp_path / "__consumer_offsets-0", batch(0, *consumers())))
    assert found.damaged == 0
    group = found.consumer["g"]
    assert (group.epoch, group.target_epoch, group.metadata_hash) == (5, 5, 7)
    assert group.regexes == {"t*": {"t"}}
    (member,) = group
    assert member.subscription == Subscription(
        client_id="c", client_host="h", topics=frozenset("t"), regex="t*", rebalance_timeout_ms=60_000
    )
    assert member.target == {T_ID: {0, 1}}
    assert member.current == Current(
        4, 3, Progress.UNREVOKED_PARTITIONS, {T_ID: frozenset([0])}, {T_ID: frozenset([1])}
    )


def test_epochs_of_an_assignment_are_passed_over(tmp_path: Path) -> None:
    """Kafka 4.3 stores with each partition the epoch in which the member got it (KIP-1251)."""
    key, epochs = "0008 0001 67 0001 6d", "01 00 05 02 00000003"
    current = bytes.fromhex("0000 00000004 00000003 01 02" + "74" * 16 + f"02 00000000 {epochs} 01 00")
    entries = [*consumers(key), (bytes.fromhex(key), current)]
    found = replayed(log_of(tmp_path / "__consumer_offsets-0", batch(0, *entries)))
    (member,) = found.consumer["g"]
    assert member.current == Current(4, 3, Progress.UNREVOKED_PARTITIONS, {T_ID: frozenset([0])}, {})
    assert found.damaged == 0


def test_what_we_write_of_a_consumer_group_is_what_kafka_writes(tmp_path: Path) -> None:
    found = replayed(log_of(tmp_path / "__consumer_offsets-0", batch(0, *consumers())))
    group = found.consumer["g"]
    (member,) = group
    epoch = ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    target_epoch = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.target_epoch)
    written = [
        (ConsumerGroupMetadataKey(group_id="g"), epoch),
        (ConsumerGroupTargetAssignmentMetadataKey(group_id="g"), target_epoch),
        (
            ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
            target_value(member.target),
        ),
        (
            ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
            current_value(member.current),
        ),
    ]
    expected = {bytes.fromhex(key): bytes.fromhex(value) for key, value in CONSUMERS.items()}
    for key, value in written:
        assert expected.pop(records.written_key(key)) == records.written_value(value)
    assert expected.keys() == {
        records.written_key(ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")),
        records.written_key(ConsumerGroupPartitionMetadataKey(group_id="g")),
        records.written_key(ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t*")),
    }


def test_members_and_groups_that_were_taken_back_are_not_there(tmp_path: Path) -> None:
    member_gone = [(bytes.fromhex(f"{kind} 0001 67 0001 6d"), None) for kind in ("0008", "0007", "0005")]
    found = replayed(log_of(tmp_path / "a-0", batch(0, *consumers(), *member_gone)))
    assert found.consumer["g"].members == {}
    group_gone = [
        *member_gone,
        (bytes.fromhex("0006 0001 67"), None),
        (bytes.fromhex("0010 0001 67 0002 742a"), None),
    ]
    group_gone += [(bytes.fromhex("0003 0001 67"), None), (bytes.fromhex("0004 0001 67"), None)]
    found = replayed(log_of(tmp_path / "b-0", batch(0, *consumers(), *group_gone)))
    assert found.consumer == {}


def test_all_that_is_known_of_a_member_is_read_back_and_taken_back() -> None:
    group = World().group()
    said = Subscription(
        "i", "rack", "c", "/h", frozenset("ab"), "t.*", 1234, "range", Classic(77, (("p", b"m"), ("q", b"")))
    )
    current = Current(7, 5, Progress.UNRELEASED_PARTITIONS, {T_ID: frozenset([1])}, {T_ID: frozenset([2])})
    of_member = {
        ConsumerGroupMemberMetadataKey: member_value(said),
        ConsumerGroupTargetAssignmentMemberKey: target_value(current.assigned),
        ConsumerGroupCurrentMemberAssignmentKey: current_value(current),
    }
    written = {
        records.written_key(key(group_id="g", member_id="m")): records.written_value(value)
        for key, value in of_member.items()
    }
    for key in written:
        restore(group, key, None)
    assert group.members == {}, "nobody is made by what takes back"
    for key, value in written.items():
        restore(group, key, value)
    (member,) = group
    assert (member.subscription, member.target, member.current) == (said, current.assigned, current)
    for key in list(written)[1:]:
        restore(group, key, None)
    assert (member.subscription, member.target, member.current) == (said, NOTHING, NEW)
    matching = ConsumerGroupRegularExpressionValue(topics=["t"], version=0, timestamp=1)
    for regex_value in (matching, None):
        group.restore(ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*"), regex_value)
    assert group.regexes == {}


def test_what_a_later_kafka_writes_of_a_member_is_taken_as_it_may_be() -> None:
    group = World().group()
    group.restore(
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=9,
            assigned_partitions=[],
            partitions_pending_revocation=[],
        ),
    )
    group.restore(
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            server_assignor=None,
        ),
    )
    (member,) = group
    assert (member.current.progress, member.current.epoch) == (Progress.UNKNOWN, 2)
    assert (member.subscription.regex, member.subscription.topics) == ("", {"t"})


def test_a_group_is_of_the_kind_that_was_written_last(tmp_path: Path) -> None:
    classic = bytes.fromhex("0002 0001 67"), bytes.fromhex(GROUPS[3])
    found = replayed(log_of(tmp_path / "a-0", batch(0, classic, *consumers())))
    assert (list(found.classic), list(found.consumer)) == ([], ["g"])
    found = replayed(log_of(tmp_path / "b-0", batch(0, *consumers(), classic)))
    assert (list(found.classic), list(found.consumer)) == (["g"], [])


def test_damage_is_told_with_what_it_means_for_groups(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(tmp_path / "__consumer_offsets-0", batch(0, (KEY, value(5))), batch(1, (KEY, value(6))))
    log.flush()
    log.close()
    path = log.active.path(".log")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    again = open_log(path.parent, recovery_point=2)
    found = replayed(again)
    assert (offsets(found), found.damaged) == ({("t", 0): 5}, 1)
    assert "and groups go on from earlier ones" in caplog.text


def test_what_cannot_be_read_is_named_and_left_out_and_other_kinds_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of_streams = bytes.fromhex("0011 0001 67"), b"\0\0\0\0\0\1"
    log = log_of(
        tmp_path / "__consumer_offsets-0",
        batch(0, (b"\0", b""), (KEY, b"\0\3short"), (KEY, b"\0\x7f"), of_streams, (KEY, value(5))),
    )
    found = replayed(log)
    assert (offsets(found), found.damaged, found.classic) == ({("t", 0): 5}, 3, {})
    assert [record.levelno for record in caplog.records if "groups" in record.message] == [logging.ERROR]


def test_all_partitions_are_read_and_a_stop_ends_that(tmp_path: Path) -> None:
    logs = [
        log_of(tmp_path / f"{number}-0", batch(0, (records.offset_key(f"g{number}", "t", 0), value(number))))
        for number in range(3)
    ]
    assert [offsets(replayed(*logs), f"g{number}") for number in range(3)] == [
        {("t", 0): number} for number in range(3)
    ]
    many = [batch(number, (records.offset_key("g", "t", number), value(number))) for number in range(1000)]
    reading = replay([log_of(tmp_path / "many-0", *many)], {}, World().services)
    reading.send(None)
    with pytest.raises(Stopping):
        reading.throw(Stopping())


def test_an_offset_that_does_not_say_of_which_topic_it_is_is_of_the_one_there_is_now(tmp_path: Path) -> None:
    old = bytes.fromhex(OFFSETS["3"][0])
    found = replayed(log_of(tmp_path / "a-0", batch(0, (KEY, old), (records.offset_key("g", "no", 0), old))))
    known, unknown = found.offsets["g"].get("t", 0), found.offsets["g"].get("no", 0)
    assert known is not None
    assert unknown is not None
    assert (known.topic_id, known.is_of(T_ID), known.is_of(b"u" * 16)) == (T_ID, True, False)
    assert (unknown.topic_id, unknown.is_of(None)) == (NO_ID, False)


@pytest.mark.parametrize("expire_ms", [NEVER, 90])
def test_what_is_written_of_an_offset_says_of_which_topic_it_is_and_who_has_it_held(
    tmp_path: Path, expire_ms: int
) -> None:
    committed = Committed(7, 5 if expire_ms == NEVER else -1, "m", 9, expire_ms, b"o" * 16, "10.0.0.2")
    entry = Record(0, 1, KEY, records.offset_value(committed.stored()), committed.headers())
    found = replayed(log_of(tmp_path / "a-0", build_batch([entry])))
    assert found.offsets["g"].get("t", 0) == committed


def test_a_batch_that_holds_other_records_than_it_says_is_damage(tmp_path: Path) -> None:
    lying = changed(batch(0, (KEY, value(5)), (KEY, value(6))), record_count=3, last_offset_delta=2)
    found = replayed(log_of(tmp_path / "__consumer_offsets-0", bytes(lying), batch(3, (KEY, value(7)))))
    assert (offsets(found), found.damaged) == ({("t", 0): 7}, 3)


def test_when_an_offset_expires_is_stored() -> None:
    assert Committed(7, 5, "m", 9, 11, T_ID).stored().expire_timestamp == 11


def test_what_is_forgotten() -> None:
    """KIP-211, retention times of clients, and deleted topics."""
    held = GroupOffsets()
    for partition, (commit_ms, expire_ms, topic_id) in enumerate(
        [(100, -1, T_ID), (200, -1, T_ID), (100, 150, T_ID), (100, 900, T_ID), (200, -1, b"u" * 16)]
    ):
        held.put("t", partition, Committed(1, -1, "", commit_ms, expire_ms, topic_id))

    def gone(now_ms: int, since: int | None, reads: bool = False, topic_id: bytes | None = T_ID) -> list[int]:
        unused = None if reads else (lambda commit_ms: commit_ms if since is None else since)
        return [partition for partition, _ in held.expired("t", Expiry(topic_id, now_ms, 100, unused))]

    assert gone(149, None) == [4]
    assert gone(150, None) == [2, 4]
    assert gone(200, None) == [0, 2, 4]
    assert gone(200, 150) == [2, 4]
    assert gone(2000, None, reads=True) == [2, 3, 4]
    assert gone(0, None, topic_id=None) == [0, 1, 2, 3, 4]
    assert held.remove("t", 9) is None
    removed = [held.remove("t", partition) for partition in range(5)]
    assert (held.topics, all(removed)) == ({}, True)
