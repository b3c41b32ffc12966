"""Faults on demand: what a test asks to go wrong with the requests that come, and what has.

Owns the rules and what becomes of a request that one of them is for. `dispatch` has each request handled by what
`handle_of` returns, which is the handler itself where no rule is for its API: a broker without faults pays nothing for
them. Event loop only. A delay goes by the broker's clock.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from tidelog.broker.answers import ClosesConnection, CutShort, Later
from tidelog.broker.clock import Clock
from tidelog.broker.routes import SERVED, Handle
from tidelog.broker.session import Session
from tidelog.broker.timers import Timers
from tidelog.broker.work import come
from tidelog.config.nearest import guess
from tidelog.protocol import frame
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.refusal import refusal, refuses_as_a_whole
from tidelog.protocol.wire.schema import fields_of
from tidelog.protocol.wire.types import Array
from tidelog.storage import files
from tidelog.storage.files import FileSlice

FETCH, METADATA = 1, 3
# What a coordinator does.
COORDINATED = ("OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
               "ConsumerGroupHeartbeat", "DescribeGroups", "ConsumerGroupDescribe", "OffsetDelete",
               "DeleteGroups")  # fmt: skip
# Whose requests name topics.
_BY_TOPIC = frozenset(
    {"Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "CreateTopics", "DeleteTopics", "DeleteRecords",
     "OffsetForLeaderEpoch", "CreatePartitions", "DescribeProducers", "OffsetDelete", "DescribeTopicPartitions"}
)  # fmt: skip
_OF_SESSIONS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# Of which none is asked about its partitions.
_WHOLE_TOPICS = frozenset({"CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeTopicPartitions"})
# What an answer can say of a throttle time: some 24 days.
MS_MAX = 2**31 - 1
# Of what was applied the last are remembered.
SEEN_MAX = 10_000

NO_ANSWER = "a fault that was asked for: there is no answer"


class BadFault(ValueError):
    """A fault that cannot be set: what is wrong with it, and what would do."""


@dataclass(slots=True, eq=False)
class Fault:
    """A rule: which requests it is for, and what becomes of them. What is None or empty does not matter."""

    number: int
    apis: frozenset[int]
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    group: str | None = None
    times: int | None = 1  # how often still; None without end
    probability: float = 1.0
    error: ErrorCode = ErrorCode.NONE
    delay_ms: int = 0
    drop: str = ""  # the connection: "before" or "after" what was asked for is done
    truncate: bool = False  # the answer, and drop the connection
    throttle_ms: int = 0
    unanswered: bool = False
    # The connections that it is for, each once; None is any.
    peers: set[str] | None = None
    random: Random = field(default_factory=lambda: Random(0))

    def told(self) -> dict[str, Any]:
        """Return what it does, in the words in which it was set."""
        told: dict[str, Any] = {"fault": self.number}
        for name in (
            "topic",
            "partition",
            "group",
            "delay_ms",
            "drop",
            "truncate",
            "throttle_ms",
            "unanswered",
        ):
            if (value := getattr(self, name)) not in (None, 0, ""):
                told[name] = value
        if self.error:
            told["error"] = self.error.name
        return told


class Faults:
    """The rules of one broker, those that were set first before the others, and what was applied."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, timers: Timers) -> None:
        """Begin with none; `changed` is called when requests are to be handled otherwise."""
        self._loop = loop
        self._clock = clock
        self._timers = timers
        self._rules: list[Fault] = []
        self._numbers = 0
        self._held = _Held(loop)
        self.seen: deque[dict[str, Any]] = deque(maxlen=SEEN_MAX)
        self.changed: Callable[[], None] = lambda: None

    # -- setting them --------------------------------------------------------------------------------------------

    def add(
        self,
        api: str | Collection[str],
        *,
        error: str | int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int = 0,
        drop: str = "",
        **what: Any,
    ) -> int:
        """Set a fault, and return its number; the other arguments are those of `Fault`. Raises BadFault."""
        apis = [_api(name) for name in ([api] if isinstance(api, str) else api)]
        if not apis:
            raise BadFault("name an API, or several")
        code = _error(error)
        if drop not in ("", "before", "after"):
            raise BadFault(f"drop is 'before' or 'after', not {drop!r}")
        if times is not None and times < 1:
            raise BadFault(f"times is 1 or more, or null for always, not {times}")
        if not 0 < probability <= 1:
            raise BadFault(f"probability lies between 0 and 1, not at {probability}")
        if partition is not None and (topic is None or partition < 0):
            raise BadFault("a partition needs its topic, and is 0 or more")
        for each in apis:
            if topic is not None and each.name not in _BY_TOPIC:
                raise BadFault(f"a {each.name} request names no topics: leave topic out")
            if partition is not None and each.name in _WHOLE_TOPICS:
                raise BadFault(f"a {each.name} request is for whole topics: leave partition out")
        fault = Fault(
            number=self._numbers + 1,
            apis=frozenset(each.key for each in apis),
            topic=topic,
            partition=partition,
            times=times,
            probability=probability,
            error=code,
            drop=drop,
            random=Random(seed),
            **what,
        )
        if not (code or drop or fault.delay_ms or fault.truncate or fault.throttle_ms or fault.unanswered):
            raise BadFault("say what goes wrong: error, delay_ms, drop, truncate, throttle_ms or unanswered")
        if not (0 <= fault.delay_ms <= MS_MAX and 0 <= fault.throttle_ms <= MS_MAX):
            raise BadFault(f"a time in milliseconds is 0 to {MS_MAX}")
        for each in apis:
            if fault.throttle_ms and not hasattr(each.response, "throttle_time_ms"):
                raise BadFault(f"a {each.name} response has no throttle time")
        self._numbers += 1
        self._rules.append(fault)
        self.changed()
        return fault.number

    def clear(self, number: int | None = None) -> None:
        """Take one fault back, or all of them, a full disk too; requests that are held up go on."""
        self._rules = [rule for rule in self._rules if number is not None and rule.number != number]
        self.changed()
        if number is None:
            files.refuse_writes(False)
            self.release()

    def release(self) -> None:
        """Hold up nothing any more: the faults are over, or the broker stops."""
        self._held.releases += 1
        for answer in list(self._held.answers):
            answer.hurry()

    # -- applying them -------------------------------------------------------------------------------------------

    def handle_of(self, api: Api, handle: Handle) -> Handle:
        """Return what handles the requests for an API: a rule may be for them."""
        return partial(self._gate, api, handle) if self._of(api) else handle

    def encoder_of(self, api: Api, encode: frame.ResponseEncoder) -> frame.ResponseEncoder:
        """Return what encodes the responses of an API, some of which are cut short."""
        return partial(_encode, encode) if any(rule.truncate for rule in self._of(api)) else encode

    def _of(self, api: Api) -> list[Fault]:
        return [rule for rule in self._rules if api.key in rule.apis]

    def _gate(self, api: Api, handle: Handle, session: Session, request: Any, version: int) -> Any:
        """Handle a request, or have the first fault that is for it happen to it."""
        for rule in self._of(api):
            if not _is_for(rule, session, request):
                continue
            if api.key == FETCH and request.session_epoch > 0 and (rule.topic is not None or rule.error):
                # It does not name all that it asks for. Without its session the client asks anew, for everything.
                return refusal(api, version, request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            named = _Named(session, api, version, rule, self._held.releases)
            if rule.topic is not None and not named.any_of(request):
                continue
            if rule.probability < 1 and rule.random.random() >= rule.probability:
                continue
            self._apply(rule, api, session, version)
            if rule.delay_ms:
                return self._delayed(rule, named, handle, session, request)
            return self._happen(rule, named, handle, session, request)
        return handle(session, request, version)

    def _apply(self, rule: Fault, api: Api, session: Session, version: int) -> None:
        """Take note that a fault happens."""
        about = {"api": api.name, "version": version, "client_id": session.client_id}
        self.seen.append({**rule.told(), **about, "at_ms": self._clock.now_ms()})
        if rule.peers is not None:
            rule.peers.discard(session.peer)
        if rule.times is not None:
            rule.times -= 1
        if rule.times == 0 or rule.peers == set():
            self._rules.remove(rule)
            self.changed()

    async def _delayed(
        self, rule: Fault, named: "_Named", handle: Handle, session: Session, request: Any
    ) -> Any:
        await _Delay(self._held, self._timers, rule.delay_ms)
        return await come(self._happen(rule, named, handle, session, request))

    def _happen(self, rule: Fault, named: "_Named", handle: Handle, session: Session, request: Any) -> Any:
        if rule.drop == "before":
            raise ClosesConnection(
                "a fault that was asked for: the connection is dropped before anything is done"
            )
        if rule.error:
            form = self._refused(rule, named, handle, session, request)
        else:
            form = handle(session, request, named.version)
        if rule.drop or rule.truncate or rule.throttle_ms or rule.unanswered:
            return _after(form, partial(self._after, rule, named))
        return form

    def _after(self, rule: Fault, named: "_Named", response: Any) -> Any:
        """Return what becomes of a response, None of one that nobody waits for."""
        if rule.drop:
            raise ClosesConnection("a fault that was asked for: the connection is dropped after all is done")
        if response is None:
            return None
        if rule.unanswered:
            if named.since < self._held.releases:
                raise ClosesConnection(NO_ANSWER)  # It was carried out when the faults were over.
            return _Unanswered(self._held)
        if rule.throttle_ms:
            response.throttle_time_ms = rule.throttle_ms
        return _Soon(self._loop, _Cut(response)) if rule.truncate else response

    def _refused(self, rule: Fault, named: "_Named", handle: Handle, session: Session, request: Any) -> Any:
        """Return an answer that says the error; where it is for some of the topics, the others are served."""
        api, version, code = named.api, named.version, int(rule.error)
        if getattr(request, "acks", None) == 0:
            raise ClosesConnection(
                f"a fault that was asked for: {rule.error.name}, and no answer to say it in"
            )
        if api.key in (FETCH, METADATA) and rule.error not in _OF_SESSIONS:
            if api.key == FETCH:
                request.max_wait_ms = 0
            return _after(handle(session, request, version), partial(named.spoil, code))
        if rule.topic is None or refuses_as_a_whole(api, version):
            return refusal(api, version, request, code)
        refused, served = named.split(request)
        answer = refusal(api, version, refused, code)
        if not _listed(served):
            return answer
        return _after(handle(session, served, version), partial(_merged, answer))


class _Named:
    """Which of the topics and partitions in a request of one version, and in its response, a fault is for."""

    def __init__(self, session: Session, api: Api, version: int, rule: Fault, since: int) -> None:
        self.api, self.version = api, version
        self.since = since  # so many times the faults were over when the request came
        self._topics = session.broker.topics
        self._topic, self._partition = rule.topic, rule.partition

    def _is_topic(self, element: Any) -> bool:
        if self._topic is None:
            return True
        if isinstance(element, str):
            return element == self._topic
        name = getattr(element, "name", None) or getattr(element, "topic", None)
        if not name:
            topic = self._topics.by_id.get(getattr(element, "topic_id", b""))
            name = topic.name if topic else None
        return bool(name == self._topic)

    def _is_partition(self, element: Any) -> bool:
        return self._partition is None or _index(element) == self._partition

    def any_of(self, request: Any) -> bool:
        """Tell whether a request names any of them; one that names no topic at all asks for all."""
        topics = _listed(request)
        if not topics:
            return bool(self.api.key == METADATA and request.topics is None)
        return any(
            self._is_topic(topic) and (not _listed(topic) or any(map(self._is_partition, _listed(topic))))
            for topic in topics
        )

    def split(self, request: Any) -> tuple[Any, Any]:
        """Return the part of a request that is for them, and the rest."""
        hit: list[Any] = []
        rest: list[Any] = []
        for topic in _listed(request):
            partitions = _listed(topic)
            if not self._is_topic(topic):
                rest.append(topic)
            elif self._partition is None or not partitions:
                hit.append(topic)
            else:
                for part, into in ((True, hit), (False, rest)):
                    if some := [each for each in partitions if self._is_partition(each) is part]:
                        into.append(_with_list(topic, some))
        return _with_list(request, hit), _with_list(request, rest)

    def spoil(self, code: int, response: Any) -> Any:
        """Say the error in a response, of Fetch or Metadata, that was made without it."""
        for topic in _listed(response, "responses", "topics"):
            if not self._is_topic(topic):
                continue
            if self._partition is None and hasattr(topic, "error_code"):
                topic.error_code = code
                continue
            for each in topic.partitions:
                if self._is_partition(each):
                    each.error_code = code
                    if self.api.key == FETCH:
                        each.records = b""
                        each.high_watermark = each.last_stable_offset = each.log_start_offset = -1
        return response


def _api(name: Any) -> Api:
    """Return the API of a name, as in `produce`, `list_offsets` or `ListOffsets`."""
    if not isinstance(name, str):
        raise BadFault(f"the name of an API cannot be {name!r}")
    names = {APIS[key].name.lower(): APIS[key] for key in SERVED}
    api = names.get(name.replace("_", "").lower())
    if api is None:
        near = guess(name.replace("_", "").lower(), names)
        hint = f"did you mean {names[near].name}?" if near else "docs/compatibility.md lists them"
        raise BadFault(f"no API {name!r} is served; {hint}")
    return api


def _error(error: str | int | None) -> ErrorCode:
    if error is None:
        return ErrorCode.NONE
    try:
        return ErrorCode(error) if isinstance(error, int) else ErrorCode[error.upper()]
    except (KeyError, ValueError):
        near = guess(str(error).upper(), ErrorCode.__members__)
        hint = f"; did you mean {near}?" if near else ""
        raise BadFault(f"Kafka has no error {error!r}{hint}") from None


def _is_for(rule: Fault, session: Session, request: Any) -> bool:
    """Tell whether a fault is for a request, as far as its topics do not matter."""
    if rule.client_id is not None and rule.client_id != session.client_id:
        return False
    if rule.peers is not None and session.peer not in rule.peers:
        return False
    return rule.group is None or rule.group in _groups(request)


def _groups(request: Any) -> Iterable[str]:
    """Yield the groups that a request names."""
    yield getattr(request, "group_id", "")
    for name in ("groups", "group_ids", "groups_names"):
        for each in getattr(request, name, ()):
            yield each if isinstance(each, str) else each.group_id


def _index(element: Any) -> int:
    """Return the number of a partition, however it is listed."""
    if isinstance(element, int):
        return element
    names = ("index", "partition_index", "partition")
    return int(next(getattr(element, name) for name in names if hasattr(element, name)))


def _list_name(message: Any, *names: str) -> str | None:
    """Return the name of what a message lists: of those, or first."""
    if not hasattr(type(message), "__wire_fields__"):
        return None
    lists = [each.name for each in fields_of(type(message)) if isinstance(each.type, Array)]
    filled = [name for name in lists if (not names or name in names) and getattr(message, name)]
    return filled[0] if filled else None


def _listed(message: Any, *names: str) -> Sequence[Any]:
    name = _list_name(message, *names)
    return () if name is None else getattr(message, name)


def _with_list(message: Any, listed: list[Any]) -> Any:
    """Return a copy of a message that lists no more than this."""
    values = {each.name: getattr(message, each.name) for each in fields_of(type(message))}
    name = _list_name(message)
    return type(message)(**(values if name is None else {**values, name: listed}))


def _merged(refused: Any, response: Any) -> Any:
    """Return a response with what was refused in it, each partition under its topic."""
    if response is None:
        return None
    name = _list_name(refused)
    if name is None:
        return response
    topics = getattr(response, name)
    for topic in getattr(refused, name):
        parts = _list_name(topic)
        there = next((each for each in topics if _same_topic(each, topic)), None)
        if parts is None or there is None:
            topics.append(topic)
        else:
            getattr(there, parts).extend(getattr(topic, parts))
    return response


def _same_topic(one: Any, other: Any) -> bool:
    return all(
        getattr(one, name, None) == getattr(other, name, None) for name in ("name", "topic", "topic_id")
    )


# -- answers to come ---------------------------------------------------------------------------------------------


class _Cut:
    """A response of which only the beginning is sent."""

    def __init__(self, response: Any) -> None:
        self.response = response


def _encode(encode: frame.ResponseEncoder, correlation_id: int, response: Any) -> tuple[list[Any], int]:
    if type(response) is not _Cut:
        return encode(correlation_id, response)
    parts, _ = encode(correlation_id, response.response)
    whole = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
    raise CutShort(whole[: (len(whole) + 1) // 2])


class _Soon(Later):
    """A response that comes in the next turn of the loop."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, response: Any) -> None:
        super().__init__()
        loop.call_soon(self.resolve, response)


class _Held:
    """The answers that faults hold back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.answers: set[_HeldBack] = set()
        self.releases = 0  # how often all were let go


class _HeldBack(Later):
    """An answer that a fault holds back."""

    __slots__ = ("_held",)

    def __init__(self, held: _Held) -> None:
        super().__init__()
        self._held = held
        held.answers.add(self)

    def end(self, response: Any) -> None:
        """Let go, once."""
        if self in self._held.answers:
            self.cancel()
            self._held.loop.call_soon(self.resolve, response)

    def cancel(self) -> None:
        """Hold back nothing: nobody waits for it."""
        self._held.answers.discard(self)


class _Delay(_HeldBack):
    """The time before which a request is not begun."""

    __slots__ = ("_timer",)

    def __init__(self, held: _Held, timers: Timers, delay_ms: int) -> None:
        super().__init__(held)
        self._timer = timers.call_later(delay_ms, lambda: self.end(True))

    def hurry(self) -> bool:
        """Begin it."""
        self.end(True)
        return True

    def cancel(self) -> None:
        """Do not begin it: its connection is gone."""
        super().cancel()
        self._timer.cancel()


class _Unanswered(_HeldBack):
    """An answer that never comes."""

    __slots__ = ()

    def hurry(self) -> bool:
        """Close the connection instead."""
        self.end(ClosesConnection(NO_ANSWER))
        return True


def _after(form: Any, then: Callable[[Any], Any]) -> Any:
    """Return what `then` makes of a response, whenever it comes."""
    return _then(form, then) if isinstance(form, Later | Coroutine) else then(form)


async def _then(form: Later | Coroutine[Any, Any, Any], then: Callable[[Any], Any]) -> Any:
    return await come(then(await form))
