"""Turns a classic group into a consumer group while its members go on, and back (KIP-848, online migration).

A group is upgraded when a member joins by the consumer protocol. It is downgraded when the last such member leaves, or
comes back by the classic protocol. `group.consumer.migration.policy` says which of the two is allowed.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.broker.groups.assignors import Assignment
from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.classic_member import ClassicMember, chosen_protocol
from tidelog.broker.groups.consumer import ConsumerGroup, check_regex, check_room, is_too_large
from tidelog.broker.groups.consumer_member import Classic, Heartbeat, Subscription, owned_of
from tidelog.broker.groups.log import Changes
from tidelog.broker.groups.services import GroupError, Services
from tidelog.protocol.coordinator.consumer_protocol import (
    CONSUMER,
    ProtocolTopicPartitions,
    assignment_of,
    subscription_of,
    written_assignment,
    written_subscription,
)
from tidelog.protocol.coordinator.messages import GroupMetadataValue, MemberMetadata
from tidelog.protocol.coordinator.records import group_key
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.wire.errors import WireError

_log = logging.getLogger(__name__)

# Classic assignors whose user data may be dropped. librdkafka sends some where Kafka's clients send none. Kafka refuses
# to upgrade such groups.
KNOWN_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
# Why a classic group cannot become a consumer group, in Kafka's words.
MALFORMED: Final = "the embedded consumer protocol is malformed"


def former(group: ConsumerGroup) -> Changes:
    """Return the tombstones for a consumer group that is about to be stored as a classic one."""
    changes = group.tombstones()
    changes.pop(group_key(group.id), None)
    return changes


def check_joins(classic: ClassicGroup, joining: Heartbeat, services: Services) -> None:
    """Refuse a member that could not join the consumer group, before the classic one is replaced."""
    if not (classic.member(joining.member_id, None) or classic.member("", joining.instance_id)):
        check_room(classic.id, len(classic.members), services)
    check_regex(joining.regex)


def no_upgrade(group_id: str, why: str) -> GroupError:
    """Return the error for a classic group that cannot be upgraded, in Kafka's words."""
    text = f"Cannot upgrade classic group {group_id[:100]} to consumer group because {why}."
    return GroupError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def upgraded(classic: ClassicGroup, joining: Heartbeat, services: Services) -> ConsumerGroup:
    """Return a consumer group with the state of a classic one, for a joining member. Raise GroupError."""
    if classic.protocol_type != CONSUMER:
        raise no_upgrade(classic.id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > services.config.group_consumer_max_size:
        raise no_upgrade(classic.id, "the group size exceeds the consumer group maximum size")
    if any(is_too_large(member.protocols) for member in classic.members.values()):
        why = f"the metadata of a member of group {classic.id} is too large to be stored"
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, why)
    # Before the members are read: that may take a second, and a refusal should cost little.
    check_joins(classic, joining, services)
    members = _members_of(classic, services)
    group = ConsumerGroup(classic.id, services, classic.memory.host)
    services.memory.hold_group(group.memory)
    # The tombstone of the classic group comes first: Kafka's replay drops a group of either kind when it reads one.
    group.put_all(classic.tombstones())
    group.take_over(classic.generation, members)
    return group


def _members_of(classic: ClassicGroup, services: Services) -> list[tuple[str, Subscription, Assignment]]:
    """Return all members. Raise GroupError if one is malformed, and remember which."""
    unfit, all_members = classic.unfit_hash, classic.members.values()
    if unfit is not None and any(_metadata_hash(classic, member) == unfit for member in all_members):
        raise no_upgrade(classic.id, MALFORMED)
    members = []
    for member in all_members:
        try:
            members.append(_member_of(member, classic.protocol, services))
        except WireError as error:
            classic.unfit_hash = _metadata_hash(classic, member)
            _log.info("groups: cannot be upgraded group=%r error=%r", classic.id[:100], str(error))
            raise no_upgrade(classic.id, f"{MALFORMED}: {error}") from None
    return members


def _metadata_hash(classic: ClassicGroup, member: ClassicMember) -> int:
    """Return a hash of everything that decides whether a member can be read. Python caches the hashes of bytes."""
    return hash((classic.protocol, tuple(member.protocols), member.assignment))


def _member_of(
    member: ClassicMember, protocol: str | None, services: Services
) -> tuple[str, Subscription, Assignment]:
    parsed = subscription_of(member.metadata(protocol) or member.protocols[0][1])
    assigned: dict[bytes, frozenset[int]] = {}
    if member.assignment:
        assignment = assignment_of(member.assignment)
        if assignment.user_data and protocol not in KNOWN_ASSIGNORS:
            raise WireError("the user data of a custom assignor would be lost")
        assigned = owned_of(_there(assignment.assigned_partitions, services))
    subscription = Subscription(
        instance_id=member.instance_id,
        rack_id=parsed.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(parsed.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=Classic(member.session_timeout_ms, tuple(member.protocols)),
    )
    return member.id, subscription, assigned


def _there(
    assigned: Iterable[ProtocolTopicPartitions], services: Services
) -> Iterator[tuple[bytes, list[int]]]:
    """Yield an assignment by topic id, without topics and partitions that do not exist."""
    for each in assigned:
        found = services.topic(each.topic)
        indexes = [] if found is None else [index for index in each.partitions if 0 <= index < found[1]]
        if found is not None and indexes:
            yield found[0], indexes


def downgraded(
    group: ConsumerGroup, leaving: frozenset[str], coming_back: Subscription | None, now_ms: int
) -> GroupMetadataValue:
    """Return a classic group with the state of a consumer group, without the leaving members.

    All others use the classic protocol. `coming_back` is the new subscription of a static member that now does, too.
    """
    staying = []
    for member in group:
        subscription = member.subscription
        if coming_back is not None and subscription.instance_id == coming_back.instance_id:
            subscription = coming_back
        if member.id not in leaving and subscription.classic is not None:
            staying.append((member, subscription, subscription.classic))
    # Counts the returning member as well: the group is made for it and must not refuse it.
    known = Counter(name for _, _, classic in staying for name, _ in classic.protocols)
    protocol = chosen_protocol([classic for _, _, classic in staying], known)
    members = []
    for member, subscription, classic in staying:
        metadata = dict(classic.protocols)[protocol] or written_subscription(sorted(subscription.topics))
        members.append(
            MemberMetadata(
                member_id=member.id,
                group_instance_id=subscription.instance_id,
                client_id=subscription.client_id,
                client_host=subscription.client_host,
                rebalance_timeout=subscription.rebalance_timeout_ms,
                session_timeout=classic.session_timeout_ms,
                subscription=metadata,
                assignment=written_assignment(group.names_of(member.target), metadata),
            )
        )
    return GroupMetadataValue(
        protocol_type=CONSUMER,
        generation=group.epoch,
        protocol=protocol,
        leader=members[0].member_id,
        current_state_timestamp=now_ms,
        members=members,
    )
