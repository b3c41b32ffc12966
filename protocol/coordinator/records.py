"""The records of `__consumer_offsets`: keys and values to bytes and back.

The version of a key says what kind of record it is; other kinds, which Kafka writes for other kinds of groups, are
skipped. A null value is a tombstone: it takes back what was written under its key.
"""

from typing import Any, Final

from tidelog.protocol.coordinator import messages
from tidelog.protocol.coordinator.form import Form, version_of

__all__ = [
    "Pair",
    "group_key",
    "offset_key",
    "offset_value",
    "read",
    "version_of",
    "written_key",
    "written_value",
]

# The kinds of records by the versions of their keys. Offsets have 0 as well.
OFFSET: Final = 1
GROUP: Final = 2
CONSUMER_GROUP: Final = 3
PARTITION_METADATA: Final = 4
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET_ASSIGNMENT: Final = 7
CURRENT_ASSIGNMENT: Final = 8
REGEX: Final = 16

KEYS: Final[dict[int, type]] = {
    OFFSET: messages.OffsetCommitKey,
    GROUP: messages.GroupMetadataKey,
    CONSUMER_GROUP: messages.ConsumerGroupMetadataKey,
    PARTITION_METADATA: messages.ConsumerGroupPartitionMetadataKey,
    MEMBER: messages.ConsumerGroupMemberMetadataKey,
    TARGET_EPOCH: messages.ConsumerGroupTargetAssignmentMetadataKey,
    TARGET_ASSIGNMENT: messages.ConsumerGroupTargetAssignmentMemberKey,
    CURRENT_ASSIGNMENT: messages.ConsumerGroupCurrentMemberAssignmentKey,
    REGEX: messages.ConsumerGroupRegularExpressionKey,
}
# Of PARTITION_METADATA only tombstones are written by now; what its values say is ignored.
VALUES: Final[dict[int, type]] = {
    OFFSET: messages.OffsetCommitValue,
    GROUP: messages.GroupMetadataValue,
    CONSUMER_GROUP: messages.ConsumerGroupMetadataValue,
    MEMBER: messages.ConsumerGroupMemberMetadataValue,
    TARGET_EPOCH: messages.ConsumerGroupTargetAssignmentMetadataValue,
    TARGET_ASSIGNMENT: messages.ConsumerGroupTargetAssignmentMemberValue,
    CURRENT_ASSIGNMENT: messages.ConsumerGroupCurrentMemberAssignmentValue,
    REGEX: messages.ConsumerGroupRegularExpressionValue,
}
# The version in which Kafka writes a classic group; the one that says of which topic an offset is (Kafka reads it from
# 3.5 on), and the one that says when it expires.
GROUP_VALUE, OFFSET_VALUE, EXPIRING_VALUE = 3, 4, 1

_KEY_FORMS: Final = {
    kind: Form(key, "0-1" if kind == OFFSET else str(kind), flexible="") for kind, key in KEYS.items()
}
_VALUE_FORMS: Final = {
    kind: Form(value, "0-4", flexible="4+") if kind <= GROUP else Form(value, "0", flexible="0+")
    for kind, value in VALUES.items()
}
_KINDS: Final = {message: kind for kinds in (KEYS, VALUES) for kind, message in kinds.items()}

Pair = tuple[Any, Any]  # a key and its value, None for a tombstone


def read(key: bytes, value: bytes | None) -> Pair | None:
    """Return what a record says, None where it is of a kind that is not known here. WireError where it is damaged."""
    kind = max(version_of(key), OFFSET)
    if kind not in KEYS:
        return None
    form = _VALUE_FORMS.get(kind)
    return _KEY_FORMS[kind].read(key), None if value is None or form is None else form.read(value)


def written_key(key: Any) -> bytes:
    """Return the bytes of a key."""
    kind = _KINDS[type(key)]
    return _KEY_FORMS[kind].write(key, kind)


def written_value(value: Any, version: int = 0) -> bytes:
    """Return the bytes of a value."""
    return _VALUE_FORMS[_KINDS[type(value)]].write(value, version)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of an offset."""
    return written_key(messages.OffsetCommitKey(group=group, topic=topic, partition=partition))


def offset_value(value: messages.OffsetCommitValue) -> bytes:
    """Return the value of an offset, in the version that has all of its fields."""
    return written_value(value, OFFSET_VALUE if value.expire_timestamp < 0 else EXPIRING_VALUE)


def group_key(group: str) -> bytes:
    """Return the key of a classic group."""
    return written_key(messages.GroupMetadataKey(group=group))


def group_value(value: messages.GroupMetadataValue) -> bytes:
    """Return the value of a classic group."""
    return written_value(value, GROUP_VALUE)
