"""OffsetCommit.

Versions: 0-9 (9: member epochs, KIP-848; 10 names topics by id and is not served yet).
Behaviour: the answer leaves when the offsets are on disk, in `__consumer_offsets`. Any client may commit for a group
without members. `retention_time_ms` (2-4) and the time of a commit (1) are honoured, as in Kafka.
Departures from Kafka: the answer waits for the disk, not only for the page cache. A request with more than 100 offsets,
or 64 KiB of records, is stored in parts: if the member leaves or the group is deleted in between, the rest is refused.
Memory for groups is bounded (`group.state.max.bytes`, half of it for one address); beyond that, the first commit of a
partition gets INVALID_COMMIT_OFFSET_SIZE. Commits of version 0 are stored with all others, not in ZooKeeper. A member
of the consumer protocol must commit in its current epoch, otherwise it gets STALE_MEMBER_EPOCH, as in Kafka up to 4.2;
later releases accept an earlier epoch for partitions that the member has had since (KIP-1251).
"""

from functools import partial

from tidelog.broker.flusher import ANSWER_BYTES
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.coordinator import COMMITTED_AT_ONCE, COMMITTED_AT_ONCE_BYTES, Replaced
from tidelog.broker.groups.log import RECORD_BYTES
from tidelog.broker.groups.offsets import NEVER, Committed
from tidelog.broker.partition import Partition
from tidelog.broker.session import Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import loop, turn
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

MEMBER_EPOCH_SINCE = 9


async def handle(session: Session, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
    """Store offsets of a group."""
    groups = session.broker.groups
    code = groups.problem(request.group_id, is_member=False) or _membership_problem(session, request, version)
    if code:
        return await _refuse(request, code)
    await groups.create_log(session)
    return await _Commit(session, request, version).store()


def _membership_problem(
    session: Session, request: OffsetCommitRequest, version: int, has_written: bool = False
) -> ErrorCode:
    """Return why offsets may not be committed. If the request `has_written`, a missing group was deleted in between."""
    group = session.broker.groups.group(request.group_id)
    generation = request.generation_id_or_member_epoch
    is_old = version < MEMBER_EPOCH_SINCE
    if group is None:
        if generation < 0 and not has_written:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if is_old else ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ConsumerGroup):
        return group.commit_problem(request.member_id, request.group_instance_id, generation, is_old=is_old)
    return group.commit_problem(request.member_id, request.group_instance_id, generation)


async def _refuse(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            await loop()
            answers.append(_answer(partition, code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return OffsetCommitResponse(topics=topics)


def _answer(partition: OffsetCommitRequestPartition, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)


class _Commit:
    """One request: the offsets to write next, and those written."""

    def __init__(self, session: Session, request: OffsetCommitRequest, version: int) -> None:
        self._broker = session.broker
        self._groups = session.broker.groups
        self._request = request
        # Checked before each batch, because the group may change between two of them.
        self._problem = partial(_membership_problem, session, request, version)
        self._now_ms = session.broker.clock.now_ms()
        self._address = session.address
        # The additional memory of the offsets to write next.
        self._more_bytes = self._groups.new_group_bytes(request.group_id)
        self._group_bytes = RECORD_BYTES + len(request.group_id.encode())
        self._next: list[tuple[str, int, Committed]] = []
        self._next_bytes = 0  # the size of their records
        self._next_answers: list[OffsetCommitResponsePartition] = []
        self._stored: list[OffsetCommitResponsePartition] = []
        self._replaced: list[Replaced] = []
        self._partitions: set[Partition] = set()

    async def store(self) -> OffsetCommitResponse:
        """Store the valid offsets, one batch at a time."""
        topics = []
        for named in self._request.topics:
            topic = self._broker.topics.by_name.get(named.name)
            answers = []
            for partition in named.partitions:
                await loop()
                answers.append(self._take(named.name, topic, partition))
                if len(self._next) == COMMITTED_AT_ONCE or self._next_bytes >= COMMITTED_AT_ONCE_BYTES:
                    self._write()
                    await turn()
            topics.append(OffsetCommitResponseTopic(name=named.name, partitions=answers))
        self._write()
        size_bytes = ANSWER_BYTES * len(self._stored)
        if not await self._groups.are_on_disk(self._partitions, size_bytes):
            for answer in self._stored:
                answer.error_code = ErrorCode.NOT_COORDINATOR
            self._groups.roll_back(self._request.group_id, self._replaced)
        return OffsetCommitResponse(topics=topics)

    def _take(
        self, name: str, topic: Topic | None, partition: OffsetCommitRequestPartition
    ) -> OffsetCommitResponsePartition:
        """Add a partition to the next batch, if it is valid; return its answer, which holds if the write succeeds."""
        index, metadata = partition.partition_index, partition.committed_metadata or ""
        if topic is None or topic.partition(index) is None:
            return _answer(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if len(metadata) > self._broker.config.offset_metadata_max_bytes:
            return _answer(partition, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        retention_ms = self._request.retention_time_ms
        committed = Committed(
            partition.committed_offset,
            partition.committed_leader_epoch,
            metadata,
            self._now_ms if partition.commit_timestamp < 0 else partition.commit_timestamp,
            NEVER if retention_ms < 0 else self._now_ms + retention_ms,
            topic.id,
            self._address,
        )
        before = self._groups.committed(self._request.group_id, name, index)
        more = committed.size_bytes - (0 if before is None else before.size_bytes)
        if more > 0 and not self._groups.memory.has_room(self._address, self._more_bytes + more):
            return _answer(partition, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        self._more_bytes += more
        self._next.append((name, index, committed))
        self._next_bytes += self._group_bytes + len(name) + len(metadata)
        answer = _answer(partition, ErrorCode.NONE)
        self._next_answers.append(answer)
        return answer

    def _write(self) -> None:
        if not self._next:
            return
        written: Partition | ErrorCode = self._groups.problem(self._request.group_id, is_member=False)
        written = written or self._problem(has_written=bool(self._stored))
        if not written:
            written = self._groups.put(self._request.group_id, self._next, self._replaced)
        if isinstance(written, Partition):
            self._partitions.add(written)
            self._stored += self._next_answers
        else:
            for answer in self._next_answers:
                answer.error_code = written
        self._next, self._next_answers, self._more_bytes, self._next_bytes = [], [], 0, 0
