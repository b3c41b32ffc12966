"""A member of a consumer group, and its way from what it has to what it is to read (KIP-848, "Assignment Process").

Pure: nothing here is changed, what becomes of a member is a new value. Invariant: a member gives up before it gets, and
gets only what nobody else has.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.broker.groups.assignors import Assignment

__all__ = [
    "LEAVES",
    "LEAVES_FOR_A_WHILE",
    "NEW",
    "NOTHING",
    "Classic",
    "Current",
    "Progress",
    "Subscription",
    "indexes_in",
    "is_within",
    "reconciled",
    "without",
]

# The epochs by which a member says that it leaves, and that its instance will come back.
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2

NOTHING: Final[Assignment] = {}


class Progress(IntEnum):
    """Where a member is on its way; the numbers are Kafka's."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # It has to give up some before it gets others.
    UNRELEASED_PARTITIONS = 2  # It waits for what others have to give up.
    UNKNOWN = 127  # of a state that a later Kafka may write


class Classic(NamedTuple):
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """Who a member is, and what it wants to read."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: Classic | None = None


class Current(NamedTuple):
    """What a member has, and as of which epoch."""

    epoch: int
    previous_epoch: int
    progress: Progress
    assigned: Assignment
    revoking: Assignment  # what it has to give up

    def at(self, epoch: int, progress: Progress, assigned: Assignment, revoking: Assignment) -> "Current":
        """Return what follows this one."""
        return Current(epoch, self.epoch, progress, assigned, revoking)


NEW: Final = Current(0, 0, Progress.STABLE, NOTHING, NOTHING)

# What a member says it has; None where it has not changed since it last said so.
Owned = Mapping[bytes, Iterable[int]] | None


def reconciled(
    current: Current,
    target: Assignment,
    target_epoch: int,
    subscribed: frozenset[bytes],
    owned: Owned,
    is_free: Callable[[bytes, int], bool],
) -> Current:
    """Return how far a member comes now. `is_free` tells whether nobody has a partition."""
    assigned = current.assigned
    match current.progress:
        case Progress.STABLE if current.epoch == target_epoch:
            return _restricted(current, subscribed, owned)
        case Progress.UNREVOKED_PARTITIONS if _has_some(owned, current.revoking):
            return _restricted(current, subscribed, owned)

    target = {topic: indexes for topic, indexes in target.items() if topic in subscribed}
    kept = _both(assigned, target)
    to_revoke = without(assigned, kept)
    if to_revoke and _has_some(owned, to_revoke):
        return current.at(current.epoch, Progress.UNREVOKED_PARTITIONS, kept, to_revoke)
    # What the member has given up itself just now is free for it, should it be given back.
    wanted = without(target, kept)
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
    """Return the member without what it does not subscribe to any more, or what is no more, as soon as may be."""
    kept = {topic: indexes for topic, indexes in current.assigned.items() if topic in subscribed}
    if len(kept) == len(current.assigned):
        return current
    to_revoke = _together(current.revoking, without(current.assigned, kept))
    if _has_some(owned, to_revoke):
        return current.at(current.epoch, Progress.UNREVOKED_PARTITIONS, kept, to_revoke)
    return current.at(current.epoch, current.progress, kept, current.revoking)


def is_within(owned: Owned, assignment: Assignment) -> bool:
    """Tell whether a member has said what it has, and that is no more than it was given."""
    return owned is not None and all(
        assignment.get(topic, frozenset()).issuperset(indexes) for topic, indexes in owned.items()
    )


def _has_some(owned: Owned, revoking: Assignment) -> bool:
    """Tell whether a member has some of these still; as long as it does not say, it has."""
    if owned is None:
        return True
    return any(not revoking.get(topic, frozenset()).isdisjoint(indexes) for topic, indexes in owned.items())


def without(assignment: Assignment, other: Assignment) -> Assignment:
    """Return what is in the first and not in the other."""
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
