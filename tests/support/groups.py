"""Groups in a test without a broker: topics and log are dicts, time stands still, and members behave as clients do."""

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from tidelog.broker.answers import Later
from tidelog.broker.groups.assignors import ASSIGNORS, Assignment, Counts, Members
from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.classic_member import Joining
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.consumer_member import Heartbeat, Subscription
from tidelog.broker.groups.log import Changes
from tidelog.broker.groups.memory import group_bytes
from tidelog.broker.groups.services import Assigned, GroupError, Matched, Replies, Services
from tidelog.config.options import BrokerConfig
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.consumer_protocol import (
    ConsumerProtocolSubscription,
    ProtocolTopicPartitions,
    assignment_of,
)
from tidelog.protocol.coordinator.form import Form
from tidelog.protocol.coordinator.messages import GroupMetadataValue
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse

SESSION_MS = 45_000
CLASSIC_SESSION_MS, REBALANCE_MS = 10_000, 60_000
SUBSCRIPTIONS = Form(ConsumerProtocolSubscription, "0-3", flexible="")
CONFIG = BrokerConfig(log_dir=Path("unused"))


class Answer(NamedTuple):
    """What a member is told; `assignment` is None where it knows that."""

    code: ErrorCode
    why: str | None = None
    member_id: str | None = None
    epoch: int = 0
    assignment: Assignment | None = None


def drive(request: Coroutine[Any, Any, Any], answer: Callable[[Any], None]) -> None:
    """Serve a request of a group as the broker does; hand over what it comes to, be it later: a GroupError, too."""

    def go_on() -> None:
        try:
            later = request.send(None)
        except StopIteration as end:
            answer(end.value)
        except GroupError as error:
            answer(error)
        else:
            assert isinstance(later, Later)
            later.ready = go_on

    go_on()


class FakeLoop:
    """An event loop that does at once what it is to do soon."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()
        self._is_busy = False

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._due.append(callback)
        if self._is_busy:
            return
        self._is_busy = True
        while self._due:
            self._due.popleft()()
        self._is_busy = False


class FakeTimer:
    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeServices(Services):
    """What takes long is done at once, or by `World.work`."""

    world: "World"

    def new_id(self) -> str:
        return self.world.new_id()

    def topic(self, name: str) -> tuple[bytes, int] | None:
        return self.world.topic(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, found in self.world.topics.items() if found[0] == topic_id), None)

    def assign(
        self, group_id: str, assignor: str, members: Members, counts: Counts, done: Assigned
    ) -> Mapping[str, Assignment] | None:
        return self.world.assign(assignor, members, counts, done)

    def match(
        self, group_id: str, regexes: Sequence[str], names: Sequence[str] | None, most: int, done: Matched
    ) -> None:
        self.world.match(regexes, names, most, done)


class World:
    """All that a group knows of the world."""

    def __init__(self, **options: int) -> None:
        self.now_ms = 1_000_000
        self.timers: list[FakeTimer] = []
        self.topics: dict[str, tuple[bytes, int]] = {}
        self.log: Changes = {}
        self.held_bytes = 0
        self.room_bytes = 1 << 30
        self.fails = False
        self.is_lazy = False  # what takes long is done by `work`
        self.undone: list[Callable[[], None]] = []
        self.assigned: list[int] = []  # the members of each assignment
        self.matched: list[
            tuple[list[str], list[str] | None]
        ] = []  # expressions, and the names, None for all
        self.downgraded: list[frozenset[str]] = []
        self.may_downgrade = False
        self._ids = 0
        now_ms = lambda: self.now_ms  # noqa: E731 - twice
        clock: Any = SimpleNamespace(now_ms=now_ms, monotonic_ms=now_ms)
        memory: Any = SimpleNamespace(
            hold=self.hold, hold_group=self.hold_group, room_bytes=lambda _host: self.room_bytes
        )
        log: Any = SimpleNamespace(store=self.store)
        topics: Any = None
        timers: Any = self
        loop: Any = FakeLoop()
        self.services = FakeServices(
            CONFIG, clock, timers, topics, memory, log, Replies(loop), self.downgrade
        )
        self.services.world = self
        self.configure(group_consumer_session_timeout_ms=SESSION_MS, group_consumer_max_size=1000, **options)

    def configure(self, **options: int) -> None:
        self.services.config = replace(self.services.config, **options)  # type: ignore[arg-type]

    def topic(self, name: str) -> tuple[bytes, int] | None:
        return self.topics.get(name)

    def group(self) -> ConsumerGroup:
        return ConsumerGroup("g", self.services)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now_ms + delay_ms, callback)
        self.timers.append(timer)
        return timer

    def new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def hold(self, _host: str, size_bytes: int) -> None:
        self.held_bytes += size_bytes

    def hold_group(self, memory: Any) -> None:
        self.held_bytes += memory.size_bytes

    def store(self, group_id: str, changes: Changes, done: Callable[[ErrorCode], None]) -> None:
        assert group_id == "g"
        if self.fails:
            done(ErrorCode.NOT_COORDINATOR)
            return
        for key, value in changes.items():
            self.log.pop(key, None)
            if value is not None:
                self.log[key] = value
        done(ErrorCode.NONE)

    def assign(
        self, name: str, members: Members, counts: Counts, done: Assigned
    ) -> Mapping[str, Assignment] | None:
        self.assigned.append(len(members))
        if not self.is_lazy:
            return ASSIGNORS[name](members, counts)
        self.undone.append(lambda: done(ASSIGNORS[name](members, counts)))
        return None

    def match(self, regexes: Sequence[str], names: Sequence[str] | None, most: int, done: Matched) -> None:
        """Match: here a regular expression is the beginning of a name."""
        self.matched.append((list(regexes), None if names is None else list(names)))
        found: dict[str, frozenset[str] | None] = {}
        for regex in regexes:
            matching = frozenset(
                name for name in (self.topics if names is None else names) if name.startswith(regex)
            )
            found[regex] = matching if len(matching) <= most else None
            most -= len(found[regex] or ())
        self._do(lambda: done(found))

    def downgrade(
        self, group: ConsumerGroup, leaving: frozenset[str], _coming_back: Subscription | None
    ) -> "World | None":
        if not self.may_downgrade:
            return None
        self.downgraded.append(leaving)
        return self

    def _do(self, work: Callable[[], None]) -> None:
        if self.is_lazy:
            self.undone.append(work)
        else:
            work()

    def work(self) -> None:
        while self.undone:
            self.undone.pop(0)()
        self.pass_(0)

    def pass_(self, wait_ms: int) -> None:
        """Let time pass, and what is due happen."""
        until_ms = self.now_ms + wait_ms
        while due := [each for each in self.timers if each.callback is not None and each.due_ms <= until_ms]:
            first = min(due, key=lambda each: each.due_ms)
            self.now_ms = max(self.now_ms, first.due_ms)
            callback, first.callback = first.callback, None
            assert callback is not None
            callback()
        self.timers = [each for each in self.timers if each.callback is not None]
        self.now_ms = until_ms

    def restarted(self) -> ConsumerGroup:
        """Return the group as its log says, with the timers of the former one gone."""
        self.timers.clear()
        self.held_bytes = 0
        group = self.group()
        for key, value in self.log.items():
            restore(group, key, value)
        group.begin()
        return group


class SlowWorld(World):
    """A world with a disk that answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.held_bytes = group_bytes("g")
        self.stored: list[GroupMetadataValue] = []
        self.waiting: list[Callable[[ErrorCode], None]] = []

    def store(self, group_id: str, changes: Changes, done: Callable[[ErrorCode], None]) -> None:
        (written,) = changes.items()
        pair = records.read(*written)
        assert pair is not None
        assert pair[0].group == group_id
        self.stored.append(pair[1])
        self.waiting.append(done)

    def write(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Have the disk answer all writes."""
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(code)


def restore(group: ConsumerGroup, key: bytes, value: bytes | None) -> None:
    """Have a group be as a record says."""
    pair = records.read(key, value)
    assert pair is not None
    group.restore(*pair)


def answer_of(outcome: Any) -> Answer:
    """Return what a request of a member has come to."""
    if isinstance(outcome, GroupError):
        return Answer(outcome.code, str(outcome) or None)
    return Answer(ErrorCode.NONE, None, *outcome)


class Client:
    """A member as Kafka's clients are: it gives up what it is told to, and says so with its next heartbeat."""

    def __init__(self, member_id: str, topics: frozenset[str] = frozenset(), **said: str | None) -> None:
        self.member_id = member_id
        self.topics = topics
        self.said = said
        self.epoch = 0
        self.owns: dict[bytes, frozenset[int]] = {}
        self.answers: list[Answer] = []

    def beat(self, *, is_full: bool = True) -> Heartbeat:
        says = self.epoch == 0 or is_full
        return Heartbeat(
            member_id=self.member_id,
            epoch=self.epoch,
            instance_id=self.said.get("instance_id"),
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000 if says else -1,
            topics=self.topics if says else None,
            regex=self.said.get("regex") if says else None,
            assignor=self.said.get("assignor"),
            owned=dict(self.owns),
        )

    def heartbeat(self, group: ConsumerGroup, *, is_full: bool = True) -> Any:
        """Send one; return the Answer, None if it waits."""
        count = len(self.answers)
        self.send(group, self.beat(is_full=is_full))
        return self.answers[-1] if len(self.answers) > count else None

    def send(self, group: ConsumerGroup, heartbeat: Heartbeat) -> None:
        drive(group.consumer_heartbeat(heartbeat), self.take)

    def take(self, outcome: Any) -> None:
        answer = answer_of(outcome)
        self.answers.append(answer)
        if answer.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owns = 0, {}
        elif answer.code is ErrorCode.NONE:
            self.epoch = answer.epoch
            if answer.assignment is not None:
                self.owns = dict(answer.assignment)

    def leave(self, group: ConsumerGroup, epoch: int = -1) -> Answer:
        left: list[Any] = []
        heartbeat = Heartbeat(self.member_id, epoch, instance_id=self.said.get("instance_id"))
        drive(group.consumer_leave(heartbeat), left.append)
        self.epoch, self.owns = 0, {}
        return answer_of(left[0])


@dataclass
class ClassicClient:
    """A member of the classic protocol, and the answers it got."""

    group: ClassicGroup | ConsumerGroup
    name: str
    instance: str | None = None
    protocols: list[tuple[str, bytes]] = field(default_factory=lambda: [("range", b"r"), ("sticky", b"s")])
    id: str = ""
    generation: int = -1
    joined: Any = None  # the last answer; None while it waits for one
    synced: Any = None

    def join(self, **asked: Any) -> Any:
        self.joined = None
        joining = Joining(
            self.id,
            self.instance,
            self.name,
            "/host",
            REBALANCE_MS,
            CLASSIC_SESSION_MS,
            "consumer",
            self.protocols,
        )
        drive(self.group.join(joining._replace(**asked)), self.has_joined)
        return self.joined

    def has_joined(self, response: JoinGroupResponse) -> None:
        self.joined = response
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id, self.generation = response.member_id, response.generation_id

    def sync(self, **assignments: bytes) -> Any:
        self.synced = None
        drive(self.group.sync(self.id, self.instance, self.generation, assignments), self.has_synced)
        return self.synced

    def has_synced(self, response: SyncGroupResponse) -> None:
        self.synced = response

    def heartbeat(self) -> ErrorCode:
        return self.group.heartbeat(self.id, self.instance, self.generation)


class CooperativeClient(ClassicClient):
    """A member of the classic protocol in a consumer group, whose assignor is cooperative."""

    def __init__(
        self, group: ClassicGroup | ConsumerGroup, *topics: str, instance_id: str | None = None
    ) -> None:
        super().__init__(group, "client", instance_id)
        self.topics = topics
        self.owns: dict[str, list[int]] = {}

    def join(self, **asked: Any) -> Any:
        owned = [ProtocolTopicPartitions(topic=topic, partitions=each) for topic, each in self.owns.items()]
        subscription = ConsumerProtocolSubscription(topics=list(self.topics), owned_partitions=owned)
        self.protocols = [("cooperative-sticky", SUBSCRIPTIONS.write(subscription, 1))]
        return super().join(**asked)

    def sync(self, **asked: Any) -> Any:
        self.synced = None
        asked = {"protocol_type": "consumer", "protocol": "cooperative-sticky", **asked}
        drive(self.group.sync(self.id, self.instance, self.generation, {}, **asked), self.has_synced)
        if not self.synced.error_code:
            assigned = assignment_of(self.synced.assignment).assigned_partitions
            self.owns = {each.topic: each.partitions for each in assigned}
        return self.synced


def classic_group(world: World, delay_ms: int = 0, max_size: int = 100) -> ClassicGroup:
    """Return an empty group; the first members do not wait, unless a delay is given."""
    world.configure(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size)
    return ClassicGroup("g", world.services)
