"""The records of `__consumer_offsets`: keys and values to bytes and back.

The version of a key says what it is: up to 1 an offset, 2 a classic group, some larger ones a consumer group. Others
are groups of other kinds, which Kafka writes: they are passed over. A value that is null takes back what was written
under its key.
"""

from tidelog.protocol.coordinator import consumer_forms
from tidelog.protocol.coordinator.consumer_forms import ConsumerKey, ConsumerValue
from tidelog.protocol.coordinator.form import Form, version_of
from tidelog.protocol.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidelog.protocol.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue

__all__ = ["ConsumerKey", "Key", "Pair", "group_key", "group_value", "offset_key", "offset_value", "read"]

Key = OffsetCommitKey | GroupMetadataKey | ConsumerKey
Pair = tuple[Key, OffsetCommitValue | GroupMetadataValue | ConsumerValue | None]

OFFSET_KEYS = Form(OffsetCommitKey, "0-1", flexible="")
GROUP_KEYS = Form(GroupMetadataKey, "2", flexible="")
OFFSET_VALUES = Form(OffsetCommitValue, "0-4", flexible="4+")
GROUP_VALUES = Form(GroupMetadataValue, "0-4", flexible="4+")

OFFSET_KEY, GROUP_KEY = 1, 2  # the versions of keys that Kafka writes
# The version that says when an offset expires, the one that says of which topic it is (Kafka reads it from 3.5 on), and
# the one in which Kafka writes a group.
EXPIRING_VALUE, OFFSET_VALUE, GROUP_VALUE = 1, 4, 3


def read(key: bytes, value: bytes | None) -> Pair | None:
    """Return what a record says, None where it is of a kind that is not known here. WireError where it is damaged."""
    version = version_of(key)
    if consumer_forms.is_of_consumers(version):
        return consumer_forms.read(key, value)
    if version > GROUP_KEY:
        return None
    if version == GROUP_KEY:
        return GROUP_KEYS.read(key), None if value is None else GROUP_VALUES.read(value)
    return OFFSET_KEYS.read(key), None if value is None else OFFSET_VALUES.read(value)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of an offset."""
    return OFFSET_KEYS.write(OffsetCommitKey(group=group, topic=topic, partition=partition), OFFSET_KEY)


def offset_value(value: OffsetCommitValue) -> bytes:
    """Return the value of an offset, in the version that says what there is to say."""
    return OFFSET_VALUES.write(value, OFFSET_VALUE if value.expire_timestamp < 0 else EXPIRING_VALUE)


def group_key(group: str) -> bytes:
    """Return the key of a classic group."""
    return GROUP_KEYS.write(GroupMetadataKey(group=group), GROUP_KEY)


def group_value(value: GroupMetadataValue) -> bytes:
    """Return the value of a classic group."""
    return GROUP_VALUES.write(value, GROUP_VALUE)
