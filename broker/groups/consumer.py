"""A consumer group: members that say they are alive, and hear what to read (KIP-848).

Owns the state of one group: its epoch, the target assignment, how far each member has come. A change of members,
subscriptions or topics makes a new epoch; the next heartbeat a new target, and each member is brought there by its own
heartbeats (`consumer_member`). Refuses to know sockets, files and clocks: it is handed both times, timers, the topics,
what stores it, and what takes each answer (`ConsumerSurroundings`).

Invariant: no partition is had by two members. Whoever asks is answered once. An answer that tells of a change is given
when that is on disk; what could not be stored is stored with the next change.
What is not said otherwise is as in Kafka's GroupMetadataManager.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from tidelog.broker.groups import consumer_records as records
from tidelog.broker.groups.assignors import ASSIGNORS, Assignment, Wanting
from tidelog.broker.groups.consumer_member import (
    LEAVES_FOR_A_WHILE,
    NOTHING,
    Current,
    Owned,
    Progress,
    Subscription,
    reconciled,
)
from tidelog.broker.groups.consumer_parts import (
    NO_ROOM_FOR_MATCHES,
    SUPERSEDED,
    Answer,
    Awaiting,
    Beat,
    Changes,
    ConsumerSurroundings,
    GroupState,
    Member,
    Owners,
    Refused,
    Stored,
    Waiters,
    Writing,
    check_epoch,
    check_regex,
    check_room,
    epoch_problem,
    of_member,
    still_used,
    updated,
)
from tidelog.broker.groups.matches import Matches
from tidelog.broker.groups.memory import Taken
from tidelog.broker.groups.reading import Reading
from tidelog.broker.groups.states import Asked
from tidelog.protocol.error_codes import ErrorCode

# A record has to fit a batch of its topic; matches that are too many for one are found anew after a start.
LARGEST_VALUE: Final = 512 << 10
# Who waits for a target goes on in turns of the loop: so many take a millisecond or two.
AT_ONCE: Final = 8


class ConsumerGroup:
    """One group. Event loop only, but for what restores it."""

    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, around: ConsumerSurroundings, host: str = "") -> None:
        self.id = group_id
        self._around = around
        self.epoch = 0
        self.target_epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, Member] = {}
        self.taken = Taken(group_id, around.hold, host)
        self._matches = Matches(group_id, around, self.taken)
        self.is_dead = False
        self._end_code = ErrorCode.NONE
        self._instances: dict[str, str] = {}  # member ids
        self._owners = Owners()
        self._reading = Reading(around.topic)
        self._is_topic_changed = False  # of those that are read
        self._is_torn = False  # what was stored of it: it needs another epoch, above all that were seen
        self._is_assigning = False
        self._waiting = Waiters()
        self._settles_later = False
        self.writing = Writing(group_id, around.store)
        self._put = self.writing.put

    # What is asked.

    @property
    def state(self) -> GroupState:
        """Where the group stands."""
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.target_epoch < self.epoch:
            return GroupState.ASSIGNING
        is_stable = all(self._is_settled(member) for member in self.members.values())
        return GroupState.STABLE if is_stable else GroupState.RECONCILING

    @property
    def regexes(self) -> dict[str, frozenset[str]]:
        """The topics that match, by the regular expressions of members, as far as that is known."""
        return self._matches.topics

    @property
    def generation(self) -> int:
        """The group's epoch, by the name that classic groups have for it."""
        return self.epoch

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._waiting)

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        named = Counter(filter(None, (member.subscription.assignor for member in self)))
        return next(
            (name for name, _ in named.most_common() if name in ASSIGNORS), self._around.default_assignor
        )

    def heartbeat_of(self, beat: Beat, answer: Callable[[Answer], None]) -> None:
        """Let a member join or take note that it is alive; it is answered with what it is to read by now."""
        try:
            member = self._admit(beat)
        except Refused as refused:
            answer(Answer(refused.code, str(refused)))
            return
        before = None if beat.epoch == 0 or beat.is_full else member.current.assigned
        self._subscribe(member, updated(member.subscription, beat))
        self._lives(member)
        go_on = partial(self._bring_on, member, of_member(member, beat.owned), before, answer)
        self._wait(member, go_on, lambda: answer(SUPERSEDED))

    def leave_of(self, beat: Beat, answer: Callable[[Answer], None]) -> None:
        """Let a member go, or a static one for a while."""
        try:
            member = self._known(beat.member_id, beat.instance_id)
        except Refused as refused:
            answer(Answer(refused.code, str(refused)))
            return
        told = Answer(ErrorCode.NONE, None, member.id, beat.epoch)

        def tell(code: ErrorCode) -> None:
            answer(Answer(code) if code else told)

        if beat.epoch == LEAVES_FOR_A_WHILE:
            self._set_current(member, member.current._replace(epoch=LEAVES_FOR_A_WHILE, revoking=NOTHING))
            self._flush(tell)
        else:
            self._remove([member], tell)

    def commit_problem(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_old: bool = False
    ) -> ErrorCode:
        """Return why an offset may not be committed. `is_old` is a request that cannot tell of a stale epoch."""
        if epoch < 0 and not self.members:
            return ErrorCode.NONE  # Nobody has joined: the group only keeps offsets.
        member = self.members.get(member_id)
        is_classic = member is not None and member.subscription.classic is not None
        if member is not None and not is_classic and is_old:
            return ErrorCode.UNSUPPORTED_VERSION
        if is_classic and instance_id is not None and self._instances.get(instance_id) != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        return epoch_problem(member, epoch)

    def fetch_problem(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return why what was committed is not told to a member; who is none may ask too (OffsetFetch 9)."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        return epoch_problem(self.members.get(member_id or ""), epoch)

    def deletion_problem(self, asked: Asked) -> ErrorCode:
        """Return why the group, or offsets of it, may not be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if asked is Asked.DELETE and self.members else ErrorCode.NONE

    def unused_since_ms(self, committed_ms: int) -> int | None:
        """Return since when an offset is of no use, if nobody `reads` its topic (KIP-211)."""
        return committed_ms

    def reads(self, topic: str) -> bool:
        """Tell whether members read a topic."""
        return topic in self._reading

    def topic_changed(self, topic: str, *, is_new: bool) -> None:
        """Take note that a topic was created, has grown or was deleted; the next heartbeat sees to it."""
        self._matches.topic_changed(topic, is_new=is_new)
        self._is_topic_changed |= self._reading.topic_changed(topic)

    def tombstones(self) -> Changes:
        """Return what takes back all that was stored of the group, and what was to be."""
        to_come = dict.fromkeys(self.writing.keys())
        return {**to_come, **records.tombstones(self.id, self.members, self.regexes)}

    def take_back(self, changes: Changes) -> None:
        """Have what another group of this id has stored taken back with the first change."""
        for key, value in changes.items():
            self._put(key, value)

    def release(self, code: ErrorCode) -> None:
        """Answer everybody who waits; who is a member stays one. The broker stops."""
        self._end_code = code
        self._settle_all()

    def end(self, code: ErrorCode) -> None:
        """Answer everybody who waits; nothing happens any more."""
        self.is_dead, self._end_code = True, code
        self.writing.clear()
        self._matches.end()
        for member in self.members.values():
            member.cancel_timers()
        self._settle_all()

    # Who asks.

    def _known(self, member_id: str, instance_id: str | None) -> Member:
        """Return a member."""
        if instance_id is not None:
            known = self._instances.get(instance_id)
            if known is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            if known != member_id:
                why = (
                    f"Static member {member_id} with instance id {instance_id} was fenced by member {known}."
                )
                raise Refused(ErrorCode.FENCED_INSTANCE_ID, why)
        member = self.members.get(member_id)
        if member is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.id}."
            )
        return member

    def _admit(self, beat: Beat) -> Member:
        """Return the member that sends a heartbeat, or make it one."""
        if self.is_dead:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {self.id} is being replaced")
        self._check_room(beat.member_id, beat.instance_id)
        if beat.regex not in self._matches:
            check_regex(beat.regex, self._around)
        if beat.epoch:
            member = self._known(beat.member_id, beat.instance_id)
            check_epoch(member, beat)
            return member
        holder = None if beat.instance_id is None else self._instances.get(beat.instance_id)
        if holder is not None:
            member = self.members[holder]
            is_released = member.current.epoch == LEAVES_FOR_A_WHILE or member.subscription.classic
            if holder != beat.member_id and not is_released:
                why = still_used(beat.member_id, beat.instance_id, holder)
                raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, why)
            return self._renamed(member, beat.member_id)
        return self.members.get(beat.member_id) or self._added(beat.member_id)

    def _check_room(self, member_id: str, instance_id: str | None) -> None:
        """Refuse one more member than there may be."""
        if member_id in self.members or (instance_id is not None and instance_id in self._instances):
            return
        check_room(self.id, len(self.members), self._around.max_size)

    def _added(self, member_id: str) -> Member:
        member = self.members[member_id] = Member(member_id)
        member.measure(self.taken)
        return member

    def _renamed(self, old: Member, member_id: str) -> Member:
        """Let a static member that was started anew take the place of what it was before, with what that had."""
        if old.id == member_id and old.current.epoch != LEAVES_FOR_A_WHILE and not old.subscription.classic:
            return old
        current, target, subscription = old.current, old.target, old.subscription
        other = self.members.get(member_id, old)
        if other is not old:
            self._forget(other)  # It is there already, and nobody has two places.
        if other is not old or self._is_assigning:
            # Nobody has what that one had; what is being shared out knows no member of this id.
            self._look_at_topics(is_changed=True)
        self._forget(old)
        member = self._added(member_id)
        self._set_subscription(member, subscription)
        self._set_target(member, target)
        self._set_current(member, current._replace(epoch=0, previous_epoch=0))
        return member

    # What members say.

    def _subscribe(self, member: Member, subscription: Subscription) -> None:
        """Take note of what a member says of itself; a new epoch begins where others have to know."""
        before = member.subscription
        self._set_subscription(member, subscription)
        is_changed = self.epoch == 0 or before.topics != subscription.topics
        if before.regex != subscription.regex:
            # One that is not resolved yet makes an epoch when it is.
            is_changed |= not subscription.regex or subscription.regex in self.regexes
        self._look_at_topics(is_changed)

    def _look_at_topics(self, is_changed: bool = False) -> None:
        """Begin an epoch if members want something else, or topics that they read are other ones by now."""
        if not is_changed and not self._is_topic_changed:
            return
        self._is_topic_changed = False
        metadata_hash = self._reading.hash
        if is_changed or self._is_torn or metadata_hash != self.metadata_hash:
            self.metadata_hash, self._is_torn = metadata_hash, False
            self._new_epoch()

    def _new_epoch(self) -> None:
        self.epoch += 1
        self._put_epoch()

    def _put_epoch(self) -> None:
        self._put(records.group_key(self.id), records.group_value(self.epoch, self.metadata_hash))

    def _topic_ids(self, subscription: Subscription) -> frozenset[bytes]:
        """Return the ids of the topics that a member wants to read and that are there."""
        return self._reading.ids_of(subscription.topics, subscription.regex)

    # From what members say to a target, and there.

    def _settle(self) -> None:
        """Find the topics that match, share out what there is, and go on with the heartbeats that wait for it."""
        if not self.is_dead:
            self._matches.look(self._resolved)
        if self.is_dead:
            self._settle_all()
        else:
            self._settle_some()
            if self.target_epoch < self.epoch and self._waiting.for_target and not self._is_assigning:
                self._assign()

    def _wait(self, member: Member, go_on: Callable[[], None], supersede: Callable[[], None]) -> None:
        """Go on when what there is by now is shared out. What a member has asked before it has asked in vain."""
        earlier = self._waiting.pop(member)
        is_unknown = self._matches.is_unknown(member.subscription.regex)
        self._waiting.add(member, Awaiting(self.epoch, go_on, supersede), for_topics=is_unknown)
        if earlier is not None:
            earlier.supersede()
        self._settle()

    def _settle_some(self) -> None:
        """Go on with those that wait for an epoch there is a target for, however many epochs came since: a few now."""
        due = self._waiting.due(self.target_epoch, AT_ONCE + 1)
        for member in due[:AT_ONCE]:
            if waits := self._waiting.pop(member):
                self._lives(member)
                waits.go_on()
        if len(due) > AT_ONCE and not self._settles_later:
            self._settles_later = True
            self._around.call_later(0, self._settle_more)

    def _settle_more(self) -> None:
        self._settles_later = False
        self._settle()

    def _settle_all(self) -> None:
        """Tell everybody who waits that it is over."""
        for waits in self._waiting.pop_all():
            waits.go_on()

    def _resolved(
        self, news: Mapping[str, frozenset[str]], is_changed: bool, refused: frozenset[str]
    ) -> None:
        """Take note of the topics that match; those that are read by now make an epoch. Who has no room goes."""
        if self._end_code:
            return
        now_ms = self._around.now_ms()
        for regex, topics in news.items():
            value = records.regex_value(topics, now_ms)
            self._put(records.regex_key(self.id, regex), value if len(value) <= LARGEST_VALUE else None)
            self._reading.match(regex, topics)
        if is_changed:
            self._look_at_topics(is_changed)
        if leaving := [member for member in self if member.subscription.regex in refused]:
            for member in leaving:
                member.why_gone = NO_ROOM_FOR_MATCHES
            self._remove(leaving)
        self._waiting.matched(self._matches.is_unknown, self.epoch)
        self._settle()
        self._flush()

    def _assign(self) -> None:
        """Have what there is shared out among the members."""
        self._is_assigning = True
        members = {member.id: Wanting(self._topic_ids(member.subscription), member.target) for member in self}
        then = partial(self._assigned, self.epoch)
        self._around.assign(self.id, self.assignor, members, self._reading.counts, then)

    def _assigned(self, epoch: int, targets: Mapping[str, Assignment]) -> None:
        self._is_assigning = False
        if self._end_code:
            return  # It is over, or the broker stops, and what it writes to may be closed.
        for member in self:
            # One that has joined since has none: there is another epoch by now.
            self._set_target(member, targets.get(member.id, NOTHING))
        self._put_target_epoch(epoch)
        self._settle()
        self._flush()

    def _put_target_epoch(self, epoch: int) -> None:
        self.target_epoch = epoch
        self._put(records.target_epoch_key(self.id), records.target_epoch_value(epoch))

    def _bring_on(
        self, member: Member, owned: Owned, before: Assignment | None, answer: Callable[[Answer], None]
    ) -> None:
        """Bring a member as far as it comes now, and tell it; `before` is what it knows that it has."""
        if self._end_code:
            answer(Answer(self._end_code))
            return
        if self.members.get(member.id) is not member:
            why = f"{member.id} is not a member of group {self.id} any more"
            refused = member.why_gone or Refused(ErrorCode.UNKNOWN_MEMBER_ID, why)
            answer(Answer(refused.code, str(refused)))
            return
        self._reconcile(member, owned)
        current = member.current
        assigned = None if current.assigned == before else current.assigned
        told = Answer(ErrorCode.NONE, None, member.id, current.epoch, assigned)
        self._flush(lambda code: answer(Answer(code) if code else told))

    def _reconcile(self, member: Member, owned: Owned) -> None:
        current = reconciled(
            member.current,
            member.target,
            self.target_epoch,
            self._topic_ids(member.subscription),
            owned,
            self._owners.is_free,
        )
        self._set_current(member, current)

    def _is_settled(self, member: Member) -> bool:
        return member.current.progress is Progress.STABLE and member.current.epoch == self.target_epoch

    # Who goes.

    def _remove(self, leaving: list[Member], then: Callable[[ErrorCode], None] | None = None) -> None:
        """Take out members, and go on when that is on disk.

        Where all others speak the classic protocol, the group becomes a classic one.
        """
        gone = frozenset(member.id for member in leaving)
        staying = [member for member in self if member.id not in gone]
        is_mixed = any(member.subscription.classic is None for member in leaving)
        is_classic = is_mixed and bool(staying) and all(member.subscription.classic for member in staying)
        if not (is_classic and self._around.downgrade(self, gone, None)):
            for member in leaving:
                self._forget(member)
            self._is_topic_changed = False
            self._look_at_topics(is_changed=True)
        self._flush(then)

    def _forget(self, member: Member) -> None:
        self._owners.drop(member)
        self._put(records.current_key(self.id, member.id), None)
        self._put(records.target_key(self.id, member.id), None)
        self._put(records.member_key(self.id, member.id), None)
        self._count_regex(member.subscription.regex, -1)
        del self.members[member.id]
        self._forget_instance(member.id, member.subscription.instance_id)
        self._reading.count(member.subscription.topics, -1)
        member.cancel_timers()
        self.taken.add(member.host, -member.size_bytes)
        if (waiting := self._waiting.pop(member)) is not None:
            waiting.go_on()

    def _forget_instance(self, member_id: str, instance_id: str | None) -> None:
        """Have an instance be nobody, unless it is another member by now."""
        if instance_id is not None and self._instances.get(instance_id) == member_id:
            del self._instances[instance_id]

    def _lives(self, member: Member) -> None:
        """Expect the next sign of life within the session's timeout; to be heard of costs no timer."""
        classic = member.subscription.classic
        timeout_ms = self._around.session_timeout_ms if classic is None else classic.session_timeout_ms
        member.deadline_ms = self._around.monotonic_ms() + timeout_ms
        if member.session_timer is None:
            member.session_timer = self._around.call_later(timeout_ms, partial(self._session_over, member))

    def _session_over(self, member: Member) -> None:
        left_ms = member.deadline_ms - self._around.monotonic_ms()
        member.session_timer = None
        if member in self._waiting:
            self._lives(member)  # It cannot be late: the answer to its last heartbeat is.
        elif left_ms > 0:
            member.session_timer = self._around.call_later(left_ms, partial(self._session_over, member))
        else:
            self._expire(member)

    def _expire(self, member: Member) -> None:
        """Take out a member that was waited for long enough."""
        if self.members.get(member.id) is member and not self._end_code:
            self._remove([member])
            self._settle()

    def _revocation_over(self, member: Member, epoch: int) -> None:
        member.rebalance_timer = None
        if member.current.epoch == epoch and member.current.progress is Progress.UNREVOKED_PARTITIONS:
            self._expire(member)

    # What is kept of it, in memory and on disk.

    def member(self, member_id: str, instance_id: str | None) -> Member | None:
        """Return a member by its id, or else by its instance's."""
        return self.members.get(member_id or self._instances.get(instance_id or "", ""))

    def __iter__(self) -> Iterator[Member]:
        """Yield the members."""
        return iter(self.members.values())

    def _set_subscription(self, member: Member, subscription: Subscription) -> None:
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
            self._reading.count(subscription.topics, 1)
            self._reading.count(before.topics, -1)
        self._put(records.member_key(self.id, member.id), records.member_value(subscription))
        member.measure(self.taken)

    def _count_regex(self, regex: str, more: int) -> None:
        if not regex:
            return
        if self._matches.count(regex, more):
            self._put(records.regex_key(self.id, regex), None)
        self._reading.match(regex, self.regexes.get(regex))

    def _set_target(self, member: Member, target: Assignment) -> None:
        if target != member.target:
            member.target = target
            self._put(records.target_key(self.id, member.id), records.target_value(target))
            member.measure(self.taken)

    def _set_current(self, member: Member, current: Current) -> None:
        if current == member.current:
            return
        self._owners.drop(member)
        member.current = current
        self._owners.take(member)
        self._put(records.current_key(self.id, member.id), records.current_value(current))
        member.measure(self.taken)
        if member.rebalance_timer is not None:
            member.rebalance_timer.cancel()
            member.rebalance_timer = None
        self._expect_revocation(member)

    def _expect_revocation(self, member: Member) -> None:
        """Wait for a member that is to give up; one that has left for a while has given up all of that."""
        if not member.current.revoking or member.subscription.classic is not None:
            return
        timeout_ms = max(member.subscription.rebalance_timeout_ms, 0)
        late = partial(self._revocation_over, member, member.current.epoch)
        member.rebalance_timer = self._around.call_later(timeout_ms, late)

    def _flush(self, then: Stored | None = None) -> None:
        """Have what has changed stored, and go on when it is on disk."""
        self.writing.flush(then)

    def restore(self, key: "records.Key", value: "records.Value | None") -> None:
        """Be as it was stored, record by record; `begin` has it served. Any thread."""
        records.restore(self, key, value)

    def restored_member(self, member_id: str) -> Member:
        """Return a member, or make one, without a word about it. Any thread."""
        return self.members.setdefault(member_id, Member(member_id))

    def begin(self) -> None:
        """Be served again: expect heartbeats of those that were members when the group was stored."""
        for member in self:
            said = member.subscription
            if said.instance_id is not None:
                self._instances[said.instance_id] = member.id
            self._count_regex(said.regex, 1)
            self._reading.count(said.topics, 1)
            # Whatever was written: nobody has what another one has.
            assigned, revoking = map(self._owners.free_of, (member.current.assigned, member.current.revoking))
            member.current = member.current._replace(assigned=assigned, revoking=revoking)
            self._owners.take(member)
            member.measure(self.taken)
            self._lives(member)
            self._expect_revocation(member)
        self._matches.begin()
        # Topics may have changed after the last record.
        self._is_topic_changed = True
        if not records.is_whole(self, self._topic_ids, self._reading.counts.items()):
            self._is_torn = True
            self.epoch = max(self.epoch, self.target_epoch, *(member.current.epoch for member in self))
