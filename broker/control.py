"""What a test may have the broker do beside what its clients ask for: move its clock, set faults, and some more.

Owns the commands: each is an object with the name of what to `do` and its arguments, and is answered with an object.
What moves the clock, or ends a fault, is answered once everything that was due by then has been done. Knows nothing of
sockets. Event loop only.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from inspect import Parameter, signature
from types import UnionType
from typing import Any, get_args, get_origin

import tidelog
from tidelog.broker.broker import Broker
from tidelog.broker.faults import COORDINATED, BadFault, Faults
from tidelog.broker.maintenance import Task
from tidelog.broker.partition import Partition
from tidelog.broker.routes import SERVED
from tidelog.broker.running import Running
from tidelog.broker.session import Session
from tidelog.broker.work import come
from tidelog.config.kinds import host_and_port
from tidelog.config.nearest import guess
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from tidelog.storage import files
from tidelog.storage.errors import StorageError

# What is due is done within that time, or something does not come to rest.
SETTLES_WITHIN_S = 60.0
# How often in a row nothing is to be found to do, a turn of the loop apart, before nothing is.
QUIET_TURNS = 5
LOOK_EVERY_S = 0.0005
TOPIC_TIMEOUT_MS = 60_000
# The last millisecond of the year 9999: what shows times, here and where tests are written, knows none later.
LATEST_MS = 253_402_300_799_999

Answer = dict[str, Any]


class Refused(Exception):
    """A command that was not done: why not, and what would do."""


class Control:
    """The commands of one broker."""

    def __init__(self, broker: Broker, faults: Faults, peers: Callable[[], set[str]]) -> None:
        """Command a broker; `peers` returns the addresses of those who are connected."""
        self._broker = broker
        self._faults = faults
        self._peers = peers
        broker.parked.is_exact = True
        self.addresses: list[tuple[str, int]] = []  # where clients reach it
        self._commands: dict[str, Callable[..., Awaitable[Answer]]] = {
            "hello": self._hello,
            "now": self._now,
            "hold": self._hold,
            "advance": self._advance,
            "set": self._set,
            "release": self._release,
            "settle": self._now,
            "fault": self._fault,
            "clear_faults": self._clear_faults,
            "faults_seen": self._faults_seen,
            "move_coordinator": self._move_coordinator,
            "raise_leader_epoch": self._raise_leader_epoch,
            "fill_disk": self._fill_disk,
            "free_disk": self._free_disk,
            "create_topic": self._create_topic,
            "delete_topic": self._delete_topic,
            "roll": self._roll,
            "offsets": self._offsets,
        }

    async def do(self, command: Any) -> Answer:
        """Do what a command says; what it cannot be done for is in the answer."""
        try:
            if not isinstance(command, dict) or not isinstance(command.get("do"), str):
                raise Refused('a command is an object as {"do": "advance", "ms": 1000}')
            name = command["do"]
            if name not in self._commands:
                near = guess(name, self._commands)
                hint = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(self._commands))}"
                raise Refused(f"there is nothing to do by the name of {name!r}; {hint}")
            arguments = {key: value for key, value in command.items() if key != "do"}
            _check(name, self._commands[name], arguments)
            return {"ok": True, **await self._commands[name](**arguments)}
        except (Refused, BadFault, StorageError) as why:
            return {"ok": False, "error": str(why)}

    # -- the clock -----------------------------------------------------------------------------------------------

    async def _hello(self) -> Answer:
        host, port = self.addresses[0]
        about = {"bootstrap": host_and_port(host, port), "pid": os.getpid(), "version": tidelog.__version__}
        return {**about, **await self._now()}

    async def _now(self) -> Answer:
        await self._settle()
        return {"now_ms": self._broker.clock.now_ms(), "held": self._broker.clock.is_held}

    async def _hold(self, at_ms: int | None = None) -> Answer:
        if at_ms is not None:
            return await self._set(at_ms)
        self._broker.clock.hold()
        return await self._now()

    async def _advance(self, ms: int) -> Answer:
        if ms < 0:
            raise Refused(f"a clock advances by 0 ms or more, not by {ms}; set puts it back")
        # Who has asked before the clock moves waits from before: he may be connected, and not have been read from.
        await self._settle()
        return await self._move(_moment(self._broker.clock.now_ms() + ms))

    async def _set(self, at_ms: int) -> Answer:
        _moment(at_ms)
        await self._settle()
        return await self._move(at_ms)

    async def _move(self, at_ms: int) -> Answer:
        """Move the clock, and do what is otherwise looked for from time to time: nothing that is due waits for that."""
        self._broker.clock.set(at_ms)
        await self._settle()

        await self._maintained(self._broker.retain_soon)
        self._broker.groups.clean_soon()
        self._broker.cleaners.look_soon()
        return await self._now()

    async def _release(self) -> Answer:
        self._broker.clock.release()
        return await self._now()

    async def _settle(self) -> None:
        """Return when everything that was due by now has been done. Raises Refused if it does not come to that."""
        ends_s, quiet = time.monotonic() + SETTLES_WITHIN_S, 0
        while quiet < QUIET_TURNS:
            busy = self._busy()
            if busy is None:
                quiet += 1
                await asyncio.sleep(0)
                continue
            if time.monotonic() > ends_s:
                raise Refused(f"{busy} has been at work for {SETTLES_WITHIN_S:.0f} s: see the broker's log")
            quiet = 0
            await asyncio.sleep(LOOK_EVERY_S)

    def _busy(self) -> str | None:
        """Return who has something to do that is due, or None."""
        broker = self._broker
        parts: tuple[Any, ...] = (
            broker.timers, broker.parked, broker.maintenance, broker.cleaners, broker.readers, broker.flusher,
            broker.groups,
        )  # fmt: skip
        return next((type(part).__name__ for part in parts if not part.is_settled), None)

    # -- faults --------------------------------------------------------------------------------------------------

    async def _fault(
        self,
        api: str | list[str],
        error: str | int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        group: str | None = None,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int = 0,
        delay_ms: int = 0,
        drop: str = "",
        truncate: bool = False,
        throttle_ms: int = 0,
        unanswered: bool = False,
    ) -> Answer:
        number = self._faults.add(
            api, error=error, topic=topic, partition=partition, client_id=client_id, group=group, times=times,
            probability=probability, seed=seed, delay_ms=delay_ms, drop=drop, truncate=truncate,
            throttle_ms=throttle_ms, unanswered=unanswered,
        )  # fmt: skip
        return {"fault": number}

    async def _clear_faults(self, fault: int | None = None, seen: bool = False) -> Answer:
        self._faults.clear(fault)
        if fault is None:
            await self._look_at_disk()
        if seen:
            self._faults.seen.clear()
        await self._settle()
        return {}

    async def _faults_seen(self) -> Answer:
        return {"seen": list(self._faults.seen)}

    async def _move_coordinator(self, group: str | None = None) -> Answer:
        """Have everybody who is connected look for the coordinator anew, once."""
        peers = self._peers()
        if not peers:
            return {"fault": None}
        number = self._faults.add(COORDINATED, error="NOT_COORDINATOR", group=group, times=None, peers=peers)
        return {"fault": number}

    async def _raise_leader_epoch(self, topic: str, partition: int = 0) -> Answer:
        raised = self._partition(topic, partition).raise_leader_epoch
        return {"leader_epoch": await self._maintained(raised)}

    async def _fill_disk(self) -> Answer:
        files.refuse_writes(True)
        return {}

    async def _free_disk(self) -> Answer:
        files.refuse_writes(False)
        await self._look_at_disk()
        return {}

    async def _look_at_disk(self) -> None:
        await self._maintained(self._broker.logs.disk.look)

    # -- topics --------------------------------------------------------------------------------------------------

    async def _create_topic(
        self, name: str, partitions: int = -1, config: Mapping[str, Any] | None = None
    ) -> Answer:
        configs = [
            CreatableTopicConfig(name=option, value=None if value is None else _text(value))
            for option, value in (config or {}).items()
        ]
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=configs)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=TOPIC_TIMEOUT_MS, validate_only=False)
        response = await self._handled(CREATE_TOPICS.key, request, CREATE_TOPICS.max_version)
        self._check(response.topics[0], f"topic {name}")
        return {"name": name, "partitions": response.topics[0].num_partitions}

    async def _delete_topic(self, name: str) -> Answer:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TOPIC_TIMEOUT_MS)
        response = await self._handled(DELETE_TOPICS.key, request, DELETE_TOPICS.max_version)
        self._check(response.responses[0], f"topic {name}")
        return {}

    async def _roll(self) -> Answer:
        """Seal all active segments that hold anything: what is in them is written no more."""

        def roll() -> Task[None]:
            yield
            for topic in self._broker.topics.all():
                for partition in topic.partitions:
                    partition.log.roll(self._broker.clock.now_ms())
                    yield

        await self._submitted(roll())
        return {}

    async def _offsets(self, topic: str, partition: int = 0) -> Answer:
        """Say where a log begins, and where the next record goes."""
        log = self._partition(topic, partition).log
        return {"log_start_offset": log.log_start_offset, "log_end_offset": log.log_end_offset}

    def _partition(self, topic: str, number: int) -> Partition:
        found = self._broker.topics.by_name.get(topic)
        partition = None if found is None else found.partition(number)
        if partition is None:
            raise Refused(f"there is no partition {number} of a topic {topic!r}")
        return partition

    @staticmethod
    def _check(result: Any, what: str) -> None:
        if result.error_code:
            code = ErrorCode(result.error_code).name
            raise Refused(f"{what}: {code}: {result.error_message or 'no more is known'}")

    async def _handled(self, key: int, request: Any, version: int) -> Any:
        """Return the response to a request, as its handler makes it for any client."""
        session = Session(
            self._broker, self._broker.config.listeners[0].name, ("control", 0), self.addresses[0]
        )
        form = SERVED[key].handle(session, request, version)
        running = Running(self._broker, self, come(form))
        response = running.begin()
        return await _come(running) if response is running else response

    async def _maintained(self, call: Callable[[], Any]) -> Any:
        """Return what a call on the maintenance thread does."""

        def task() -> Task[Any]:
            yield
            return call()

        return await self._submitted(task())

    async def _submitted(self, task: Task[Any]) -> Any:
        return await _come(self._broker.maintenance.submit(task, owner=self))


def _come(later: Any) -> "asyncio.Future[Any]":
    """Return what a response to come comes to, or raise the exception that took its place."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def ready() -> None:
        if done.done():
            return
        if isinstance(later.response, Exception):
            done.set_exception(later.response)
        else:
            done.set_result(later.response)

    later.ready = ready
    return done


def _kinds(annotation: Any) -> tuple[type, ...]:
    """Return what a value may be that is annotated so."""
    kinds = [get_origin(kind) or kind for kind in get_args(annotation) or (annotation,)]
    if get_origin(annotation) not in (None, UnionType):
        kinds = [get_origin(annotation)]
    return (*kinds, int) if float in kinds else tuple(kinds)


def _moment(at_ms: int) -> int:
    """Return a time that a clock may be moved to; raise Refused for another."""
    if not 0 <= at_ms <= LATEST_MS:
        raise Refused(f"a clock goes from 1970 to the end of 9999: 0 to {LATEST_MS} ms")
    return at_ms


def _text(value: Any) -> str:
    """Return the value of an option as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(name: str, command: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise Refused for arguments that a command does not take."""
    parameters = signature(command, eval_str=True).parameters
    for given, value in arguments.items():
        if given not in parameters:
            takes = ", ".join(parameters) or "nothing"
            raise Refused(f"{name}: there is no {given!r}; it takes {takes}")
        kinds = _kinds(parameters[given].annotation)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise Refused(f"{name}: {given} cannot be {value!r}")
    for wanted, parameter in parameters.items():
        if parameter.default is Parameter.empty and wanted not in arguments:
            raise Refused(f"{name}: {wanted} is missing")
