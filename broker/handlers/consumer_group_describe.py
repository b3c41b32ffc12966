"""ConsumerGroupDescribe.

Versions: 0-1 (1 has the protocol of each member, KIP-1099).
Behaviour: describes the epochs of a group, and the current and target assignment of each member. A classic group gets
GROUP_ID_NOT_FOUND, as in Kafka: use DescribeGroups. Partitions of deleted topics are omitted. If a request names a
group several times, it is described once.
"""

from tidelog.broker.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from tidelog.broker.groups.assignors import Assignment
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.consumer_member import ConsumerMember
from tidelog.broker.session import Session
from tidelog.broker.topics import Topics
from tidelog.broker.work import loop
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages import consumer_group_describe as messages
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

CLASSIC, CONSUMER = 0, 1  # the protocol of a member


async def handle(
    session: Session, request: ConsumerGroupDescribeRequest, _version: int
) -> ConsumerGroupDescribeResponse:
    """Describe consumer groups."""
    groups = session.broker.groups
    described = []
    # Each group once: a request of a few bytes must not get the same large description many times.
    for group_id in dict.fromkeys(request.group_ids):
        await loop()
        group = groups.group(group_id)
        if code := groups.problem(group_id):
            described.append(_missing(group_id, code, None))
        elif isinstance(group, ConsumerGroup):
            described.append(await _describe(session, group))
        else:
            why = (
                f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a consumer group."
            )
            described.append(_missing(group_id, ErrorCode.GROUP_ID_NOT_FOUND, why))
        if request.include_authorized_operations and not described[-1].error_code:
            described[-1].authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=described)


def _missing(group_id: str, code: ErrorCode, why: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=why,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=NOT_ASKED,
    )


async def _describe(session: Session, group: ConsumerGroup) -> DescribedGroup:
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[],
        authorized_operations=NOT_ASKED,
    )
    for member in list(group):
        await loop()
        described.members.append(_member(session.broker.topics, member))
    return described


def _member(topics: Topics, member: ConsumerMember) -> messages.Member:
    subscription = member.subscription
    return messages.Member(
        member_id=member.id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topics),
        subscribed_topic_regex=subscription.regex or None,
        assignment=_assignment(topics, member.current.assigned),
        target_assignment=_assignment(topics, member.target),
        member_type=CONSUMER if subscription.classic is None else CLASSIC,
    )


def _assignment(topics: Topics, assignment: Assignment) -> messages.Assignment:
    partitions = [
        messages.TopicPartitions(
            topic_id=topic_id, topic_name=topics.by_id[topic_id].name, partitions=sorted(indexes)
        )
        for topic_id, indexes in assignment.items()
        if topic_id in topics.by_id
    ]
    return messages.Assignment(topic_partitions=sorted(partitions, key=lambda each: each.topic_name))
