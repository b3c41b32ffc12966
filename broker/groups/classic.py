"""A classic group: members join, the leader assigns partitions, and all members get their assignments.

KIP-62, 134, 345, 394, 559, 814. The group is a state machine: clock, timers and log come from `Services`. `MOVES` and
`ANSWERS` are its tables. Everything else follows Kafka's GroupMetadataManager.

`join` waits until all members have joined (`_complete_join`). `sync` waits until the leader's assignment is on disk
(`_assigned`). Each join and each sync gets exactly one answer, even if the group ends first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum, auto
from functools import partial
from typing import Final

from tidelog.broker.groups.classic_member import (
    METADATA_BYTES_MAX,
    ClassicMember,
    Joining,
    Protocols,
    chosen_protocol,
    longest_metadata,
    refused_join,
    refused_sync,
    restored,
    topics_read,
)
from tidelog.broker.groups.log import Changes, Stored
from tidelog.broker.groups.memory import GroupMemory, text_bytes
from tidelog.broker.groups.services import Reply, Services, SessionTimer
from tidelog.broker.timers import Timer
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.consumer_protocol import CONSUMER
from tidelog.protocol.coordinator.messages import GroupMetadataValue
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.protocol.wire.errors import EncodeError

# The session of a new member while it waits for the others, whose rebalance timeouts may be long (as in Kafka).
NEW_MEMBER_MS: Final = 300_000
# The shortest wait for members to join. If none does, the wait starts over: with a timeout of 0 it would never pause.
JOIN_WAIT_MIN_MS: Final = 100
# The approximate memory of a member id that nobody has joined with yet.
PENDING_BYTES: Final = 400


class State(Enum):
    """The state of a group, with Kafka's name for it as the value."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # waits for members to join
    COMPLETING_REBALANCE = "CompletingRebalance"  # all have joined; waits for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

MOVES: Final = {
    EMPTY: {PREPARING, DEAD},
    PREPARING: {COMPLETING, EMPTY, DEAD},
    COMPLETING: {STABLE, PREPARING, DEAD},
    STABLE: {PREPARING, DEAD},
    DEAD: frozenset[State](),
}


class Operation(IntEnum):
    """What a request does to a group."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()
    DELETE = auto()
    DELETE_OFFSETS = auto()  # of a group whose protocol type is not "consumer": its subscriptions are unknown


_OK, _GONE = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
_UNKNOWN, _REJOIN = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS
_MEMBERS, _NO_GROUP = ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND
# The answer to a member of the current generation, by state. NONE means that the operation is carried out.
ANSWERS: Final[dict[Operation, dict[State, ErrorCode]]] = {
    operation: dict(zip(State, codes, strict=True))
    for operation, codes in {
        # in (EMPTY, PREPARING, COMPLETING, STABLE, DEAD)
        Operation.JOIN: (_UNKNOWN, _OK, _OK, _OK, _GONE),
        Operation.SYNC: (_UNKNOWN, _REJOIN, _OK, _OK, _GONE),
        Operation.HEARTBEAT: (_UNKNOWN, _REJOIN, _OK, _OK, _GONE),
        # Members may still commit before they rejoin; their heartbeats tell them to.
        Operation.COMMIT: (_OK, _OK, _REJOIN, _OK, _GONE),
        Operation.DELETE: (_OK, _MEMBERS, _MEMBERS, _MEMBERS, _NO_GROUP),
        Operation.DELETE_OFFSETS: (_OK, _MEMBERS, _MEMBERS, _MEMBERS, _NO_GROUP),
    }.items()
}


class ClassicGroup:
    """One group. Event loop only, except `restore`."""

    kind = "classic"  # Kafka's name

    def __init__(self, group_id: str, services: Services, host: str = "") -> None:
        self.id = group_id
        self._services = services
        self.state = EMPTY
        self.state_since_ms = services.clock.now_ms()
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.memory = GroupMemory(group_id, services.memory, host)
        # Tombstones to write with the next change: the consumer group that this group was before.
        self.former: Changes = {}
        self.topics: frozenset[str] | None = None  # the subscribed topics; None if unknown
        # The hash of the member that kept the group from an upgrade (`migration`).
        self.unfit_hash: int | None = None
        self._instances: dict[str, str] = {}  # member ids by instance id
        self._pending: dict[str, tuple[Timer, str]] = {}  # ids given out but not joined with, and their hosts
        self._supported: Counter[str] = Counter()  # the number of members that support each protocol
        self._metadata_bytes = 0  # the sum of each member's longest metadata
        self._joining = 0  # members that wait for the others to join
        self._unsynced: set[str] = set()
        self._assigned_as = 0, 0  # the number of the leader's last assignment, and its generation
        self._is_first = False  # this rebalance takes the first members of an empty group
        self._has_newcomers = False  # members have joined since the initial rebalance delay began
        self._join_timer: Timer | None = None
        self._sync_timer: Timer | None = None

    def restore(self, value: GroupMetadataValue) -> None:
        """Restore the stored group. `begin` starts to serve it. Any thread."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol, self.leader = value.protocol, value.leader
        self.state = STABLE if value.members else EMPTY
        self.state_since_ms = value.current_state_timestamp
        for stored in value.members:
            member = restored(stored, value.protocol_type, value.protocol)
            self.members[member.id] = member
            self.memory.restore(member.client_host, member.size_bytes)
            self._count_protocols(member.protocols)
            if member.instance_id is not None:
                self._instances[member.instance_id] = member.id
        self.topics = topics_read(self.protocol_type, self.protocol, self)

    def begin(self) -> None:
        """Start to serve a restored group: its members have a session timeout to send a heartbeat."""
        for member in self:
            self._extend_session(member)
        if len(self.members) > self._services.config.group_max_size:
            self.rebalance()

    # Requests.

    async def join(self, request: Joining) -> JoinGroupResponse:
        """Let a member join or rejoin; return when all members have joined."""
        reply = self._services.replies.new()
        self._join(request, reply)
        self._complete_join_if_all_have()
        del request
        response: JoinGroupResponse = await reply
        return response

    async def join_for(self, request: Joining) -> JoinGroupResponse:
        """Let the static member rejoin whose change to the classic protocol has downgraded the group."""
        reply = self._services.replies.new()
        self._replace(self._instances[request.instance_id or ""], request, reply)
        del request
        response: JoinGroupResponse = await reply
        return response

    async def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: dict[str, bytes],
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> SyncGroupResponse:
        """Return a member's assignment when the leader's assignments are on disk."""
        code = self._problem(Operation.SYNC, member_id, instance_id, generation)
        if not code and (_differ(protocol_type, self.protocol_type) or _differ(protocol, self.protocol)):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code:
            return refused_sync(code)
        member = self.members[member_id]
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._cancel_sync_timer()
        if self.state is STABLE:
            self._extend_session(member)
            return self._synced(member)
        member.answer_sync(refused_sync(_REJOIN))  # an earlier sync that the client has given up
        reply = member.sync = self._services.replies.new()
        if member_id == self.leader:
            self._assign(assignments)
        del assignments
        response: SyncGroupResponse = await reply
        return response

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Extend a member's session. REBALANCE_IN_PROGRESS tells it to rejoin."""
        code = self._problem(Operation.HEARTBEAT, member_id, instance_id, generation)
        if code in (ErrorCode.NONE, _REJOIN):
            self._extend_session(self.members[member_id])
        return code

    def leave(self, leaving: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members by member id or instance id (KIP-345); return a code for each."""
        codes = [self._leave(member_id, instance_id) for member_id, instance_id in leaving]
        if ErrorCode.NONE in codes:
            self._members_have_left()
        return codes

    def commit_problem(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return why an offset may not be committed. If it may, extend the member's session."""
        if generation < 0 and self.state is EMPTY:
            return ErrorCode.NONE  # The group has no members and only stores offsets.
        if generation < 0 and not member_id and instance_id is None:
            return _GONE if self.state is DEAD else _UNKNOWN
        code = self._problem(Operation.COMMIT, member_id, instance_id, generation)
        if not code:
            self._extend_session(self.members[member_id])
        return code

    def deletion_problem(self, operation: Operation) -> ErrorCode:
        """Return why the group, or its offsets, may not be deleted."""
        is_of_consumers = self.protocol_type == CONSUMER and self.state is not DEAD
        if operation is Operation.DELETE_OFFSETS and is_of_consumers:
            return ErrorCode.NONE
        return ANSWERS[operation][self.state]

    def reads(self, topic: str) -> bool:
        """Tell whether members read a topic, or may read it because their subscriptions are unknown."""
        return self.protocol_type == CONSUMER if self.topics is None else topic in self.topics

    def unused_since_ms(self, committed_ms: int) -> int | None:
        """Return since when an offset with no reader is unused (KIP-211); None if it does not expire."""
        if self.protocol_type is None:
            return committed_ms
        if self.state is EMPTY:
            return self.state_since_ms if self.state_since_ms >= 0 else committed_ms
        return committed_ms if self.topics is not None and self.state is STABLE else None

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.state is EMPTY

    @property
    def is_dead(self) -> bool:
        """Whether the group has ended."""
        return self.state is DEAD

    @property
    def is_awaited(self) -> bool:
        """Whether a client has got a member id and may still join with it."""
        return bool(self._pending)

    def tombstones(self) -> Changes:
        """Return the tombstones for all stored records of the group."""
        return {**self.former, records.group_key(self.id): None}

    def release(self, code: ErrorCode) -> None:
        """Answer all waiting requests with a code; members stay members."""
        for member in self:
            self._refuse_join(member, member.id, code)
            member.answer_sync(refused_sync(code))

    def end(self, code: ErrorCode) -> None:
        """End the group: remove all members, answer their waiting requests with a code, cancel all timers."""
        for member in list(self):
            self._remove(member.id, code)
        for timer in (self._join_timer, self._sync_timer, *(timer for timer, _ in self._pending.values())):
            if timer is not None:
                timer.cancel()
        self._pending.clear()
        self._move(DEAD)

    # Joining.

    def _join(self, request: Joining, reply: Reply) -> None:
        member_id = request.member_id
        if not self._has_room_for(member_id):
            self._remove(member_id)
            reply.deliver(refused_join("", ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif self.state is DEAD:
            reply.deliver(refused_join(member_id, _GONE))
        elif code := self._join_problem(request):
            reply.deliver(refused_join(member_id, code))
        elif not member_id:
            self._join_without_id(request, reply)
        elif member_id in self._pending and request.instance_id is None:
            self._add(member_id, request, reply)
        elif code := self._problem(Operation.JOIN, member_id, request.instance_id):
            reply.deliver(refused_join(member_id, code))
        else:
            self._rejoin(self.members[member_id], request, reply)

    def _has_room_for(self, member_id: str) -> bool:
        """Tell whether a member may join. Members that already wait stay; later ones are refused."""
        max_size, member = self._services.config.group_max_size, self.members.get(member_id)
        if self.state is PREPARING:
            return (member is not None and member.join is not None) or self._joining < max_size
        return self.state in (EMPTY, DEAD) or member is not None or len(self.members) < max_size

    def _join_problem(self, request: Joining) -> ErrorCode:
        """Return why a member's protocols do not fit those of the others."""
        if self.state is EMPTY or self.protocol_type is None:
            is_consistent = bool(request.protocol_type and request.protocols)
        else:
            is_consistent = request.protocol_type == self.protocol_type and any(
                self._supported[name] == len(self.members) for name, _ in request.protocols
            )
        if not is_consistent:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        # Kafka lets it join. The group can then no longer be stored, and every sync of every member fails.
        known = self.member(request.member_id, request.instance_id)
        others = self._metadata_bytes - (0 if known is None else longest_metadata(known.protocols))
        fits = others + longest_metadata(request.protocols) <= METADATA_BYTES_MAX
        return ErrorCode.NONE if fits else ErrorCode.UNKNOWN_SERVER_ERROR

    def _join_without_id(self, request: Joining, reply: Reply) -> None:
        instance_id = request.instance_id
        if instance_id is not None and instance_id in self._instances:
            self._replace(self._instances[instance_id], request, reply)
            return
        member_id = f"{request.client_id if instance_id is None else instance_id}-{self._services.new_id()}"
        if instance_id is None and request.must_know_its_id:
            timer = self._services.timers.call_later(
                request.session_timeout_ms, partial(self._pending_expired, member_id)
            )
            self._pending[member_id] = timer, request.client_host
            self.memory.add(request.client_host, PENDING_BYTES + text_bytes(member_id))
            reply.deliver(refused_join(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._add(member_id, request, reply)

    def _add(self, member_id: str, request: Joining, reply: Reply) -> None:
        member = ClassicMember(member_id, request)
        member.is_new = True
        if not self.members:
            self.protocol_type = request.protocol_type
        self._remove_pending(member_id)
        self.members[member_id] = member
        self.memory.add(member.client_host, member.size_bytes)
        self._count_protocols(member.protocols)
        self.leader = self.leader or member_id
        if member.instance_id is not None:
            self._instances[member.instance_id] = member_id
        self._has_newcomers = self._is_first and self.state is PREPARING
        self._await_join(member, reply)
        self._extend_session(member, NEW_MEMBER_MS)
        self.rebalance()

    def _rejoin(self, member: ClassicMember, request: Joining, reply: Reply) -> None:
        """Let a known member join again; begin a rebalance if its join calls for one."""
        is_leader = member.id == self.leader
        is_changed = list(member.protocols) != list(request.protocols)
        if self.state is PREPARING or is_changed or (self.state is STABLE and is_leader):
            # A leader rejoins a stable group because it wants another assignment, after a change of topics for example.
            self._update(member, request, reply)
            self.rebalance()
        else:
            reply.deliver(self._joined(member, with_members=is_leader))  # The client has lost the answer.

    def _replace(self, old_id: str, request: Joining, reply: Reply) -> None:
        """Let a restarted static member take over its former membership, under a new member id (KIP-345)."""
        old_leader = self.leader
        member = self.members.pop(old_id)
        self.memory.add(member.client_host, -member.size_bytes)
        self._refuse_join(member, old_id, ErrorCode.FENCED_INSTANCE_ID)
        member.answer_sync(refused_sync(ErrorCode.FENCED_INSTANCE_ID))
        assert request.instance_id is not None
        member.id = f"{request.instance_id}-{self._services.new_id()}"
        self.members[member.id] = member
        self._instances[request.instance_id] = member.id
        self._unsynced.discard(old_id)
        if self.leader == old_id:
            self.leader = member.id
        member.client_id, member.client_host = request.client_id, request.client_host
        self.memory.add(member.client_host, member.size_bytes)
        self._update(member, request, reply)
        self._extend_session(member)
        if self.state is STABLE and chosen_protocol(self, self._supported) == self.protocol:
            stored = partial(self._replaced, member, old_leader, request.may_skip_assignment)
            self._store({each.id: each.assignment for each in self}, stored)
        else:
            self.rebalance()

    def _replaced(
        self, member: ClassicMember, old_leader: str | None, may_skip: bool, code: ErrorCode
    ) -> None:
        """Answer a static member that rejoined without a rebalance, when the change is on disk or has failed."""
        if member.join is None or self.members.get(member.id) is not member:
            return
        if code:
            self._remove(member.id)
            self._members_have_left()
        elif self.state is STABLE:
            response = self._joined(member, with_members=may_skip and member.id == self.leader)
            if may_skip:
                response.skip_assignment = member.id == self.leader
            else:
                # It must not believe that it leads: the group would ignore its assignments.
                response.leader = old_leader or ""
            self._answer_join(member, response)
        # Otherwise a rebalance has begun, and its end answers the join.

    def _update(self, member: ClassicMember, request: Joining, reply: Reply) -> None:
        before = member.size_bytes
        self._discount_protocols(member.protocols)
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self._count_protocols(member.protocols)
        self.memory.add(member.client_host, member.size_bytes - before)
        self._await_join(member, reply)

    # Rebalancing.

    def rebalance(self) -> None:
        """Begin a rebalance, unless one waits for joins already."""
        if self.state is PREPARING or self.state is DEAD:
            return
        self._cancel_sync_timer()
        if self.state is COMPLETING:
            self._refuse_assignments(_REJOIN)
        self._is_first = self.state is EMPTY
        self._move(PREPARING)
        if self._is_first:
            self._has_newcomers = False
            delay_ms = self._services.config.group_initial_rebalance_delay_ms
            self._await_first(delay_ms, max(self._rebalance_timeout_ms - delay_ms, 0))
        elif self._joining == len(self.members) and not self._pending:
            self._complete_join()
        else:
            self._await_joins()

    @property
    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def _await_joins(self) -> None:
        wait_ms = max(self._rebalance_timeout_ms, JOIN_WAIT_MIN_MS)
        self._join_timer = self._services.timers.call_later(wait_ms, self._complete_join)

    def _await_first(self, delay_ms: int, left_ms: int) -> None:
        """Wait for the first members of an empty group; the wait is extended while new ones keep joining."""
        over = partial(self._first_delay_over, delay_ms, left_ms)
        self._join_timer = self._services.timers.call_later(delay_ms, over)

    def _first_delay_over(self, delay_ms: int, left_ms: int) -> None:
        if self._has_newcomers and left_ms:
            self._has_newcomers = False
            next_ms = min(self._services.config.group_initial_rebalance_delay_ms, left_ms)
            self._await_first(next_ms, max(left_ms - delay_ms, 0))
        else:
            self._complete_join()

    def _complete_join_if_all_have(self) -> None:
        is_due = self.state is PREPARING and not self._is_first
        if is_due and self._joining == len(self.members) and not self._pending:
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation. Members that have not joined are removed, except static ones."""
        if self._join_timer is not None:
            self._join_timer.cancel()
            self._join_timer = None
        for member in [each for each in self if each.join is None and each.instance_id is None]:
            self._remove(member.id)
        if self.members and not self._elect():
            self._await_joins()  # No member has joined. This repeats until one does, or their sessions expire.
            return
        self.generation += 1
        self.protocol = chosen_protocol(self, self._supported) if self.members else None
        self.topics = topics_read(self.protocol_type, self.protocol, self)
        if not self.members:
            self._move(EMPTY)
            self._store({}, lambda _code: None)
            return
        self._move(COMPLETING)
        self._unsynced.update(self.members)
        self._sync_timer = self._services.timers.call_later(self._rebalance_timeout_ms, self._sync_timed_out)
        for member in self:
            member.is_new = False
            self._extend_session(member)
            if member.join is not None:
                self._answer_join(member, self._joined(member, with_members=member.id == self.leader))

    def _elect(self) -> bool:
        """Choose a leader among the members that have joined; return false if none has."""
        if self.leader is None or self.members[self.leader].join is None:
            found = next((member.id for member in self if member.join is not None), None)
            if found is None:
                return False
            self.leader = found
        return True

    # Assigning.

    def _assign(self, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignments, then answer all waiting members.

        A member without an assignment gets no partitions. The other members depend on this, so it continues if the
        leader's client leaves.
        """
        self._assigned_as = self._assigned_as[0] + 1, self.generation
        assignments = {member.id: assignments.get(member.id, b"") for member in self}
        self._store(assignments, partial(self._assigned, self._assigned_as, assignments))

    def _assigned(self, which: tuple[int, int], assignments: dict[str, bytes], code: ErrorCode) -> None:
        if self.state is not COMPLETING or which != self._assigned_as or which[1] != self.generation:
            return  # A member has joined or left since, or the leader has lost the answer and assigned again.
        if code:
            self._refuse_assignments(code)
            self.rebalance()
            return
        self._move(STABLE)
        for member in self:
            before = len(member.assignment)
            member.assignment = assignments.get(member.id, b"")
            self.memory.add(member.client_host, len(member.assignment) - before)
            if member.sync is not None:
                self._extend_session(member)
                member.answer_sync(self._synced(member))

    def _refuse_assignments(self, code: ErrorCode) -> None:
        for member in self:
            self.memory.add(member.client_host, -len(member.assignment))
            member.assignment = b""
            if member.sync is not None:
                self._extend_session(member)
            member.answer_sync(refused_sync(code))

    def _cancel_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _sync_timed_out(self) -> None:
        """Remove the members that have joined but not synced in time."""
        self._sync_timer = None
        if self._unsynced:
            for member_id in list(self._unsynced):
                self._remove(member_id)
            self.rebalance()

    # Sessions, and leaving.

    def _extend_session(self, member: ClassicMember, for_ms: int | None = None) -> None:
        if member.session is None:
            member.session = SessionTimer(self._services, partial(self._session_expired, member))
        member.session.extend(member.session_timeout_ms if for_ms is None else for_ms)

    def _session_expired(self, member: ClassicMember) -> None:
        """Remove a member whose session has expired, unless it waits for an answer; a new member goes even then."""
        if member.is_new or (member.join is None and member.sync is None):
            self._remove(member.id)
            self._members_have_left()

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is DEAD:
            return _GONE
        if not member_id:
            known = self._instances.get(instance_id) if instance_id is not None else None
            if known is None:
                return _UNKNOWN
            member_id = known
        elif member_id in self._pending:
            self._remove_pending(member_id)
            return ErrorCode.NONE
        elif code := self._membership_problem(member_id, instance_id):
            return code
        self._remove(member_id)
        return ErrorCode.NONE

    def _members_have_left(self) -> None:
        if self.state is PREPARING:
            self._complete_join_if_all_have()
        elif self.state is not EMPTY:
            self.rebalance()

    def _pending_expired(self, member_id: str) -> None:
        self._remove_pending(member_id)
        self._complete_join_if_all_have()

    def _remove_pending(self, member_id: str) -> None:
        if member_id in self._pending:
            timer, host = self._pending.pop(member_id)
            timer.cancel()
            self.memory.add(host, -PENDING_BYTES - text_bytes(member_id))

    def _remove(self, member_id: str, code: ErrorCode = _UNKNOWN) -> None:
        """Remove a member, if it is in the group, and refuse its waiting requests."""
        member = self.members.get(member_id)
        if member is None:
            return
        self._refuse_join(member, "", code)
        member.answer_sync(refused_sync(code))
        del self.members[member_id]
        self.memory.add(member.client_host, -member.size_bytes)
        self._discount_protocols(member.protocols)
        self._unsynced.discard(member_id)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        if member.session is not None:
            member.session.cancel()
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    # Members, and answers to them.

    def _count_protocols(self, protocols: Protocols) -> None:
        self._supported.update(name for name, _ in protocols)
        self._metadata_bytes += longest_metadata(protocols)

    def _discount_protocols(self, protocols: Protocols) -> None:
        self._supported.subtract(name for name, _ in protocols)
        self._metadata_bytes -= longest_metadata(protocols)

    def member(self, member_id: str, instance_id: str | None) -> ClassicMember | None:
        """Return a member by its member id, or by its instance id if the member id is empty."""
        return self.members.get(member_id or self._instances.get(instance_id or "", ""))

    def __iter__(self) -> Iterator[ClassicMember]:
        """Yield the members in the order in which they joined."""
        return iter(self.members.values())

    def _membership_problem(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return why this is not a member. Another member may have its instance id (KIP-345)."""
        if instance_id is not None:
            known = self._instances.get(instance_id)
            if known is None:
                return _UNKNOWN
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else _UNKNOWN

    def _problem(
        self, operation: Operation, member_id: str, instance_id: str | None, generation: int | None = None
    ) -> ErrorCode:
        """Return why a member may not do this. Its identity is checked first, then its generation, then the state."""
        if self.state is DEAD:
            return _GONE
        if code := self._membership_problem(member_id, instance_id):
            return code
        if generation is not None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ANSWERS[operation][self.state]

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.id}: {self.state} to {state}"
        self.state = state
        self.state_since_ms = self._services.clock.now_ms()

    def _await_join(self, member: ClassicMember, reply: Reply) -> None:
        self._refuse_join(member, member.id, _REJOIN)  # an earlier join that the client has given up
        member.join = reply
        self._joining += 1

    def _answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        if member.join is not None:
            reply, member.join = member.join, None
            self._joining -= 1
            reply.deliver(response)

    def _refuse_join(self, member: ClassicMember, member_id: str, code: ErrorCode) -> None:
        self._answer_join(member, refused_join(member_id, code))

    def _joined(self, member: ClassicMember, with_members: bool) -> JoinGroupResponse:
        members = [
            JoinGroupResponseMember(
                member_id=each.id, group_instance_id=each.instance_id, metadata=each.metadata(self.protocol)
            )
            for each in (self if with_members else ())
        ]
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.id,
            members=members,
        )

    def _synced(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def _store(self, assignments: dict[str, bytes], done: Stored) -> None:
        """Store the group with these assignments by member id; call `done` in a later turn."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=[member.stored(self.protocol, assignments[member.id]) for member in self],
        )
        self.store(value, done)

    def store(self, value: GroupMetadataValue, done: Stored) -> None:
        """Store the group, with tombstones for the consumer group that it was."""
        try:
            changes = {**self.former, records.group_key(self.id): records.group_value(value)}
        except EncodeError:
            self._services.timers.call_later(0, partial(done, ErrorCode.UNKNOWN_SERVER_ERROR))
            return

        def stored(code: ErrorCode) -> None:
            if not code:
                self.former = {}
            done(code)

        self._services.log.store(self.id, changes, stored)


def _differ(sent: str | None, known: str | None) -> bool:
    return sent is not None and known is not None and sent != known
