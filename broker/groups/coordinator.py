"""The groups by their ids, and all that a handler may ask of them.

Owns which groups there are, and what they may hold in memory. What a group has become is answered once it is on disk
(`storing`), what was committed too. What is in memory is what the log says at its end, so an offset can be read as soon
as it is written, as a record can; where it cannot be put on disk, what was before is told again.
Event loop only, but for the replay at the start.

There are two kinds, `ClassicGroup` and, for the protocol of KIP-848, `MixedGroup`; offsets do not know which. A group
becomes one of the other kind as its members ask for it (`group.consumer.migration.policy`).
"""

import asyncio
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.flusher import Flusher
from tidelog.broker.groups import consumers
from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.consumer_member import Subscription
from tidelog.broker.groups.consumer_parts import Beat, Refused
from tidelog.broker.groups.consumers import is_dead, is_empty
from tidelog.broker.groups.making_room import Idle, is_idle
from tidelog.broker.groups.member import Surroundings
from tidelog.broker.groups.memory import Memory, group_bytes
from tidelog.broker.groups.mixed import MixedGroup
from tidelog.broker.groups.offsets import Committed, GroupOffsets
from tidelog.broker.groups.offsets_log import Entry, Replayed, replay
from tidelog.broker.groups.storing import RECORD_BYTES, Storing
from tidelog.broker.groups.waiting import TURN_S, Answers, Waiting
from tidelog.broker.maintenance import Maintenance, Task
from tidelog.broker.partition import Partition
from tidelog.broker.repeated_lines import lines
from tidelog.broker.timers import Timers
from tidelog.broker.topics import Topic, Topics
from tidelog.broker.work import loop
from tidelog.config.options import BrokerConfig
from tidelog.protocol.coordinator import records
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.wire.errors import EncodeError
from tidelog.storage.errors import StorageError
from tidelog.storage.log_names import OFFSETS_TOPIC

_log = logging.getLogger(__name__)

# So many offsets are stored as one batch, or as many as have so many bytes: some milliseconds of the event loop.
COMMITTED_AT_ONCE = 100
COMMITTED_AT_ONCE_BYTES = 64 * 1024
# Groups that could not be read are read anew so soon, then each time in twice that, at most in the latter.
LOAD_AGAIN_MS, LOAD_AGAIN_MAX_MS = 1000, 60_000
# Where no group can give way, the next look for one comes no sooner than this.
MAKE_ROOM_AGAIN_MS = 1000

Group = ClassicGroup | MixedGroup
# Topic, partition, what was committed, and before.
Replaced = tuple[str, int, Committed, Committed | None]


class Coordinator:
    """All groups of a broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        topics: Topics,
        flusher: Flusher,
        create_topic: Callable[[str, int, dict[str, str]], Task[Topic]],
    ) -> None:
        self._loop = loop
        self._config = config
        self._clock = clock
        self._timers = timers
        self._topics = topics
        self._answers = Answers(loop)
        self.storing = Storing(loop, clock, topics, flusher, create_topic)
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.committed_count = 0  # of all groups
        # What could not be put on disk while another was under way in its place, and what was before it.
        self._refused: dict[tuple[str, str, int, Committed | None], Committed | None] = {}
        self.memory = Memory(config.group_state_max_bytes, self._make_room)
        self._making_room: Generator[None, None, None] | None = None
        self._may_make_room_ms = 0  # by the monotonic clock
        self.is_loading = False
        self.is_stopping = False
        self._loading: Later | None = None
        self._cleaning: Generator[None, None, None] | None = None
        self._must_clean_again = False
        self._with_groups = False
        # Groups of which a part is gone: nobody joins, or commits, meanwhile.
        self._deleting: set[str] = set()
        self._around = Surroundings(
            now_ms=clock.now_ms,
            monotonic_ms=clock.monotonic_ms,
            call_later=timers.call_later,
            new_id=lambda: str(uuid.uuid4()),
            store=self.storing.store_group,
            hold=self.memory.hold,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
        )
        self._around_consumers = consumers.surroundings(
            config,
            clock,
            timers,
            topics,
            lambda: self.storing.maintenance,
            self.storing.store_changes,
            self.memory,
            self._downgrade,
        )
        topics.watch(self._topic_served, self._topic_deleted)

    # The start.

    def start(self, maintenance: Maintenance) -> None:
        """Read what there was of groups; until that is done who asks is told to ask again."""
        self.storing.maintenance = maintenance
        self._timers.call_later(self._config.offsets_retention_check_interval_ms, self._clean_again)
        if (topic := self.storing.log.topic) is not None:
            self.is_loading = True
            self._begin_to_load(topic, LOAD_AGAIN_MS)

    def _begin_to_load(self, topic: Topic, again_ms: int) -> None:
        ids = {each.name: each.id for each in self._topics.all()}
        loading = self._loading = self.storing.maintenance.submit(self._load(topic, ids), owner=self)
        loading.ready = lambda: self._has_loaded(topic, loading, again_ms)

    def _load(
        self, topic: Topic, topic_ids: dict[str, bytes]
    ) -> Task[tuple[Replayed, list[Group], Counter[str], int]]:
        """Read the log, make the groups, and count the offsets and what they take, by host. Maintenance thread."""
        yield
        new_group = partial(MixedGroup, around=self._around_consumers)
        replayed = yield from replay([partition.log for partition in topic.partitions], topic_ids, new_group)
        groups: list[Group] = list(replayed.consumer_groups.values())
        for group_id in (replayed.groups.keys() | replayed.offsets.keys()) - replayed.consumer_groups.keys():
            yield
            classic = ClassicGroup(group_id, self._around)
            if (value := replayed.groups.get(group_id)) is not None:
                classic.restore(value)
            groups.append(classic)
        held: Counter[str] = Counter()
        count = 0
        for group in groups:
            yield
            offsets = replayed.offsets.get(group.id) or GroupOffsets()
            group.taken.made_by(_host_of(group, offsets))
            for _, _, committed in offsets:
                held[committed.host] += committed.size_bytes
                count += 1
        return replayed, groups, held, count

    def _has_loaded(self, topic: Topic, loading: Later, again_ms: int) -> None:
        outcome = loading.response
        if loading is not self._loading or self.is_stopping:
            return  # The topic was deleted meanwhile, or nobody is served any more.
        if isinstance(outcome, Exception):
            # Until they are read nobody is told that nothing was committed, where that is not so.
            _log.error(
                "groups could not be loaded and are not served, again in %d ms error=%r",
                again_ms,
                str(outcome),
                exc_info=None if isinstance(outcome, StorageError) else outcome,
            )
            self._timers.call_later(again_ms, partial(self._load_again, topic, loading, again_ms))
            return
        replayed, groups, held, count = outcome
        _log.info("groups loaded groups=%d damaged=%d", len(groups), replayed.damaged)
        self.offsets = replayed.offsets
        self.committed_count = count
        for host, size_bytes in held.items():
            self.memory.hold(host, size_bytes)
        self._serve(iter(groups), loading)

    def _load_again(self, topic: Topic, failed: Later, waited_ms: int) -> None:
        if failed is self._loading and not self.is_stopping:
            self._begin_to_load(topic, min(2 * waited_ms, LOAD_AGAIN_MAX_MS))

    def _serve(self, groups: Iterator[Group], loading: Later) -> None:
        """Serve groups that were loaded: as many as there is time for, then the others; then answer who asks."""
        ends_s = time.monotonic() + TURN_S
        while loading is self._loading:
            group = next(groups, None)
            if group is None:
                # What has expired meanwhile goes with the next round: its readers may yet come back.
                self.is_loading = False
                if self.memory.is_short:
                    self._make_room()
                return
            self.groups[group.id] = group
            self.memory.hold_group(group.taken)
            group.begin()
            if time.monotonic() >= ends_s:
                self._loop.call_soon(self._serve, groups, loading)
                return

    def release(self) -> None:
        """Answer who waits for other members, and whoever comes: the broker stops."""
        self.is_stopping = True
        for group in self.groups.values():
            group.release(ErrorCode.NOT_COORDINATOR)

    # What is asked.

    def problem(self, group_id: str, is_member: bool = True) -> ErrorCode:
        """Return why nothing can be said of a group: members belong to one that has a name."""
        if is_member and not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self.is_stopping:
            return ErrorCode.NOT_COORDINATOR
        is_there = not self.is_loading and group_id not in self._deleting
        return ErrorCode.NONE if is_there else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def group(self, group_id: str) -> Group | None:
        """Return a group, if it is there."""
        return self.groups.get(group_id)

    def group_to_join(self, group_id: str, host: str) -> Group:
        """Return a group for a member of the classic protocol, made if it is not there, or nobody is in it."""
        group = self.groups.get(group_id)
        if isinstance(group, MixedGroup) and consumers.gives_way(group):
            is_written = isinstance(self.storing.append_all(group_id, consumers.tombstones(group)), Partition)
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            classic = self._group_of_any_kind(group_id, host)
            if not is_written and isinstance(classic, ClassicGroup):
                classic.former = consumers.former(group)
            return classic
        return self._group_of_any_kind(group_id, host)

    def _group_of_any_kind(self, group_id: str, host: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._around, host)
            self.memory.hold_group(group.taken)
        return group

    def consumer_group(self, group_id: str, host: str, joining: Beat | None) -> MixedGroup:
        """Return a group for a member of the consumer protocol; who joins has it made, or made of a classic one.

        Raise Refused where there is none, and where it cannot be made of the one that is there: that stays as it is,
        for who is refused as well.
        """
        group = self.groups.get(group_id)
        if isinstance(group, MixedGroup):
            return group
        if joining is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id[:100]} not found.")
        if group is not None and not is_empty(group):
            if self._config.group_consumer_migration_policy not in ("bidirectional", "upgrade"):
                why = consumers.no_upgrade(group_id, "online upgrade is disabled")
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, why)
            made = consumers.upgraded(group, joining, self._around_consumers)
            _log.info("groups: classic group becomes a consumer group group=%r", group_id[:100])
        else:
            if group is not None:
                consumers.check_joins(group, joining, self._around_consumers)
            made = MixedGroup(group_id, self._around_consumers, host)
            self.memory.hold_group(made.taken)
            made.take_back({} if group is None else consumers.tombstones(group))
        if group is not None:
            group.release(ErrorCode.REBALANCE_IN_PROGRESS)
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.groups[group_id] = made
        return made

    def _downgrade(
        self, group: MixedGroup, leaving: frozenset[str], coming_back: Subscription | None
    ) -> ClassicGroup | None:
        """Go on with a classic group, if that is allowed; a new rebalance begins if somebody leaves."""
        if self._config.group_consumer_migration_policy not in ("bidirectional", "downgrade"):
            return None
        if len(group.members) - len(leaving) > self._config.group_max_size:
            return None
        value = consumers.downgraded(group, leaving, coming_back, self._clock.now_ms())
        classic = ClassicGroup(group.id, self._around, group.taken.host)
        classic.restore(value)
        classic.former = consumers.former(group)
        group.writing.flush_by(partial(self.storing.store_group, classic, value))
        self._forget(group, ErrorCode.UNKNOWN_MEMBER_ID)
        self.groups[group.id] = classic
        self.memory.hold_group(classic.taken)
        classic.begin()
        if leaving:
            classic.rebalance()
        _log.info("groups: consumer group becomes a classic group group=%r", group.id[:100])
        return classic

    def new_id(self) -> str:
        """Return a member id that nobody has."""
        return str(uuid.uuid4())

    def new_group_bytes(self, group_id: str) -> int:
        """Return what a group takes that would have to be made."""
        return 0 if group_id in self.groups else group_bytes(group_id)

    def waiting(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        """Ask what may be answered later; return the answer, or what it will come by."""
        waiting = Waiting(self._answers)
        ask(waiting.answer)
        return waiting.begun()

    def committed(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """Return what a group has committed of a partition of the topic that has this name now."""
        found = self._committed(group_id, topic, partition)
        return found if found is not None and found.is_of(self.topic_id(topic)) else None

    def _committed(self, group_id: str, topic: str, partition: int) -> Committed | None:
        offsets = self.offsets.get(group_id)
        return None if offsets is None else offsets.get(topic, partition)

    def all_committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield the group, topic, partition and offset of all that was committed of topics that are there."""
        for group_id, offsets in self.offsets.items():
            for topic, partition, committed in offsets:
                if committed.is_of(self.topic_id(topic)):
                    yield group_id, topic, partition, committed.offset

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of the topic that has this name now."""
        topic = self._topics.by_name.get(name)
        return None if topic is None else topic.id

    # What is written.

    def take_back(self, group_id: str, refused: Iterable[Replaced]) -> None:
        """Tell of what was committed before, where what was committed could not be put on disk."""
        for topic, partition, committed, before in refused:
            self._refused[group_id, topic, partition, committed] = before
            found = current = self._committed(group_id, topic, partition)
            while (group_id, topic, partition, found) in self._refused:  # That before was refused with it.
                found = self._refused.pop((group_id, topic, partition, found))
            if found is not current:
                self._replace(group_id, topic, partition, found)
        if (group := self.groups.get(group_id)) is not None:
            self.forget_if_unused(group)

    def put(
        self, group_id: str, committed: Sequence[tuple[str, int, Committed]], replaced: list[Replaced]
    ) -> Partition | ErrorCode:
        """Write down what was committed, as one batch, and take note of it; add to `replaced` what was before."""
        try:
            entries = [
                Entry(
                    records.offset_key(group_id, topic, partition),
                    records.offset_value(each.stored()),
                    each.headers(),
                )
                for topic, partition, each in committed
            ]
        except EncodeError:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        appended = self.storing.append(group_id, entries)
        if isinstance(appended, Partition):
            self._group_of_any_kind(group_id, committed[0][2].host)
            for topic, partition, each in committed:
                replaced.append((topic, partition, each, self._committed(group_id, topic, partition)))
                self._replace(group_id, topic, partition, each)
        return appended

    def remove(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> Partition | ErrorCode:
        """Write down that offsets are forgotten, and forget them; there are some."""
        keys = [records.offset_key(group_id, topic, partition) for topic, partition in partitions]
        appended = self.storing.append_all(group_id, dict.fromkeys(keys))
        if isinstance(appended, Partition):
            for topic, partition in partitions:
                self._replace(group_id, topic, partition, None)
        return appended

    async def delete(self, group: Group) -> Partition | ErrorCode:
        """Delete a group that nobody is a member of, and what it has committed; some offsets a step.

        Until that is done who asks for the group is told to ask again: what is refused has changed nothing.
        """
        self._deleting.add(group.id)
        try:
            return await self._delete(group)
        finally:
            self._deleting.discard(group.id)

    async def _delete(self, group: Group) -> Partition | ErrorCode:
        offsets = self.offsets.get(group.id)
        while offsets is not None and offsets.topics:
            most = removed_at_once(group.id)
            some = [(topic, partition) for topic, partition, _ in islice(offsets, most)]
            appended = self.remove(group.id, some)
            if not isinstance(appended, Partition):
                return appended
            for _ in some:  # As many steps as it took the time of.
                await loop()
            if self.groups.get(group.id) is not group:
                return ErrorCode.GROUP_ID_NOT_FOUND  # The topic was deleted meanwhile.
            offsets = self.offsets.get(group.id)
        appended = self.storing.append_all(group.id, consumers.tombstones(group))
        if isinstance(appended, Partition):
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return appended

    # What is held, and what is forgotten.

    def _replace(self, group_id: str, topic: str, partition: int, committed: Committed | None) -> None:
        """Take note of what was committed, None if it is forgotten."""
        offsets = self.offsets.get(group_id)
        if offsets is None:
            offsets = self.offsets[group_id] = GroupOffsets()
        if committed is None:
            before = offsets.remove(topic, partition)
        else:
            before = offsets.put(topic, partition, committed)
            self.memory.hold(committed.host, committed.size_bytes)
            self.committed_count += 1
        if before is not None:
            self.memory.hold(before.host, -before.size_bytes)
            self.committed_count -= 1
        if not offsets.topics:
            del self.offsets[group_id]

    def _forget(self, group: Group, code: ErrorCode) -> None:
        """Serve a group no longer; who still waits for it is answered."""
        if not is_dead(group):
            group.end(code)
        del self.groups[group.id]
        self.memory.drop_group(group.taken)

    def forget_if_unused(self, group: Group) -> None:
        """Forget a group that was made for one who could not join it: nothing of it was written down."""
        is_unused = not group.generation and is_empty(group) and not group.is_awaited
        if is_unused and self.groups.get(group.id) is group and group.id not in self.offsets:
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _topic_served(self, topic: Topic, is_new: bool) -> None:
        for group in self.groups.values():
            if isinstance(group, MixedGroup):
                group.topic_changed(topic.name, is_new=is_new)

    def _topic_deleted(self, topic: Topic) -> None:
        if topic.name == OFFSETS_TOPIC:
            _log.warning("groups: %s was deleted, and with it all groups", OFFSETS_TOPIC)
            for group in list(self.groups.values()):
                self._forget(group, ErrorCode.NOT_COORDINATOR)
            self.offsets, self._refused, self.committed_count = {}, {}, 0
            self.memory.clear()
            self.is_loading, self._loading = False, None
        else:
            self._topic_served(topic, is_new=False)
            self._clean(with_groups=False)

    def _clean_again(self) -> None:
        self._timers.call_later(self._config.offsets_retention_check_interval_ms, self._clean_again)
        self._clean(with_groups=True)

    def clean_soon(self) -> None:
        """Forget what has expired by now. Event loop only."""
        self._clean(with_groups=False)

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is being forgotten. Event loop only."""
        return self._cleaning is None and self._making_room is None

    def _clean(self, *, with_groups: bool) -> None:
        """Forget what has expired, and what was committed of topics that are gone; in time groups of nothing, too."""
        self._with_groups |= with_groups
        if self._cleaning is not None or self.is_loading:
            self._must_clean_again = True
            return
        self._cleaning = self._clean_all(self._with_groups)
        self._with_groups = False
        self._loop.call_soon(self._go_on, self._cleaning, self._has_cleaned)

    def _go_on(self, work: Generator[None, None, None], then: Callable[[], None]) -> None:
        """Do as much of some work as there is time for in a turn, the rest in the next ones."""
        ends_s = time.monotonic() + TURN_S
        for _ in work:
            if time.monotonic() >= ends_s:
                self._loop.call_soon(self._go_on, work, then)
                return
        then()

    def _has_cleaned(self) -> None:
        self._cleaning = None
        if self._must_clean_again:
            self._must_clean_again = False
            self._clean(with_groups=False)

    def _clean_all(self, with_groups: bool) -> Generator[None, None, None]:
        for group_id in list(self.groups):
            yield
            group, offsets = self.groups.get(group_id), self.offsets.get(group_id)
            for topic in [] if offsets is None else list(offsets.topics):
                if not (yield from self._clean_topic(group_id, topic)):
                    return  # The disk takes nothing: the next round tries again.
            group = self.groups.get(group_id) if with_groups else None
            if group is None or not is_empty(group) or group.is_awaited or group_id in self.offsets:
                continue
            if group.generation:
                self.storing.append_all(group_id, consumers.tombstones(group))
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _make_room(self) -> None:
        """Have groups without members give way, where that is not under way."""
        if self._making_room is not None or self.is_loading or self.is_stopping:
            return
        if self._clock.monotonic_ms() < self._may_make_room_ms:
            return
        self._making_room = self._let_idle_go()
        self._loop.call_soon(self._go_on, self._making_room, self._has_made_room)

    def _has_made_room(self) -> None:
        self._making_room = None
        if self.memory.is_short:  # Nobody gives way: a look at all groups takes a while.
            self._may_make_room_ms = self._clock.monotonic_ms() + MAKE_ROOM_AGAIN_MS

    def _let_idle_go(self) -> Generator[None, None, None]:
        """Delete groups of the address that holds the most, until what is kept for others is free."""
        idle = Idle(self.memory)
        yield from idle.look(self.groups, self.offsets)
        gone: Counter[str] = Counter()
        while self.memory.takes_what_is_kept and (found := idle.next()) is not None:
            address, group_id = found
            group = self.groups.get(group_id)
            if group is None or not is_idle(group) or self.problem(group_id):
                continue
            if not isinstance((yield from self.delete(group).__await__()), Partition):
                break  # The disk takes nothing, or the topic was deleted.
            gone[address] += 1
        for address, count in gone.items():
            lines.log(
                _log,
                logging.WARNING,
                address,
                "groups: memory was short, the longest unused groups without members were deleted address=%s "
                "groups=%d held_bytes=%d group.state.max.bytes=%d",
                address,
                count,
                self.memory.held_bytes,
                self._config.group_state_max_bytes,
            )

    def _expiry(
        self, group: Group, topic: str
    ) -> tuple[bytes | None, int, int, Callable[[int], int | None] | None]:
        """Return what decides by now which of a group's offsets in a topic are forgettable."""
        retention_ms = self._config.offsets_retention_minutes * 60_000
        unused_since_ms = None if group.reads(topic) else group.unused_since_ms
        return self.topic_id(topic), self._clock.now_ms(), retention_ms, unused_since_ms

    def _clean_topic(self, group_id: str, topic: str) -> Generator[None, None, bool]:
        """Forget what has expired of a group's offsets in one topic, some a step; tell whether that can be written."""
        group, offsets = self.groups.get(group_id), self.offsets.get(group_id)
        if group is None or offsets is None:
            return True
        gone = offsets.forgettable(topic, *self._expiry(group, topic))
        most = removed_at_once(group_id)
        for first in range(0, len(gone), most):
            group = self.groups.get(group_id)
            if group is None or self.offsets.get(group_id) is not offsets:
                return True  # All of it was forgotten meanwhile.
            expiry = self._expiry(group, topic)  # A member that reads the topic may have come meanwhile.
            some = [
                (topic, partition)
                for partition, committed in gone[first : first + most]
                if offsets.get(topic, partition) is committed and committed.is_forgettable(*expiry)
            ]
            if some and not isinstance(self.remove(group_id, some), Partition):
                return False
            yield
        return True


def removed_at_once(group_id: str) -> int:
    """Return how many offsets of a group are forgotten in a step: each record has the name of the group in it."""
    return max(1, min(COMMITTED_AT_ONCE, COMMITTED_AT_ONCE_BYTES // (RECORD_BYTES + len(group_id.encode()))))


def _host_of(group: Group, offsets: GroupOffsets) -> str:
    """Return who has a group held that was loaded: who has committed for it, or is a member, as far as is known."""
    said = (member.subscription for member in group) if isinstance(group, MixedGroup) else group
    hosts = chain((committed.host for _, _, committed in offsets), (each.client_host for each in said))
    return next(filter(None, hosts), "")
