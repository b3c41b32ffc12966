"""The records of `__consumer_offsets`: decode and encode keys and values.

The version of a key is the kind of its record. Kinds that Kafka writes for other types of groups are skipped. A null
value is a tombstone, which deletes the value of its key.
"""

from typing import Any, Final

from tidelog.protocol.coordinator import messages
from tidelog.protocol.coordinator.form import Form, version_of

# The kinds of records: the versions of their keys. Offsets also have 0.
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
# Values of PARTITION_METADATA are ignored; Kafka now writes only tombstones.
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
# The version of a classic group that Kafka writes; the version of an offset with the id of its topic, which Kafka reads
# since 3.5; and the version of an offset with an expiry.
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
    """Return the key and value of a record, None for an unknown kind; WireError if it is damaged."""
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
    """Return the value of an offset, in the version with its fields."""
    return written_value(value, OFFSET_VALUE if value.expire_timestamp < 0 else EXPIRING_VALUE)


def group_key(group: str) -> bytes:
    """Return the key of a classic group."""
    return written_key(messages.GroupMetadataKey(group=group))


def group_value(value: messages.GroupMetadataValue) -> bytes:
    """Return the value of a classic group."""
    return written_value(value, GROUP_VALUE)
