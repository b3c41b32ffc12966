"""The commands of the control channel, by which a test moves the broker's clock and sets faults.

A command that moves the clock or ends a fault is answered after everything that was due has been done. Knows nothing of
sockets. Event loop only.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Unpack

import tidelog
from tidelog.broker.broker import Broker
from tidelog.broker.commands import Answer, BadCommand, Commands, future_of
from tidelog.broker.control_protocol import FaultOptions
from tidelog.broker.faults import COORDINATED, BadFault, Faults
from tidelog.broker.partition import Partition
from tidelog.broker.routes import SERVED
from tidelog.broker.running import Running
from tidelog.broker.session import Session
from tidelog.broker.work import Coro, maybe_await, turn
from tidelog.config.kinds import host_and_port
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.wire.api import Api
from tidelog.storage import files

# How long a command waits for due work; longer means that something never settles.
SETTLES_WITHIN_S: Final = 60.0
# The broker has settled when nothing was due in this many turns of the loop in a row.
QUIET_TURNS: Final = 5
LOOK_EVERY_S: Final = 0.0005
TOPIC_TIMEOUT_MS: Final = 60_000
# The last millisecond of the year 9999, the latest of a datetime.
LATEST_MS: Final = 253_402_300_799_999


class Control(Commands):
    """The commands of one broker."""

    refusals = (*Commands.refusals, BadFault)

    def __init__(self, broker: Broker, faults: Faults, peers: Callable[[], set[str]]) -> None:
        """Control a broker; `peers` returns the addresses of the connected clients."""
        self._broker = broker
        self._faults = faults
        self._peers = peers
        broker.parked.is_exact = True
        self.addresses: list[tuple[str, int]] = []  # where clients reach the broker

    # -- the clock -----------------------------------------------------------------------------------------------

    async def _do_hello(self) -> Answer:
        host, port = self.addresses[0]
        about = {"bootstrap": host_and_port(host, port), "pid": os.getpid(), "version": tidelog.__version__}
        return {**about, **await self._do_now()}

    async def _do_now(self) -> Answer:
        await self._settle()
        return {"now_ms": self._broker.clock.now_ms(), "held": self._broker.clock.is_held}

    _do_settle = _do_now

    async def _do_hold(self, at_ms: int | None = None) -> Answer:
        if at_ms is not None:
            return await self._do_set(at_ms)
        self._broker.clock.hold()
        return await self._do_now()

    async def _do_advance(self, ms: int) -> Answer:
        if ms < 0:
            raise BadCommand(f"a clock advances by 0 ms or more, not by {ms}; set puts it back")
        await self._settle()
        return await self._move(self._broker.clock.now_ms() + ms)

    async def _do_set(self, at_ms: int) -> Answer:
        await self._settle()
        return await self._move(at_ms)

    async def _move(self, at_ms: int) -> Answer:
        """Move the clock, and do everything that is due then.

        The caller has let the broker settle first: a request that was sent before may not have been read yet.
        """
        if not 0 <= at_ms <= LATEST_MS:
            raise BadCommand(f"a clock goes from 1970 to the end of 9999: 0 to {LATEST_MS} ms")
        self._broker.clock.set(at_ms)
        await self._settle()
        # Otherwise these run only from time to time.
        await self._maintained(self._broker.retain_soon)
        self._broker.groups.clean_soon()
        self._broker.cleaners.look_soon()
        return await self._do_now()

    async def _do_release(self) -> Answer:
        self._broker.clock.release()
        return await self._do_now()

    async def _settle(self) -> None:
        """Return when everything that is due has been done. Raise BadCommand if that takes too long."""
        ends_s, quiet = time.monotonic() + SETTLES_WITHIN_S, 0
        while quiet < QUIET_TURNS:
            busy = self._busy()
            if busy is None:
                quiet += 1
                await asyncio.sleep(0)
                continue
            if time.monotonic() > ends_s:
                raise BadCommand(
                    f"{busy} has been at work for {SETTLES_WITHIN_S:.0f} s: see the broker's log"
                )
            quiet = 0
            await asyncio.sleep(LOOK_EVERY_S)

    def _busy(self) -> str | None:
        """Return the name of a part with due work, or None."""
        broker = self._broker
        parts: tuple[Any, ...] = (
            broker.timers, broker.parked, broker.maintenance, broker.cleaners, broker.readers, broker.flusher,
            broker.groups,
        )  # fmt: skip
        return next((type(part).__name__ for part in parts if not part.is_settled), None)

    # -- faults --------------------------------------------------------------------------------------------------

    async def _do_fault(
        self,
        api: str | list[str],
        topic: str | None = None,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int = 0,
        **options: Unpack[FaultOptions],
    ) -> Answer:
        number = self._faults.add(api, topic, times=times, probability=probability, seed=seed, **options)
        return {"fault": number}

    async def _do_clear_faults(self, fault: int | None = None, seen: bool = False) -> Answer:
        self._faults.clear(fault)
        if fault is None:
            await self._look_at_disk()
        if seen:
            self._faults.seen.clear()
        await self._settle()
        return {}

    async def _do_faults_seen(self) -> Answer:
        return {"seen": list(self._faults.seen)}

    async def _do_move_coordinator(self, group: str | None = None) -> Answer:
        peers = self._peers()
        if not peers:
            return {"fault": None}
        number = self._faults.add(COORDINATED, error="NOT_COORDINATOR", group=group, times=None, peers=peers)
        return {"fault": number}

    async def _do_raise_leader_epoch(self, topic: str, partition: int = 0) -> Answer:
        raised = self._partition(topic, partition).raise_leader_epoch
        return {"leader_epoch": await self._maintained(raised)}

    async def _do_fill_disk(self) -> Answer:
        files.refuse_writes(True)
        return {}

    async def _do_free_disk(self) -> Answer:
        files.refuse_writes(False)
        await self._look_at_disk()
        return {}

    async def _look_at_disk(self) -> None:
        await self._maintained(self._broker.logs.disk.look)

    # -- topics --------------------------------------------------------------------------------------------------

    async def _do_create_topic(
        self, name: str, partitions: int = -1, config: Mapping[str, Any] | None = None
    ) -> Answer:
        configs = [
            CreatableTopicConfig(name=option, value=None if value is None else _text(value))
            for option, value in (config or {}).items()
        ]
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=configs)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=TOPIC_TIMEOUT_MS, validate_only=False)
        response = await self._handled(CREATE_TOPICS, request)
        _check_result(response.topics[0], name)
        return {"name": name, "partitions": response.topics[0].num_partitions}

    async def _do_delete_topic(self, name: str) -> Answer:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TOPIC_TIMEOUT_MS)
        response = await self._handled(DELETE_TOPICS, request)
        _check_result(response.responses[0], name)
        return {}

    async def _do_roll(self) -> Answer:
        """Seal all active segments that hold records."""

        async def roll() -> None:
            for topic in self._broker.topics.all():
                for partition in topic.partitions:
                    partition.log.roll(self._broker.clock.now_ms())
                    await turn()

        await self._submitted(roll())
        return {}

    async def _do_offsets(self, topic: str, partition: int = 0) -> Answer:
        log = self._partition(topic, partition).log
        return {"log_start_offset": log.log_start_offset, "log_end_offset": log.log_end_offset}

    def _partition(self, topic: str, number: int) -> Partition:
        found = self._broker.topics.by_name.get(topic)
        partition = None if found is None else found.partition(number)
        if partition is None:
            raise BadCommand(f"there is no partition {number} of a topic {topic!r}")
        return partition

    async def _handled(self, api: Api, request: Any) -> Any:
        """Return the response that a handler gives to a request of any client."""
        session = Session(
            self._broker, self._broker.config.listeners[0].name, ("control", 0), self.addresses[0]
        )
        running = Running(
            self._broker, self, maybe_await(SERVED[api.key].handle(session, request, api.max_version))
        )
        response = running.begin()
        return await future_of(running) if response is running else response

    async def _maintained(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call on the maintenance thread."""

        async def called() -> Any:
            return call()

        return await self._submitted(called())

    async def _submitted(self, coroutine: Coro[Any]) -> Any:
        return await future_of(self._broker.maintenance.submit(coroutine, owner=self))


def _check_result(result: Any, topic: str) -> None:
    if result.error_code:
        code = ErrorCode(result.error_code).name
        raise BadCommand(f"topic {topic}: {code}: {result.error_message or 'no details'}")


def _text(value: Any) -> str:
    """Return the value of an option in Kafka's form."""
    return str(value).lower() if isinstance(value, bool) else str(value)
