"""The records of consumer groups to bytes and back. The version of a key says what it is; a value has version 0."""

from typing import Any, Final

from tidelog.protocol.coordinator import consumer_group as messages
from tidelog.protocol.coordinator.form import Form, version_of

__all__ = [
    "KEY_NUMBERS",
    "VALUE_NUMBERS",
    "ConsumerKey",
    "ConsumerValue",
    "is_of_consumers",
    "read",
    "written_key",
    "written_value",
]

ConsumerKey = (
    messages.ConsumerGroupMetadataKey
    | messages.ConsumerGroupPartitionMetadataKey
    | messages.ConsumerGroupMemberMetadataKey
    | messages.ConsumerGroupTargetAssignmentMetadataKey
    | messages.ConsumerGroupTargetAssignmentMemberKey
    | messages.ConsumerGroupCurrentMemberAssignmentKey
    | messages.ConsumerGroupRegularExpressionKey
)
ConsumerValue = (
    messages.ConsumerGroupMetadataValue
    | messages.ConsumerGroupMemberMetadataValue
    | messages.ConsumerGroupTargetAssignmentMetadataValue
    | messages.ConsumerGroupTargetAssignmentMemberValue
    | messages.ConsumerGroupCurrentMemberAssignmentValue
    | messages.ConsumerGroupRegularExpressionValue
)

KEY_NUMBERS: Final[dict[type, int]] = {
    messages.ConsumerGroupMetadataKey: 3,
    messages.ConsumerGroupPartitionMetadataKey: 4,
    messages.ConsumerGroupMemberMetadataKey: 5,
    messages.ConsumerGroupTargetAssignmentMetadataKey: 6,
    messages.ConsumerGroupTargetAssignmentMemberKey: 7,
    messages.ConsumerGroupCurrentMemberAssignmentKey: 8,
    messages.ConsumerGroupRegularExpressionKey: 16,
}
_KEYS: Final = {number: Form(key, str(number), flexible="") for key, number in KEY_NUMBERS.items()}
# Of 4 only null is written by now: what it said is passed over.
VALUE_NUMBERS: Final[dict[type, int]] = {
    messages.ConsumerGroupMetadataValue: 3,
    messages.ConsumerGroupMemberMetadataValue: 5,
    messages.ConsumerGroupTargetAssignmentMetadataValue: 6,
    messages.ConsumerGroupTargetAssignmentMemberValue: 7,
    messages.ConsumerGroupCurrentMemberAssignmentValue: 8,
    messages.ConsumerGroupRegularExpressionValue: 16,
}
_VALUES: Final = {number: Form(value, "0", flexible="0+") for value, number in VALUE_NUMBERS.items()}


def is_of_consumers(key_version: int) -> bool:
    """Tell whether a key of that version is of a consumer group."""
    return key_version in _KEYS


def read(key: bytes, value: bytes | None) -> tuple[ConsumerKey, ConsumerValue | None]:
    """Return what a record says. WireError where it is damaged."""
    number = version_of(key)
    form = _VALUES.get(number)
    return _KEYS[number].read(key), None if value is None or form is None else form.read(value)


def written_key(key: ConsumerKey) -> bytes:
    """Return the bytes of a key."""
    number = KEY_NUMBERS[type(key)]
    return _KEYS[number].write(key, number)


def written_value(value: Any) -> bytes:
    """Return the bytes of a value."""
    return _VALUES[VALUE_NUMBERS[type(value)]].write(value, 0)
