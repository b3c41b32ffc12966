"""Fault injection: which requests go wrong and how, and a log of those that did.

`dispatch` handles each request by what `handle_of` returns: for an API without faults, the handler itself. So faults
cost nothing where none is set. Event loop only. Delays go by the broker's clock.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, Unpack

from tidelog.broker.answers import ClosesConnection, CutShort, Wait
from tidelog.broker.clock import Clock
from tidelog.broker.control_protocol import FAULT_OPTIONS, FaultOptions
from tidelog.broker.routes import SERVED, Handle
from tidelog.broker.session import Session
from tidelog.broker.timers import Timers
from tidelog.broker.work import maybe_await, turn
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
# The requests that a group coordinator answers.
COORDINATED: Final = ("OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
               "ConsumerGroupHeartbeat", "DescribeGroups", "ConsumerGroupDescribe", "OffsetDelete",
               "DeleteGroups")  # fmt: skip
# The APIs whose requests name topics, and those that name no partitions.
_BY_TOPIC: Final = frozenset(
    {"Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "CreateTopics", "DeleteTopics", "DeleteRecords",
     "OffsetForLeaderEpoch", "CreatePartitions", "DescribeProducers", "OffsetDelete", "DescribeTopicPartitions"}
)  # fmt: skip
_WHOLE_TOPICS: Final = frozenset(
    {"CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeTopicPartitions"}
)
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# The options with an effect, besides `error`.
_EFFECTS: Final = ("delay_ms", "drop", "truncate", "throttle_ms", "unanswered")
# The number of applied faults that are remembered.
SEEN_MAX: Final = 10_000
INJECTED: Final = "injected fault"


class BadFault(ValueError):
    """An invalid fault; the message says why, and what is valid."""


@dataclass(slots=True, eq=False)
class Fault:
    """One fault."""

    number: int
    apis: frozenset[int]
    topic: str | None
    options: FaultOptions
    error: ErrorCode
    times: int | None  # how often it is still applied; None for always
    probability: float
    random: Random
    peers: set[str] | None  # the connections that it affects, once each; None for any

    def is_for_client(self, session: Session, request: Any) -> bool:
        """Return whether a request has the fault's client id, connection and group."""
        client_id, group = self.options.get("client_id"), self.options.get("group")
        return (
            (client_id is None or client_id == session.client_id)
            and (self.peers is None or session.peer in self.peers)
            and (group is None or group in _groups(request))
        )

    def is_for_partition(self, element: Any) -> bool:
        """Return whether an entry of a request or response has the fault's partition."""
        partition = self.options.get("partition")
        return partition is None or _index(element) == partition

    def description(self) -> dict[str, Any]:
        """Return its number and its options, as they were set."""
        error = self.error.name if self.error else None
        options = {"fault": self.number, "topic": self.topic, **self.options, "error": error}
        return {name: value for name, value in options.items() if value not in (None, "", 0)}


class Faults:
    """The faults of one broker, in the order in which they were set, and a log of the applied ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, timers: Timers) -> None:
        """Begin without faults; `changed` is called when the results of `handle_of` or `encoder_of` change."""
        self._loop = loop
        self._clock = clock
        self._timers = timers
        self._faults: list[Fault] = []
        self._last_number = 0
        self._waits: set[Wait] = set()
        self._releases = 0  # how often all waiting requests were released
        self.seen: deque[dict[str, Any]] = deque(maxlen=SEEN_MAX)
        self.changed: Callable[[], None] = lambda: None

    # -- setting them --------------------------------------------------------------------------------------------

    def add(
        self,
        api: str | Collection[str],
        topic: str | None = None,
        *,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int = 0,
        peers: set[str] | None = None,
        **options: Unpack[FaultOptions],
    ) -> int:
        """Set a fault, and return its number. With `times` None it stays until it is cleared. Raises BadFault."""
        apis = [_api(name) for name in ([api] if isinstance(api, str) else api)]
        if not apis:
            raise BadFault("name an API, or several")
        error = _error(options.pop("error", None))
        _check(apis, topic, error, options)
        if times is not None and times < 1:
            raise BadFault(f"times is 1 or more, or null for always, not {times}")
        if not 0 < probability <= 1:
            raise BadFault(f"probability lies between 0 and 1, not at {probability}")
        self._last_number += 1
        keys = frozenset(each.key for each in apis)
        fault = Fault(self._last_number, keys, topic, options, error, times, probability, Random(seed), peers)
        self._faults.append(fault)
        self.changed()
        return fault.number

    def clear(self, number: int | None = None) -> None:
        """Remove one fault, or all of them. The latter also frees a full disk, and releases delayed requests."""
        self._faults = [fault for fault in self._faults if number is not None and fault.number != number]
        self.changed()
        if number is None:
            files.refuse_writes(False)
            self._releases += 1
            for wait in list(self._waits):
                wait.hurry()

    # -- applying them -------------------------------------------------------------------------------------------

    def handle_of(self, api: Api, handle: Handle) -> Handle:
        """Return the function that handles the requests of an API."""
        return partial(self._handle, api, handle) if self._faults_of(api) else handle

    def encoder_of(self, api: Api, encode: frame.ResponseEncoder) -> frame.ResponseEncoder:
        """Return the function that encodes the responses of an API."""
        truncates = any(fault.options.get("truncate") for fault in self._faults_of(api))
        return partial(_encode, encode) if truncates else encode

    def _faults_of(self, api: Api) -> list[Fault]:
        return [fault for fault in self._faults if api.key in fault.apis]

    def _handle(self, api: Api, handle: Handle, session: Session, request: Any, version: int) -> Any:
        """Handle a request, or apply the first fault that matches it."""
        for fault in self._faults_of(api):
            if not fault.is_for_client(session, request):
                continue
            if api.key == FETCH and request.session_epoch > 0 and (fault.topic is not None or fault.error):
                # An incremental request does not name all its partitions. Without its session the client sends a full
                # request.
                return refusal(api, version, request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            faulty = _Faulty(fault, api, handle, session, version)
            if not faulty.names_any(request):
                continue
            if fault.probability < 1 and fault.random.random() >= fault.probability:
                continue
            self._count(fault, api, session, version)
            return self._apply(fault, faulty, request)
        return handle(session, request, version)

    def _count(self, fault: Fault, api: Api, session: Session, version: int) -> None:
        """Log that a fault is applied, and remove it after the last time."""
        about = {"api": api.name, "version": version, "client_id": session.client_id}
        self.seen.append({**fault.description(), **about, "at_ms": self._clock.now_ms()})
        if fault.peers is not None:
            fault.peers.discard(session.peer)
        if fault.times is not None:
            fault.times -= 1
        if fault.times == 0 or fault.peers == set():
            self._faults.remove(fault)
            self.changed()

    async def _apply(self, fault: Fault, faulty: "_Faulty", request: Any) -> Any:
        options, releases = fault.options, self._releases
        if delay_ms := options.get("delay_ms"):
            await self._wait(delay_ms)
        drop = options.get("drop")
        if drop == "before":
            raise ClosesConnection(f"{INJECTED}: the connection is dropped before anything is done")
        response = await faulty.response(request)
        if drop:
            raise ClosesConnection(f"{INJECTED}: the connection is dropped after all is done")
        if response is None:
            return None
        if options.get("unanswered"):
            if releases == self._releases:
                await self._wait()
            raise ClosesConnection(f"{INJECTED}: there is no answer")
        if throttle_ms := options.get("throttle_ms"):
            response.throttle_time_ms = throttle_ms
        if options.get("truncate"):
            await turn()  # dispatch encodes an immediate response itself, and does not expect CutShort
            return _Cut(response)
        return response

    async def _wait(self, delay_ms: int | None = None) -> None:
        """Wait for a time, or until the client leaves or all faults are cleared."""
        wait = Wait(self._loop)
        self._waits.add(wait)
        timer = None if delay_ms is None else self._timers.call_later(delay_ms, wait.end)
        try:
            await wait
        finally:
            self._waits.remove(wait)
            if timer is not None:
                timer.cancel()


class _Faulty:
    """A request that a fault may affect: which of its topics and partitions match, and its response."""

    def __init__(self, fault: Fault, api: Api, handle: Handle, session: Session, version: int) -> None:
        self._fault = fault
        self._api = api
        self._handle = handle
        self._session = session
        self._version = version

    async def response(self, request: Any) -> Any:
        """Return the response, with the fault's error for what matches. The rest of the request is carried out."""
        error, api, version = self._fault.error, self._api, self._version
        if not error:
            return await self._carry_out(request)
        if getattr(request, "acks", None) == 0:
            raise ClosesConnection(f"{INJECTED}: {error.name}, and no answer to say it in")
        if api.key in (FETCH, METADATA) and error not in _SESSION_ERRORS:
            # These change nothing, so the error is put into their response.
            if api.key == FETCH:
                request.max_wait_ms = 0
            return self._with_error(await self._carry_out(request))
        if self._fault.topic is None or refuses_as_a_whole(api, version):
            return refusal(api, version, request, error)
        refused, served = self._split(request)
        answer = refusal(api, version, refused, error)
        return _merged(answer, await self._carry_out(served)) if _listed(served) else answer

    async def _carry_out(self, request: Any) -> Any:
        return await maybe_await(self._handle(self._session, request, self._version))

    def names_any(self, request: Any) -> bool:
        """Return whether a request names a matching topic or partition; one without topics asks for all."""
        if self._fault.topic is None:
            return True
        topics = _listed(request)
        if not topics:
            return bool(self._api.key == METADATA and request.topics is None)
        return any(
            self._is_topic(topic)
            and (not _listed(topic) or any(map(self._fault.is_for_partition, _listed(topic))))
            for topic in topics
        )

    def _is_topic(self, element: Any) -> bool:
        if self._fault.topic is None:
            return True
        if isinstance(element, str):
            return element == self._fault.topic
        name = getattr(element, "name", None) or getattr(element, "topic", None)
        if not name:
            topic = self._session.broker.topics.by_id.get(getattr(element, "topic_id", b""))
            name = topic.name if topic else None
        return bool(name == self._fault.topic)

    def _split(self, request: Any) -> tuple[Any, Any]:
        """Return the part of a request that matches, and the rest."""
        hit: list[Any] = []
        rest: list[Any] = []
        for topic in _listed(request):
            if not self._is_topic(topic):
                rest.append(topic)
                continue
            partitions = _listed(topic)
            hit_partitions = [each for each in partitions if self._fault.is_for_partition(each)]
            if len(hit_partitions) == len(partitions):
                hit.append(topic)
                continue
            if hit_partitions:
                hit.append(_with_list(topic, hit_partitions))
            rest.append(_with_list(topic, [each for each in partitions if each not in hit_partitions]))
        return _with_list(request, hit), _with_list(request, rest)

    def _with_error(self, response: Any) -> Any:
        """Return a response of Fetch or Metadata, with the error for what matches."""
        code = int(self._fault.error)
        for topic in response.responses if self._api.key == FETCH else response.topics:
            if not self._is_topic(topic):
                continue
            if self._fault.options.get("partition") is None and hasattr(topic, "error_code"):
                topic.error_code = code
                continue
            for each in topic.partitions:
                if self._fault.is_for_partition(each):
                    each.error_code = code
                    if self._api.key == FETCH:
                        each.records = b""
                        each.high_watermark = each.last_stable_offset = each.log_start_offset = -1
        return response


def _check(apis: Sequence[Api], topic: str | None, error: ErrorCode, options: FaultOptions) -> None:
    """Raise BadFault for options that contradict one another, or do not apply to an API."""
    drop, partition = options.get("drop", ""), options.get("partition")
    if drop not in ("", "before", "after"):
        raise BadFault(f"drop is 'before' or 'after', not {drop!r}")
    if partition is not None and topic is None:
        raise BadFault("a partition needs its topic")
    for name, (_, param) in FAULT_OPTIONS.items():
        value = options.get(name)
        if value is not None and not param.allows(value):
            raise BadFault(f"{name} is {param.at_least} to {param.at_most}, not {value}")
    if not (error or any(options.get(name) for name in _EFFECTS)):
        raise BadFault("say what goes wrong: error, delay_ms, drop, truncate, throttle_ms or unanswered")
    for api in apis:
        if topic is not None and api.name not in _BY_TOPIC:
            raise BadFault(f"a {api.name} request names no topics: leave topic out")
        if partition is not None and api.name in _WHOLE_TOPICS:
            raise BadFault(f"a {api.name} request is for whole topics: leave partition out")
        if options.get("throttle_ms") and not hasattr(api.response, "throttle_time_ms"):
            raise BadFault(f"a {api.name} response has no throttle time")


def _api(name: Any) -> Api:
    """Return an API by its name, as in `produce`, `list_offsets` or `ListOffsets`."""
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


def _groups(request: Any) -> Iterable[str]:
    """Yield the groups that a request names."""
    yield getattr(request, "group_id", "")
    for name in ("groups", "group_ids", "groups_names"):
        for each in getattr(request, name, ()):
            yield each if isinstance(each, str) else each.group_id


def _index(element: Any) -> int:
    """Return the partition's number in an entry of any form."""
    if isinstance(element, int):
        return element
    names = ("index", "partition_index", "partition")
    return int(next(getattr(element, name) for name in names if hasattr(element, name)))


def _list_name(message: Any) -> str | None:
    """Return the name of the first list in a message that is not empty."""
    if not hasattr(type(message), "__wire_fields__"):
        return None
    lists = [each.name for each in fields_of(type(message)) if isinstance(each.type, Array)]
    return next((name for name in lists if getattr(message, name)), None)


def _listed(message: Any) -> Sequence[Any]:
    name = _list_name(message)
    return () if name is None else getattr(message, name)


def _with_list(message: Any, listed: list[Any]) -> Any:
    """Return a copy of a message with this list."""
    copied, name = copy(message), _list_name(message)
    if name is not None:
        setattr(copied, name, listed)
    return copied


def _merged(refused: Any, response: Any) -> Any:
    """Return a response with the topics and partitions of another one added."""
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


class _Cut:
    """A response of which only the first half is sent."""

    def __init__(self, response: Any) -> None:
        self.response = response


def _encode(encode: frame.ResponseEncoder, correlation_id: int, response: Any) -> tuple[list[Any], int]:
    if type(response) is not _Cut:
        return encode(correlation_id, response)
    parts, _ = encode(correlation_id, response.response)
    whole = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
    raise CutShort(whole[: (len(whole) + 1) // 2])
