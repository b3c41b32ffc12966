"""A consumer group in which some members speak the classic protocol: on its way from a classic group, or back.

A classic member has a generation, which is its epoch; when it is to give up or gets something it hears
REBALANCE_IN_PROGRESS, joins again, and syncs (KIP-848, "Supporting Online Consumer Group Upgrade"). Nobody leads: what
each is to read the broker says.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tidelog.broker.groups.assignors import Assignment
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.consumer_member import (
    NOTHING,
    Classic,
    Current,
    Progress,
    Subscription,
)
from tidelog.broker.groups.consumer_parts import Member, Refused, of_member, owned_of
from tidelog.broker.groups.member import SAID_BYTES_MAX, Joined, Joining, Protocols, Synced, refused_join
from tidelog.protocol.coordinator.consumer_protocol import (
    ConsumerProtocolSubscription,
    ProtocolTopicPartitions,
    subscription_of,
    written_assignment,
)
from tidelog.protocol.coordinator.subscription import CONSUMER
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.protocol.wire.errors import WireError

__all__ = ["MixedGroup", "is_too_large"]


class MixedGroup(ConsumerGroup):
    """A consumer group that takes members of both protocols."""

    def take_over(self, generation: int, members: Iterable[tuple[str, Subscription, Assignment]]) -> None:
        """Begin as a classic group was: all its members are where its last rebalance has brought them."""
        self.epoch = generation
        self._put_epoch()
        for member_id, subscription, assigned in members:
            member = self._added(member_id)
            self._set_subscription(member, subscription)
            # Its leader may have given one partition to two.
            free = self._owners.free_of(assigned)
            self._set_target(member, free)
            self._set_current(member, Current(generation, generation, Progress.STABLE, free, NOTHING))
            self._lives(member)
        self._put_target_epoch(generation)

    def join(self, asked: Joining, answer: Joined) -> None:
        """Let a classic member join, or join anew; it is answered when it is known what it is to read."""
        try:
            self._check_classic(asked)
            said = _said(asked)
            if not asked.member_id and asked.must_know_its_id and asked.instance_id is None:
                answer(refused_join(self._around.new_id(), ErrorCode.MEMBER_ID_REQUIRED))
                return
            if successor := self._downgraded_for(asked, said):
                # Nothing refuses it any more: it would have made another group of this one all the same.
                successor.come_back(asked, answer)
                return
            member = self._admit_classic(asked)
        except Refused as refused:
            answer(refused_join(asked.member_id, refused.code))
            return
        if member.join_timer is not None:
            member.join_timer.cancel()
            member.join_timer = None
        self._subscribe(member, _subscription(asked, said, member.subscription.rack_id))
        self._lives(member)
        owned = of_member(member, self._ids_of(said.owned_partitions)) or {}
        again = refused_join(member.id, ErrorCode.REBALANCE_IN_PROGRESS)
        self._wait(member, partial(self._has_joined, member, owned, answer), lambda: answer(again))

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Iterable[tuple[str, bytes]],  # noqa: ARG002 - nobody leads
        answer: Synced,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """Tell a classic member what it is to read by now."""
        try:
            member, classic = self._known_classic(member_id, instance_id, generation)
            name, metadata = classic.protocols[0]
            if (protocol_type or CONSUMER) != CONSUMER or (protocol or name) != name:
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{name} was chosen")
            if member.current.epoch < self.epoch and not self._is_revoking(member):
                self._expect_join(member)
                raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "there is another epoch")
        except Refused as refused:
            answer(SyncGroupResponse(error_code=refused.code, assignment=b""))
            return
        if member.sync_timer is not None:
            member.sync_timer.cancel()
            member.sync_timer = None
        self._lives(member)
        assigned = written_assignment(self.names_of(member.current.assigned), metadata)
        answer(
            SyncGroupResponse(
                error_code=ErrorCode.NONE, protocol_type=CONSUMER, protocol_name=name, assignment=assigned
            )
        )

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Take note that a classic member is alive; return what it is to do."""
        try:
            member, _ = self._known_classic(member_id, instance_id, generation)
        except Refused as refused:
            return refused.code
        self._lives(member)
        self._look_at_topics()
        self._flush()
        if member.current.epoch < self.epoch or self._is_revoking(member) or self._has_more_for(member):
            self._expect_join(member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, leaving: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """Let members go, by their ids or by their instances' (KIP-345); return what became of each."""
        codes: list[ErrorCode] = []
        gone: dict[str, Member] = {}
        for member_id, instance_id in leaving:
            try:
                known = self._instances.get(instance_id or "", "") if instance_id is not None else ""
                member = self._known(member_id or known, instance_id)
            except Refused as refused:
                codes.append(refused.code)
                continue
            codes.append(ErrorCode.NONE)
            gone[member.id] = member
        if gone:
            self._remove(list(gone.values()))
        return codes

    def names_of(self, assignment: Assignment) -> list[ProtocolTopicPartitions]:
        """Return an assignment by the names of its topics, as far as they are there."""
        named = ((self._around.topic_name(topic), indexes) for topic, indexes in assignment.items())
        return [
            ProtocolTopicPartitions(topic=name, partitions=sorted(indexes))
            for name, indexes in sorted((name, indexes) for name, indexes in named if name is not None)
        ]

    # Who asks.

    def _check_classic(self, asked: Joining) -> None:
        """Refuse one that cannot take part."""
        if self.is_dead:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {self.id} is being replaced")
        if asked.member_id not in self.members and not (
            asked.instance_id is not None and asked.instance_id in self._instances
        ):
            self._check_room(asked.member_id, asked.instance_id)
        if is_too_large(asked.protocols):
            # As Kafka has it where a record is too large. The others go on.
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the member says more than can be stored")
        known = Counter(name for classic in self._classics() for name, _ in classic.protocols)
        count = len(self._classics())
        if not any(known[name] == count for name, _ in asked.protocols):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "other members know none of these protocols")

    def _classics(self) -> list[Classic]:
        return [each.subscription.classic for each in self if each.subscription.classic is not None]

    def _admit_classic(self, asked: Joining) -> Member:
        holder = None if asked.instance_id is None else self._instances.get(asked.instance_id)
        if asked.instance_id is not None and asked.member_id:
            return self._known(asked.member_id, asked.instance_id)
        if holder is not None:
            return self._renamed(self.members[holder], self._around.new_id())
        member_id = asked.member_id or self._around.new_id()
        return self.members.get(member_id) or self._added(member_id)

    def _downgraded_for(self, asked: Joining, said: ConsumerProtocolSubscription) -> Any:
        """Return the classic group where the last member of the new protocol comes back as a classic one."""
        if asked.instance_id is None or asked.member_id or asked.instance_id not in self._instances:
            return None
        holder = self._instances[asked.instance_id]
        others = [each for each in self if each.subscription.classic is None]
        if [each.id for each in others] != [holder]:
            return None
        return self._around.downgrade(self, frozenset(), _subscription(asked, said, None))

    def _known_classic(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[Member, Classic]:
        if self.is_dead:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {self.id} is being replaced")
        member = self._known(member_id, instance_id)
        classic = member.subscription.classic
        if classic is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} speaks the other protocol")
        if generation != member.current.epoch:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, f"the generation is {member.current.epoch}")
        return member, classic

    # Where a member is.

    def _has_joined(self, member: Member, owned: Mapping[bytes, frozenset[int]], answer: Joined) -> None:
        classic = member.subscription.classic
        if self.is_dead or classic is None or self.members.get(member.id) is not member:
            answer(refused_join(member.id, self._end_code or ErrorCode.UNKNOWN_MEMBER_ID))
            return
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
        self._flush(lambda code: answer(refused_join(member.id, code) if code else response))

    def _is_revoking(self, member: Member) -> bool:
        return member.current.progress is Progress.UNREVOKED_PARTITIONS

    def _has_more_for(self, member: Member) -> bool:
        """Tell whether all that a member has waited for is free by now."""
        if member.current.progress is not Progress.UNRELEASED_PARTITIONS:
            return False
        return self._owners.are_free_for(member, member.target)

    def _expect_join(self, member: Member) -> None:
        """Wait for a member that was told to join again."""
        if member.join_timer is None:
            member.join_timer = self._around.call_later(
                max(member.subscription.rebalance_timeout_ms, 0), partial(self._join_over, member)
            )

    def _join_over(self, member: Member) -> None:
        member.join_timer = None
        self._expire(member)

    def _expect_sync(self, member: Member) -> None:
        if member.sync_timer is not None:
            member.sync_timer.cancel()
        member.sync_timer = self._around.call_later(
            max(member.subscription.rebalance_timeout_ms, 0), partial(self._sync_over, member)
        )

    def _sync_over(self, member: Member) -> None:
        member.sync_timer = None
        self._expire(member)

    def _ids_of(self, partitions: Iterable[ProtocolTopicPartitions]) -> dict[bytes, frozenset[int]]:
        found = ((self._around.topic(each.topic), each.partitions) for each in partitions)
        return owned_of((topic[0], indexes) for topic, indexes in found if topic is not None)


def is_too_large(protocols: Protocols) -> bool:
    """Tell whether what a classic member says cannot be stored of a member of a consumer group."""
    # It is one record, for all of the protocols, and the topics are stored by themselves as well.
    topics_bytes = max((len(metadata) for _, metadata in protocols), default=0)
    return topics_bytes + sum(len(name) + len(metadata) for name, metadata in protocols) > SAID_BYTES_MAX


def _said(asked: Joining) -> ConsumerProtocolSubscription:
    """Return what a classic member wants to read: it says the same for each of its protocols."""
    if asked.protocol_type != CONSUMER or not asked.protocols:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group has members of the consumer protocol")
    try:
        return subscription_of(asked.protocols[0][1])
    except WireError as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"not a subscription: {error}") from None


def _subscription(asked: Joining, said: ConsumerProtocolSubscription, rack_id: str | None) -> Subscription:
    """Return what a classic member says; the rack is what is known of it where it says none."""
    return Subscription(
        instance_id=asked.instance_id,
        rack_id=said.rack_id if said.rack_id is not None else rack_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        topics=frozenset(said.topics),
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        classic=Classic(asked.session_timeout_ms, tuple(asked.protocols)),
    )
