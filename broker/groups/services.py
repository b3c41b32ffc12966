"""What groups use of the broker, and how they answer members later.

The coordinator makes one `Services` for all groups. Tests make one with their own clock and timers.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.groups import topic_patterns
from tidelog.broker.groups.assignors import ASSIGNORS, Assignment, Counts, Members, effort, in_steps
from tidelog.broker.groups.log import GroupLog
from tidelog.broker.groups.memory import Memory
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.timers import Timer, Timers
from tidelog.broker.topics import Topics
from tidelog.broker.work import Coro, Stopping
from tidelog.config.options import BrokerConfig
from tidelog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)

# How long one turn of the event loop answers members, or begins to serve loaded groups.
TURN_S: Final = 0.002
# The weight of an answer that waits for other members (`Later.weight_bytes`).
WAITING_BYTES: Final = 1000
# An assignment of up to this effort is made at once, in some milliseconds; a larger one on the maintenance thread.
AT_ONCE: Final = 1000

Assigned = Callable[[Mapping[str, Assignment]], None]  # takes assignments by member id
Matched = Callable[[Mapping[str, frozenset[str] | None]], None]  # takes matching topics by regular expression


class GroupError(Exception):
    """The refusal of a member's request."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Reply(Later):
    """The answer that a member waits for, or a GroupError."""

    __slots__ = ("_replies",)

    # The request goes on if the client leaves: other members depend on what it has begun.
    ends_with_client = False

    def __init__(self, replies: "Replies") -> None:
        super().__init__(WAITING_BYTES)
        self._replies = replies

    def deliver(self, response: Any) -> None:
        """Set the response: at once if nobody awaits it yet, otherwise in one of the next turns."""
        if self.ready is None:
            self.response = response
        else:
            self._replies.put(self, response)


class Replies:
    """Delivers replies over several turns of the event loop, since a group may have thousands of members."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: deque[tuple[Reply, Any]] = deque()

    def new(self) -> Reply:
        """Return a reply for a member to await."""
        return Reply(self)

    def put(self, reply: Reply, response: Any) -> None:
        """Resolve a reply in one of the next turns."""
        self._due.append((reply, response))
        if len(self._due) == 1:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        ends_s = time.monotonic() + TURN_S
        while self._due:
            reply, response = self._due[0]
            try:
                reply.resolve(response)
            except Exception:
                _log.exception("a member of a group could not be answered")
            self._due.popleft()
            if self._due and time.monotonic() >= ends_s:
                self._loop.call_soon(self._turn)
                return


@dataclass
class Services:
    """What all groups of a broker use. Event loop only."""

    config: BrokerConfig
    clock: Clock
    timers: Timers
    topics: Topics
    memory: Memory
    log: GroupLog
    replies: Replies
    # Replaces a consumer group by a classic one, if that is allowed: takes the group, the ids of leaving members, and
    # the subscription of a static member that comes back by the classic protocol. Returns the classic group or None.
    downgrade: Callable[[Any, frozenset[str], Any], Any]
    maintenance: Maintenance | None = None  # set before any group is served

    def new_id(self) -> str:
        """Return a new member id."""
        return str(uuid.uuid4())

    def topic(self, name: str) -> tuple[bytes, int] | None:
        """Return the id and the number of partitions of a topic, if it exists."""
        found = self.topics.by_name.get(name)
        return None if found is None else (found.id, len(found.partitions))

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, if it exists."""
        found = self.topics.by_id.get(topic_id)
        return None if found is None else found.name

    def assign(
        self, group_id: str, assignor: str, members: Members, counts: Counts, done: Assigned
    ) -> Mapping[str, Assignment] | None:
        """Return the assignments of members. If that takes long, return None and call `done` with them later."""
        if effort(assignor, members, counts) <= AT_ONCE:
            return ASSIGNORS[assignor](members, counts)
        unchanged = {member_id: each.has for member_id, each in members.items()}
        self._run(group_id, in_steps(assignor, members, counts), unchanged, done)
        return None

    def match(
        self, group_id: str, regexes: Sequence[str], names: Sequence[str] | None, most: int, done: Matched
    ) -> None:
        """Match regular expressions with these topic names, or with all, on the maintenance thread.

        `most` bounds the number of matches of all expressions together. An expression that exceeds the rest gets None.
        """
        task = topic_patterns.matches(regexes, self.topics.names() if names is None else names, most)
        self._run(group_id, task, dict.fromkeys(regexes, frozenset[str]()), done)

    def _run(self, group_id: str, task: Coro[Any], otherwise: Any, done: Callable[[Any], None]) -> None:
        """Run a task on the maintenance thread and call `done` with its result, or with `otherwise` if it fails.

        Groups take turns there. If the broker stops, `done` is not called.
        """
        assert self.maintenance is not None
        later = self.maintenance.submit(task, owner=group_id, for_group=True)

        def take() -> None:
            outcome = later.response
            if isinstance(outcome, Stopping):
                return
            if isinstance(outcome, Exception):
                _log.error("groups: not done group=%r", group_id[:100], exc_info=outcome)
                outcome = otherwise
            done(outcome)

        later.ready = take


class SessionTimer:
    """The session of a member. A heartbeat only moves the deadline: the timer checks it, and is set again if needed."""

    __slots__ = ("_due_ms", "_expired", "_services", "_timer", "_until_ms")

    def __init__(self, services: Services, expired: Callable[[], None]) -> None:
        """Call `expired` when the session has expired."""
        self._services = services
        self._expired = expired
        self._until_ms = self._due_ms = 0
        self._timer: Timer | None = None

    def extend(self, for_ms: int) -> None:
        """Let the session expire this long from now."""
        self._until_ms = self._services.clock.monotonic_ms() + for_ms
        if self._timer is None or self._due_ms > self._until_ms:
            self._watch(for_ms)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, for_ms: int) -> None:
        self.cancel()
        self._due_ms = self._until_ms
        self._timer = self._services.timers.call_later(for_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        left_ms = self._until_ms - self._services.clock.monotonic_ms()
        if left_ms > 0:
            self._watch(left_ms)
        else:
            self._expired()
