"""The state of a consumer group as records of `__consumer_offsets`, in Kafka's formats, and back.

The records of members and of their group may come in any order. Each record creates the object that it describes if
that does not exist, and a tombstone deletes only that.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from tidelog.broker.groups.assignors import Assignment
from tidelog.broker.groups.consumer_member import (
    NEW,
    NOTHING,
    Classic,
    ConsumerMember,
    Current,
    Progress,
    Subscription,
    indexes_in,
)
from tidelog.protocol.coordinator import messages
from tidelog.protocol.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.protocol.coordinator.records import written_key


class Restorable(Protocol):
    """The stored attributes of a group."""

    epoch: int
    target_epoch: int
    metadata_hash: int
    members: dict[str, ConsumerMember]

    @property
    def regexes(self) -> dict[str, frozenset[str]]:
        """The matching topics by regular expression."""


_KNOWN: Final = {each.value for each in Progress}


def member_value(subscription: Subscription) -> ConsumerGroupMemberMetadataValue:
    """Return a member's subscription in its stored form."""
    classic = subscription.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topics),
        subscribed_topic_regex=subscription.regex,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        server_assignor=subscription.assignor,
        classic_member_metadata=None
        if classic is None
        else messages.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                messages.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )


def target_value(target: Assignment) -> ConsumerGroupTargetAssignmentMemberValue:
    """Return a member's target in its stored form."""
    partitions = [
        messages.TopicPartition(topic_id=topic, partitions=sorted(indexes))
        for topic, indexes in sorted(target.items())
    ]
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions)


def current_value(current: Current) -> ConsumerGroupCurrentMemberAssignmentValue:
    """Return a member's current assignment in its stored form."""
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.progress,
        assigned_partitions=_partitions(current.assigned),
        partitions_pending_revocation=_partitions(current.revoking),
    )


def _partitions(assignment: Assignment) -> list[messages.TopicPartitions]:
    return [
        messages.TopicPartitions(topic_id=topic, partitions=sorted(indexes))
        for topic, indexes in sorted(assignment.items())
    ]


def tombstones(group: str, member_ids: Iterable[str], regexes: Iterable[str]) -> dict[bytes, None]:
    """Return the tombstones for all records of a group, in the order that Kafka's replay needs."""
    ids = list(member_ids)
    keys: list[Any] = [
        *(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=each) for each in ids),
        *(ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=each) for each in ids),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group),
        *(ConsumerGroupMemberMetadataKey(group_id=group, member_id=each) for each in ids),
        *(ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=each) for each in regexes),
        ConsumerGroupMetadataKey(group_id=group),
    ]
    return dict.fromkeys(map(written_key, keys))


def restore(group: Restorable, key: Any, value: Any) -> None:
    """Apply a record to a group. A value of None is a tombstone."""
    match key, value:
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
            group.target_epoch = value.assignment_epoch
        case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
            group.regexes[key.regular_expression] = frozenset(value.topics)
        case ConsumerGroupRegularExpressionKey(), None:
            group.regexes.pop(key.regular_expression, None)
        case ConsumerGroupMemberMetadataKey(), None:
            group.members.pop(key.member_id, None)
        case (
            ConsumerGroupMemberMetadataKey()
            | ConsumerGroupTargetAssignmentMemberKey()
            | ConsumerGroupCurrentMemberAssignmentKey(),
            _,
        ) if value is not None or key.member_id in group.members:
            member = group.members.setdefault(key.member_id, ConsumerMember(key.member_id))
            _restore_member(member, key, value)


def _restore_member(member: ConsumerMember, key: Any, value: Any) -> None:
    match key, value:
        case _, ConsumerGroupMemberMetadataValue():
            member.subscription = _subscription(value)
        case _, ConsumerGroupTargetAssignmentMemberValue():
            member.target = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
        case _, ConsumerGroupCurrentMemberAssignmentValue():
            member.current = _current(value)
        case ConsumerGroupTargetAssignmentMemberKey(), None:
            member.target = NOTHING
        case ConsumerGroupCurrentMemberAssignmentKey(), None:
            member.current = NEW


def is_whole(
    group: Restorable,
    topic_ids: Callable[[Subscription], frozenset[bytes]],
    topics: Iterable[tuple[bytes, int]],
) -> bool:
    """Tell whether a restored group is consistent. A crash may have left a part of a change that took several batches.

    `topic_ids` returns the topics of one subscription; `topics` has those of all, with their numbers of partitions.
    """
    members = group.members.values()
    if not max((each.current.epoch for each in members), default=0) <= group.target_epoch <= group.epoch:
        return False
    if not members or group.target_epoch < group.epoch:
        return True  # The next heartbeat makes a new target.
    if any(
        each.current.epoch == 0 or not each.target.keys() <= topic_ids(each.subscription) for each in members
    ):
        return False
    shared = {partition for each in members for partition in indexes_in(each.target)}
    return all((topic, index) in shared for topic, count in topics for index in range(count))


def _subscription(value: ConsumerGroupMemberMetadataValue) -> Subscription:
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


def _current(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        Progress(value.state) if value.state in _KNOWN else Progress.UNKNOWN,
        {each.topic_id: frozenset(each.partitions) for each in value.assigned_partitions},
        {each.topic_id: frozenset(each.partitions) for each in value.partitions_pending_revocation},
    )
