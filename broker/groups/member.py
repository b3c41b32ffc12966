"""A member of a classic group, what the group is handed, and what follows from all members together.

Owns the form of these; the rules are `classic`'s.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tidelog.broker.groups.memory import Hold, text_bytes
from tidelog.protocol.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from tidelog.protocol.coordinator.subscription import CONSUMER, subscribed_topics
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.protocol.messages.sync_group import SyncGroupResponse

# What a member takes in memory, about, beside what it says; a protocol beside its name and what is said for it.
MEMBER_BYTES: Final = 1200
PROTOCOL_BYTES: Final = 150
# What is said to a group is stored as one record, with what is assigned, and has to fit a batch of 1 MiB.
SAID_BYTES_MAX: Final = 768 << 10

Joined = Callable[[JoinGroupResponse], None]
Synced = Callable[[SyncGroupResponse], None]
Protocols = Sequence[tuple[str, bytes]]  # a name, and what the member has to say for it


# Puts a group, here Any, on disk; says later what came of it.
Store = Callable[[Any, GroupMetadataValue, Callable[[ErrorCode], None]], None]


class Timer(Protocol):
    """What was asked to happen later."""

    def cancel(self) -> None:
        """Have it not happen."""


class Surroundings(NamedTuple):
    """What a group is handed."""

    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    call_later: Callable[[int, Callable[[], None]], Timer]
    new_id: Callable[[], str]
    store: Store
    hold: Hold
    initial_rebalance_delay_ms: int
    max_size: int


class Joining(NamedTuple):
    """What a member says when it joins."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_its_id: bool = False  # is to ask again with the id that it is given (KIP-394)
    may_skip_assignment: bool = False  # understands that it leads and need not assign (KIP-814)


class Session:
    """Until when a member is taken to be alive. To be heard of costs no timer: the one there is looks again."""

    __slots__ = ("_around", "_due_ms", "_over", "_timer", "_until_ms")

    def __init__(self, around: Surroundings, over: Callable[[], None]) -> None:
        """Call `over` when nothing was heard for too long."""
        self._around = around
        self._over = over
        self._until_ms = self._due_ms = 0
        self._timer: Timer | None = None

    def extend(self, for_ms: int) -> None:
        """Take it to be alive for so long from now."""
        self._until_ms = self._around.monotonic_ms() + for_ms
        if self._timer is None or self._due_ms > self._until_ms:
            self._watch(for_ms)

    def cancel(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, for_ms: int) -> None:
        self.cancel()
        self._due_ms = self._until_ms
        self._timer = self._around.call_later(for_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        left_ms = self._until_ms - self._around.monotonic_ms()
        if left_ms > 0:
            self._watch(left_ms)
        else:
            self._over()


class Member:
    """A member, and the answers that it waits for."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "join",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync",
    )

    def __init__(self, member_id: str, asked: Joining) -> None:
        self.id = member_id
        self.instance_id = asked.instance_id
        self.client_id = asked.client_id
        self.client_host = asked.client_host
        self.rebalance_timeout_ms = asked.rebalance_timeout_ms
        self.session_timeout_ms = asked.session_timeout_ms
        self.protocols = asked.protocols
        self.assignment = b""
        self.is_new = False
        self.join: Joined | None = None
        self.sync: Synced | None = None
        self.session: Session | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return what the member has to say for a protocol."""
        return next((said for name, said in self.protocols if name == protocol), b"")

    def synced(self, protocol_type: str | None, protocol: str | None) -> SyncGroupResponse:
        """Return the answer for one that was assigned something, of a group that goes by this protocol."""
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignment=self.assignment,
        )

    def refuse_sync(self, code: ErrorCode) -> None:
        """Answer one that waits for an assignment that there will not be, if it does."""
        if self.sync is not None:
            answer, self.sync = self.sync, None
            answer(SyncGroupResponse(error_code=code, assignment=b""))

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return self.said_bytes + len(self.assignment)

    @property
    def said_bytes(self) -> int:
        """The same, without what it is assigned."""
        names = (
            self.id,
            self.id,
            self.client_id,
            self.instance_id or "",
        )
        said = sum(PROTOCOL_BYTES + text_bytes(name) + len(metadata) for name, metadata in self.protocols)
        return MEMBER_BYTES + sum(map(text_bytes, names)) + said


class Knows(Protocol):
    """One that knows protocols, those that it prefers first."""

    @property
    def protocols(self) -> Protocols:
        """Their names, and what it has to say for each."""


def chosen(members: Iterable[Knows], supported: Mapping[str, int]) -> str:
    """Return the protocol that most members prefer, of those that all of them know."""
    everybody = list(members)
    common = {name for name, known in supported.items() if known == len(everybody)}
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in everybody)
    return votes.most_common(1)[0][0]


def unfit(
    asked: Joining, members: Mapping[str, Member], protocol_type: str | None, supported: Mapping[str, int]
) -> ErrorCode:
    """Return why one may not be a member of a group of this type, if it has one yet; NONE if it may."""
    if protocol_type is None:
        is_like_them = bool(asked.protocol_type and asked.protocols)
    else:
        is_like_them = asked.protocol_type == protocol_type and any(
            supported.get(name) == len(members) for name, _ in asked.protocols
        )
    if not is_like_them:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # What cannot be stored Kafka answers so, but to all members, and again and again, once one has joined.
    return ErrorCode.NONE if _can_be_stored(asked, members.values()) else ErrorCode.UNKNOWN_SERVER_ERROR


def _can_be_stored(asked: Joining, members: Iterable[Member]) -> bool:
    """Tell whether there is room for what all say, where one says this; it may be one of them, or take its place."""
    others = (
        each.protocols
        for each in members
        if each.id != asked.member_id and (asked.instance_id is None or each.instance_id != asked.instance_id)
    )
    return sum(map(_longest, (asked.protocols, *others))) <= SAID_BYTES_MAX


def _longest(protocols: Protocols) -> int:
    return max((len(metadata) for _, metadata in protocols), default=0)


def subscribed(
    protocol_type: str | None, protocol: str | None, members: Iterable[Member]
) -> frozenset[str] | None:
    """Return the topics that the members read, None where one of them does not say so as consumers do."""
    if protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in members:
        said = subscribed_topics(member.metadata(protocol))
        if said is None:
            return None
        topics.update(said)
    return frozenset(topics)


def stored_members(
    members: Iterable[Member], protocol: str | None, assignments: Mapping[str, bytes]
) -> list[MemberMetadata]:
    """Return what is stored of the members of a group, with these assignments by their ids."""
    return [
        MemberMetadata(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(protocol),
            assignment=assignments[member.id],
        )
        for member in members
    ]


def restored_members(value: GroupMetadataValue) -> Iterator[Member]:
    """Yield the members of a group as they were stored."""
    for stored in value.members:
        asked = Joining(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout or stored.session_timeout,
            stored.session_timeout,
            value.protocol_type,
            [(value.protocol or "", stored.subscription)],
        )
        member = Member(stored.member_id, asked)
        member.assignment = stored.assignment
        yield member


def joined(
    member: Member,
    told: Iterable[Member],
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    leader: str | None,
) -> JoinGroupResponse:
    """Return the answer for one that has joined, with what some members have to say for the protocol."""
    members = [
        JoinGroupResponseMember(
            member_id=each.id, group_instance_id=each.instance_id, metadata=each.metadata(protocol)
        )
        for each in told
    ]
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=generation,
        protocol_type=protocol_type,
        protocol_name=protocol,
        leader=leader or "",
        member_id=member.id,
        members=members,
    )


def refused_join(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """Return the answer for one that has not joined."""
    return JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_name=None, leader="", member_id=member_id, members=[]
    )


def differs(said: str | None, known: str | None) -> bool:
    """Tell whether a client says something else than what is known."""
    return said is not None and known is not None and said != known
