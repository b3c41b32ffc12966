"""A consumer group: members send heartbeats, and the broker assigns partitions (KIP-848).

A change of subscriptions, members or topics begins an epoch (`_look_at_topics`). The next request of a member makes a
target assignment for the epoch (`_assign`). Each member's requests move it towards its target (`_reconcile`; the table
is in `consumer_member`). The group's state follows from its members:

    state        when                                                      until
    EMPTY        the group has no members                                  a member joins
    ASSIGNING    the target is of an earlier epoch                         the new target is made
    RECONCILING  a member is in an earlier epoch, or waits, or revokes     the last member has its target
    STABLE       all members have their targets                            an epoch begins
    DEAD         the group was deleted, or replaced by a classic one       -

Members may use the classic protocol (online migration). Their generation is their epoch. When such a member has to
revoke partitions, or can get more, its heartbeat is answered REBALANCE_IN_PROGRESS, and it joins and syncs. It never
leads: the broker assigns.

No partition has two owners. The group answers a request when its changes are on disk. Changes that could not be stored
are stored with the next ones. Everything else follows Kafka's GroupMetadataManager.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

from tidelog.broker.groups import topic_patterns
from tidelog.broker.groups.assignors import ASSIGNORS, Assignment, Subscriber
from tidelog.broker.groups.classic import Operation
from tidelog.broker.groups.classic_member import (
    METADATA_BYTES_MAX,
    Joining,
    Protocols,
    longest_metadata,
    refused_join,
    refused_sync,
)
from tidelog.broker.groups.consumer_member import (
    LEAVES_FOR_A_WHILE,
    NOTHING,
    Classic,
    ConsumerMember,
    Current,
    Heartbeat,
    Owned,
    Owners,
    Progress,
    Subscription,
    owned_of,
    reconciled,
)
from tidelog.broker.groups.consumer_records import (
    current_value,
    is_whole,
    member_value,
    restore,
    target_value,
    tombstones,
)
from tidelog.broker.groups.log import Changes, WriteBehind
from tidelog.broker.groups.memory import GroupMemory
from tidelog.broker.groups.services import GroupError, Reply, Services, SessionTimer
from tidelog.broker.groups.subscriptions import Matches, TopicsRead
from tidelog.broker.timers import Timer
from tidelog.protocol.coordinator import messages
from tidelog.protocol.coordinator.consumer_protocol import (
    CONSUMER,
    ConsumerProtocolSubscription,
    ProtocolTopicPartitions,
    subscription_of,
    written_assignment,
)
from tidelog.protocol.coordinator.records import written_key, written_value
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.protocol.wire.errors import WireError

# A record has to fit into a batch. Matches of a regular expression beyond this are not stored: a start matches again.
LARGEST_VALUE: Final = 512 << 10


class GroupState(Enum):
    """The state of a group, with Kafka's name for it as the value."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Assigned(NamedTuple):
    """The answer to a heartbeat. `assignment` is None if the member knows it already."""

    member_id: str
    epoch: int
    assignment: Assignment | None = None


class _Waiting(NamedTuple):
    """A request that waits for the target of an epoch. It gets `superseded` if its member sends another request."""

    epoch: int
    reply: Reply
    superseded: ErrorCode


class ConsumerGroup:
    """One group. Event loop only, except `restore`."""

    kind = "consumer"
    protocol_type = CONSUMER

    def __init__(self, group_id: str, services: Services, host: str = "") -> None:
        self.id = group_id
        self._services = services
        self.epoch = 0
        self.target_epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.memory = GroupMemory(group_id, services.memory, host)
        self._matches = Matches(group_id, services, self.memory)
        self.is_dead = False
        # The answer to all requests once the group has ended or the broker stops.
        self._end_code = ErrorCode.NONE
        self._instances: dict[str, str] = {}  # member ids by instance id
        self._owners = Owners()
        self._topics_read = TopicsRead(services.topic)
        self._is_topic_changed = False  # a topic that members read has changed
        self._is_torn = False  # a crash has left a part of a change: the group needs a new epoch
        self._is_assigning = False
        # Waiting requests by member. They wait until the matches of their regular expressions are known, then until
        # there is a target for their epoch. Epochs only rise, so the oldest request waits for the lowest epoch.
        self._awaiting_topics: dict[ConsumerMember, _Waiting] = {}
        self._awaiting_target: dict[ConsumerMember, _Waiting] = {}
        self.writing = WriteBehind(group_id, services.log.store)

    def restore(self, key: Any, value: Any) -> None:
        """Apply a stored record. `begin` starts to serve the group. Any thread."""
        restore(self, key, value)

    def begin(self) -> None:
        """Start to serve a restored group: its members have a session timeout to send a heartbeat."""
        for member in self:
            subscription = member.subscription
            if subscription.instance_id is not None:
                self._instances[subscription.instance_id] = member.id
            self._count_regex(subscription.regex, 1)
            self._topics_read.count(subscription.topics, 1)
            # No partition may have two owners, even if the log says so.
            assigned, revoking = map(self._owners.free_of, (member.current.assigned, member.current.revoking))
            member.current = member.current._replace(assigned=assigned, revoking=revoking)
            self._owners.take(member)
            member.measure(self.memory)
            self._extend_session(member)
            self._expect_revocation(member)
        self._matches.begin()
        self._is_topic_changed = True  # Topics may have changed after the last record.
        if not is_whole(self, self._topic_ids, self._topics_read.counts.items()):
            self._is_torn = True
            self.epoch = max(self.epoch, self.target_epoch, *(member.current.epoch for member in self))

    # State and members.

    @property
    def state(self) -> GroupState:
        """The group's state."""
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.target_epoch < self.epoch:
            return GroupState.ASSIGNING
        is_stable = all(
            member.current.progress is Progress.STABLE and member.current.epoch == self.target_epoch
            for member in self
        )
        return GroupState.STABLE if is_stable else GroupState.RECONCILING

    @property
    def generation(self) -> int:
        """The group's epoch, under the name that classic groups use."""
        return self.epoch

    @property
    def regexes(self) -> dict[str, frozenset[str]]:
        """The known matches: topics by regular expression."""
        return self._matches.topics

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for, or else the first configured one."""
        named = Counter(filter(None, (member.subscription.assignor for member in self)))
        known = (name for name, _ in named.most_common() if name in ASSIGNORS)
        return next(known, self._services.config.group_consumer_assignors[0])

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits for an answer."""
        return bool(self._awaiting_topics or self._awaiting_target)

    def member(self, member_id: str, instance_id: str | None) -> ConsumerMember | None:
        """Return a member by its member id, or by its instance id if the member id is empty."""
        return self.members.get(member_id or self._instances.get(instance_id or "", ""))

    def __iter__(self) -> Iterator[ConsumerMember]:
        """Yield the members."""
        return iter(self.members.values())

    def names_of(self, assignment: Assignment) -> list[ProtocolTopicPartitions]:
        """Return an assignment by topic name, without deleted topics."""
        named = ((self._services.topic_name(topic), indexes) for topic, indexes in assignment.items())
        return [
            ProtocolTopicPartitions(topic=name, partitions=sorted(indexes))
            for name, indexes in sorted((name, indexes) for name, indexes in named if name is not None)
        ]

    # Requests of members of the consumer protocol.

    async def consumer_heartbeat(self, heartbeat: Heartbeat) -> Assigned:
        """Let a member join or stay; return its assignment. Raise GroupError."""
        member = self._admit(heartbeat)
        known = None if heartbeat.epoch == 0 or heartbeat.is_full else member.current.assigned
        owned = member.confirmed(heartbeat.owned)
        self._subscribe(member, heartbeat.subscription(member.subscription))
        self._extend_session(member)
        del heartbeat  # It may be large.
        # If superseded, the client retries, as it does while groups are loaded.
        await self._target(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._reconcile(member, owned)
        current = member.current
        assigned = Assigned(member.id, current.epoch, None if current.assigned == known else current.assigned)
        await self._flushed()
        return assigned

    async def consumer_leave(self, heartbeat: Heartbeat) -> Assigned:
        """Remove a member, or let a static one leave and come back. Raise GroupError."""
        member = self._known(heartbeat.member_id, heartbeat.instance_id)
        if heartbeat.epoch == LEAVES_FOR_A_WHILE:
            self._set_current(member, member.current._replace(epoch=LEAVES_FOR_A_WHILE, revoking=NOTHING))
        else:
            self._remove([member])
        await self._flushed()
        return Assigned(member.id, heartbeat.epoch)

    # Requests of members of the classic protocol.

    async def join(self, request: Joining) -> JoinGroupResponse:
        """Let a classic member join or rejoin; return when its assignment is known."""
        try:
            parsed = self._classic_subscription(request)
            if not request.member_id and request.must_know_its_id and request.instance_id is None:
                return refused_join(self._services.new_id(), ErrorCode.MEMBER_ID_REQUIRED)
            if classic_group := self._downgraded_for(request, parsed):
                response: JoinGroupResponse = await classic_group.join_for(request)
                return response
            member = self._admit_classic(request)
        except GroupError as error:
            return refused_join(request.member_id, error.code)
        _cancel(member.join_timer)
        member.join_timer = None
        self._subscribe(member, _subscription(request, parsed, member.subscription.rack_id))
        self._extend_session(member)
        owned = member.confirmed(self._ids_of(parsed.owned_partitions)) or {}
        del request, parsed  # They may be large.
        try:
            await self._target(member, ErrorCode.REBALANCE_IN_PROGRESS)
            classic = member.subscription.classic
            if classic is None:
                raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member.id} now uses the consumer protocol")
            self._reconcile(member, owned)
            response = JoinGroupResponse(
                error_code=ErrorCode.NONE,
                generation_id=member.current.epoch,
                protocol_type=CONSUMER,
                protocol_name=classic.protocols[0][0],
                leader="",
                member_id=member.id,
                members=[],
            )
            self._expect_sync(member)
            await self._flushed()
        except GroupError as error:
            return refused_join(member.id, error.code)
        return response

    async def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        _assignments: dict[str, bytes],
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> SyncGroupResponse:
        """Return a classic member's assignment."""
        try:
            member, classic = self._known_classic(member_id, instance_id, generation)
            name, metadata = classic.protocols[0]
            if (protocol_type or CONSUMER) != CONSUMER or (protocol or name) != name:
                raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the protocol is {name}")
            if member.current.epoch < self.epoch and not self._is_revoking(member):
                self._expect_join(member)
                raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS, "a new epoch has begun")
        except GroupError as error:
            return refused_sync(error.code)
        _cancel(member.sync_timer)
        member.sync_timer = None
        self._extend_session(member)
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=CONSUMER,
            protocol_name=name,
            assignment=written_assignment(self.names_of(member.current.assigned), metadata),
        )

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Extend a classic member's session. REBALANCE_IN_PROGRESS tells it to rejoin."""
        try:
            member, _ = self._known_classic(member_id, instance_id, generation)
        except GroupError as error:
            return error.code
        self._extend_session(member)
        self._look_at_topics()
        self.writing.flush()
        is_waiting = member.current.progress is Progress.UNRELEASED_PARTITIONS
        has_more = is_waiting and self._owners.are_free_for(member, member.target)
        if member.current.epoch < self.epoch or self._is_revoking(member) or has_more:
            self._expect_join(member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, leaving: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members by member id or instance id (KIP-345); return a code for each."""
        codes: list[ErrorCode] = []
        gone: dict[str, ConsumerMember] = {}
        for member_id, instance_id in leaving:
            known = "" if instance_id is None else self._instances.get(instance_id, "")
            try:
                member = self._known(member_id or known, instance_id)
            except GroupError as error:
                codes.append(error.code)
                continue
            codes.append(ErrorCode.NONE)
            gone[member.id] = member
        if gone:
            self._remove(list(gone.values()))
            self.writing.flush()
        return codes

    # Offsets, and the group as a whole.

    def commit_problem(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_old: bool = False
    ) -> ErrorCode:
        """Return why an offset may not be committed. `is_old`: the request's version knows no STALE_MEMBER_EPOCH."""
        if epoch < 0 and not self.members:
            return ErrorCode.NONE  # The group has no members and only stores offsets.
        member = self.members.get(member_id)
        if member is not None:
            if not member.is_classic and is_old:
                return ErrorCode.UNSUPPORTED_VERSION
            if (
                member.is_classic
                and instance_id is not None
                and self._instances.get(instance_id) != member_id
            ):
                return ErrorCode.FENCED_INSTANCE_ID
        return _epoch_problem(member, epoch)

    def fetch_problem(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return why offsets may not be fetched. A client that does not claim to be a member may (OffsetFetch 9)."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        return _epoch_problem(self.members.get(member_id or ""), epoch)

    def deletion_problem(self, operation: Operation) -> ErrorCode:
        """Return why the group, or its offsets, may not be deleted."""
        is_refused = operation is Operation.DELETE and self.members
        return ErrorCode.NON_EMPTY_GROUP if is_refused else ErrorCode.NONE

    def unused_since_ms(self, committed_ms: int) -> int | None:
        """Return since when an offset with no reader is unused (KIP-211)."""
        return committed_ms

    def reads(self, topic: str) -> bool:
        """Tell whether members read a topic."""
        return topic in self._topics_read

    def topic_changed(self, topic: str, *, is_new: bool) -> None:
        """Note that a topic was created, grown or deleted. The next heartbeat acts on it."""
        self._matches.topic_changed(topic, is_new=is_new)
        self._is_topic_changed |= self._topics_read.topic_changed(topic)

    def tombstones(self) -> Changes:
        """Return the tombstones for all records of the group, whether stored or on their way."""
        unwritten = dict.fromkeys(self.writing.keys())
        return {**unwritten, **tombstones(self.id, self.members, self.regexes)}

    def put_all(self, changes: Changes) -> None:
        """Have records written with the next change: the tombstones of the group that this one replaces."""
        for key, value in changes.items():
            self.writing.put(key, value)

    def take_over(self, generation: int, members: Iterable[tuple[str, Subscription, Assignment]]) -> None:
        """Begin with the members of a classic group, and their assignments as targets that they have reached."""
        self.epoch = generation
        self._put_epoch()
        for member_id, subscription, assigned in members:
            member = self._added(member_id)
            self._set_subscription(member, subscription)
            free = self._owners.free_of(assigned)  # The leader may have assigned a partition twice.
            self._set_target(member, free)
            self._set_current(member, Current(generation, generation, Progress.STABLE, free, NOTHING))
            self._extend_session(member)
        self._put_target_epoch(generation)

    def release(self, code: ErrorCode) -> None:
        """Answer all waiting requests with a code; members stay members."""
        self._end_code = code
        self._answer_all()

    def end(self, code: ErrorCode) -> None:
        """End the group: answer all waiting requests with a code, cancel all timers, write nothing more."""
        self.is_dead, self._end_code = True, code
        self.writing.clear()
        self._matches.end()
        for member in self:
            member.cancel_timers()
        self._answer_all()

    # Finding and admitting members.

    def _known(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            known = self._instances.get(instance_id)
            if known is None:
                raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            if known != member_id:
                why = (
                    f"Static member {member_id} with instance id {instance_id} was fenced by member {known}."
                )
                raise GroupError(ErrorCode.FENCED_INSTANCE_ID, why)
        member = self.members.get(member_id)
        if member is None:
            why = f"Member {member_id} is not a member of group {self.id}."
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, why)
        return member

    def _known_classic(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, Classic]:
        self._check_alive()
        member = self._known(member_id, instance_id)
        classic = member.subscription.classic
        if classic is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} uses the consumer protocol")
        if generation != member.current.epoch:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION, f"the generation is {member.current.epoch}")
        return member, classic

    def _check_alive(self) -> None:
        if self.is_dead:
            raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {self.id} is being replaced")

    def _check_room(self, member_id: str, instance_id: str | None) -> None:
        """Refuse a new member if the group is full."""
        if member_id not in self.members and (instance_id is None or instance_id not in self._instances):
            check_room(self.id, len(self.members), self._services)

    def _admit(self, heartbeat: Heartbeat) -> ConsumerMember:
        """Return the member that sends a heartbeat; add it if it is new."""
        self._check_alive()
        member_id, instance_id = heartbeat.member_id, heartbeat.instance_id
        self._check_room(member_id, instance_id)
        if heartbeat.regex not in self._matches:
            check_regex(heartbeat.regex)
        if heartbeat.epoch:
            member = self._known(member_id, instance_id)
            member.check_epoch(heartbeat)
            return member
        holder = None if instance_id is None else self._instances.get(instance_id)
        if holder is None:
            return self.members.get(member_id) or self._added(member_id)
        member = self.members[holder]
        is_released = member.current.epoch == LEAVES_FOR_A_WHILE or member.is_classic
        if holder != member_id and not is_released:
            raise GroupError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {holder} member.",
            )
        return self._renamed(member, member_id)

    def _admit_classic(self, request: Joining) -> ConsumerMember:
        """Return the classic member that joins; add it if it is new."""
        holder = None if request.instance_id is None else self._instances.get(request.instance_id)
        if request.instance_id is not None and request.member_id:
            return self._known(request.member_id, request.instance_id)
        if holder is not None:
            return self._renamed(self.members[holder], self._services.new_id())
        member_id = request.member_id or self._services.new_id()
        return self.members.get(member_id) or self._added(member_id)

    def _classic_subscription(self, request: Joining) -> ConsumerProtocolSubscription:
        """Return a classic member's subscription. Raise GroupError if it cannot join."""
        self._check_alive()
        self._check_room(request.member_id, request.instance_id)
        if is_too_large(request.protocols):
            # Kafka's code for a record that is too large.
            raise GroupError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the member's metadata is too large to be stored"
            )
        classics = [each.subscription.classic for each in self if each.subscription.classic is not None]
        known = Counter(name for classic in classics for name, _ in classic.protocols)
        if not any(known[name] == len(classics) for name, _ in request.protocols):
            why = "the other members have none of these protocols in common"
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
        if request.protocol_type != CONSUMER:
            why = "the group has members of the consumer protocol"
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
        try:
            # Consumers send the same topics for each protocol.
            return subscription_of(request.protocols[0][1])
        except WireError as error:
            why = f"the metadata is not a subscription: {error}"
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why) from None

    def _downgraded_for(self, request: Joining, parsed: ConsumerProtocolSubscription) -> Any:
        """Return the classic group that replaces this one, if its last consumer member comes back as a classic one."""
        if request.instance_id is None or request.member_id or request.instance_id not in self._instances:
            return None
        holder = self._instances[request.instance_id]
        if [each.id for each in self if not each.is_classic] != [holder]:
            return None
        return self._services.downgrade(self, frozenset(), _subscription(request, parsed, None))

    def _added(self, member_id: str) -> ConsumerMember:
        member = self.members[member_id] = ConsumerMember(member_id)
        member.measure(self.memory)
        return member

    def _renamed(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let a restarted static member take over its former membership and partitions, under a new member id."""
        if old.id == member_id and old.current.epoch != LEAVES_FOR_A_WHILE and not old.is_classic:
            return old
        current, target, subscription = old.current, old.target, old.subscription
        other = self.members.get(member_id, old)
        if other is not old:
            self._forget(other)  # A member with this id exists already. A client has one membership only.
        if other is not old or self._is_assigning:
            # The partitions of `other` are free now, and an assignment under way does not know the new id.
            self._look_at_topics(is_changed=True)
        self._forget(old)
        member = self._added(member_id)
        self._set_subscription(member, subscription)
        self._set_target(member, target)
        self._set_current(member, current._replace(epoch=0, previous_epoch=0))
        return member

    # Epochs, and the target assignment.

    def _subscribe(self, member: ConsumerMember, subscription: Subscription) -> None:
        """Set a member's subscription. A new epoch begins if its topics change."""
        before = member.subscription
        self._set_subscription(member, subscription)
        is_changed = self.epoch == 0 or before.topics != subscription.topics
        if before.regex != subscription.regex:
            # If the matches are unknown, the epoch begins when they are found.
            is_changed |= not subscription.regex or subscription.regex in self.regexes
        self._look_at_topics(is_changed)

    def _look_at_topics(self, is_changed: bool = False) -> None:
        """Begin an epoch if subscriptions or subscribed topics have changed."""
        if not is_changed and not self._is_topic_changed:
            return
        self._is_topic_changed = False
        metadata_hash = self._topics_read.hash
        if is_changed or self._is_torn or metadata_hash != self.metadata_hash:
            self.metadata_hash, self._is_torn = metadata_hash, False
            self.epoch += 1
            self._put_epoch()

    def _topic_ids(self, subscription: Subscription) -> frozenset[bytes]:
        """Return the ids of the existing topics in a subscription."""
        return self._topics_read.ids_of(subscription.topics, subscription.regex)

    async def _target(self, member: ConsumerMember, superseded: ErrorCode) -> None:
        """Wait until there is a target for the current epoch.

        Raise GroupError if the member or the group is gone by then, or with `superseded` if the member sends another
        request.
        """
        earlier = self._waiting_request(member)
        waiting = _Waiting(self.epoch, self._services.replies.new(), superseded)
        is_unknown = self._matches.is_unknown(member.subscription.regex)
        (self._awaiting_topics if is_unknown else self._awaiting_target)[member] = waiting
        if earlier is not None:
            why = "the member has sent another request"
            earlier.reply.deliver(GroupError(earlier.superseded, why))
        self._settle()
        await waiting.reply
        if self._end_code:
            raise GroupError(self._end_code, "")
        if self.members.get(member.id) is not member:
            why = f"{member.id} is no longer a member of group {self.id}"
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, why)

    def _waiting_request(self, member: ConsumerMember) -> _Waiting | None:
        """Remove and return the waiting request of a member."""
        return self._awaiting_topics.pop(member, None) or self._awaiting_target.pop(member, None)

    def _settle(self) -> None:
        """Begin matching and assigning if needed, and answer the requests whose target is made."""
        if not self.is_dead:
            self._matches.look(self._matched)
        if self.is_dead:
            self._answer_all()
            return
        waiting = self._awaiting_target.items()
        for member, request in list(takewhile(lambda each: each[1].epoch <= self.target_epoch, waiting)):
            del self._awaiting_target[member]
            self._extend_session(member)
            request.reply.deliver(True)
        if self.target_epoch < self.epoch and self._awaiting_target and not self._is_assigning:
            self._assign()

    def _answer_all(self) -> None:
        waiting = [*self._awaiting_topics.values(), *self._awaiting_target.values()]
        self._awaiting_topics, self._awaiting_target = {}, {}
        for request in waiting:
            request.reply.deliver(True)

    def _matched(
        self, matches: Mapping[str, frozenset[str]], is_changed: bool, refused: frozenset[str]
    ) -> None:
        """Store matches. New topics begin an epoch. Members whose matches do not fit into memory are removed."""
        if self._end_code:
            return
        now_ms = self._services.clock.now_ms()
        for regex, topics in matches.items():
            value = written_value(
                messages.ConsumerGroupRegularExpressionValue(
                    topics=sorted(topics), version=0, timestamp=now_ms
                )
            )
            self.writing.put(self._regex_key(regex), value if len(value) <= LARGEST_VALUE else None)
            self._topics_read.match(regex, topics)
        if is_changed:
            self._look_at_topics(is_changed)
        if leaving := [member for member in self if member.subscription.regex in refused]:
            why = "the regular expression matches more topics than fit into memory (group.state.max.bytes)"
            self._remove(leaving, GroupError(ErrorCode.GROUP_MAX_SIZE_REACHED, why))
        for member in list(self._awaiting_topics):
            if not self._matches.is_unknown(member.subscription.regex):
                request = self._awaiting_topics.pop(member)
                self._awaiting_target[member] = request._replace(epoch=self.epoch)
        self._settle()
        self.writing.flush()

    def _assign(self) -> None:
        """Make a target for the current epoch."""
        members = {
            member.id: Subscriber(self._topic_ids(member.subscription), member.target) for member in self
        }
        done = partial(self._assigned_later, self.epoch)
        self._is_assigning = True
        targets = self._services.assign(self.id, self.assignor, members, self._topics_read.counts, done)
        if targets is not None:
            self._assigned(self.epoch, targets)

    def _assigned_later(self, epoch: int, targets: Mapping[str, Assignment]) -> None:
        if self._end_code:
            return  # The group has ended, or the broker stops and the log may be closed.
        self._assigned(epoch, targets)
        self.writing.flush()

    def _assigned(self, epoch: int, targets: Mapping[str, Assignment]) -> None:
        self._is_assigning = False
        for member in self:
            # A member that has joined since has no target yet: its join has begun another epoch.
            self._set_target(member, targets.get(member.id, NOTHING))
        self._put_target_epoch(epoch)
        self._settle()

    # Reconciling members with their targets.

    def _reconcile(self, member: ConsumerMember, owned: Owned) -> None:
        """Move a member towards its target, as far as possible now."""
        subscribed = self._topic_ids(member.subscription)
        current = reconciled(
            member.current, member.target, self.target_epoch, subscribed, owned, self._owners.is_free
        )
        self._set_current(member, current)

    def _is_revoking(self, member: ConsumerMember) -> bool:
        return member.current.progress is Progress.UNREVOKED_PARTITIONS

    def _expect_revocation(self, member: ConsumerMember) -> None:
        """Set a timer for a member that has to revoke partitions; not for classic ones, whose joins are timed."""
        if member.current.revoking and not member.is_classic:
            over = partial(self._revocation_over, member, member.current.epoch)
            member.rebalance_timer = self._after_rebalance_timeout(member, over)

    def _revocation_over(self, member: ConsumerMember, epoch: int) -> None:
        member.rebalance_timer = None
        if member.current.epoch == epoch and self._is_revoking(member):
            self._expire(member)

    def _expect_join(self, member: ConsumerMember) -> None:
        """Set a timer for a classic member that was told to rejoin."""
        if member.join_timer is None:
            member.join_timer = self._after_rebalance_timeout(member, partial(self._expire, member))

    def _expect_sync(self, member: ConsumerMember) -> None:
        _cancel(member.sync_timer)
        member.sync_timer = self._after_rebalance_timeout(member, partial(self._expire, member))

    def _after_rebalance_timeout(self, member: ConsumerMember, over: Any) -> Timer:
        return self._services.timers.call_later(max(member.subscription.rebalance_timeout_ms, 0), over)

    def _extend_session(self, member: ConsumerMember) -> None:
        classic = member.subscription.classic
        own_ms = self._services.config.group_consumer_session_timeout_ms
        if member.session is None:
            member.session = SessionTimer(self._services, partial(self._session_expired, member))
        member.session.extend(own_ms if classic is None else classic.session_timeout_ms)

    def _session_expired(self, member: ConsumerMember) -> None:
        if member in self._awaiting_topics or member in self._awaiting_target:
            # The member is not late: it waits for the answer to its last heartbeat.
            self._extend_session(member)
        else:
            self._expire(member)

    def _expire(self, member: ConsumerMember) -> None:
        """Remove a member whose time is up."""
        if self.members.get(member.id) is member and not self._end_code:
            self._remove([member])
            self._settle()
            self.writing.flush()

    def _remove(self, leaving: list[ConsumerMember], why: GroupError | None = None) -> None:
        """Remove members and answer their waiting requests. If only classic members remain, downgrade the group."""
        gone = frozenset(member.id for member in leaving)
        staying = [member for member in self if member.id not in gone]
        are_classic = bool(staying) and all(member.is_classic for member in staying)
        is_classic = are_classic and not all(member.is_classic for member in leaving)
        if not (is_classic and self._services.downgrade(self, gone, None)):
            for member in leaving:
                self._forget(member, why)
            self._is_topic_changed = False
            self._look_at_topics(is_changed=True)

    def _forget(self, member: ConsumerMember, why: GroupError | None = None) -> None:
        self._owners.drop(member)
        for key in (
            messages.ConsumerGroupCurrentMemberAssignmentKey,
            messages.ConsumerGroupTargetAssignmentMemberKey,
            messages.ConsumerGroupMemberMetadataKey,
        ):
            self._put_of_member(key, member, None)
        self._count_regex(member.subscription.regex, -1)
        del self.members[member.id]
        self._forget_instance(member.id, member.subscription.instance_id)
        self._topics_read.count(member.subscription.topics, -1)
        member.cancel_timers()
        self.memory.add(member.host, -member.size_bytes)
        if (waiting := self._waiting_request(member)) is not None:
            waiting.reply.deliver(True if why is None else GroupError(why.code, str(why)))

    def _forget_instance(self, member_id: str, instance_id: str | None) -> None:
        """Free an instance id, unless another member has it now."""
        if instance_id is not None and self._instances.get(instance_id) == member_id:
            del self._instances[instance_id]

    # State, in memory and on disk.

    def _set_subscription(self, member: ConsumerMember, subscription: Subscription) -> None:
        before = member.subscription
        if subscription == before:
            return
        member.subscription = subscription
        self._forget_instance(member.id, before.instance_id)
        if subscription.instance_id is not None:
            self._instances[subscription.instance_id] = member.id
        if before.regex != subscription.regex:
            self._count_regex(subscription.regex, 1)
            self._count_regex(before.regex, -1)
        if before.topics != subscription.topics:
            self._topics_read.count(subscription.topics, 1)
            self._topics_read.count(before.topics, -1)
        self._put_of_member(messages.ConsumerGroupMemberMetadataKey, member, member_value(subscription))
        member.measure(self.memory)

    def _count_regex(self, regex: str, more: int) -> None:
        if not regex:
            return
        if self._matches.count(regex, more):
            self.writing.put(self._regex_key(regex), None)
        self._topics_read.match(regex, self.regexes.get(regex))

    def _set_target(self, member: ConsumerMember, target: Assignment) -> None:
        if target != member.target:
            member.target = target
            key = messages.ConsumerGroupTargetAssignmentMemberKey
            self._put_of_member(key, member, target_value(target))
            member.measure(self.memory)

    def _set_current(self, member: ConsumerMember, current: Current) -> None:
        if current == member.current:
            return
        self._owners.drop(member)
        member.current = current
        self._owners.take(member)
        key = messages.ConsumerGroupCurrentMemberAssignmentKey
        self._put_of_member(key, member, current_value(current))
        member.measure(self.memory)
        _cancel(member.rebalance_timer)
        member.rebalance_timer = None
        self._expect_revocation(member)

    def _put_of_member(self, key: Any, member: ConsumerMember, value: Any) -> None:
        """Put a record of a member, or its tombstone."""
        written = None if value is None else written_value(value)
        self.writing.put(written_key(key(group_id=self.id, member_id=member.id)), written)

    def _put_epoch(self) -> None:
        value = messages.ConsumerGroupMetadataValue(epoch=self.epoch, metadata_hash=self.metadata_hash)
        key = messages.ConsumerGroupMetadataKey(group_id=self.id)
        self.writing.put(written_key(key), written_value(value))

    def _put_target_epoch(self, epoch: int) -> None:
        self.target_epoch = epoch
        value = messages.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
        key = messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.id)
        self.writing.put(written_key(key), written_value(value))

    def _regex_key(self, regex: str) -> bytes:
        return written_key(
            messages.ConsumerGroupRegularExpressionKey(group_id=self.id, regular_expression=regex)
        )

    async def _flushed(self) -> None:
        """Wait until all changes are on disk. Raise GroupError if that fails."""
        if self.writing.is_idle:
            return  # the common case
        reply = self._services.replies.new()
        self.writing.flush(reply.deliver)
        if code := await reply:
            raise GroupError(code, "")

    def _ids_of(self, partitions: Iterable[ProtocolTopicPartitions]) -> dict[bytes, frozenset[int]]:
        found = ((self._services.topic(each.topic), each.partitions) for each in partitions)
        return owned_of((topic[0], indexes) for topic, indexes in found if topic is not None)


def is_too_large(protocols: Protocols) -> bool:
    """Tell whether the protocols of a classic member are too large to be stored in a consumer group."""
    # One record holds all protocols, and the subscribed topics once more.
    topics_bytes = longest_metadata(protocols)
    return topics_bytes + sum(len(name) + len(metadata) for name, metadata in protocols) > METADATA_BYTES_MAX


def check_room(group_id: str, count: int, services: Services) -> None:
    """Refuse a new member if a consumer group is full."""
    max_size = services.config.group_consumer_max_size
    if count >= max_size:
        why = f"The consumer group has reached its maximum capacity of {max_size} members. (group {group_id})"
        raise GroupError(ErrorCode.GROUP_MAX_SIZE_REACHED, why)


def check_regex(regex: str | None) -> None:
    """Refuse a regular expression that is invalid or too large."""
    problem = topic_patterns.problem(regex) if regex else None
    if problem is not None:
        raise GroupError(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)


def _cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()


def _epoch_problem(member: ConsumerMember | None, epoch: int) -> ErrorCode:
    """Return why a member in this epoch may not commit or fetch offsets."""
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _subscription(
    request: Joining, parsed: ConsumerProtocolSubscription, rack_id: str | None
) -> Subscription:
    """Return the subscription of a classic member. `rack_id` is used if it sends none."""
    return Subscription(
        instance_id=request.instance_id,
        rack_id=parsed.rack_id if parsed.rack_id is not None else rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=frozenset(parsed.topics),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=Classic(request.session_timeout_ms, tuple(request.protocols)),
    )
