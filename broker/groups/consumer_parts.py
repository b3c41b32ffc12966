"""What a consumer group is made of: its members, what they say, what they are told; and what a group is handed.

Owns the form of these; the rules are `consumer`'s.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from tidelog.broker.groups.assignors import Assignment, Counts, Members
from tidelog.broker.groups.consumer_member import NEW, NOTHING, Owned, Subscription, indexes_in, is_within
from tidelog.broker.groups.member import PROTOCOL_BYTES, Timer
from tidelog.broker.groups.memory import Hold, Taken, text_bytes
from tidelog.protocol.error_codes import ErrorCode

# What a member takes in memory, about, beside what it says; a partition that it has.
MEMBER_BYTES: Final = 1600
PARTITION_BYTES: Final = 250

Changes = dict[bytes, bytes | None]  # records: by key a value, None to take it back
Stored = Callable[[ErrorCode], None]  # takes what came of it
Store = Callable[[str, Changes, Stored], None]
Assigned = Callable[[Mapping[str, Assignment]], None]  # takes what members are to read
Matched = Callable[[Mapping[str, frozenset[str] | None]], None]  # takes the topics that match


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


NO_ROOM_FOR_MATCHES: Final = Refused(
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    "the regular expression matches more topics than there is memory for (group.state.max.bytes)",
)


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


# As while a group is loaded: ask again.
SUPERSEDED: Final = Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the member has sent another heartbeat")


class Awaiting(NamedTuple):
    """Who waits until there is a target for an epoch; the member may ask again before."""

    epoch: int
    go_on: Callable[[], None]
    supersede: Callable[[], None]


class ConsumerSurroundings(NamedTuple):
    """What a group is handed."""

    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    call_later: Callable[[int, Callable[[], None]], Timer]
    new_id: Callable[[], str]
    # Puts what has changed on disk, in its order; says later what came of it.
    store: Store
    hold: Hold
    room: Callable[[str], int]  # how many bytes more a host may have held
    topic: Callable[[str], tuple[bytes, int] | None]  # by name: its id, and how many partitions it has
    # Shares out, or matches topics with regular expressions, here or on another thread, where each group, named first,
    # has turns of its own; hands over what comes of it.
    assign: Callable[[str, str, Members, Counts, Assigned], None]
    # Takes the expressions, and the names to match with them (None: of all topics). So many topics are matched at most,
    # by the first of the expressions; None stands for more than were left.
    resolve: Callable[[str, Sequence[str], Sequence[str] | None, int, Matched], None]
    regex_problem: Callable[[str], str | None]
    topic_name: Callable[[bytes], str | None]  # by id
    # Makes a classic group of one without these members, if it may be one; returns it if it has, and goes on when that
    # is on disk. The instance of the subscription, if there is one, is a member that comes back and says that by now.
    downgrade: Callable[[Any, frozenset[str], Subscription | None], Any]
    session_timeout_ms: int
    max_size: int
    default_assignor: str


class Member:
    """A member: what it says, what it is to read, how far it has come, and what is waited for."""

    __slots__ = (
        "current",
        "deadline_ms",
        "host",
        "id",
        "join_timer",
        "measured",
        "rebalance_timer",
        "session_timer",
        "size_bytes",
        "subscription",
        "sync_timer",
        "target",
        "why_gone",
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
        )  # what it has said, and about what that takes
        self.host = ""  # that it is counted for
        self.deadline_ms = 0  # Until then it is taken to be alive.
        self.session_timer: Timer | None = None
        self.rebalance_timer: Timer | None = None
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self.why_gone: Refused | None = None  # where it is to be told more than that it is no member

    def measure(self, taken: Taken) -> None:
        """Find out about how much it takes in memory, and have that counted."""
        said = self.subscription
        if self.measured[0] is not said:
            self.measured = said, said_bytes(said)
        size_bytes = MEMBER_BYTES + 2 * text_bytes(self.id) + self.measured[1]
        for assignment in (self.target, self.current.assigned, self.current.revoking):
            size_bytes += PARTITION_BYTES * sum(map(len, assignment.values()))
        taken.add(self.host, -self.size_bytes)
        self.host, self.size_bytes = said.client_host, size_bytes
        taken.add(self.host, size_bytes)

    def cancel_timers(self) -> None:
        """Wait for nothing of it any more."""
        for timer in (self.session_timer, self.rebalance_timer, self.join_timer, self.sync_timer):
            if timer is not None:
                timer.cancel()
        self.session_timer = self.rebalance_timer = self.join_timer = self.sync_timer = None


def said_bytes(said: Subscription) -> int:
    """Return about what a member takes in memory for what it says of itself."""
    names = (said.regex, said.client_id, said.client_host, said.instance_id or "", said.rack_id or "")
    protocols = () if said.classic is None else said.classic.protocols
    return sum(map(text_bytes, (*names, *said.topics))) + sum(
        PROTOCOL_BYTES + text_bytes(name) + len(metadata) for name, metadata in protocols
    )


class Owners:
    """Who has each partition of a group, be it that it has to give it up."""

    def __init__(self) -> None:
        self._members: dict[tuple[bytes, int], str] = {}  # their ids

    def is_free(self, topic: bytes, index: int) -> bool:
        """Tell whether nobody has a partition."""
        return (topic, index) not in self._members

    def are_free_for(self, member: Member, assignment: Assignment) -> bool:
        """Tell whether nobody but this member has any of these."""
        partitions = indexes_in(assignment)
        return all(self._members.get(partition, member.id) == member.id for partition in partitions)

    def free_of(self, assignment: Assignment) -> Assignment:
        """Return what of an assignment nobody has."""
        free = {
            topic: frozenset(index for index in indexes if self.is_free(topic, index))
            for topic, indexes in assignment.items()
        }
        return {topic: indexes for topic, indexes in free.items() if indexes}

    def drop(self, member: Member) -> None:
        """Take note that a member has nothing any more."""
        for assignment in (member.current.assigned, member.current.revoking):
            for partition in indexes_in(assignment):
                if self._members.get(partition) == member.id:
                    del self._members[partition]

    def take(self, member: Member) -> None:
        """Take note of what a member has."""
        for assignment in (member.current.assigned, member.current.revoking):
            for partition in indexes_in(assignment):
                assert self._members.setdefault(partition, member.id) == member.id, partition


class Waiters:
    """The members that wait for an answer, each with one request: for the topics that match, then for a target."""

    def __init__(self) -> None:
        self._for_topics: dict[Member, Awaiting] = {}
        # By epoch: it only rises, so the one that has waited longest waits for the lowest.
        self._for_target: dict[Member, Awaiting] = {}

    def __bool__(self) -> bool:
        """Tell whether anybody waits."""
        return bool(self._for_topics or self._for_target)

    def __contains__(self, member: Member) -> bool:
        """Tell whether a member waits."""
        return member in self._for_topics or member in self._for_target

    @property
    def for_target(self) -> bool:
        """Tell whether anybody waits for a target."""
        return bool(self._for_target)

    def add(self, member: Member, waits: Awaiting, *, for_topics: bool) -> None:
        """Have a member wait."""
        (self._for_topics if for_topics else self._for_target)[member] = waits

    def pop(self, member: Member) -> Awaiting | None:
        """Return what a member waits with, which it does no longer."""
        return self._for_topics.pop(member, None) or self._for_target.pop(member, None)

    def pop_all(self) -> list[Awaiting]:
        """Return what all wait with, who do no longer."""
        waiting = [*self._for_topics.values(), *self._for_target.values()]
        self._for_topics, self._for_target = {}, {}
        return waiting

    def due(self, target_epoch: int, most: int) -> list[Member]:
        """Return members for whose epoch there is a target: the ones that have waited longest."""
        first = islice(self._for_target.items(), most)
        return [member for member, waits in first if waits.epoch <= target_epoch]

    def matched(self, is_unknown: Callable[[str], bool], epoch: int) -> None:
        """Have the members whose topics are known by now wait for the target of an epoch."""
        for member in [each for each in self._for_topics if not is_unknown(each.subscription.regex)]:
            self._for_target[member] = self._for_topics.pop(member)._replace(epoch=epoch)


class Writing:
    """What is to be stored of one group: of each key the last that was said, whatever is refused on the way there."""

    def __init__(self, group_id: str, store: Store) -> None:
        self._group_id = group_id
        self._store = store
        self._next: Changes = {}
        self._number = 0
        self._newest: dict[bytes, int] = {}  # of each key that is on its way: the last flush that has it
        self._on_way: dict[int, list[Stored]] = {}  # who waits for each flush that is

    def put(self, key: bytes, value: bytes | None) -> None:
        """Have a record written with the next flush."""
        self._next.pop(key, None)
        self._next[key] = value

    def clear(self) -> None:
        """Have nothing written any more."""
        self._next = {}
        self._newest = {}

    def keys(self) -> list[bytes]:
        """Return the keys of what is still to be written, and of what may be refused yet."""
        return list(dict.fromkeys((*self._newest, *self._next)))

    def flush(self, then: Stored | None) -> None:
        """Have all of it stored, and go on when that, and what was to be before, is on disk.

        Where there is nothing new, what is on its way may yet be refused: an answer that tells of it waits as well.
        """
        if not self._next:
            if then is not None and self._on_way:
                self._on_way[next(reversed(self._on_way))].append(then)
            elif then is not None:
                then(ErrorCode.NONE)
            return
        changes, self._next = self._next, {}
        self._number += 1
        self._newest.update(dict.fromkeys(changes, self._number))
        self._on_way[self._number] = [] if then is None else [then]
        self._store(self._group_id, changes, partial(self._stored, self._number, changes))

    def flush_by(self, store: Callable[[Stored], None]) -> None:
        """Have another group stored that takes the place of this one; `flush` waits for that too."""
        self._number += 1
        self._on_way[self._number] = []
        store(partial(self._stored, self._number, {}))

    def _stored(self, number: int, changes: Changes, code: ErrorCode) -> None:
        newest = [key for key in changes if self._newest.get(key) == number]
        for key in newest:
            del self._newest[key]
        if code:
            # What was said since holds, be it on its way, on disk, or to come.
            self._next = {key: changes[key] for key in newest if key not in self._next} | self._next
        for then in self._on_way.pop(number):
            then(code)


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


def still_used(member_id: str, instance_id: str | None, holder: str) -> str:
    """Return what a member is answered that wants the instance id of another."""
    return (
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
        f"owned by {holder} member."
    )


def check_room(group_id: str, count: int, max_size: int) -> None:
    """Refuse one more member than there may be."""
    if count >= max_size:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members. (group {group_id})",
        )


def check_regex(regex: str | None, around: ConsumerSurroundings) -> None:
    """Refuse a regular expression that is none."""
    problem = around.regex_problem(regex) if regex else None
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)


def check_epoch(member: Member, beat: Beat) -> None:
    """Fence a member whose epoch is not the one it was told, or the one before if that answer was lost."""
    known = member.current
    is_lost = beat.epoch == known.previous_epoch and is_within(beat.owned, known.assigned)
    if beat.epoch > known.epoch or (beat.epoch < known.epoch and not is_lost):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {'greater' if beat.epoch > known.epoch else 'smaller'} member epoch "
            f"({beat.epoch}) than the one known by the group coordinator ({known.epoch}). The member must abandon "
            "all its partitions and rejoin.",
        )


def epoch_problem(member: Member | None, epoch: int) -> ErrorCode:
    """Return why who says that epoch may not commit, or be told what was committed; None is no member."""
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    is_classic = member.subscription.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def owned_of(topic_partitions: Iterable[tuple[bytes, Iterable[int]]]) -> dict[bytes, frozenset[int]]:
    """Return what a member says it has, by topic. However often one is named, the work grows with what is said."""
    owned: dict[bytes, set[int]] = {}
    for topic, indexes in topic_partitions:
        owned.setdefault(topic, set()).update(indexes)
    return {topic: frozenset(indexes) for topic, indexes in owned.items()}


def of_member(member: Member, owned: Owned) -> dict[bytes, frozenset[int]] | None:
    """Return what counts of what a member says it has: what it was given. What else it names may be much."""
    if owned is None:
        return None
    current = member.current
    return {
        topic: (
            current.assigned.get(topic, frozenset()) | current.revoking.get(topic, frozenset())
        ).intersection(indexes)
        for topic, indexes in owned.items()
        if topic in current.assigned or topic in current.revoking
    }
