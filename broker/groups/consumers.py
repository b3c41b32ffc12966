"""What consumer groups are handed by the broker, and how a group of one kind becomes one of the other.

Owns where long work of a group is done: on the maintenance thread, step by step. Event loop only.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.groups import topic_patterns
from tidelog.broker.groups.assignors import ASSIGNORS, Assignment, Counts, Members, effort, in_steps
from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.consumer_member import Classic, Subscription
from tidelog.broker.groups.consumer_parts import (
    Assigned,
    Beat,
    Changes,
    ConsumerSurroundings,
    Matched,
    Refused,
    Store,
    check_regex,
    check_room,
    owned_of,
)
from tidelog.broker.groups.member import chosen
from tidelog.broker.groups.memory import Memory
from tidelog.broker.groups.mixed import MixedGroup, is_too_large
from tidelog.broker.groups.states import DEAD, EMPTY
from tidelog.broker.maintenance import Maintenance, Task
from tidelog.broker.timers import Timers
from tidelog.broker.topics import Topics
from tidelog.config.options import BrokerConfig
from tidelog.protocol.coordinator.consumer_protocol import (
    ProtocolTopicPartitions,
    assignment_of,
    subscription_of,
    written_assignment,
    written_subscription,
)
from tidelog.protocol.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from tidelog.protocol.coordinator.records import group_key
from tidelog.protocol.coordinator.subscription import CONSUMER
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.wire.errors import WireError

_log = logging.getLogger(__name__)

# Up to such an effort all is shared out at once, in some milliseconds; more on the other thread.
AT_ONCE: Final = 1000

# Of the classic protocol, whose data of their own may be lost: librdkafka has some where Kafka's clients have none, and
# Kafka refuses to upgrade its groups.
KNOWN_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
# Why a classic group cannot become a consumer group, in Kafka's words.
MALFORMED: Final = "the embedded consumer protocol is malformed"


def surroundings(
    config: BrokerConfig,
    clock: Clock,
    timers: Timers,
    topics: Topics,
    maintenance: Callable[[], Maintenance],
    store: Store,
    memory: Memory,
    downgrade: Callable[[Any, frozenset[str], Subscription | None], Any],
) -> ConsumerSurroundings:
    """Return what consumer groups are handed."""

    def topic(name: str) -> tuple[bytes, int] | None:
        found = topics.by_name.get(name)
        return None if found is None else (found.id, len(found.partitions))

    def topic_name(topic_id: bytes) -> str | None:
        found = topics.by_id.get(topic_id)
        return None if found is None else found.name

    def assign(group_id: str, name: str, members: Members, counts: Counts, then: Assigned) -> None:
        if effort(name, members, counts) <= AT_ONCE:
            then(ASSIGNORS[name](members, counts))
            return

        def take(found: Mapping[str, Assignment] | None) -> None:
            # Where it was stopped, so is the broker: what there is stays, and is shared out after the next start.
            if found is not None:
                then(found)

        # What fails leaves everything as it is.
        as_it_is = {member_id: each.has for member_id, each in members.items()}
        _do(group_id, in_steps(name, members, counts), as_it_is, take)

    def resolve(
        group_id: str, regexes: Sequence[str], names: Sequence[str] | None, most: int, then: Matched
    ) -> None:
        nothing = dict.fromkeys(regexes, frozenset[str]())
        task = topic_patterns.matches(regexes, topics.names() if names is None else names, most)
        _do(group_id, task, nothing, then)

    def _do(group_id: str, task: Task[Any], otherwise: Any, then: Callable[[Any], None]) -> None:
        later = maintenance().submit(task, owner=group_id, for_group=True)
        later.ready = lambda: then(_outcome(later, otherwise))

    return ConsumerSurroundings(
        now_ms=clock.now_ms,
        monotonic_ms=clock.monotonic_ms,
        call_later=timers.call_later,
        new_id=lambda: str(uuid.uuid4()),
        store=store,
        hold=memory.hold,
        room=memory.room_bytes,
        topic=topic,
        assign=assign,
        resolve=resolve,
        regex_problem=topic_patterns.problem,
        topic_name=topic_name,
        downgrade=downgrade,
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        max_size=config.group_consumer_max_size,
        default_assignor=config.group_consumer_assignors[0],
    )


def _outcome(later: Later, otherwise: Any) -> Any:
    if isinstance(later.response, Exception):
        _log.error("groups: not done", exc_info=later.response)
        return otherwise
    return later.response


def is_empty(group: ClassicGroup | MixedGroup) -> bool:
    """Tell whether nobody is a member."""
    return not group.members if isinstance(group, MixedGroup) else group.state is EMPTY


def gives_way(group: ClassicGroup | MixedGroup | None) -> bool:
    """Tell whether a classic group is made for a member that joins: there is none, or a consumer group of nobody."""
    return group is None or (isinstance(group, MixedGroup) and not group.members and not group.is_awaited)


def is_dead(group: ClassicGroup | MixedGroup) -> bool:
    """Tell whether it is no more."""
    return group.is_dead if isinstance(group, MixedGroup) else group.state is DEAD


def tombstones(group: ClassicGroup | MixedGroup) -> Changes:
    """Return what takes back all that was stored of a group."""
    return (
        group.tombstones() if isinstance(group, MixedGroup) else {**group.former, group_key(group.id): None}
    )


def former(group: MixedGroup) -> Changes:
    """Return what takes back all that was stored of a group, before it is written as a classic one."""
    changes = tombstones(group)
    changes.pop(group_key(group.id), None)
    return changes


def check_joins(classic: ClassicGroup, joining: Beat, around: ConsumerSurroundings) -> None:
    """Refuse who could not join the consumer group that takes the place of a classic one, while that is there."""
    if not (classic.member(joining.member_id, None) or classic.member("", joining.instance_id)):
        check_room(classic.id, len(classic.members), around.max_size)
    check_regex(joining.regex, around)


def no_upgrade(group_id: str, why: str) -> str:
    """Return what is answered where a classic group cannot become a consumer group, in Kafka's words."""
    return f"Cannot upgrade classic group {group_id[:100]} to consumer group because {why}."


def upgraded(classic: ClassicGroup, joining: Beat, around: ConsumerSurroundings) -> MixedGroup:
    """Return a consumer group that goes on where a classic one is, for who joins. Raise Refused where it cannot."""
    if classic.protocol_type != CONSUMER:
        why = no_upgrade(classic.id, "the group does not use the consumer embedded protocol")
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, why)
    if len(classic.members) > around.max_size:
        why = no_upgrade(classic.id, "the group size exceeds the consumer group maximum size")
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, why)
    if any(is_too_large(member.protocols) for member in classic.members.values()):
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"a member of group {classic.id} says more than can be stored of it"
        )
    # Who is refused must cost little: to read what all members say, of groups that say much, takes a second.
    check_joins(classic, joining, around)
    members = _members_of(classic, around)
    host = classic.taken.host
    group = MixedGroup(classic.id, around, host)
    around.hold(host, group.taken.size_bytes)
    # Kafka's replay drops the group, of whatever kind, where it meets that the classic one is no more: first of all.
    group.take_back(tombstones(classic))
    group.take_over(classic.generation, members)
    return group


def _members_of(
    classic: ClassicGroup, around: ConsumerSurroundings
) -> list[tuple[str, Subscription, Assignment]]:
    """Return all members as they say; raise Refused where one does not speak as consumers do, and remember that."""
    unfit, everybody = classic.unfit_hash, classic.members.values()
    if unfit is not None and any(_said_hash(classic, member) == unfit for member in everybody):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, no_upgrade(classic.id, MALFORMED))
    members = []
    for member in everybody:
        try:
            members.append(_member_of(member.id, member, classic.protocol, around))
        except WireError as error:
            classic.unfit_hash = _said_hash(classic, member)
            _log.info("groups: cannot be upgraded group=%r error=%r", classic.id[:100], str(error))
            why = no_upgrade(classic.id, f"{MALFORMED}: {error}")
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, why) from None
    return members


def _said_hash(classic: ClassicGroup, member: Any) -> int:
    """Return a hash of all that it depends on whether a member can be read. Python keeps those of long bytes."""
    return hash((classic.protocol, tuple(member.protocols), member.assignment))


def _member_of(
    member_id: str, member: Any, protocol: str | None, around: ConsumerSurroundings
) -> tuple[str, Subscription, Assignment]:
    said = subscription_of(member.metadata(protocol) or member.protocols[0][1])
    assigned: dict[bytes, frozenset[int]] = {}
    if member.assignment:
        assignment = assignment_of(member.assignment)
        if assignment.user_data and protocol not in KNOWN_ASSIGNORS:
            raise WireError("an assignor of its own, whose data would be lost")
        assigned = owned_of(_there(assignment.assigned_partitions, around))
    subscription = Subscription(
        instance_id=member.instance_id,
        rack_id=said.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(said.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=Classic(member.session_timeout_ms, tuple(member.protocols)),
    )
    return member_id, subscription, assigned


def _there(
    assigned: Iterable[ProtocolTopicPartitions], around: ConsumerSurroundings
) -> Iterator[tuple[bytes, list[int]]]:
    """Yield what there is of an assignment, by the ids of its topics."""
    for each in assigned:
        found = around.topic(each.topic)
        indexes = [] if found is None else [index for index in each.partitions if 0 <= index < found[1]]
        if found is not None and indexes:
            yield found[0], indexes


def downgraded(
    group: MixedGroup, leaving: frozenset[str], coming_back: Subscription | None, now_ms: int
) -> GroupMetadataValue:
    """Return a classic group that goes on where a consumer group is, without some of its members.

    Who stays speaks the classic protocol, be it that its instance is `coming_back` and says so by now.
    """
    staying = []
    for member in group:
        said = member.subscription
        if coming_back is not None and said.instance_id == coming_back.instance_id:
            said = coming_back
        if member.id not in leaving and said.classic is not None:
            staying.append((member, said, said.classic))
    # What all of them know, the one that comes back as well: it is not to be refused in the group that is made for it.
    known = Counter(name for _, _, classic in staying for name, _ in classic.protocols)
    protocol = chosen([classic for _, _, classic in staying], known)
    members = []
    for member, said, classic in staying:
        metadata = dict(classic.protocols)[protocol] or written_subscription(sorted(said.topics))
        members.append(
            MemberMetadata(
                member_id=member.id,
                group_instance_id=said.instance_id,
                client_id=said.client_id,
                client_host=said.client_host,
                rebalance_timeout=said.rebalance_timeout_ms,
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
