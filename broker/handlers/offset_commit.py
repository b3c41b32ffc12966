"""OffsetCommit.

Versions: 0-9 (9: member epochs, KIP-848; 10, which names topics by id, is not supported yet).
Behaviour: responds when the offsets are on disk, in `__consumer_offsets`. Any client may commit for a group without
members. `retention_time_ms` (2-4) and the commit timestamp (1) are honoured, as in Kafka.
Departures from Kafka: the response waits for the disk, not only for the page cache. A request with more than 100
offsets, or 64 KiB of records, is stored in parts: if the member leaves or the group is deleted in between, the
remaining commits get an error. Memory for groups is bounded (`group.state.max.bytes`, half of it for one address);
beyond that, the first commit of a partition gets INVALID_COMMIT_OFFSET_SIZE. Commits of version 0 are stored with all
others, not in ZooKeeper. A member of the consumer protocol must commit in its current epoch, otherwise it gets
STALE_MEMBER_EPOCH, as in Kafka up to 4.2; later releases accept an earlier epoch for partitions that the member has had
since (KIP-1251).
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from tidelog.broker.answers import Later
from tidelog.broker.flusher import ANSWER_BYTES
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.coordinator import COMMITTED_AT_ONCE, COMMITTED_AT_ONCE_BYTES, Replaced
from tidelog.broker.groups.log import RECORD_BYTES
from tidelog.broker.groups.offsets import NEVER, Committed
from tidelog.broker.partition import Partition
from tidelog.broker.session import Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import Coro, loop, maybe_await, turn
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

MEMBER_EPOCH_SINCE: Final = 9
_STORED: Final = object()


def handle(
    session: Session, request: OffsetCommitRequest, version: int
) -> OffsetCommitResponse | Later | Coro[OffsetCommitResponse]:
    """Store offsets of a group: as many as one batch takes at once, more in several turns."""
    if code := _problem(session, request, version):
        return _refuse(request, code)
    if session.broker.groups.log.topic is None:
        return _store_first(session, request, version)
    return _store(session, request, version)


async def _store_first(session: Session, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
    """Create the topic of offsets before."""
    await session.broker.groups.create_log(session)
    if code := _problem(session, request, version):
        return await _refuse(request, code)
    return await maybe_await(_store(session, request, version))


def _store(
    session: Session, request: OffsetCommitRequest, version: int
) -> OffsetCommitResponse | Later | Coro[OffsetCommitResponse]:
    commit = _Commit(session, request, version)
    steps = commit.store()
    # Most requests need one step, and no coroutine.
    return commit.answer() if next(steps, _STORED) is _STORED else commit.answer_after(steps)


def _problem(
    session: Session, request: OffsetCommitRequest, version: int, has_written: bool = False
) -> ErrorCode:
    """Return why offsets may not be committed now."""
    return session.broker.groups.problem(request.group_id, is_member=False) or _membership_problem(
        session, request, version, has_written
    )


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

    __slots__ = (
        "_address",
        "_broker",
        "_group_bytes",
        "_groups",
        "_more_bytes",
        "_next",
        "_next_answers",
        "_next_bytes",
        "_now_ms",
        "_partitions",
        "_problem",
        "_replaced",
        "_request",
        "_session",
        "_stored",
        "_topics",
        "_version",
    )

    def __init__(self, session: Session, request: OffsetCommitRequest, version: int) -> None:
        """Begin with a request that nothing speaks against in this turn."""
        self._session = session
        self._broker = session.broker
        self._groups = session.broker.groups
        self._request = request
        self._version = version
        self._problem = ErrorCode.NONE
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
        self._topics: list[OffsetCommitResponseTopic] = []

    def store(self) -> Iterator[None]:
        """Store the valid offsets, one batch at a time; others have a turn at each `yield`."""
        taken = 0
        for named in self._request.topics:
            topic = self._broker.topics.by_name.get(named.name)
            answers: list[OffsetCommitResponsePartition] = []
            self._topics.append(OffsetCommitResponseTopic(name=named.name, partitions=answers))
            for partition in named.partitions:
                if taken == COMMITTED_AT_ONCE or self._next_bytes >= COMMITTED_AT_ONCE_BYTES:
                    self._write()
                    taken = 0
                    yield
                    # The group and the topics may have changed.
                    self._problem = _problem(
                        self._session, self._request, self._version, has_written=bool(self._stored)
                    )
                    topic = self._broker.topics.by_name.get(named.name)
                taken += 1
                answers.append(self._take(named.name, topic, partition))
        self._write()

    def answer(self) -> OffsetCommitResponse | Later:
        """Return the response, at once or when the offsets are on disk."""
        response = OffsetCommitResponse(topics=self._topics)
        size_bytes = ANSWER_BYTES * len(self._stored)
        answer: OffsetCommitResponse | Later = self._groups.log.on_disk(
            self._partitions, response, partial(self._fail, response), size_bytes
        )
        return answer

    async def answer_after(self, steps: Iterator[None]) -> OffsetCommitResponse:
        """Take the remaining steps in later turns, and return the response when the offsets are on disk."""
        await turn()
        for _ in steps:
            await turn()
        return await maybe_await(self.answer())

    def _fail(self, response: OffsetCommitResponse, _failures: object) -> OffsetCommitResponse:
        """Take back offsets that could not be put on disk."""
        for answer in self._stored:
            answer.error_code = ErrorCode.NOT_COORDINATOR
        self._groups.roll_back(self._request.group_id, self._replaced)
        return response

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
        written: Partition | ErrorCode = self._problem or self._groups.put(
            self._request.group_id, self._next, self._replaced
        )
        if isinstance(written, Partition):
            self._partitions.add(written)
            self._stored += self._next_answers
        else:
            for answer in self._next_answers:
                answer.error_code = written
        self._next, self._next_answers, self._more_bytes, self._next_bytes = [], [], 0, 0
