"""A consumer group in a test: topics in a dict, time that stands still, a log that is a dict, members as clients are.

Owns what a group is handed and what a client of it does; judges nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from tidelog.broker.groups.assignors import ASSIGNORS, Assignment, Counts, Members
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.consumer_member import Subscription
from tidelog.broker.groups.consumer_parts import Answer, Beat, Changes, ConsumerSurroundings
from tidelog.broker.groups.mixed import MixedGroup
from tidelog.protocol.coordinator import consumer_forms
from tidelog.protocol.error_codes import ErrorCode

SESSION_MS = 45_000


class FakeTimer:
    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class World:
    """All that a group knows of the world."""

    def __init__(self, max_size: int = 1000) -> None:
        self.now_ms = 1_000_000
        self.timers: list[FakeTimer] = []
        self.topics: dict[str, tuple[bytes, int]] = {}
        self.log: Changes = {}
        self.held_bytes = 0
        self.room_bytes = 1 << 30
        self.fails = False
        self.is_lazy = False  # what takes long is done by `work`
        self.undone: list[Callable[[], None]] = []
        self.downgraded: list[frozenset[str]] = []
        self.may_downgrade = False
        self._ids = 0
        self.around = ConsumerSurroundings(
            now_ms=lambda: self.now_ms,
            monotonic_ms=lambda: self.now_ms,
            call_later=self.call_later,
            new_id=self.new_id,
            store=self.store,
            hold=self.hold,
            room=lambda _host: self.room_bytes,
            topic=lambda name: self.topics.get(name),
            assign=self.assign,
            resolve=self.resolve,
            topic_name=self.topic_name,
            regex_problem=lambda regex: "no such thing" if "(" in regex else None,
            downgrade=self.downgrade,
            session_timeout_ms=SESSION_MS,
            max_size=max_size,
            default_assignor="uniform",
        )

    def group(self) -> MixedGroup:
        return self.group_of("g")

    def group_of(self, group_id: str) -> MixedGroup:
        return MixedGroup(group_id, self.around)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now_ms + delay_ms, callback)
        self.timers.append(timer)
        return timer

    def new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def hold(self, _host: str, size_bytes: int) -> None:
        self.held_bytes += size_bytes

    def store(self, group_id: str, changes: Changes, then: Callable[[ErrorCode], None]) -> None:
        assert group_id == "g"
        if self.fails:
            then(ErrorCode.NOT_COORDINATOR)
            return
        for key, value in changes.items():
            self.log.pop(key, None)
            if value is not None:
                self.log[key] = value
        then(ErrorCode.NONE)

    def assign(
        self,
        _group_id: str,
        name: str,
        members: Members,
        counts: Counts,
        then: Callable[[Mapping[str, Assignment]], None],
    ) -> None:
        self._do(lambda: then(ASSIGNORS[name](members, counts)))

    def resolve(
        self,
        _group_id: str,
        regexes: Sequence[str],
        names: Sequence[str] | None,
        most: int,
        then: Callable[[Mapping[str, frozenset[str] | None]], None],
    ) -> None:
        """Match: here a regular expression is the beginning of a name."""
        found: dict[str, frozenset[str] | None] = {}
        for regex in regexes:
            matching = frozenset(
                name for name in (self.topics if names is None else names) if name.startswith(regex)
            )
            found[regex] = matching if len(matching) <= most else None
            most -= len(found[regex] or ())
        self._do(lambda: then(found))

    def downgrade(
        self, group: ConsumerGroup, leaving: frozenset[str], _coming_back: Subscription | None
    ) -> "World | None":
        if not self.may_downgrade:
            return None
        self.downgraded.append(leaving)
        return self

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, found in self.topics.items() if found[0] == topic_id), None)

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

    def restarted(self) -> MixedGroup:
        """Return the group as its log says, with the timers of the former one gone."""
        self.timers.clear()
        self.held_bytes = 0
        group = self.group()
        for key, value in self.log.items():
            group.restore(*consumer_forms.read(key, value))
        group.begin()
        return group


class Client:
    """A member as Kafka's clients are: it gives up what it is told to, and says so with its next heartbeat."""

    def __init__(self, member_id: str, topics: frozenset[str] = frozenset(), **said: str | None) -> None:
        self.member_id = member_id
        self.topics = topics
        self.said = said
        self.epoch = 0
        self.owns: dict[bytes, frozenset[int]] = {}
        self.answers: list[Answer] = []

    def beat(self, group: ConsumerGroup, *, is_full: bool = True) -> Beat:
        says = self.epoch == 0 or is_full
        return Beat(
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

    def heartbeat(self, group: ConsumerGroup, *, is_full: bool = True) -> Answer | None:
        """Send one; take what is answered, if it is by now."""
        count = len(self.answers)
        group.heartbeat_of(self.beat(group, is_full=is_full), self.take)
        return self.answers[-1] if len(self.answers) > count else None

    def take(self, answer: Answer) -> None:
        self.answers.append(answer)
        if answer.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owns = 0, {}
        elif answer.code is ErrorCode.NONE:
            self.epoch = answer.epoch
            if answer.assignment is not None:
                self.owns = dict(answer.assignment)

    def leave(self, group: ConsumerGroup, epoch: int = -1) -> Answer:
        left: list[Answer] = []
        beat = Beat(member_id=self.member_id, epoch=epoch, instance_id=self.said.get("instance_id"))
        group.leave_of(beat, left.append)
        self.epoch, self.owns = 0, {}
        return left[0]
