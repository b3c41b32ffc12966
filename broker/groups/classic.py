"""A classic group: members that join, one of them that leads and assigns, and generations.

KIP-62, 134, 345, 394, 559, 814. Owns the state of one group, and what is done as it changes; `states` has the rules as
tables. Refuses to know sockets, files and clocks: it is handed both times, timers, what stores it, and what takes each
answer (`Surroundings`).
Invariant: whoever joins or syncs is answered once, whatever becomes of the group. What is not said otherwise is as in
Kafka's GroupMetadataManager.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from tidelog.broker.groups.member import (
    Joined,
    Joining,
    Member,
    Session,
    Surroundings,
    Synced,
    Timer,
    chosen,
    differs,
    joined,
    refused_join,
    restored_members,
    stored_members,
    subscribed,
    unfit,
)
from tidelog.broker.groups.memory import Taken, text_bytes
from tidelog.broker.groups.states import (
    ANSWERS,
    COMPLETING,
    DEAD,
    EMPTY,
    MOVES,
    PREPARING,
    STABLE,
    Asked,
    State,
)
from tidelog.protocol.coordinator.group_metadata import GroupMetadataValue
from tidelog.protocol.coordinator.subscription import CONSUMER
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse

# How long one that has just joined may wait for the others, who may each take their time (Kafka's).
NEW_MEMBER_MS: Final = 300_000
# No wait for others is shorter, whatever they ask for: where nobody comes there is one after another.
JOIN_WAIT_MIN_MS: Final = 100
# What an id that was given out takes in memory, about.
PENDING_BYTES: Final = 400


class ClassicGroup:
    """One group. Event loop only."""

    kind = "classic"  # as Kafka spells it

    def __init__(self, group_id: str, around: Surroundings, host: str = "") -> None:
        self.id = group_id
        self._around = around
        self.state = EMPTY
        self.state_since_ms = around.now_ms()
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.taken = Taken(group_id, around.hold, host)
        self.former: dict[bytes, bytes | None] = {}  # takes back a consumer group that it was, until written
        self.topics: frozenset[str] | None = None  # that its members read, as far as is known
        self.unfit_hash: int | None = None  # of what a member says, by which it cannot be a consumer group
        self._instances: dict[str, str] = {}  # member ids
        self._pending: dict[str, tuple[Timer, str]] = {}  # ids that were given out, to which hosts
        self._supported: Counter[str] = Counter()  # by how many members
        self._joining = 0  # members that wait for the others to join
        self._unsynced: set[str] = set()
        self._assigned_as = 0, 0  # how often the leader has assigned, and in which generation it did so last
        self._is_first = False  # the rebalance that takes an empty group's first members
        self._has_newcomers = False
        self._join_timer: Timer | None = None
        self._sync_timer: Timer | None = None

    def restore(self, value: GroupMetadataValue) -> None:
        """Be as it was stored; `begin` has it served. Any thread."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol, self.leader = value.protocol, value.leader
        self.state = STABLE if value.members else EMPTY
        self.state_since_ms = value.current_state_timestamp
        for member in restored_members(value):
            self.members[member.id] = member
            self.taken.restore(member.client_host, member.size_bytes)
            self._supported.update(name for name, _ in member.protocols)
            if member.instance_id is not None:
                self._instances[member.instance_id] = member.id
        self.topics = subscribed(self.protocol_type, self.protocol, self)

    def begin(self) -> None:
        """Expect heartbeats of those that were members when the group was stored."""
        for member in self.members.values():
            self._lives(member)
        if len(self.members) > self._around.max_size:
            self.rebalance()

    # What is asked.

    def join(self, asked: Joining, answer: Joined) -> None:
        """Let a member join, or join anew; it is answered when all have joined."""
        member_id = asked.member_id
        if not self._takes(member_id):
            self._drop(member_id)
            answer(refused_join("", ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif self.state is DEAD:
            answer(refused_join(member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif code := unfit(asked, self.members, self._is_of, self._supported):
            answer(refused_join(member_id, code))
        elif not member_id:
            self._join_new(asked, answer)
        elif member_id in self._pending and asked.instance_id is None:
            self._add(member_id, asked, answer)
        elif code := self._problem(Asked.JOIN, member_id, asked.instance_id):
            answer(refused_join(member_id, code))
        else:
            self._join_again(self.members[member_id], asked, answer)
        self._complete_join_if_all_have()

    def come_back(self, asked: Joining, answer: Joined) -> None:
        """Let a static member join for which the group was made of one of the other kind."""
        self._return(self._instances[asked.instance_id or ""], asked, answer)

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Iterable[tuple[str, bytes]],
        answer: Synced,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """Give a member its assignment, once the leader has said what that is."""
        code = self._problem(Asked.SYNC, member_id, instance_id, generation)
        if not code and differs(protocol_type, self.protocol_type) | differs(protocol, self.protocol):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code:
            answer(SyncGroupResponse(error_code=code, assignment=b""))
            return
        member = self.members[member_id]
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._cancel_sync_timer()
        if self.state is STABLE:
            self._lives(member)
            answer(member.synced(self.protocol_type, self.protocol))
            return
        member.refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier one, whose client has lost it
        member.sync = answer
        if member_id == self.leader:
            self._assign(dict(assignments))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Take note that a member is alive; return what it is to do."""
        code = self._problem(Asked.HEARTBEAT, member_id, instance_id, generation)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._lives(self.members[member_id])
        return code

    def leave(self, leaving: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """Let members go, by their ids or by their instances' (KIP-345); return what became of each."""
        codes = [self._leave(member_id, instance_id) for member_id, instance_id in leaving]
        if ErrorCode.NONE in codes:
            self._have_gone()
        return codes

    def commit_problem(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return why an offset may not be committed; who may is alive."""
        if generation < 0 and self.state is EMPTY:
            return ErrorCode.NONE  # Nobody has joined: the group only keeps offsets.
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if self.state is DEAD else ErrorCode.UNKNOWN_MEMBER_ID
        code = self._problem(Asked.COMMIT, member_id, instance_id, generation)
        if not code:
            self._lives(self.members[member_id])
        return code

    def deletion_problem(self, asked: Asked) -> ErrorCode:
        """Return why the group, or offsets of it, may not be deleted."""
        if asked is Asked.DELETE_OFFSETS and self.protocol_type == CONSUMER and self.state is not DEAD:
            return ErrorCode.NONE
        return ANSWERS[asked][self.state]

    def reads(self, topic: str) -> bool:
        """Tell whether members read a topic, or may: what they say of it may not be known."""
        return self.protocol_type == CONSUMER if self.topics is None else topic in self.topics

    def unused_since_ms(self, committed_ms: int) -> int | None:
        """Return since when an offset is of no use, if nobody `reads` its topic; None if it is (KIP-211)."""
        if self.protocol_type is None:
            return committed_ms
        if self.state is EMPTY:
            return self.state_since_ms if self.state_since_ms >= 0 else committed_ms
        return committed_ms if self.topics is not None and self.state is STABLE else None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody was given an id to join with, and may still do so."""
        return bool(self._pending)

    def release(self, code: ErrorCode) -> None:
        """Answer everybody who waits; who is a member stays one."""
        for member in self:
            self._refuse_join(member, member.id, code)
            member.refuse_sync(code)

    def end(self, code: ErrorCode) -> None:
        """Answer everybody who waits; nothing happens any more."""
        for member in list(self.members.values()):
            self._drop(member.id, code)
        for timer in (self._join_timer, self._sync_timer, *(timer for timer, _ in self._pending.values())):
            if timer is not None:
                timer.cancel()
        self._pending.clear()
        self._move(DEAD)

    # Joining.

    def _takes(self, member_id: str) -> bool:
        """Tell whether there is room for a member. Who waits already stays, those who come last are turned away."""
        max_size, member = self._around.max_size, self.members.get(member_id)
        if self.state is PREPARING:
            return (member is not None and member.join is not None) or self._joining < max_size
        return self.state in (EMPTY, DEAD) or member is not None or len(self.members) < max_size

    @property
    def _is_of(self) -> str | None:
        """The type that members have to be of, None where the next one says so."""
        return None if self.state is EMPTY else self.protocol_type

    def _join_new(self, asked: Joining, answer: Joined) -> None:
        """Let in one that has no member id."""
        instance_id = asked.instance_id
        if instance_id is not None and instance_id in self._instances:
            self._return(self._instances[instance_id], asked, answer)
            return
        member_id = f"{asked.client_id if instance_id is None else instance_id}-{self._around.new_id()}"
        if instance_id is None and asked.must_know_its_id:
            forget = partial(self._forget_pending, member_id)
            timer = self._around.call_later(asked.session_timeout_ms, forget)
            self._pending[member_id] = timer, asked.client_host
            self.taken.add(asked.client_host, PENDING_BYTES + text_bytes(member_id))
            answer(refused_join(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._add(member_id, asked, answer)

    def _add(self, member_id: str, asked: Joining, answer: Joined) -> None:
        member = Member(member_id, asked)
        member.is_new = True
        if not self.members:
            self.protocol_type = asked.protocol_type
        self._remove_pending(member_id)
        self.members[member_id] = member
        self.taken.add(member.client_host, member.size_bytes)
        self._supported.update(name for name, _ in member.protocols)
        self.leader = self.leader or member_id
        if member.instance_id is not None:
            self._instances[member.instance_id] = member_id
        self._has_newcomers = self._is_first and self.state is PREPARING
        self._awaits_join(member, answer)
        self._lives(member, NEW_MEMBER_MS)
        self.rebalance()

    def _join_again(self, member: Member, asked: Joining, answer: Joined) -> None:
        """Let a member take part in the next generation, where there is need of one."""
        is_leader = member.id == self.leader
        is_changed = list(member.protocols) != list(asked.protocols)
        if self.state is PREPARING or is_changed or (self.state is STABLE and is_leader):
            # A leader that joins has seen something that asks for another assignment.
            self._update(member, asked, answer)
            self.rebalance()
        else:
            # Its answer was lost.
            answer(self._joined(member, with_members=is_leader))

    def _return(self, old_id: str, asked: Joining, answer: Joined) -> None:
        """Let a static member that was started anew take the place of what it was before."""
        old_leader = self.leader
        member = self.members.pop(old_id)
        self.taken.add(member.client_host, -member.size_bytes)
        self._refuse_join(member, old_id, ErrorCode.FENCED_INSTANCE_ID)
        member.refuse_sync(ErrorCode.FENCED_INSTANCE_ID)
        assert asked.instance_id is not None
        member.id = f"{asked.instance_id}-{self._around.new_id()}"
        self.members[member.id] = member
        self._instances[asked.instance_id] = member.id
        self._unsynced.discard(old_id)
        if self.leader == old_id:
            self.leader = member.id
        member.client_id, member.client_host = asked.client_id, asked.client_host
        self.taken.add(member.client_host, member.size_bytes)
        self._update(member, asked, answer)
        self._lives(member)
        if self.state is STABLE and chosen(self, self._supported) == self.protocol:
            stored = partial(self._returned, member, old_leader, asked.may_skip_assignment)
            self._around.store(self, self._stored({each.id: each.assignment for each in self}), stored)
        else:
            self.rebalance()

    def _returned(self, member: Member, old_leader: str | None, may_skip: bool, code: ErrorCode) -> None:
        """Answer a static member that has taken its place without a rebalance, once that is on disk."""
        if member.join is None or self.members.get(member.id) is not member:
            return
        if code:
            self._drop(member.id)
            self._have_gone()
        elif self.state is STABLE:
            response = self._joined(member, with_members=may_skip and member.id == self.leader)
            if may_skip:
                response.skip_assignment = member.id == self.leader
            else:
                # It must not take itself for the leader: what it would assign nobody would hear of.
                response.leader = old_leader or ""
            self._answer_join(member, response)
        # Else the answer comes with the rebalance that has begun meanwhile.

    def _update(self, member: Member, asked: Joining, answer: Joined) -> None:
        before = member.size_bytes
        self._supported.subtract(name for name, _ in member.protocols)
        member.protocols = asked.protocols
        member.rebalance_timeout_ms = asked.rebalance_timeout_ms
        member.session_timeout_ms = asked.session_timeout_ms
        self._supported.update(name for name, _ in member.protocols)
        self.taken.add(member.client_host, member.size_bytes - before)
        self._awaits_join(member, answer)

    # Rebalancing.

    def rebalance(self) -> None:
        """Have all members join, if they are not to do that already."""
        if self.state is PREPARING or self.state is DEAD:
            return
        self._cancel_sync_timer()
        if self.state is COMPLETING:
            self._refuse_assignments(ErrorCode.REBALANCE_IN_PROGRESS)
        self._is_first = self.state is EMPTY
        self._move(PREPARING)
        if self._is_first:
            self._has_newcomers = False
            delay_ms = self._around.initial_rebalance_delay_ms
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
        self._join_timer = self._around.call_later(wait_ms, self._complete_join)

    def _await_first(self, delay_ms: int, left_ms: int) -> None:
        """Wait for more first members, for as long as more come."""
        self._join_timer = self._around.call_later(delay_ms, partial(self._first_came, delay_ms, left_ms))

    def _first_came(self, delay_ms: int, left_ms: int) -> None:
        if self._has_newcomers and left_ms:
            self._has_newcomers = False
            delay = min(self._around.initial_rebalance_delay_ms, left_ms)
            self._await_first(delay, max(left_ms - delay_ms, 0))
        else:
            self._complete_join()

    def _complete_join_if_all_have(self) -> None:
        is_due = self.state is PREPARING and not self._is_first
        if is_due and self._joining == len(self.members) and not self._pending:
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation, with those that have joined and static members that may yet come back."""
        if self._join_timer is not None:
            self._join_timer.cancel()
            self._join_timer = None
        for member in [each for each in self if each.join is None and each.instance_id is None]:
            self._drop(member.id)
        if self.members and not self._elect():
            self._await_joins()  # Until sessions end: nobody has come.
            return
        self.generation += 1
        self.protocol = chosen(self, self._supported) if self.members else None
        self.topics = subscribed(self.protocol_type, self.protocol, self)
        if not self.members:
            self._move(EMPTY)
            self._around.store(self, self._stored({}), lambda _code: None)
            return
        self._move(COMPLETING)
        self._unsynced.update(self.members)
        self._sync_timer = self._around.call_later(self._rebalance_timeout_ms, self._sync_is_over)
        for member in self:
            member.is_new = False
            self._lives(member)
            if member.join is not None:
                self._answer_join(member, self._joined(member, with_members=member.id == self.leader))

    def _elect(self) -> bool:
        """See to it that who leads has joined; tell whether anybody has."""
        if self.leader is None or self.members[self.leader].join is None:
            found = next((member.id for member in self if member.join is not None), None)
            if found is None:
                return False
            self.leader = found
        return True

    # Assigning.

    def _assign(self, assignments: dict[str, bytes]) -> None:
        """Store what the leader has assigned, then tell the members; who is not named gets nothing."""
        self._assigned_as = self._assigned_as[0] + 1, self.generation
        assignments = {member.id: assignments.get(member.id, b"") for member in self}
        stored = partial(self._assigned, self._assigned_as, assignments)
        self._around.store(self, self._stored(assignments), stored)

    def _assigned(self, which: tuple[int, int], assignments: dict[str, bytes], code: ErrorCode) -> None:
        if self.state is not COMPLETING or which != self._assigned_as or which[1] != self.generation:
            return  # Somebody has joined or left meanwhile, or the leader, whose answer was lost, has assigned anew.
        if code:
            self._refuse_assignments(code)
            self.rebalance()
            return
        self._move(STABLE)
        for member in self:
            before = len(member.assignment)
            member.assignment = assignments.get(member.id, b"")
            self.taken.add(member.client_host, len(member.assignment) - before)
            if member.sync is not None:
                self._lives(member)
                answer, member.sync = member.sync, None
                answer(member.synced(self.protocol_type, self.protocol))

    def _refuse_assignments(self, code: ErrorCode) -> None:
        for member in self:
            self.taken.add(member.client_host, -len(member.assignment))
            member.assignment = b""
            if member.sync is not None:
                self._lives(member)
            member.refuse_sync(code)

    def _cancel_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _sync_is_over(self) -> None:
        """Let go of those that have joined and then did not ask for what they were assigned."""
        self._sync_timer = None
        if self._unsynced:
            for member_id in list(self._unsynced):
                self._drop(member_id)
            self.rebalance()

    # Being alive, and going.

    def _lives(self, member: Member, for_ms: int | None = None) -> None:
        """Take a member to be alive for a while: its session timeout."""
        if member.session is None:
            member.session = Session(self._around, partial(self._session_over, member))
        member.session.extend(member.session_timeout_ms if for_ms is None else for_ms)

    def _session_over(self, member: Member) -> None:
        """Let go of a member that was not heard of for too long; not of one that we owe an answer."""
        if member.is_new or (member.join is None and member.sync is None):
            self._drop(member.id)
            self._have_gone()

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not member_id:
            known = self._instances.get(instance_id) if instance_id is not None else None
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = known
        elif member_id in self._pending:
            self._remove_pending(member_id)
            return ErrorCode.NONE
        elif code := self._stranger(member_id, instance_id):
            return code
        self._drop(member_id)
        return ErrorCode.NONE

    def _have_gone(self) -> None:
        """Go on without those that have gone."""
        if self.state is PREPARING:
            self._complete_join_if_all_have()
        elif self.state is not EMPTY:
            self.rebalance()

    def _forget_pending(self, member_id: str) -> None:
        self._remove_pending(member_id)
        self._complete_join_if_all_have()

    def _remove_pending(self, member_id: str) -> None:
        if member_id in self._pending:
            timer, host = self._pending.pop(member_id)
            timer.cancel()
            self.taken.add(host, -PENDING_BYTES - text_bytes(member_id))

    def _drop(self, member_id: str, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Take out a member, if it is one, and answer it."""
        member = self.members.get(member_id)
        if member is None:
            return
        self._refuse_join(member, "", code)
        member.refuse_sync(code)
        del self.members[member_id]
        self.taken.add(member.client_host, -member.size_bytes)
        self._supported.subtract(name for name, _ in member.protocols)
        self._unsynced.discard(member_id)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        if member.session is not None:
            member.session.cancel()
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    # Who asks, and what is answered.

    def member(self, member_id: str, instance_id: str | None) -> Member | None:
        """Return a member by its id, or else by its instance's."""
        return self.members.get(member_id or self._instances.get(instance_id or "", ""))

    def __iter__(self) -> Iterator[Member]:
        """Yield the members, in the order in which they came."""
        return iter(self.members.values())

    def _stranger(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return why one is not a member: another one may have taken its instance's place (KIP-345)."""
        if instance_id is not None:
            known = self._instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _problem(
        self, asked: Asked, member_id: str, instance_id: str | None, generation: int | None = None
    ) -> ErrorCode:
        """Return why what a member asks for cannot be: who it is comes before its generation, and that before ours."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code := self._stranger(member_id, instance_id):
            return code
        if generation is not None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ANSWERS[asked][self.state]

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.id}: {self.state} to {state}"
        self.state = state
        self.state_since_ms = self._around.now_ms()

    def _awaits_join(self, member: Member, answer: Joined) -> None:
        # An earlier one, whose client has lost it.
        self._refuse_join(member, member.id, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join = answer
        self._joining += 1

    def _answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        if member.join is not None:
            answer, member.join = member.join, None
            self._joining -= 1
            answer(response)

    def _refuse_join(self, member: Member, member_id: str, code: ErrorCode) -> None:
        if member.join is not None:
            self._answer_join(member, refused_join(member_id, code))

    def _joined(self, member: Member, with_members: bool) -> JoinGroupResponse:
        told = self if with_members else ()
        return joined(member, told, self.generation, self.protocol_type, self.protocol, self.leader)

    def _stored(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """Return what is stored of the group, with these assignments by member id."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=stored_members(self, self.protocol, assignments),
        )
