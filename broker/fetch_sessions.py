"""Fetch sessions (KIP-227): what a client wants is kept, so that it names only what is new, and so is its answer.

Owns the sessions, what they cost, and who has to go when there is no room. Refuses to know how records are read: of a
request in a session it makes the list of partitions to look at, and of what was found the answer. Event loop only.

A partition of a session is either to be looked at for the next answer, or watched: all that there is of it was told,
and an append to it will say so (`waiting.Watch`). So a poll costs what has changed, not what is wanted. What no append
tells (topics that come and go, starts of logs) has a number each; when one has changed all partitions are compared.

As in Kafka a session belongs to whoever knows its id, outlives its connection, and ends when it is closed, when its
last partition is forgotten, or when another takes its place.
"""

import secrets
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof

from tidelog.broker.clock import Clock
from tidelog.broker.partition import Partition
from tidelog.broker.quota import Quota
from tidelog.broker.topics import Topics
from tidelog.broker.waiting import FetchWaiter, Parked, Waiters
from tidelog.broker.work import Work, turn
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
from tidelog.storage.shared import Shared

NO_SESSION = 0
FIRST_EPOCH, FINAL_EPOCH = 0, -1
LAST_EPOCH = (1 << 31) - 1  # 1 comes after it
CLOSED = -2  # the epoch of a session that has ended
# Of a log's numbers: not told, or to be told again.
UNTOLD = -1
# What a session takes in memory with the fetch that waits, about, and what each of its partitions, and each topic
# beside its name.
SESSION_BYTES = 3000
WATCHED_BYTES = 700
TOPIC_BYTES = 400
# More are not kept for one client: the loop goes through all of them when topics come and go.
PARTITIONS_MAX = 10_000
# Partitions whose answers are looked through in a turn of the loop: 1 to 3 us each.
TELLS = 500

Key = str | bytes  # a topic's name, or its id


@dataclass(slots=True, eq=False)
class Watched:
    """One partition of a session: what its client wants, and what it was told last. It is a `waiting.Watch`."""

    session: "FetchSession"
    key: Key
    want: FetchPartition
    partition: Partition | None = None  # while it is watched
    base_bytes: int = 0  # how far that had grown when the watch began
    high_watermark: int = UNTOLD
    last_stable_offset: int = UNTOLD
    log_start_offset: int = UNTOLD

    def watch(self, partition: Partition, parked: Parked) -> None:
        """Be told when there is more."""
        self.partition = partition
        self.base_bytes = partition.waiters.grown_bytes
        partition.waiters.watch(parked, self.session, self)

    def look(self) -> None:
        """Have it looked at for the next answer."""
        if self.partition is not None:
            self.partition.waiters.unwatch(self.session)
            self.partition = None
        self.session.changed[self] = None

    def grew(self, place: Waiters) -> FetchWaiter | None:
        """Have it looked at; return the fetch that waits, if it has enough now."""
        waiter = self.released()
        size_bytes = place.grown_bytes - self.base_bytes
        return waiter if waiter is not None and waiter.grew(place, size_bytes) else None

    def released(self) -> FetchWaiter | None:
        """Have it looked at; return the fetch that waits."""
        self.partition = None
        self.session.changed[self] = None
        self.session.told += 1
        return self.session.waiter

    def is_news(self, answer: PartitionData) -> bool:
        """Take note of what is answered; tell whether that is anything new."""
        if answer.error_code:
            self.high_watermark = UNTOLD  # once the error is gone, that is told
            return True
        told = self.high_watermark, self.last_stable_offset, self.log_start_offset
        numbers = answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
        self.high_watermark, self.last_stable_offset, self.log_start_offset = numbers
        return told != numbers or bool(answer.records) or answer.diverging_epoch.epoch >= 0


@dataclass(slots=True, eq=False)
class FetchSession:
    """What one client fetches. It owns the bytes that it holds: `address` is that of the client that began it."""

    id: int
    address: str
    by_id: bool
    created_ms: int
    used_ms: int
    epoch: int = FIRST_EPOCH + 1  # that its client has to send next
    isolation_level: int = 0
    topics: dict[Key, dict[int, Watched]] = field(default_factory=dict)
    topic_bytes: int = 0  # what these take beside their partitions
    size: int = 0  # partitions
    held_bytes: int = 0  # as they are counted
    # To be looked at: a partition whose records were sent goes to the end, so that all get their turn.
    changed: dict[Watched, None] = field(default_factory=dict)
    told: int = 0  # how often a partition that was watched has changed
    waiter: FetchWaiter | None = None  # the fetch that waits
    seen: tuple[int, int] | None = None  # `FetchSessions.numbers` when all were compared last

    def all(self) -> Iterator[Watched]:
        """Yield each of its partitions."""
        for partitions in self.topics.values():
            yield from partitions.values()

    def want(self, key: Key, want: FetchPartition) -> None:
        """Add a partition, or fetch from elsewhere in it."""
        partitions = self.topics.get(key)
        if partitions is None:
            partitions = self.topics[key] = {}
            self.topic_bytes += _bytes_of_topic(key)
        watched = partitions.get(want.partition)
        if watched is None:
            watched = partitions[want.partition] = Watched(self, key, want)
            self.size += 1
        watched.want = want
        watched.look()

    def forget(self, key: Key, index: int) -> None:
        """Drop a partition."""
        partitions = self.topics.get(key, {})
        watched = partitions.pop(index, None)
        if watched is None:
            return
        if not partitions:
            del self.topics[key]
            self.topic_bytes -= _bytes_of_topic(key)
        watched.look()
        del self.changed[watched]
        self.size -= 1

    def wanted(self) -> list[FetchTopic]:
        """Return what is to be looked at, in its order: partitions of one topic that follow one another together."""
        topics: list[FetchTopic] = []
        last: Key | None = None
        for watched in self.changed:
            key = watched.key
            if key != last:
                last, partitions = key, list[FetchPartition]()
                named = {"topic_id": key} if self.by_id else {"topic": key}
                topics.append(FetchTopic(**named, partitions=partitions))  # type: ignore[arg-type]
            partitions.append(watched.want)
        return topics


class FetchSessions:
    """All sessions of the broker."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        topics: Topics,
        shared: Shared,
        parked: Parked,
    ) -> None:
        """Keep none yet."""
        self._slots = config.max_incremental_fetch_session_cache_slots
        self._eviction_ms = config.min_incremental_fetch_session_eviction_ms
        self._quota = Quota(config.fetch_session_max_bytes)
        self._now_ms = clock.monotonic_ms
        self._topics = topics
        self._shared = shared
        self._parked = parked
        self._sessions: dict[int, FetchSession] = {}  # the one that was used longest ago first

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._sessions)

    @property
    def held_bytes(self) -> int:
        """What they take in memory, as it is counted."""
        return self._quota.total_bytes

    @property
    def numbers(self) -> tuple[int, int]:
        """What differs when topics have come or gone, or a log starts elsewhere."""
        return self._topics.changes, self._shared.start_moves

    # What a request asks for.

    def resume(self, request: FetchRequest, by_id: bool) -> "FetchSession | ErrorCode":
        """Bring a session up to date with an incremental request; return it, or why that cannot be done.

        One that has no partitions any more is closed, and its request answered without a session.
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
                # With a full request, the answer to which tells that there is no session, its client goes on.
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND if session.size else ErrorCode.NONE
        if session.waiter is not None:
            session.waiter.hurry()  # An earlier request: its epoch is over.
            session.waiter = None
        session.epoch = session.epoch + 1 if session.epoch < LAST_EPOCH else 1
        session.used_ms = self._now_ms()
        del self._sessions[session.id]
        self._sessions[session.id] = session
        # What has grown, and has not told all its watches yet.
        for place in self._parked.growing:
            if (watch := place.unwatch(session)) is not None:
                watch.released()
        numbers = self._topics.changes, self._shared.start_moves
        if session.seen != numbers or session.isolation_level != request.isolation_level:
            self._compare(session, request.isolation_level)
        return session

    def _update(self, session: FetchSession, request: FetchRequest) -> bool:
        """Add, change and forget the partitions that a request names; tell whether there is room for them."""
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
        """Find what has changed that no append tells."""
        numbers = self.numbers
        for watched in session.all():
            partition = watched.partition
            if partition is not None and (
                session.isolation_level != isolation_level
                or partition.log.log_start_offset != watched.log_start_offset
                or self._find(session, watched) is not partition
            ):
                watched.look()
        session.seen, session.isolation_level = numbers, isolation_level

    def _find(self, session: FetchSession, watched: Watched) -> Partition | None:
        key, by_id = watched.key, session.by_id
        topic = self._topics.by_id.get(key) if by_id else self._topics.by_name.get(key)  # type: ignore[arg-type]
        return topic.partition(watched.want.partition) if topic else None

    # Who comes and who goes.

    def open(self, address: str, by_id: bool, topics: list[FetchTopic]) -> FetchSession | None:
        """Begin a session, with no partitions yet; None if there is no room for these."""
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
            drawn = 1 + secrets.randbelow((1 << 31) - 2)
            if drawn not in self._sessions:
                return drawn

    def close(self, session_id: int) -> None:
        """End a session, if there is one of that id."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._hold(session, -session.held_bytes)
        session.epoch = CLOSED
        for watched in session.all():
            if watched.partition is not None:
                watched.partition.waiters.unwatch(session)
        if session.waiter is not None:
            session.waiter.hurry()
            session.waiter = None

    def _make_room(self, session: FetchSession, size: int, size_bytes: int) -> bool:
        """Have others go until a new session of so many partitions has room; tell whether it has.

        As in Kafka these are such as were not used for a while, the one that was used longest ago first; then, if there
        are too many sessions, the smallest of those that are not new, for a larger one.
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
        """Return the session that was not used for longest of those whose end makes room for an address."""
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

    # What is answered.

    def tell(self, session: FetchSession, answers: list[FetchableTopicResponse]) -> Iterator[None]:
        """Leave in answers what its client was not told yet, some of them at a time, until another request comes."""
        epoch, level, left = session.epoch, session.isolation_level, TELLS
        kept_topics = []
        for topic in answers:
            watched_of = session.topics.get(topic.topic_id if session.by_id else topic.topic, {})
            kept = []
            for answer in topic.partitions:
                watched = watched_of.get(answer.partition_index)
                if watched is None or self._tell(session, watched, answer, level):
                    kept.append(answer)
                left -= 1
                if not left:
                    left = TELLS
                    yield
                    if session.epoch != epoch:
                        return
            if kept:
                topic.partitions = kept
                kept_topics.append(topic)
        answers[:] = kept_topics

    def _tell(self, session: FetchSession, watched: Watched, answer: PartitionData, level: int) -> bool:
        """Tell whether an answer is to be sent; have its partition watched if there is no more of it."""
        is_news = watched.is_news(answer)
        if answer.records:
            session.changed.pop(watched, None)
            session.changed[watched] = None
        elif not answer.error_code and answer.diverging_epoch.epoch < 0 and watched in session.changed:
            partition = self._find(session, watched)
            if partition is not None and watched.want.fetch_offset >= partition.log.readable_end(level):
                del session.changed[watched]
                watched.watch(partition, self._parked)
        return is_news


def _bytes_of(size: int, topic_bytes: int) -> int:
    return SESSION_BYTES + WATCHED_BYTES * size + topic_bytes


def _bytes_of_topic(key: Key) -> int:
    return TOPIC_BYTES + getsizeof(key)


class InSession:
    """One request in a session: what is to be looked at for it, and what becomes of what was found."""

    __slots__ = ("_epoch", "_sessions", "_told", "news", "session", "size")

    def __init__(self, sessions: FetchSessions, session: FetchSession) -> None:
        self._sessions = sessions
        self.session = session
        self._epoch = session.epoch
        self._told = 0
        self.news: Collection[object] = session.changed  # what is to be looked at now: as it changes
        self.size = session.size  # how many partitions it waits for

    @property
    def has_grown(self) -> bool:
        """Tell whether one has changed that was not to be looked at."""
        return self.session.told != self._told

    def wanted(self, request: FetchRequest) -> None:
        """Put into a request what is to be looked at now."""
        session = self.session
        self._told = session.told
        request.topics = session.wanted() if session.changed else []

    def wait(self, waiter: FetchWaiter) -> None:
        """Let partitions that are watched wake a fetch."""
        if self._epoch == self.session.epoch:
            self.session.waiter = waiter
        else:
            waiter.hurry()

    def answer(self, answers: list[FetchableTopicResponse]) -> FetchResponse | Work[FetchResponse]:
        """Return the response: of what was found what is new."""
        session = self.session
        if self._epoch == session.epoch:
            session.waiter = None
            if not answers:
                return FetchResponse(session_id=session.id, responses=answers)
            telling = self._sessions.tell(session, answers)
            return _made(telling, partial(self._response, answers))
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
    """A full request that asks for a session, which begins with its answer, as in Kafka."""

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
        """Leave a request as it is: all of it is to be looked at."""

    def wait(self, waiter: FetchWaiter) -> None:
        """Nothing is watched yet."""

    def answer(self, answers: list[FetchableTopicResponse]) -> FetchResponse | Work[FetchResponse]:
        """Return the response, all that was found, and keep a session if there is room."""
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
                if not session.size % TELLS:
                    yield
                    if session.epoch == CLOSED:
                        return
        yield from self._sessions.tell(session, answers)


def _made(
    making: Iterator[None], response: Callable[[], FetchResponse]
) -> FetchResponse | Work[FetchResponse]:
    """Return a response once all of it is made: at once where that is little."""
    for _ in making:
        return _made_in_turns(making, response)
    return response()


async def _made_in_turns(making: Iterator[None], response: Callable[[], FetchResponse]) -> FetchResponse:
    for _ in making:
        await turn()
    return response()
