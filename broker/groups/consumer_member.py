"""A member of a consumer group, and how it moves from its current assignment to its target (KIP-848).

`reconciled` makes one move, as a pure function. For a member that reports its partitions, the first row that fits
applies:

    progress              condition                              becomes                epoch
    STABLE                is in the target's epoch               STABLE                 unchanged
    UNREVOKED_PARTITIONS  still owns partitions to revoke        UNREVOKED_PARTITIONS   unchanged
    any                   owns partitions not in its target      UNREVOKED_PARTITIONS   unchanged
    any                   others own a part of its target        UNRELEASED_PARTITIONS  the target's
    any                   its whole target is free               STABLE                 the target's

In every row, partitions of topics that are deleted or no longer subscribed to are revoked at once. So a member revokes
partitions before it gets new ones, and gets only partitions that no other member owns.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.broker.groups.assignors import Assignment
from tidelog.broker.groups.classic_member import protocols_bytes
from tidelog.broker.groups.memory import GroupMemory, text_bytes
from tidelog.broker.groups.services import GroupError, SessionTimer
from tidelog.broker.timers import Timer
from tidelog.protocol.error_codes import ErrorCode

# The epochs in a request to leave; with the second, a static member announces that it will come back.
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
# The approximate memory of a member without its subscription, and of an assigned partition.
MEMBER_BYTES: Final = 1600
PARTITION_BYTES: Final = 250

NOTHING: Final[Assignment] = {}

# The partitions that a member reports as its own; None if unchanged since the last report.
Owned = Mapping[bytes, Iterable[int]] | None


class Progress(IntEnum):
    """The state of a member, with Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # It has to revoke partitions before it gets others.
    UNRELEASED_PARTITIONS = 2  # It waits for partitions that others have to release.
    UNKNOWN = 127  # a state that a later Kafka has written


class Classic(NamedTuple):
    """What only a member of the classic protocol has."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """What a member says about itself and the topics it subscribes to."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: Classic | None = None

    @property
    def size_bytes(self) -> int:
        """The approximate memory."""
        names = (self.regex, self.client_id, self.client_host, self.instance_id or "", self.rack_id or "")
        protocols = () if self.classic is None else self.classic.protocols
        return sum(map(text_bytes, (*names, *self.topics))) + protocols_bytes(protocols)


class Heartbeat(NamedTuple):
    """The content of a heartbeat. None means unchanged."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Owned = None

    @property
    def is_full(self) -> bool:
        """Tell whether it has all fields. Clients send that when they may not know their assignment."""
        says_topics = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms >= 0 and says_topics and self.owned is not None

    def subscription(self, before: Subscription) -> Subscription:
        """Return the subscription as changed by this heartbeat."""
        timeout_ms = self.rebalance_timeout_ms
        return Subscription(
            instance_id=before.instance_id if self.instance_id is None else self.instance_id,
            rack_id=before.rack_id if self.rack_id is None else self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topics=before.topics if self.topics is None else self.topics,
            regex=before.regex if self.regex is None else self.regex,
            rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
            assignor=before.assignor if self.assignor is None else self.assignor,
        )


class Current(NamedTuple):
    """The assignment that a member has in an epoch."""

    epoch: int
    previous_epoch: int
    progress: Progress
    assigned: Assignment
    revoking: Assignment  # the partitions it has to revoke

    def at(self, epoch: int, progress: Progress, assigned: Assignment, revoking: Assignment) -> "Current":
        """Return the successor of this one."""
        return Current(epoch, self.epoch, progress, assigned, revoking)


NEW: Final = Current(0, 0, Progress.STABLE, NOTHING, NOTHING)


class ConsumerMember:
    """A member: its subscription, its target, its current assignment, and its timers."""

    __slots__ = (
        "current",
        "host",
        "id",
        "join_timer",
        "measured",
        "rebalance_timer",
        "session",
        "size_bytes",
        "subscription",
        "sync_timer",
        "target",
    )

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.subscription = Subscription()
        self.target: Assignment = NOTHING
        self.current = NEW
        self.size_bytes = 0
        self.measured: tuple[Subscription | None, int] = (
            None,
            0,
        )  # a subscription and its size, to measure it once
        self.host = ""  # its memory is charged to this host
        self.session: SessionTimer | None = None
        self.rebalance_timer: Timer | None = None
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None

    @property
    def is_classic(self) -> bool:
        """Whether it uses the classic protocol."""
        return self.subscription.classic is not None

    def measure(self, memory: GroupMemory) -> None:
        """Count its approximate memory."""
        subscription = self.subscription
        if self.measured[0] is not subscription:
            self.measured = subscription, subscription.size_bytes
        size_bytes = MEMBER_BYTES + 2 * text_bytes(self.id) + self.measured[1]
        for assignment in (self.target, self.current.assigned, self.current.revoking):
            size_bytes += PARTITION_BYTES * sum(map(len, assignment.values()))
        memory.add(self.host, -self.size_bytes)
        self.host, self.size_bytes = subscription.client_host, size_bytes
        memory.add(self.host, size_bytes)

    def cancel_timers(self) -> None:
        """Cancel all timers."""
        for timer in (self.session, self.rebalance_timer, self.join_timer, self.sync_timer):
            if timer is not None:
                timer.cancel()
        self.session = self.rebalance_timer = self.join_timer = self.sync_timer = None

    def check_epoch(self, heartbeat: Heartbeat) -> None:
        """Fence the member if its epoch is wrong. The previous epoch is right if it has lost the last answer."""
        epoch, known = heartbeat.epoch, self.current
        is_lost = epoch == known.previous_epoch and is_within(heartbeat.owned, known.assigned)
        if epoch > known.epoch or (epoch < known.epoch and not is_lost):
            raise GroupError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a {'greater' if epoch > known.epoch else 'smaller'} member epoch "
                f"({epoch}) than the one known by the group coordinator ({known.epoch}). The member must abandon all "
                "its partitions and rejoin.",
            )

    def confirmed(self, owned: Owned) -> dict[bytes, frozenset[int]] | None:
        """Return the reported partitions that the member has. A report may name any number of others."""
        if owned is None:
            return None
        assigned, revoking = self.current.assigned, self.current.revoking
        return {
            topic: (assigned.get(topic, frozenset()) | revoking.get(topic, frozenset())).intersection(indexes)
            for topic, indexes in owned.items()
            if topic in assigned or topic in revoking
        }


class Owners:
    """The owner of each partition of a group. A member owns a partition until it has revoked it."""

    def __init__(self) -> None:
        self._members: dict[tuple[bytes, int], str] = {}  # member ids

    def is_free(self, topic: bytes, index: int) -> bool:
        """Tell whether a partition has no owner."""
        return (topic, index) not in self._members

    def are_free_for(self, member: ConsumerMember, assignment: Assignment) -> bool:
        """Tell whether no other member owns any of these partitions."""
        partitions = indexes_in(assignment)
        return all(self._members.get(partition, member.id) == member.id for partition in partitions)

    def free_of(self, assignment: Assignment) -> Assignment:
        """Return the partitions of an assignment that have no owner."""
        free = {
            topic: frozenset(index for index in indexes if self.is_free(topic, index))
            for topic, indexes in assignment.items()
        }
        return {topic: indexes for topic, indexes in free.items() if indexes}

    def drop(self, member: ConsumerMember) -> None:
        """Free all partitions of a member."""
        for assignment in (member.current.assigned, member.current.revoking):
            for partition in indexes_in(assignment):
                if self._members.get(partition) == member.id:
                    del self._members[partition]

    def take(self, member: ConsumerMember) -> None:
        """Make a member the owner of its partitions, which must be free."""
        for assignment in (member.current.assigned, member.current.revoking):
            for partition in indexes_in(assignment):
                assert self._members.setdefault(partition, member.id) == member.id, partition


def owned_of(topic_partitions: Iterable[tuple[bytes, Iterable[int]]]) -> dict[bytes, frozenset[int]]:
    """Return partitions by topic, in linear time even if a topic is named many times."""
    owned: dict[bytes, set[int]] = {}
    for topic, indexes in topic_partitions:
        owned.setdefault(topic, set()).update(indexes)
    return {topic: frozenset(indexes) for topic, indexes in owned.items()}


def reconciled(
    current: Current,
    target: Assignment,
    target_epoch: int,
    subscribed: frozenset[bytes],
    owned: Owned,
    is_free: Callable[[bytes, int], bool],
) -> Current:
    """Return the next current assignment of a member. `is_free` tells whether a partition has no owner."""
    assigned = current.assigned
    match current.progress:
        case Progress.STABLE if current.epoch == target_epoch:
            return _restricted(current, subscribed, owned)
        case Progress.UNREVOKED_PARTITIONS if _has_some(owned, current.revoking):
            return _restricted(current, subscribed, owned)

    target = {topic: indexes for topic, indexes in target.items() if topic in subscribed}
    kept = _both(assigned, target)
    to_revoke = _without(assigned, kept)
    if to_revoke and _has_some(owned, to_revoke):
        return current.at(current.epoch, Progress.UNREVOKED_PARTITIONS, kept, to_revoke)
    # Partitions that the member has just revoked are still its own in `is_free`, but it may get them back.
    wanted = _without(target, kept)
    free = {
        topic: frozenset(
            index for index in indexes if is_free(topic, index) or index in current.revoking.get(topic, ())
        )
        for topic, indexes in wanted.items()
    }
    is_complete = all(len(free[topic]) == len(indexes) for topic, indexes in wanted.items())
    progress = Progress.STABLE if is_complete else Progress.UNRELEASED_PARTITIONS
    return current.at(target_epoch, progress, _together(kept, free), NOTHING)


def _restricted(current: Current, subscribed: frozenset[bytes], owned: Owned) -> Current:
    """Return the current assignment without topics that are deleted or no longer subscribed to."""
    kept = {topic: indexes for topic, indexes in current.assigned.items() if topic in subscribed}
    if len(kept) == len(current.assigned):
        return current
    to_revoke = _together(current.revoking, _without(current.assigned, kept))
    if _has_some(owned, to_revoke):
        return current.at(current.epoch, Progress.UNREVOKED_PARTITIONS, kept, to_revoke)
    return current.at(current.epoch, current.progress, kept, current.revoking)


def is_within(owned: Owned, assignment: Assignment) -> bool:
    """Tell whether a member has reported its partitions, and all of them are in an assignment."""
    return owned is not None and all(
        assignment.get(topic, frozenset()).issuperset(indexes) for topic, indexes in owned.items()
    )


def _has_some(owned: Owned, revoking: Assignment) -> bool:
    """Tell whether a member owns some of these partitions. Without a report, it does."""
    if owned is None:
        return True
    return any(not revoking.get(topic, frozenset()).isdisjoint(indexes) for topic, indexes in owned.items())


def _without(assignment: Assignment, other: Assignment) -> Assignment:
    """Return the difference of two assignments."""
    left = {topic: indexes - other.get(topic, frozenset()) for topic, indexes in assignment.items()}
    return {topic: indexes for topic, indexes in left.items() if indexes}


def _both(assignment: Assignment, other: Assignment) -> Assignment:
    common = {topic: indexes & other.get(topic, frozenset()) for topic, indexes in assignment.items()}
    return {topic: indexes for topic, indexes in common.items() if indexes}


def _together(assignment: Assignment, other: Assignment) -> Assignment:
    union = {
        topic: assignment.get(topic, frozenset()) | other.get(topic, frozenset())
        for topic in (*assignment, *other)
    }
    return {topic: indexes for topic, indexes in union.items() if indexes}


def indexes_in(assignment: Assignment) -> Iterable[tuple[bytes, int]]:
    """Yield each partition of an assignment."""
    return ((topic, index) for topic, indexes in assignment.items() for index in indexes)
