"""What a scenario can do with groups, step by step, each with what its answer promises.

Owns: members of both protocols, commits and deletions against the real coordinator, whose loop, timers and flusher are
driven by hand; and the judgement after a start: what groups are is what the log says, and what was answered is in it.
Refuses to know: which steps make a scenario, and crashes. That the log itself is as promised `ledger` judges.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from tests.fault.crash.ledger import Sent, Violation, last_of
from tests.fault.crash.process import CONFIG
from tests.fault.crash.world import World
from tests.support.groups import FakeTimer, drive
from tidelog.broker.answers import Later
from tidelog.broker.flusher import Commit, Failed
from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.classic_member import Joining
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.consumer_member import Heartbeat
from tidelog.broker.groups.coordinator import Coordinator, Replaced
from tidelog.broker.groups.log import Entry
from tidelog.broker.groups.offsets import NEVER, Committed
from tidelog.broker.groups.services import GroupError
from tidelog.broker.partition import Partition
from tidelog.broker.turns import Turns
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.consumer_protocol import written_subscription
from tidelog.protocol.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
)
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records.build import read_records
from tidelog.protocol.records.steps import at_once
from tidelog.protocol.topic_names import OFFSETS_TOPIC
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT

GROUPS = ("g", "h")
HOST = "/h"
SESSION_MS = 60_000


class _Loop:
    """An event loop that runs when the test says so."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], Any]] = deque()

    def call_soon(self, callback: Callable[..., Any], *arguments: Any) -> None:
        self._due.append(partial(callback, *arguments))

    def drain(self) -> None:
        """Do all that is due."""
        while self._due:
            self._due.popleft()()


class GroupsWorld(World):
    """A life in which groups are served."""

    def start(self) -> None:
        """Start, and serve groups as the log says."""
        super().start()
        self.loop = _Loop()
        self.timers: list[FakeTimer] = []
        self.commits: list[Commit] = []
        self.jobs: list[Later] = []
        # Batches in the log after the last of a group's offsets (True), and of its members.
        self.appended: dict[tuple[str, bool], int] = {}
        clock: Any = SimpleNamespace(now_ms=lambda: self.now_ms, monotonic_ms=lambda: self.now_ms)
        timers: Any = SimpleNamespace(call_later=self._call_later)
        flusher: Any = SimpleNamespace(commit=self._commit)
        maintenance: Any = SimpleNamespace(submit=self._submit)
        loop: Any = self.loop
        threads: Any = SimpleNamespace(loop=loop, turns=Turns(loop), readers=None)
        self.groups = Coordinator(threads, CONFIG, clock, timers, self.topics, flusher, self._no_topic)
        self._append, self.groups.log.append = self.groups.log.append, self._noted_append
        self.groups.start(maintenance)
        self._go_on()
        if self.groups.is_loading:
            if not self.disk.failed:
                raise Violation("groups", "not loaded without any failure")
            self.logs.abandon()
            self.disk.heal()
            self.start()
            return
        self._judge_groups()
        # What the log said then is told, on disk or not.
        self.loaded = self.state(OFFSETS_TOPIC, 0).written if OFFSETS_TOPIC in self.ledger else 0

    # What the coordinator uses.

    def _noted_append(self, group_id: str, entries: Sequence[Entry]) -> Partition | ErrorCode:
        """Append, and write into the ledger what that was."""
        state, place = self.state(OFFSETS_TOPIC, 0), len(self.disk.journal)
        partition = self._append(group_id, entries)
        if not isinstance(partition, Partition):
            self.failed(f"append of {group_id}", StorageError(str(partition)))
            return partition
        log = partition.log
        fault, self.disk.fault = self.disk.fault, None
        data = bytes(log.read(state.end, 1 << 20, True, PATIENT).read())
        self.disk.fault = fault
        times = (self.now_ms,) * len(entries)
        sent = Sent(state.end, last_of(data), data, times, log.last_append_ms, None)
        state = state._replace(sent=(*state.sent, sent))
        self.put(OFFSETS_TOPIC, 0, state)
        self.mark(place)
        count = len(state.sent)
        state = state._replace(written=count, seen=count, end=sent.last + 1, append_ms=sent.append_ms)
        self.put(OFFSETS_TOPIC, 0, state)
        self.mark()
        is_offset = isinstance(records.read(*entries[0][:2])[0], OffsetCommitKey)  # type: ignore[index]
        self.appended[group_id, is_offset] = count
        return partition

    def _call_later(self, delay_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now_ms + delay_ms, callback)
        self.timers.append(timer)
        return timer

    def _commit(self, logs: Sequence[Log], response: Any, failed: Failed, size_bytes: int = 0) -> Later:
        self.commits.append(Commit(logs, response, failed, size_bytes))
        return self.commits[-1]

    def _submit(self, task: Any, owner: Any = None, answer: Any = None) -> Later:
        later = Later()
        try:
            later.response = at_once(task)
        except (StorageError, OSError) as error:
            later.response = error
        self.jobs.append(later)
        return later

    def _no_topic(self, *_: Any) -> Any:
        raise AssertionError("the topic is there")

    def _go_on(self) -> None:
        """Do all that waits for nothing."""
        self.loop.drain()
        while self.jobs:
            later = self.jobs.pop(0)
            if later.ready is not None:
                later.ready()
            self.loop.drain()

    # What members do.

    @property
    def _is_served(self) -> bool:
        return (OFFSETS_TOPIC, 0) in self.served() and not self.groups.is_loading

    def commit_offset(self) -> None:
        """Commit for a partition."""
        found = self.topics.by_name.get("t")
        if not self._is_served or found is None:
            return
        group_id, index = self.rng.choice(GROUPS), self.rng.randrange(len(found.partitions))
        self._serial += 1
        self.steps.append(f"commit {group_id} t-{index} {self._serial}")
        committed = Committed(self._serial, -1, "m", self.now_ms, NEVER, found.id, HOST)
        replaced: list[Replaced] = []
        put = self.groups.put(group_id, [("t", index, committed)], replaced)
        self._answer_on_disk(group_id, put, partial(self.groups.roll_back, group_id, replaced))

    def delete_offset(self) -> None:
        """Forget what was committed for a partition."""
        group_id, index = self.rng.choice(GROUPS), self.rng.randrange(2)
        if self._is_served and self.groups._committed(group_id, "t", index) is not None:
            self.steps.append(f"forget {group_id} t-{index}")
            self._answer_on_disk(group_id, self.groups.remove(group_id, [("t", index)]), lambda: None)

    def delete_group(self) -> None:
        """Delete a group without members."""
        group = self.groups.groups.get(self.rng.choice(GROUPS)) if self._is_served else None
        if group is not None and not group.members:
            self.steps.append(f"delete {group.id}")
            at_once(self._delete(group))

    def _delete(self, group: Any) -> Any:
        deleted = yield from self.groups.delete(group).__await__()
        self._answer_on_disk(group.id, deleted, lambda: None)

    def _answer_on_disk(self, group_id: str, put: Partition | ErrorCode, refused: Callable[[], None]) -> None:
        if not isinstance(put, Partition):
            return
        asked = self._asked(group_id, of=(True, False))
        answer = self.groups.log.on_disk([put], ErrorCode.NONE, lambda _: ErrorCode.NOT_COORDINATOR, 0)

        def answered(code: ErrorCode) -> None:
            if code:
                refused()
            asked(code)

        if isinstance(answer, Later):
            answer.ready = lambda: answered(answer.response)
        else:
            answered(answer)

    def _asked(self, group_id: str, of: tuple[bool, ...] = (False,)) -> Callable[[ErrorCode], None]:
        """Return what takes an answer: all that the group, or its members, had written by then is on disk."""
        count, steps = max(self.appended.get((group_id, each), 0) for each in of), self.steps[-1]

        def answered(code: ErrorCode) -> None:
            durable = self.state(OFFSETS_TOPIC, 0).durable
            if code is ErrorCode.NONE and durable < count:
                raise Violation("groups", f"{steps}: answered with {durable} of {count} batches on disk")

        return answered

    def classic(self) -> None:
        """Have a member of the classic protocol join, and the leader assign if it leads."""
        if not self._is_served:
            return
        group_id = self.rng.choice(GROUPS)
        group = self.groups.group_to_join(group_id, HOST)
        name = self.rng.choice(("", *list(group.members)[:2]))
        self.steps.append(f"classic {group_id} {name}")
        said = [("range", written_subscription(["t"]))]
        asked = Joining(name, None, "c", HOST, 1000, SESSION_MS, "consumer", said)
        drive(group.join(asked), partial(self._joined, group))
        self._go_on()
        self._pass(0)

    def _joined(self, group: Any, response: Any) -> None:
        if response.error_code:
            return
        members = [each.member_id for each in response.members] or [response.member_id]
        self._serial += 1
        assigned = dict.fromkeys(members, b"%d" % self._serial)
        syncing = group.sync(response.member_id, None, response.generation_id, assigned)
        drive(syncing, lambda synced: self._asked(group.id)(ErrorCode(synced.error_code)))

    def beat(self) -> None:
        """Have a member of the newer protocol join, or one go on in its epoch, or leave."""
        if not self._is_served:
            return
        group_id = self.rng.choice(GROUPS)
        new = f"m{self._serial + 1}"
        joining = Heartbeat(new, 0, None, None, "c", HOST, 1000, frozenset({"t"}), owned={})
        try:
            group = self.groups.consumer_group(group_id, HOST, joining)
        except GroupError:
            return
        known = [each for each in group if each.subscription.classic is None]
        member = self.rng.choice([None, *known])
        if member is None:
            self._serial += 1
            beat = joining
        else:
            owned = member.current.assigned
            beat = Heartbeat(member.id, member.current.epoch, client_id="c", client_host=HOST, owned=owned)
        self.steps.append(f"beat {group_id} {beat.member_id} {beat.epoch}")
        if member is not None and self.rng.random() < 0.3:
            leaving = group.consumer_leave(beat._replace(epoch=-1))
            drive(leaving, lambda outcome: self._asked(group_id)(_code_of(outcome)))
        else:
            self._beat(group, beat)
        self._go_on()

    def _beat(self, group: ConsumerGroup, beat: Heartbeat) -> None:
        found: list[Callable[[ErrorCode], None]] = []
        codes: list[ErrorCode] = []
        drive(
            group.consumer_heartbeat(beat),
            lambda outcome: found[0](_code_of(outcome)) if found else codes.append(_code_of(outcome)),
        )
        self._go_on()
        found.append(self._asked(group.id))
        for code in codes:
            found[0](code)

    def leave(self) -> None:
        """Have a classic member leave."""
        groups = [each for each in self.groups.groups.values() if isinstance(each, ClassicGroup)]
        members = [(group, member.id) for group in groups for member in group]
        if self._is_served and members:
            group, member_id = self.rng.choice(members)
            self.steps.append(f"leave {group.id} {member_id}")
            group.leave([(member_id, None)])
            self._go_on()

    def expire(self) -> None:
        """Let the sessions of all members end."""
        if self._is_served:
            self.steps.append("expire")
            self._pass(SESSION_MS)

    def _pass(self, wait_ms: int) -> None:
        """Let time pass, and what is due by then happen."""
        self.now_ms += wait_ms
        for timer in [each for each in self.timers if each.due_ms <= self.now_ms]:
            self.timers.remove(timer)
            if timer.callback is not None:
                timer.callback()
                self._go_on()

    def sync_groups(self) -> None:
        """Flush what groups have written, and answer whoever waits for that."""
        if not self._is_served:
            return
        self.steps.append("flush groups")
        commits, self.commits = self.commits, []
        before, log = self.state(OFFSETS_TOPIC, 0), self.log(OFFSETS_TOPIC, 0)
        failures: dict[Log, StorageError] = {}
        try:
            end = log.flush()
        except StorageError as error:
            self.failed("flush groups", error)
            failures = {log: error}
        else:
            self._flushed(OFFSETS_TOPIC, 0, before, end)
            self.mark()
        for commit in commits:
            commit.response = commit.failed(failures) if failures else commit.outcome
            if commit.ready is not None:
                commit.ready()
        self._go_on()
        if failures:
            self._judge_offsets(max(self.loaded, self.state(OFFSETS_TOPIC, 0).durable))

    def make_anew(self) -> None:
        """Delete the topic that groups read, and make it again: what was committed of it is forgotten."""
        if self._is_served and "t" in self.ledger and not self.ledger["t"].maybe:
            options = self.ledger["t"].options
            self.delete("t")
            self._go_on()
            if "t" not in self.ledger:
                self.create("t", 2, options)
                self._go_on()

    # What groups are is what the log says.

    def _says(self, count: int | None = None) -> dict[Any, Any]:
        """Return what so many batches of the log say, by key; None is all."""
        said: dict[Any, Any] = {}
        if OFFSETS_TOPIC not in self.ledger:
            return said
        for sent in self.state(OFFSETS_TOPIC, 0).sent[:count]:
            for record in read_records(memoryview(sent.data)):
                assert record.key is not None
                pair = records.read(record.key, record.value)
                assert pair is not None
                key, value = pair
                said.pop(key.__class__.__name__ + repr(key), None)
                if value is not None:
                    said[key.__class__.__name__ + repr(key)] = key, value
        return said

    def _judge_offsets(self, count: int | None = None) -> None:
        """Compare what was committed; of so many batches, as after a failed flush, only what no later one deletes."""
        said = {
            (key.group, key.topic, key.partition): value.offset
            for key, value in self._says(count).values()
            if isinstance(key, OffsetCommitKey)
        }
        told = {
            (group_id, topic, partition): committed.offset
            for group_id, offsets in self.groups.offsets.items()
            for topic, partition, committed in offsets
        }
        if count is not None:
            said = {place: offset for place, offset in said.items() if place in told}
        if told != said:
            raise Violation("groups", f"committed is {said}, told is {told}")

    def _judge_groups(self) -> None:
        self._judge_offsets()
        said = list(self._says().values())
        classic = {key.group: value for key, value in said if isinstance(key, GroupMetadataKey)}
        consumer = {
            key.group_id: value.epoch for key, value in said if isinstance(key, ConsumerGroupMetadataKey)
        }
        for group_id, group in self.groups.groups.items():
            if isinstance(group, ConsumerGroup):
                self._judge_consumers(group, consumer.pop(group_id, None), said)
            elif group_id in classic:
                value = classic.pop(group_id)
                members = {each.member_id: each.assignment for each in value.members}
                found = {each.id: each.assignment for each in group}
                if (group.generation, found) != (value.generation, members):
                    raise Violation("groups", f"{group_id} is {group.generation} {found}, not {value}")
            elif group_id not in self.groups.offsets or group.members:
                raise Violation("groups", f"{group_id} came back")
        left = set(classic) | set(consumer)
        if not left <= set(self.groups.groups):
            raise Violation("groups", f"{left} are gone")

    def _judge_consumers(self, group: ConsumerGroup, epoch: int | None, said: list[Any]) -> None:
        members = {
            key.member_id
            for key, _ in said
            if isinstance(key, ConsumerGroupMemberMetadataKey) and key.group_id == group.id
        }
        epochs = {
            key.member_id: value.member_epoch
            for key, value in said
            if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey) and key.group_id == group.id
        }
        found = {each.id: each.current.epoch for each in group}
        expected = {member_id: epochs.get(member_id, 0) for member_id in members}
        if found != expected or group.epoch != (epoch or 0):
            raise Violation("groups", f"{group.id} is {group.epoch} {found}, not {epoch} {expected}")


def _code_of(outcome: object) -> ErrorCode:
    return outcome.code if isinstance(outcome, GroupError) else ErrorCode.NONE
