"""What is stored of a consumer group, record by record, and a group as its records say.

Owns what becomes of the parts of a group in Kafka's formats. A record of a member may come before or after those of its
group: each makes what it speaks of, and a null takes only that back.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from tidelog.broker.groups.assignors import Assignment
from tidelog.broker.groups.consumer_member import (
    NEW,
    NOTHING,
    Classic,
    Current,
    Progress,
    Subscription,
    indexes_in,
)
from tidelog.broker.groups.consumer_parts import Member
from tidelog.protocol.coordinator import consumer_forms as forms
from tidelog.protocol.coordinator import consumer_group as messages
from tidelog.protocol.coordinator.consumer_forms import ConsumerKey as Key
from tidelog.protocol.coordinator.consumer_forms import ConsumerValue as Value

__all__ = ["Key", "Value", "is_whole", "restore"]


class Restorable(Protocol):
    """A group, as far as records speak of it."""

    epoch: int
    target_epoch: int
    metadata_hash: int
    members: dict[str, Member]

    @property
    def regexes(self) -> dict[str, frozenset[str]]:
        """The topics that match, by regular expression."""

    def restored_member(self, member_id: str) -> Member:
        """Return a member, made if it is not there."""


_KNOWN: Final = {each.value for each in Progress}


def group_key(group: str) -> bytes:
    """Return the key of a group."""
    return forms.written_key(messages.ConsumerGroupMetadataKey(group_id=group))


def group_value(epoch: int, metadata_hash: int) -> bytes:
    """Return what is stored of a group."""
    return forms.written_value(messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def member_key(group: str, member_id: str) -> bytes:
    """Return the key of a member."""
    return forms.written_key(messages.ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id))


def member_value(said: Subscription) -> bytes:
    """Return what is stored of what a member says of itself."""
    classic = said.classic
    value = messages.ConsumerGroupMemberMetadataValue(
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=sorted(said.topics),
        subscribed_topic_regex=said.regex,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        server_assignor=said.assignor,
        classic_member_metadata=None
        if classic is None
        else messages.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                messages.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )
    return forms.written_value(value)


def target_epoch_key(group: str) -> bytes:
    """Return the key of a target assignment's epoch."""
    return forms.written_key(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group))


def target_epoch_value(epoch: int) -> bytes:
    """Return what is stored of a target assignment as a whole."""
    return forms.written_value(messages.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))


def target_key(group: str, member_id: str) -> bytes:
    """Return the key of a member's target."""
    return forms.written_key(
        messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id)
    )


def target_value(target: Assignment) -> bytes:
    """Return what is stored of a member's target."""
    partitions = [
        messages.TopicPartition(topic_id=topic, partitions=sorted(indexes))
        for topic, indexes in sorted(target.items())
    ]
    return forms.written_value(messages.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions))


def current_key(group: str, member_id: str) -> bytes:
    """Return the key of what a member has."""
    return forms.written_key(
        messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id)
    )


def current_value(current: Current) -> bytes:
    """Return what is stored of what a member has."""
    value = messages.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.progress,
        assigned_partitions=_partitions(current.assigned),
        partitions_pending_revocation=_partitions(current.revoking),
    )
    return forms.written_value(value)


def regex_key(group: str, regex: str) -> bytes:
    """Return the key of a regular expression."""
    return forms.written_key(
        messages.ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=regex)
    )


def regex_value(topics: frozenset[str], now_ms: int) -> bytes:
    """Return what is stored of the topics that match."""
    value = messages.ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=now_ms)
    return forms.written_value(value)


def tombstones(group: str, member_ids: Iterable[str], regexes: Iterable[str]) -> dict[bytes, None]:
    """Return the keys of all that is stored of a group, in the order in which Kafka's replay has them taken back."""
    ids = list(member_ids)
    keys = [current_key(group, member_id) for member_id in ids]
    keys += [target_key(group, member_id) for member_id in ids]
    keys.append(target_epoch_key(group))
    keys += [member_key(group, member_id) for member_id in ids]
    keys += [regex_key(group, regex) for regex in regexes]
    keys.append(group_key(group))
    return dict.fromkeys(keys)


def _partitions(assignment: Assignment) -> list[messages.TopicPartitions]:
    return [
        messages.TopicPartitions(topic_id=topic, partitions=sorted(indexes))
        for topic, indexes in sorted(assignment.items())
    ]


def restore(group: Restorable, key: Key, value: Value | None) -> None:
    """Have a group be as one more record says."""
    match key, value:
        case messages.ConsumerGroupMetadataKey(), messages.ConsumerGroupMetadataValue():
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case (
            messages.ConsumerGroupTargetAssignmentMetadataKey(),
            messages.ConsumerGroupTargetAssignmentMetadataValue(),
        ):
            group.target_epoch = value.assignment_epoch
        case messages.ConsumerGroupRegularExpressionKey(), messages.ConsumerGroupRegularExpressionValue():
            group.regexes[key.regular_expression] = frozenset(value.topics)
        case messages.ConsumerGroupRegularExpressionKey(), None:
            group.regexes.pop(key.regular_expression, None)
        case messages.ConsumerGroupMemberMetadataKey(), None:
            group.members.pop(key.member_id, None)
        case (
            messages.ConsumerGroupMemberMetadataKey()
            | messages.ConsumerGroupTargetAssignmentMemberKey()
            | messages.ConsumerGroupCurrentMemberAssignmentKey(),
            _,
        ) if value is not None or key.member_id in group.members:
            _restore_member(group.restored_member(key.member_id), value, key)


def is_whole(
    group: Restorable,
    topic_ids: Callable[[Subscription], frozenset[bytes]],
    topics: Iterable[tuple[bytes, int]],
) -> bool:
    """Tell whether what was restored is all of each change: of one that was cut, a crash may have left a part.

    `topic_ids` are of what one member reads, `topics` what all do, and how many partitions there are.
    """
    members = group.members.values()
    if not max((each.current.epoch for each in members), default=0) <= group.target_epoch <= group.epoch:
        return False
    if not members or group.target_epoch < group.epoch:
        return True  # All is shared out anew by the next heartbeat.
    if any(
        each.current.epoch == 0 or not each.target.keys() <= topic_ids(each.subscription) for each in members
    ):
        return False
    shared = {partition for each in members for partition in indexes_in(each.target)}
    return all((topic, index) in shared for topic, count in topics for index in range(count))


def _restore_member(member: Member, value: Value | None, key: Key) -> None:
    match value:
        case messages.ConsumerGroupMemberMetadataValue():
            member.subscription = _subscription(value)
        case messages.ConsumerGroupTargetAssignmentMemberValue():
            member.target = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
        case messages.ConsumerGroupCurrentMemberAssignmentValue():
            member.current = _current(value)
        case None if isinstance(key, messages.ConsumerGroupTargetAssignmentMemberKey):
            member.target = NOTHING
        case None if isinstance(key, messages.ConsumerGroupCurrentMemberAssignmentKey):
            member.current = NEW


def _subscription(value: messages.ConsumerGroupMemberMetadataValue) -> Subscription:
    classic = value.classic_member_metadata
    return Subscription(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else Classic(
            classic.session_timeout_ms,
            tuple((each.name, each.metadata) for each in classic.supported_protocols),
        ),
    )


def _current(value: messages.ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        Progress(value.state) if value.state in _KNOWN else Progress.UNKNOWN,
        {each.topic_id: frozenset(each.partitions) for each in value.assigned_partitions},
        {each.topic_id: frozenset(each.partitions) for each in value.partitions_pending_revocation},
    )
