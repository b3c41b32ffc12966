"""All groups by id, with their committed offsets: the interface for handlers.

Owns the groups, the offsets, and the memory that both may take. Memory holds the state at the end of the log: an offset
can be read as soon as it is written, as a record can. If it cannot be put on disk, the previous offset is restored
(`roll_back`). Event loop only, except for loading at the start.

There are two kinds of groups, `ClassicGroup` and `ConsumerGroup`. Offsets are the same for both. Members can turn a
group of one kind into the other (`migration`).
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.flusher import ANSWER_BYTES, Flusher
from tidelog.broker.groups import migration
from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.consumer_member import Heartbeat, Subscription
from tidelog.broker.groups.loading import Group, load
from tidelog.broker.groups.log import RECORD_BYTES, Entry, GroupLog
from tidelog.broker.groups.making_room import Idle, is_idle
from tidelog.broker.groups.memory import Memory, group_bytes
from tidelog.broker.groups.offsets import Committed, Expiry, GroupOffsets
from tidelog.broker.groups.services import TURN_S, GroupError, Replies, Services
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.partition import Partition
from tidelog.broker.repeated_lines import lines
from tidelog.broker.running import Running, Threads
from tidelog.broker.timers import Timers
from tidelog.broker.topics import Topic, Topics
from tidelog.broker.work import Coro, loop, turn
from tidelog.config.options import BrokerConfig
from tidelog.protocol.coordinator import records
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.topic_names import OFFSETS_TOPIC
from tidelog.protocol.wire.errors import EncodeError
from tidelog.storage.errors import logged

_log = logging.getLogger(__name__)

# The most offsets in one batch, and the most bytes: some milliseconds of the event loop.
COMMITTED_AT_ONCE = 100
COMMITTED_AT_ONCE_BYTES = 64 * 1024
# The wait before another try to load the groups. It doubles each time, up to the second value.
LOAD_AGAIN_MS, LOAD_AGAIN_MAX_MS = 1000, 60_000
# The shortest wait between two searches for groups to delete, if the first has found too few.
MAKE_ROOM_AGAIN_MS = 1000

# Topic, partition, the new offset, and the one before.
Replaced = tuple[str, int, Committed, Committed | None]


class Coordinator:
    """All groups of a broker."""

    def __init__(
        self,
        threads: Threads,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        topics: Topics,
        flusher: Flusher,
        create_topic: Callable[[str, int, dict[str, str]], Coro[Topic]],
    ) -> None:
        self._threads = threads
        self._loop = loop = threads.loop
        self._config = config
        self._clock = clock
        self._timers = timers
        self._topics = topics
        self.log = GroupLog(loop, clock, topics, flusher, create_topic)
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.committed_count = 0  # of all groups
        # Failed commits that a later commit has replaced before it failed too, with the offsets before them.
        self._refused: dict[tuple[str, str, int, Committed | None], Committed | None] = {}
        self.memory = Memory(config.group_state_max_bytes, self._make_room)
        self._making_room: Running | None = None
        self._may_make_room_ms = 0  # no search before this time of the monotonic clock
        self.is_loading = False
        self.is_stopping = False
        self._loading: Later | None = None
        self._cleaning: Running | None = None
        # Whether another round is due: False for offsets, True for groups too.
        self._clean_due: bool | None = None
        self._deleting: set[str] = set()  # ids; no member may join or commit
        self.services = Services(
            config, clock, timers, topics, self.memory, self.log, Replies(loop), self._downgrade
        )
        topics.watch(self._topic_served, self._topic_deleted)

    # Start and stop.

    def start(self, maintenance: Maintenance) -> None:
        """Load the groups. Until that is done, clients are told to retry."""
        self.services.maintenance = self._maintenance = maintenance
        self._timers.call_later(self._config.offsets_retention_check_interval_ms, self._clean_again)
        if (topic := self.log.topic) is not None:
            self.is_loading = True
            self._load(topic, LOAD_AGAIN_MS)

    def _load(self, topic: Topic, again_ms: int) -> None:
        ids = {each.name: each.id for each in self._topics.all()}
        loading = self._loading = self._maintenance.submit(load(topic, ids, self.services), owner=self)
        loading.ready = lambda: self._loaded(topic, loading, again_ms)

    def _loaded(self, topic: Topic, loading: Later, again_ms: int) -> None:
        outcome = loading.response
        if loading is not self._loading or self.is_stopping:
            return  # The topic was deleted, or the broker stops.
        if isinstance(outcome, Exception):
            # Requests keep being refused: without the log, "nothing committed" would be a wrong answer.
            text, fault = logged(outcome)
            _log.error(
                "groups could not be loaded and are not served, again in %d ms error=%r",
                again_ms,
                text,
                exc_info=fault,
            )
            self._timers.call_later(again_ms, partial(self._load_again, topic, loading, again_ms))
            return
        _log.info("groups loaded groups=%d damaged=%d", len(outcome.groups), outcome.damaged)
        self.offsets = outcome.offsets
        self.committed_count = outcome.count
        for host, size_bytes in outcome.held.items():
            self.memory.hold(host, size_bytes)
        self._serve(iter(outcome.groups), loading)

    def _load_again(self, topic: Topic, failed: Later, waited_ms: int) -> None:
        if failed is self._loading and not self.is_stopping:
            self._load(topic, min(2 * waited_ms, LOAD_AGAIN_MAX_MS))

    def _serve(self, groups: Iterator[Group], loading: Later) -> None:
        """Begin to serve loaded groups, for TURN_S in each turn of the event loop."""
        ends_s = time.monotonic() + TURN_S
        while loading is self._loading:
            group = next(groups, None)
            if group is None:
                # Expired offsets go with the next round of cleaning: their readers may come back first.
                self.is_loading = False
                if self.memory.is_short:
                    self._make_room()
                return
            self._add(group)
            group.begin()
            if time.monotonic() >= ends_s:
                self._loop.call_soon(self._serve, groups, loading)
                return

    def release(self) -> None:
        """Refuse all requests, waiting ones and later ones: the broker stops."""
        self.is_stopping = True
        for group in self.groups.values():
            group.release(ErrorCode.NOT_COORDINATOR)

    # Lookups.

    def problem(self, group_id: str, is_member: bool = True) -> ErrorCode:
        """Return why a group cannot be used now. Offsets may have an empty group id; a group with members may not."""
        if is_member and not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self.is_stopping:
            return ErrorCode.NOT_COORDINATOR
        is_there = not self.is_loading and group_id not in self._deleting
        return ErrorCode.NONE if is_there else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def group(self, group_id: str) -> Group | None:
        """Return a group, if it exists."""
        return self.groups.get(group_id)

    async def create_log(self, owner: Hashable) -> None:
        """Create `__consumer_offsets`, if it does not exist."""
        await self.log.create(self._maintenance, owner)

    def group_to_join(self, group_id: str, host: str) -> Group:
        """Return the group for a member of the classic protocol. Create it if it does not exist or is vacant."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and is_vacant(group):
            is_written = isinstance(self.log.append_all(group_id, group.tombstones()), Partition)
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            classic = ClassicGroup(group_id, self.services, host)
            if not is_written:
                classic.former = migration.former(group)
            return self._add(classic)
        return group or self._add(ClassicGroup(group_id, self.services, host))

    def consumer_group(self, group_id: str, host: str, joining: Heartbeat | None) -> ConsumerGroup:
        """Return the group for a member of the consumer protocol. Create or upgrade it if the member is joining.

        Raise GroupError if the group does not exist, or is a classic group that cannot be upgraded.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if joining is None:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id[:100]} not found.")
        if group is not None and not group.is_empty:
            if self._config.group_consumer_migration_policy not in ("bidirectional", "upgrade"):
                raise migration.no_upgrade(group_id, "online upgrade is disabled")
            made = migration.upgraded(group, joining, self.services)
            _log.info("groups: classic group becomes a consumer group group=%r", group_id[:100])
        else:
            made = ConsumerGroup(group_id, self.services, host)
            if group is not None:
                migration.check_joins(group, joining, self.services)
                made.put_all(group.tombstones())
            self.memory.hold_group(made.memory)
        if group is not None:
            group.release(ErrorCode.REBALANCE_IN_PROGRESS)
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.groups[group_id] = made
        return made

    def _downgrade(
        self, group: ConsumerGroup, leaving: frozenset[str], coming_back: Subscription | None
    ) -> ClassicGroup | None:
        """Replace a consumer group by a classic one, without the leaving members, if that is allowed."""
        if self._config.group_consumer_migration_policy not in ("bidirectional", "downgrade"):
            return None
        if len(group.members) - len(leaving) > self._config.group_max_size:
            return None
        value = migration.downgraded(group, leaving, coming_back, self._clock.now_ms())
        classic = ClassicGroup(group.id, self.services, group.memory.host)
        classic.restore(value)
        classic.former = migration.former(group)
        group.writing.flush_by(partial(classic.store, value))
        self._forget(group, ErrorCode.UNKNOWN_MEMBER_ID)
        self._add(classic)
        classic.begin()
        if leaving:
            classic.rebalance()
        _log.info("groups: consumer group becomes a classic group group=%r", group.id[:100])
        return classic

    def _add(self, group: Group) -> Group:
        self.groups[group.id] = group
        self.memory.hold_group(group.memory)
        return group

    def new_group_bytes(self, group_id: str) -> int:
        """Return the memory that creating a group would take; 0 if it exists."""
        return 0 if group_id in self.groups else group_bytes(group_id)

    def committed(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """Return a group's committed offset in a partition of the current topic with this name."""
        found = self._committed(group_id, topic, partition)
        return found if found is not None and found.is_of(self.topic_id(topic)) else None

    def _committed(self, group_id: str, topic: str, partition: int) -> Committed | None:
        offsets = self.offsets.get(group_id)
        return None if offsets is None else offsets.get(topic, partition)

    def all_committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield group, topic, partition and offset of all commits in existing topics."""
        for group_id, offsets in self.offsets.items():
            for topic, partition, committed in offsets:
                if committed.is_of(self.topic_id(topic)):
                    yield group_id, topic, partition, committed.offset

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of the current topic with this name."""
        topic = self._topics.by_name.get(name)
        return None if topic is None else topic.id

    # Changes.

    def roll_back(self, group_id: str, refused: Iterable[Replaced]) -> None:
        """Restore the offsets before those that could not be put on disk."""
        for topic, partition, committed, before in refused:
            self._refused[group_id, topic, partition, committed] = before
            found = current = self._committed(group_id, topic, partition)
            while (group_id, topic, partition, found) in self._refused:  # The one before has failed as well.
                found = self._refused.pop((group_id, topic, partition, found))
            if found is not current:
                self._replace(group_id, topic, partition, found)
        if (group := self.groups.get(group_id)) is not None:
            self.forget_if_unused(group)

    async def are_on_disk(self, partitions: Iterable[Partition], size_bytes: int = ANSWER_BYTES) -> bool:
        """Wait until all appended records are on disk; return false if that fails."""
        outcome = self.log.on_disk(partitions, True, lambda _: False, size_bytes)
        is_on_disk: bool = await outcome if isinstance(outcome, Later) else outcome
        return is_on_disk

    def put(
        self, group_id: str, committed: Sequence[tuple[str, int, Committed]], replaced: list[Replaced]
    ) -> Partition | ErrorCode:
        """Append commits as one batch and set them in memory; add the offsets before them to `replaced`."""
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
        appended = self.log.append(group_id, entries)
        if isinstance(appended, Partition):
            if group_id not in self.groups:
                self._add(ClassicGroup(group_id, self.services, committed[0][2].host))
            for topic, partition, each in committed:
                replaced.append((topic, partition, each, self._replace(group_id, topic, partition, each)))
        return appended

    def remove(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> Partition | ErrorCode:
        """Delete offsets, at least one, in the log and in memory."""
        keys = [records.offset_key(group_id, topic, partition) for topic, partition in partitions]
        appended = self.log.append_all(group_id, dict.fromkeys(keys))
        if isinstance(appended, Partition):
            for topic, partition in partitions:
                self._replace(group_id, topic, partition, None)
        return appended

    async def delete(self, group: Group) -> Partition | ErrorCode:
        """Delete a group without members, and its offsets, some at a time.

        Until that is done, clients that use the group are told to retry.
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
            await turn()
            if self.groups.get(group.id) is not group:
                return ErrorCode.GROUP_ID_NOT_FOUND  # __consumer_offsets was deleted, and the group with it.
            offsets = self.offsets.get(group.id)
        appended = self.log.append_all(group.id, group.tombstones())
        if isinstance(appended, Partition):
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return appended

    # Memory and expiry.

    def _replace(
        self, group_id: str, topic: str, partition: int, committed: Committed | None
    ) -> Committed | None:
        """Set or delete the offset of a partition in memory; return the one before."""
        offsets = self.offsets.get(group_id)
        if offsets is None:
            offsets = self.offsets[group_id] = GroupOffsets()
        if committed is None:
            before = offsets.remove(topic, partition)
        else:
            before = offsets.put(topic, partition, committed)
            if before is not None and before.host == committed.host and before.metadata == committed.metadata:
                return before  # Most commits change the offset alone.
            self.memory.hold(committed.host, committed.size_bytes)
            self.committed_count += 1
        if before is not None:
            self.memory.hold(before.host, -before.size_bytes)
            self.committed_count -= 1
        if not offsets.topics:
            del self.offsets[group_id]
        return before

    def _forget(self, group: Group, code: ErrorCode) -> None:
        """Remove a group from memory. Its waiting requests are answered with a code."""
        if not group.is_dead:
            group.end(code)
        del self.groups[group.id]
        self.memory.drop_group(group.memory)

    def forget_if_unused(self, group: Group) -> None:
        """Forget a group that was created for a member that could not join. Nothing of it was stored."""
        is_unused = not group.generation and group.is_empty and not group.is_awaited
        if is_unused and self.groups.get(group.id) is group and group.id not in self.offsets:
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _topic_served(self, topic: Topic, is_new: bool) -> None:
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
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
        """Delete expired offsets now."""
        self._clean(with_groups=False)

    @property
    def is_settled(self) -> bool:
        """Tell whether no deletion in the background is under way."""
        return self._cleaning is None and self._making_room is None

    def _clean(self, *, with_groups: bool) -> None:
        """Delete the offsets that have expired or whose topic was deleted; `with_groups`, also groups left empty."""
        self._clean_due = self._clean_due or with_groups
        if self._cleaning is None and not self.is_loading:
            cleaning, self._clean_due = self._clean_all(self._clean_due), None
            self._cleaning = self._run(cleaning, self._has_cleaned)

    def _run(self, work: Coro[None], then: Callable[[], None]) -> Running:
        """Run a coroutine on the event loop and call `then` at its end. It must await a turn first."""
        running = Running(self._threads, self, work)

        def ended() -> None:
            if isinstance(running.response, Exception):
                _log.error("groups: not all was forgotten that could be", exc_info=running.response)
            then()

        running.ready = ended
        running.begin()
        return running

    def _has_cleaned(self) -> None:
        self._cleaning = None
        if self._clean_due is not None:
            self._clean(with_groups=self._clean_due)

    async def _clean_all(self, with_groups: bool) -> None:
        await turn()
        for group_id in list(self.groups):
            await loop()
            group, offsets = self.groups.get(group_id), self.offsets.get(group_id)
            for topic in [] if offsets is None else list(offsets.topics):
                if not await self._clean_topic(group_id, topic):
                    return  # The disk takes no writes. The next round tries again.
            group = self.groups.get(group_id) if with_groups else None
            if group is None or not group.is_empty or group.is_awaited or group_id in self.offsets:
                continue
            if group.generation:
                self.log.append_all(group_id, group.tombstones())
            self._forget(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _make_room(self) -> None:
        """Begin to delete unused groups, unless that is under way."""
        if self._making_room is not None or self.is_loading or self.is_stopping:
            return
        if self._clock.monotonic_ms() < self._may_make_room_ms:
            return
        self._making_room = self._run(self._delete_idle(), self._has_made_room)

    def _has_made_room(self) -> None:
        self._making_room = None
        if self.memory.is_short:  # Too few groups could be deleted. A search of all groups takes a while.
            self._may_make_room_ms = self._clock.monotonic_ms() + MAKE_ROOM_AGAIN_MS

    async def _delete_idle(self) -> None:
        """Delete groups of the address that holds the most, until the reserve for the others is free."""
        await turn()
        idle = Idle(self.memory)
        await idle.look(self.groups, self.offsets)
        gone: Counter[str] = Counter()
        while self.memory.is_reserve_used and (found := idle.next()) is not None:
            address, group_id = found
            group = self.groups.get(group_id)
            if group is None or not is_idle(group) or self.problem(group_id):
                continue
            if not isinstance(await self.delete(group), Partition):
                break  # The disk takes no writes, or the topic was deleted.
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

    def _expiry(self, group: Group, topic: str) -> Expiry:
        """Return the current conditions for the expiry of a group's offsets in a topic."""
        retention_ms = self._config.offsets_retention_minutes * 60_000
        unused_since_ms = None if group.reads(topic) else group.unused_since_ms
        return Expiry(self.topic_id(topic), self._clock.now_ms(), retention_ms, unused_since_ms)

    async def _clean_topic(self, group_id: str, topic: str) -> bool:
        """Delete the expired offsets of a group in one topic, some at a time; return false if the disk takes none."""
        await loop()
        group, offsets = self.groups.get(group_id), self.offsets.get(group_id)
        if group is None or offsets is None:
            return True
        expired = offsets.expired(topic, self._expiry(group, topic))
        most = removed_at_once(group_id)
        for first in range(0, len(expired), most):
            group = self.groups.get(group_id)
            if group is None or self.offsets.get(group_id) is not offsets:
                return True  # All offsets of the group were deleted in between.
            expiry = self._expiry(group, topic)  # A member that reads the topic may have joined in between.
            some = [
                (topic, partition)
                for partition, committed in expired[first : first + most]
                if offsets.get(topic, partition) is committed and committed.is_expired(expiry)
            ]
            if some and not isinstance(self.remove(group_id, some), Partition):
                return False
            await turn()
        return True


def removed_at_once(group_id: str) -> int:
    """Return how many offsets of a group to delete at a time. Each record contains the group's name."""
    return max(1, min(COMMITTED_AT_ONCE, COMMITTED_AT_ONCE_BYTES // (RECORD_BYTES + len(group_id.encode()))))


def is_vacant(group: Group | None) -> bool:
    """Tell whether a classic member that joins gets a new group: there is none, or a consumer group without members."""
    return group is None or (isinstance(group, ConsumerGroup) and group.is_empty and not group.is_awaited)
