"""OffsetFetch.

Versions: 0-9 (10, which names topics by id, is not supported yet).
Behaviour: a request may ask for all partitions (version 2 and later) and for several groups (version 8 and later,
KIP-709); from version 9 on a member of a consumer group sends its epoch. A partition without a commit has offset -1 and
no error, also if the group or the topic does not exist. A topic that was deleted and created again does not get the old
offsets. If a request names a group several times, the last entry counts. Each partition appears once in the response.
`require_stable` has no effect: without transactions, no commit is ever pending.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.coordinator import Coordinator
from tidelog.broker.groups.offsets import Committed
from tidelog.broker.session import Session
from tidelog.broker.work import Coro, loop
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

SEVERAL_SINCE = 8
ERROR_OF_GROUP_SINCE = 2
NOTHING = -1  # the offset if nothing was committed

Asked = Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None


def handle(session: Session, request: OffsetFetchRequest, version: int) -> Coro[OffsetFetchResponse]:
    """Return the committed offsets of groups."""
    groups = session.broker.groups
    if version >= SEVERAL_SINCE:
        return _all(groups, request)
    return _one(groups, request, version)


async def _all(groups: Coordinator, request: OffsetFetchRequest) -> OffsetFetchResponse:
    answers = []
    # The last entry of each group only, so that a small request cannot get the same large answer many times.
    for asked in {each.group_id: each for each in request.groups}.values():
        await loop()
        code = groups.problem(asked.group_id, is_member=False) or _membership_problem(groups, asked)
        topics = [] if code else (await _topics(groups, asked.group_id, asked.topics))
        made = [
            OffsetFetchResponseTopics(
                name=name, partitions=[OffsetFetchResponsePartitions(**each) for each in partitions]
            )
            for name, partitions in topics
        ]
        answers.append(OffsetFetchResponseGroup(group_id=asked.group_id, topics=made, error_code=code))
    return OffsetFetchResponse(groups=answers)


def _membership_problem(groups: Coordinator, asked: OffsetFetchRequestGroup) -> ErrorCode:
    """Return why a member of a consumer group may not fetch offsets."""
    group = groups.group(asked.group_id)
    if isinstance(group, ConsumerGroup):
        return group.fetch_problem(asked.member_id, asked.member_epoch)
    return ErrorCode.NONE


async def _one(groups: Coordinator, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    code = groups.problem(request.group_id, is_member=False)
    if code and version >= ERROR_OF_GROUP_SINCE:
        return OffsetFetchResponse(error_code=code)
    topics = await _topics(groups, request.group_id, request.topics, code)
    made = [
        OffsetFetchResponseTopic(
            name=name, partitions=[OffsetFetchResponsePartition(**each) for each in partitions]
        )
        for name, partitions in topics
    ]
    return OffsetFetchResponse(topics=made)


async def _topics(
    groups: Coordinator, group_id: str, asked: Asked, code: ErrorCode = ErrorCode.NONE
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the fields of each partition's answer, by topic."""
    found = []
    offsets = groups.offsets.get(group_id)
    committed = {} if offsets is None or code else offsets.topics
    if asked is None:
        # Copies, because commits may change the offsets between the steps.
        for name, by_partition in list(committed.items()):
            partitions = await _partitions(groups.topic_id(name), list(by_partition.items()), code)
            if partitions := [each for each in partitions if each["committed_offset"] != NOTHING]:
                found.append((name, partitions))
        return found
    # Each partition once: it takes four bytes in the request, and its metadata may have kilobytes.
    indexes: dict[str, dict[int, None]] = {}
    for topic in asked:
        await loop()
        indexes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, named in indexes.items():
        await loop()
        by_partition = committed.get(name, {})
        wanted = [(index, by_partition.get(index)) for index in named]
        found.append((name, (await _partitions(groups.topic_id(name), wanted, code))))
    return found


async def _partitions(
    topic_id: bytes | None, committed: Sequence[tuple[int, Committed | None]], code: ErrorCode
) -> list[dict[str, Any]]:
    answers = []
    for index, each in committed:
        await loop()
        answers.append(_fields(index, each if each is not None and each.is_of(topic_id) else None, code))
    return answers


def _fields(index: int, committed: Committed | None, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": NOTHING if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": code,
    }
