"""What a consumer group is made of: its members, what they say, what they are told; and what a group is handed.

Owns the form of these; the rules are `consumer`'s.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from tidelog.broker.groups.assignors import Assignment, Counts, Members
from tidelog.broker.groups.consumer_member import NEW, NOTHING, Owned, Subscription, is_within
from tidelog.broker.groups.member import Timer
from tidelog.protocol.error_codes import ErrorCode

Changes = dict[bytes, bytes | None]  # records: by key a value, None to take it back


class GroupState(Enum):
    """Where a group stands; the value is what clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # There is no target for this epoch yet.
    RECONCILING = "Reconciling"  # Members are on their way to it.
    STABLE = "Stable"
    DEAD = "Dead"


class Refused(Exception):
    """Why a member is refused."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Beat(NamedTuple):
    """What a heartbeat says; None is what has not changed."""

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
        """Tell whether it leaves nothing out: the member may not know what it was told last."""
        says_topics = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms >= 0 and says_topics and self.owned is not None


class Answer(NamedTuple):
    """What a member is told; `assignment` is None where it knows that."""

    code: ErrorCode
    why: str | None = None
    member_id: str | None = None
    epoch: int = 0
    assignment: Assignment | None = None


class ConsumerSurroundings(NamedTuple):
    """What a group is handed."""

    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    call_later: Callable[[int, Callable[[], None]], Timer]
    new_id: Callable[[], str]
    # Puts what has changed on disk, in its order; says later what came of it.
    store: Callable[[str, Changes, Callable[[ErrorCode], None]], None]
    hold: Callable[[int], None]  # takes note of so many bytes more in memory, or less
    topic: Callable[[str], tuple[bytes, int] | None]  # by name: its id, and how many partitions it has
    # Shares out, or matches topics with regular expressions, here or on another thread; hands over what comes of it.
    assign: Callable[[str, Members, Counts, Callable[[Mapping[str, Assignment]], None]], None]
    resolve: Callable[[frozenset[str], Callable[[Mapping[str, frozenset[str]]], None]], None]
    regex_problem: Callable[[str], str | None]
    topic_name: Callable[[bytes], str | None]  # by id
    # Makes a classic group of one without these members, if it may be one; returns it if it has.
    downgrade: Callable[[Any, frozenset[str]], Any]
    session_timeout_ms: int
    max_size: int
    default_assignor: str


class Member:
    """A member: what it says, what it is to read, how far it has come, and what is waited for."""

    __slots__ = (
        "current",
        "deadline_ms",
        "id",
        "join_timer",
        "rebalance_timer",
        "session_timer",
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
        self.deadline_ms = 0  # Until then it is taken to be alive.
        self.session_timer: Timer | None = None
        self.rebalance_timer: Timer | None = None
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None

    def cancel_timers(self) -> None:
        """Wait for nothing of it any more."""
        for timer in (self.session_timer, self.rebalance_timer, self.join_timer, self.sync_timer):
            if timer is not None:
                timer.cancel()
        self.session_timer = self.rebalance_timer = self.join_timer = self.sync_timer = None


def updated(said: Subscription, beat: Beat) -> Subscription:
    """Return what a member says of itself, with what its heartbeat says anew."""
    return Subscription(
        instance_id=said.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=said.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topics=said.topics if beat.topics is None else beat.topics,
        regex=said.regex if beat.regex is None else beat.regex,
        rebalance_timeout_ms=said.rebalance_timeout_ms
        if beat.rebalance_timeout_ms < 0
        else beat.rebalance_timeout_ms,
        assignor=said.assignor if beat.assignor is None else beat.assignor,
    )


def check_epoch(member: Member, beat: Beat) -> None:
    """Fence a member whose epoch is not the one it was told, or the one before if that answer was lost."""
    known = member.current
    is_lost = beat.epoch == known.previous_epoch and is_within(beat.owned, known.assigned)
    if beat.epoch > known.epoch or (beat.epoch < known.epoch and not is_lost):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member is at epoch {known.epoch}, not {beat.epoch}; it must give up its partitions and join anew",
        )


def epoch_problem(member: Member, epoch: int) -> ErrorCode:
    """Return why a member of that epoch may not commit, or be told what was committed."""
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    is_classic = member.subscription.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def owned_of(topic_partitions: Iterable[tuple[bytes, Iterable[int]]]) -> dict[bytes, frozenset[int]]:
    """Return what a member says it has, by topic."""
    owned: dict[bytes, frozenset[int]] = {}
    for topic, indexes in topic_partitions:
        owned[topic] = owned.get(topic, frozenset()).union(indexes)
    return owned
