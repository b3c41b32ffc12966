"""Fetch sessions (KIP-227): the broker remembers what a client fetches, and what it was sent last.

A request then names only partitions that are new or have another offset, and a response holds only those that changed.
This module makes a request into a list of partitions to look at, and makes a response of what was found; the handler
reads the records. Event loop only.

A partition of a session is either in `changed`, to be looked at for the next response, or watched: its client has
everything, and an append announces itself (`waiting.Watch`). So a poll costs what has changed, not what is fetched.
Appends do not announce that topics come and go, or that a log starts elsewhere. These events are counted, and when a
count has changed, all partitions are compared.

As in Kafka, any client that knows a session's id may use it. A session outlives its connection. It ends when it is
closed, when its last partition is forgotten, or when another session takes its place.
"""

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof
from typing import Final

from tidelog.broker.clock import Clock
from tidelog.broker.partition import Partition
from tidelog.broker.quota import Quota
from tidelog.broker.topics import Topics
from tidelog.broker.waiting import FetchWaiter, Parked, Waiters
from tidelog.broker.work import Coro, turn
from tidelog.config.options import BrokerConfig
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.storage.log_manager import LogManager

FIRST_EPOCH, FINAL_EPOCH = 0, -1
LAST_EPOCH: Final = (1 << 31) - 1  # 1 comes after it
CLOSED: Final = -2  # the epoch of a closed session
UNSENT: Final = -1  # in place of an offset that was not sent, or must be sent again
# About the memory of a session with its waiting fetch, of each of its partitions, and of each topic without its name.
SESSION_BYTES: Final = 3000
PARTITION_BYTES: Final = 700
TOPIC_BYTES: Final = 400
# The most partitions of a session: the event loop goes through all of them when topics come and go.
PARTITIONS_MAX: Final = 10_000
# Partitions of a response that are processed in a turn of the loop: 1 to 3 us each.
PARTITIONS_A_TURN: Final = 500

Key = str | bytes  # a topic's name or id


@dataclass(slots=True, eq=False)
class CachedPartition:
    """One partition of a session: what its client fetches, and the offsets it was sent last. A `waiting.Watch`."""

    session: "FetchSession"
    key: Key
    want: FetchPartition
    partition: Partition | None = None  # while it is watched
    base_bytes: int = 0  # `grown_bytes` when the watch began
    high_watermark: int = UNSENT
    last_stable_offset: int = UNSENT
    log_start_offset: int = UNSENT

    def watch(self, partition: Partition, parked: Parked) -> None:
        """Watch the partition for appends."""
        self.partition = partition
        self.base_bytes = partition.waiters.grown_bytes
        partition.waiters.watch(parked, self.session, self)

    def look(self) -> None:
        """Look at the partition for the next response."""
        if self.partition is not None:
            self.partition.waiters.unwatch(self.session)
            self.partition = None
        self.session.changed[self] = None

    def grew(self, place: Waiters) -> FetchWaiter | None:
        """Look at the partition, which has grown; return the waiting fetch if it has enough now."""
        waiter = self.released()
        size_bytes = place.grown_bytes - self.base_bytes
        return waiter if waiter is not None and waiter.grew(place, size_bytes) else None

    def released(self) -> FetchWaiter | None:
        """Look at the partition; return the waiting fetch."""
        self.partition = None
        self.session.changed[self] = None
        self.session.growths += 1
        return self.session.waiter

    def update(self, answer: PartitionData) -> bool:
        """Note what is sent; return whether any of it is new to the client."""
        if answer.error_code:
            self.high_watermark = UNSENT  # so that the end of the error is sent, too
            return True
        sent = self.high_watermark, self.last_stable_offset, self.log_start_offset
        offsets = answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
        self.high_watermark, self.last_stable_offset, self.log_start_offset = offsets
        return sent != offsets or bool(answer.records) or answer.diverging_epoch.epoch >= 0


@dataclass(slots=True, eq=False)
class FetchSession:
    """What one client fetches. Its memory is charged to `address`, that of the client that opened it."""

    id: int
    address: str
    by_id: bool
    created_ms: int
    used_ms: int
    epoch: int = FIRST_EPOCH + 1  # that the client must send next
    isolation_level: int = 0
    topics: dict[Key, dict[int, CachedPartition]] = field(default_factory=dict)
    topic_bytes: int = 0  # without their partitions
    size: int = 0  # partitions
    held_bytes: int = 0  # as charged to the quota
    # Partitions to look at. One whose records were sent moves to the end, so that all get their turn.
    changed: dict[CachedPartition, None] = field(default_factory=dict)
    growths: int = 0  # how often a watched partition has grown
    waiter: FetchWaiter | None = None  # the waiting fetch
    seen: tuple[int, int] | None = None  # `FetchSessions.numbers` when all partitions were last compared

    def all(self) -> Iterator[CachedPartition]:
        """Yield each of its partitions."""
        for partitions in self.topics.values():
            yield from partitions.values()

    def want(self, key: Key, want: FetchPartition) -> None:
        """Add a partition, or change what is fetched from it."""
        partitions = self.topics.get(key)
        if partitions is None:
            partitions = self.topics[key] = {}
            self.topic_bytes += _bytes_of_topic(key)
        cached = partitions.get(want.partition)
        if cached is None:
            cached = partitions[want.partition] = CachedPartition(self, key, want)
            self.size += 1
        cached.want = want
        cached.look()

    def forget(self, key: Key, index: int) -> None:
        """Remove a partition."""
        partitions = self.topics.get(key, {})
        cached = partitions.pop(index, None)
        if cached is None:
            return
        if not partitions:
            del self.topics[key]
            self.topic_bytes -= _bytes_of_topic(key)
        cached.look()
        del self.changed[cached]
        self.size -= 1

    def wanted(self) -> list[FetchTopic]:
        """Return the partitions to look at, in their order; successive ones of one topic are grouped."""
        topics: list[FetchTopic] = []
        last: Key | None = None
        for cached in self.changed:
            key = cached.key
            if key != last:
                last, partitions = key, list[FetchPartition]()
                named = {"topic_id": key} if self.by_id else {"topic": key}
                topics.append(FetchTopic(**named, partitions=partitions))  # type: ignore[arg-type]
            partitions.append(cached.want)
        return topics


class FetchSessions:
    """All sessions of the broker."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        topics: Topics,
        logs: LogManager,
        parked: Parked,
    ) -> None:
        """Begin without sessions."""
        self._slots = config.max_incremental_fetch_session_cache_slots
        self._eviction_ms = config.min_incremental_fetch_session_eviction_ms
        self._quota = Quota(config.fetch_session_max_bytes)
        self._now_ms = clock.monotonic_ms
        self._topics = topics
        self._logs = logs
        self._parked = parked
        self._sessions: dict[int, FetchSession] = {}  # the least recently used first

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    @property
    def held_bytes(self) -> int:
        """The memory of all sessions, as charged."""
        return self._quota.total_bytes

    @property
    def numbers(self) -> tuple[int, int]:
        """Counts that change when topics come or go, or when a log starts elsewhere."""
        return self._topics.changes, self._logs.shared.start_moves

    # Incremental requests.

    def resume(self, request: FetchRequest, by_id: bool) -> "FetchSession | ErrorCode":
        """Apply an incremental request to its session; return the session, or the error.

        A session without partitions is closed, and its request is answered without a session.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id is not by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if request.topics or request.forgotten_topics_data:
            has_room = self._update(session, request)
            if not session.size or not has_room:
                self.close(session.id)
                # The client continues with a full request, whose response has no session id.
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND if session.size else ErrorCode.NONE
        if session.waiter is not None:
            session.waiter.hurry()  # an earlier request, whose epoch is over
            session.waiter = None
        session.epoch = session.epoch + 1 if session.epoch < LAST_EPOCH else 1
        session.used_ms = self._now_ms()
        del self._sessions[session.id]
        self._sessions[session.id] = session
        # Partitions that have grown, but have not announced it to all watches yet.
        for place in self._parked.growing:
            if (watch := place.unwatch(session)) is not None:
                watch.released()
        numbers = self.numbers
        if session.seen != numbers or session.isolation_level != request.isolation_level:
            self._compare(session, request.isolation_level)
        return session

    def _update(self, session: FetchSession, request: FetchRequest) -> bool:
        """Add, change and forget the partitions that a request names; return whether there is room for them."""
        by_id = session.by_id
        for named in (request.topics, request.forgotten_topics_data):
            if sum(len(topic.partitions) for topic in named) > PARTITIONS_MAX:
                return False
        for topic in request.topics:
            for want in topic.partitions:
                session.want(topic.topic_id if by_id else topic.topic, want)
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.forget(forgotten.topic_id if by_id else forgotten.topic, index)
        more_bytes = _bytes_of(session.size, session.topic_bytes) - session.held_bytes
        if more_bytes > 0 and (session.size > PARTITIONS_MAX or more_bytes > self._quota.room_bytes(session)):
            return False
        self._hold(session, more_bytes)
        return True

    def _hold(self, session: FetchSession, more_bytes: int) -> None:
        session.held_bytes += more_bytes
        self._quota.add(session, more_bytes)

    def _compare(self, session: FetchSession, isolation_level: int) -> None:
        """Find changes that no append announces."""
        numbers = self.numbers
        for cached in session.all():
            partition = cached.partition
            if partition is not None and (
                session.isolation_level != isolation_level
                or partition.log.log_start_offset != cached.log_start_offset
                or self._find(session, cached) is not partition
            ):
                cached.look()
        session.seen, session.isolation_level = numbers, isolation_level

    def _find(self, session: FetchSession, cached: CachedPartition) -> Partition | None:
        key, by_id = cached.key, session.by_id
        topic = self._topics.by_id.get(key) if by_id else self._topics.by_name.get(key)  # type: ignore[arg-type]
        return topic.partition(cached.want.partition) if topic else None

    # Opening and closing sessions.

    def open(self, address: str, by_id: bool, topics: list[FetchTopic]) -> FetchSession | None:
        """Open a session, without partitions yet; return None if there is no room for these."""
        size = sum(len(topic.partitions) for topic in topics)
        if not 0 < size <= PARTITIONS_MAX:
            return None
        topic_bytes = sum(_bytes_of_topic(topic.topic_id if by_id else topic.topic) for topic in topics)
        size_bytes = _bytes_of(size, topic_bytes)
        now_ms = self._now_ms()
        session = FetchSession(self._new_id(), address, by_id, now_ms, now_ms)
        if not self._make_room(session, size, size_bytes):
            return None
        self._sessions[session.id] = session
        self._hold(session, size_bytes)
        return session

    def _new_id(self) -> int:
        while True:
            drawn = random.SystemRandom().randrange(1, (1 << 31) - 1)
            if drawn not in self._sessions:
                return drawn

    def close(self, session_id: int) -> None:
        """Close a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._hold(session, -session.held_bytes)
        session.epoch = CLOSED
        for cached in session.all():
            if cached.partition is not None:
                cached.partition.waiters.unwatch(session)
        if session.waiter is not None:
            session.waiter.hurry()
            session.waiter = None

    def _make_room(self, session: FetchSession, size: int, size_bytes: int) -> bool:
        """Close other sessions until a new one of this size has room; return whether it has.

        As in Kafka, the least recently used one goes first, if it was not used for a while. If there are too many
        sessions, the smallest session that is not new makes room for a larger one.
        """
        while True:
            lacks_slot = len(self._sessions) >= self._slots
            if not lacks_slot and size_bytes <= self._quota.room_bytes(session):
                return True
            before_ms = session.created_ms - self._eviction_ms
            victim = self._unused(session.address, lacks_slot, before_ms)
            if victim is None and lacks_slot:
                victim = self._smallest(size, before_ms)
            if victim is None:
                return False
            self.close(victim.id)

    def _unused(self, address: str, lacks_slot: bool, before_ms: int) -> FetchSession | None:
        """Return the least recently used session whose end makes room for an address, if it is not recent."""
        is_full = self._quota.is_full
        for each in self._sessions.values():
            if each.used_ms >= before_ms:
                break
            if lacks_slot or is_full or each.address == address:
                return each
        return None

    def _smallest(self, size: int, before_ms: int) -> FetchSession | None:
        old = (each for each in self._sessions.values() if each.created_ms < before_ms and each.size < size)
        return min(old, key=lambda each: each.size, default=None)

    # Responses.

    def keep_changes(self, session: FetchSession, answers: list[FetchableTopicResponse]) -> Iterator[None]:
        """Remove from a response what is not new to the client, in steps. Stop if another request comes."""
        epoch, level, left = session.epoch, session.isolation_level, PARTITIONS_A_TURN
        kept_topics = []
        for topic in answers:
            cached_of = session.topics.get(topic.topic_id if session.by_id else topic.topic, {})
            kept = []
            for answer in topic.partitions:
                cached = cached_of.get(answer.partition_index)
                if cached is None or self._changes(session, cached, answer, level):
                    kept.append(answer)
                left -= 1
                if not left:
                    left = PARTITIONS_A_TURN
                    yield
                    if session.epoch != epoch:
                        return
            if kept:
                topic.partitions = kept
                kept_topics.append(topic)
        answers[:] = kept_topics

    def _changes(
        self, session: FetchSession, cached: CachedPartition, answer: PartitionData, level: int
    ) -> bool:
        """Return whether an answer is new to the client; watch the partition if the client has everything."""
        is_new = cached.update(answer)
        if answer.records:
            session.changed.pop(cached, None)
            session.changed[cached] = None
        elif not answer.error_code and answer.diverging_epoch.epoch < 0 and cached in session.changed:
            partition = self._find(session, cached)
            if partition is not None and cached.want.fetch_offset >= partition.log.readable_end(level):
                del session.changed[cached]
                cached.watch(partition, self._parked)
        return is_new


def _bytes_of(size: int, topic_bytes: int) -> int:
    return SESSION_BYTES + PARTITION_BYTES * size + topic_bytes


def _bytes_of_topic(key: Key) -> int:
    return TOPIC_BYTES + getsizeof(key)


class InSession:
    """One request in a session: which partitions to look at, and the response."""

    __slots__ = ("_epoch", "_growths", "_sessions", "news", "session", "size")

    def __init__(self, sessions: FetchSessions, session: FetchSession) -> None:
        self._sessions = sessions
        self.session = session
        self._epoch = session.epoch
        self._growths = 0
        self.news: Collection[object] = session.changed  # the partitions to look at, as they change
        self.size = session.size  # the number of partitions that it waits for

    @property
    def has_grown(self) -> bool:
        """Tell whether another partition has grown since `wanted`."""
        return self.session.growths != self._growths

    def wanted(self, request: FetchRequest) -> None:
        """Put the partitions to look at into a request."""
        session = self.session
        self._growths = session.growths
        request.topics = session.wanted() if session.changed else []

    def wait(self, waiter: FetchWaiter) -> None:
        """Let watched partitions wake a fetch."""
        if self._epoch == self.session.epoch:
            self.session.waiter = waiter
        else:
            waiter.hurry()

    def answer(self, answers: list[FetchableTopicResponse]) -> FetchResponse | Coro[FetchResponse]:
        """Return the response: the part of `answers` that is new to the client."""
        session = self.session
        if self._epoch == session.epoch:
            session.waiter = None
            if not answers:
                return FetchResponse(session_id=session.id, responses=answers)
            changes = self._sessions.keep_changes(session, answers)
            return _made(changes, partial(self._response, answers))
        return self._response(answers)

    def _response(self, answers: list[FetchableTopicResponse]) -> FetchResponse:
        session = self.session
        if session.epoch == CLOSED:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        if session.epoch != self._epoch:
            return FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id, responses=[]
            )
        return FetchResponse(session_id=session.id, responses=answers)


class Opening:
    """A full request that asks for a session. The session begins with the answer, as in Kafka."""

    __slots__ = ("_address", "_by_id", "_request", "_seen", "_sessions")

    size = 0
    has_grown = False
    news: Collection[object] = ("all of it",)

    def __init__(self, sessions: FetchSessions, address: str, request: FetchRequest, by_id: bool) -> None:
        self._sessions = sessions
        self._address = address
        self._request = request
        self._by_id = by_id
        self._seen = sessions.numbers

    def wanted(self, request: FetchRequest) -> None:
        """Leave a request as it is: everything is looked at."""

    def wait(self, waiter: FetchWaiter) -> None:
        """Do nothing: nothing is watched yet."""

    def answer(self, answers: list[FetchableTopicResponse]) -> FetchResponse | Coro[FetchResponse]:
        """Return the response with everything found, and open a session if there is room."""
        session = self._sessions.open(self._address, self._by_id, self._request.topics)
        if session is None:
            return FetchResponse(responses=answers)
        response = FetchResponse(session_id=session.id, responses=answers)
        return _made(self._begin(session, answers), lambda: response)

    def _begin(self, session: FetchSession, answers: list[FetchableTopicResponse]) -> Iterator[None]:
        session.seen = self._seen
        session.isolation_level = self._request.isolation_level
        for topic in self._request.topics:
            for want in topic.partitions:
                session.want(topic.topic_id if self._by_id else topic.topic, want)
                if not session.size % PARTITIONS_A_TURN:
                    yield
                    if session.epoch == CLOSED:
                        return
        yield from self._sessions.keep_changes(session, answers)


def _made(
    making: Iterator[None], response: Callable[[], FetchResponse]
) -> FetchResponse | Coro[FetchResponse]:
    """Return a response at once if making it is little work, else a coroutine."""
    for _ in making:
        return _made_in_turns(making, response)
    return response()


async def _made_in_turns(making: Iterator[None], response: Callable[[], FetchResponse]) -> FetchResponse:
    for _ in making:
        await turn()
    return response()
