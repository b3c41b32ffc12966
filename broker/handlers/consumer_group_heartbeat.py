"""ConsumerGroupHeartbeat.

Versions: 0-1 (1: regular expressions, KIP-848, and member ids that clients generate, KIP-1082).
Behaviour: with it a member joins, stays or leaves, and gets its assignment. Responds when the change is on disk.
Regular expressions have RE2 syntax and match the whole name of a topic.
Departures from Kafka: memory for groups is bounded (`group.state.max.bytes`, half of it for one address). A member that
does not fit, with the topics that match its regular expression, gets GROUP_MAX_SIZE_REACHED. The topic names of one
member may have 128 Ki letters together, and a regular expression 250 letters, and 128 KiB when it is compiled. A member
with a regular expression gets its response when the matching topics are known; in Kafka it has to wait for its next
heartbeat. Classic groups with librdkafka's sticky assignor can be upgraded too. `uniform` moves fewer partitions than
Kafka's if the members had unequal shares. If a member changes its instance id, the old id is free; in Kafka a client
that joins with the old id gets UNKNOWN_MEMBER_ID until the broker restarts.
"""

from typing import Final

from tidelog.broker.groups.assignors import Assignment
from tidelog.broker.groups.consumer_member import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    MEMBER_BYTES,
    Heartbeat,
    Owned,
    owned_of,
)
from tidelog.broker.groups.memory import text_bytes
from tidelog.broker.groups.services import GroupError
from tidelog.broker.session import Session
from tidelog.broker.work import MANY, SHORT, loop, reader
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages import consumer_group_heartbeat as messages
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

ID_OF_CLIENT_SINCE: Final = 1
MOST_CLIENT_ID: Final = 1000
# A member's subscription is stored as one record, which has to fit into a batch.
MOST_SUBSCRIPTION_LETTERS: Final = 128 << 10


async def handle(
    session: Session, request: ConsumerGroupHeartbeatRequest, version: int
) -> ConsumerGroupHeartbeatResponse:
    """Let a member join, stay or leave."""
    groups = session.broker.groups
    try:
        owned = await _owned(session, request)
        _check(session, request, version)
        if request.member_epoch == 0 and groups.log.topic is None:
            await groups.create_log(session)
            _check(session, request, version)
        heartbeat = _heartbeat(session, request, owned)
        joining = heartbeat if heartbeat.epoch == 0 else None
        group = groups.consumer_group(request.group_id, session.address, joining)
        is_leaving = heartbeat.epoch in (LEAVES, LEAVES_FOR_A_WHILE)
        outcome = group.consumer_leave(heartbeat) if is_leaving else group.consumer_heartbeat(heartbeat)
        del request, owned, heartbeat, joining  # They may be large, and the member may wait for long.
        try:
            assigned = await outcome
        finally:
            groups.forget_if_unused(group)
    except GroupError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=str(error) or None, member_epoch=0, heartbeat_interval_ms=0
        )
    interval_ms = session.broker.config.group_consumer_heartbeat_interval_ms
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=assigned.member_id,
        member_epoch=assigned.epoch,
        heartbeat_interval_ms=0 if is_leaving else interval_ms,
        assignment=None if assigned.assignment is None else _assignment(assigned.assignment),
    )


async def _owned(session: Session, request: ConsumerGroupHeartbeatRequest) -> Owned:
    """Return the partitions that the member reports as its own. A long list is read on a reader thread."""
    partitions, group = request.topic_partitions, session.broker.groups.group(request.group_id)
    if not partitions or group is None or request.member_id not in group.members:
        # A client that is not a member is refused whatever it owns.
        return None if partitions is None else {}
    if len(partitions) > MANY:
        await reader(SHORT)
    owned = owned_of((each.topic_id, each.partitions) for each in partitions)
    await loop()
    return owned


def _check(session: Session, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Refuse an invalid request, as Kafka does, or one that does not fit into memory."""
    if code := session.broker.groups.problem(request.group_id, is_member=False):
        raise GroupError(code, "")
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise GroupError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if (version >= ID_OF_CLIENT_SINCE or request.member_epoch) and not request.member_id.strip():
        raise GroupError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if request.member_epoch < LEAVES_FOR_A_WHILE:
        raise GroupError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.member_epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        raise GroupError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    if request.member_epoch == 0:
        _check_joining(request)
    names = request.subscribed_topic_names or []
    if sum(len(name) + 3 for name in names) > MOST_SUBSCRIPTION_LETTERS:
        raise GroupError(ErrorCode.INVALID_REQUEST, "the subscription is too long to be stored")
    assignors = session.broker.config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise GroupError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor[:100]} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
    _check_room(session, request)


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise GroupError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise GroupError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        raise GroupError(ErrorCode.INVALID_REQUEST, message)


def _check_room(session: Session, request: ConsumerGroupHeartbeatRequest) -> None:
    """Refuse a new member or a longer subscription that does not fit into memory."""
    groups = session.broker.groups
    group = groups.group(request.group_id)
    member = None if group is None else group.members.get(request.member_id)
    names = request.subscribed_topic_names or []
    more = sum(map(text_bytes, names)) + text_bytes(request.subscribed_topic_regex or "")
    more += groups.new_group_bytes(request.group_id)
    more += MEMBER_BYTES if member is None else -member.size_bytes
    if request.member_epoch >= 0 and not groups.memory.has_room(session.address, more):
        raise GroupError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, "there is no memory for more (group.state.max.bytes)"
        )


def _heartbeat(session: Session, request: ConsumerGroupHeartbeatRequest, owned: Owned) -> Heartbeat:
    names = request.subscribed_topic_names
    return Heartbeat(
        member_id=request.member_id or session.broker.groups.services.new_id(),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=(session.client_id or "")[:MOST_CLIENT_ID],
        client_host=f"/{session.address}",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else frozenset(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
    )


def _assignment(assignment: Assignment) -> messages.Assignment:
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic_id=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(assignment.items())
        ]
    )
