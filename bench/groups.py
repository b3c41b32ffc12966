"""Groups and many partitions beside Apache Kafka: `python -m bench.groups [--kafka] [--only members commits ...]`.

Owns: groups of consumers that begin, wait and are restarted one by one; offsets committed as fast as they are
acknowledged; one consumer of a topic of many partitions. Each broker does all of it, one after the other, in a folder
of its own; then a line a figure is printed.

The members are raw ones (bench/consumers.py), so that what they cost does not hide what the broker costs. Both brokers
wait three seconds for more members when a group begins, Kafka's default, and as long as between two heartbeats.
Ours commits to the disk, Kafka to the page cache of its one node. `--members 4 --groups 2 --partitions 20 --seconds 0.5
--heartbeat 0.3` does everything, smaller: to see that it works.
"""

import argparse
import asyncio
import itertools
import resource
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import numpy as np
import uvloop

from bench import machine, table
from bench.__main__ import own_folder
from bench.brokers import Kafka, Server, Tidelog
from bench.consumers import GROUP_PARTITIONS, VERSIONS, Connection, Group, Member, Session
from bench.wire import Wire
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from tidelog.protocol.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.records.build import Record, build_batch

COMMITTERS: Final = (1, 16)
PATIENCE_S: Final = 300
FEWEST_POLLS: Final = 100
NOT_YET: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
Figures = dict[str, float]


async def coordinated(port: int, groups: Sequence[str]) -> None:
    """Wait until the broker takes members of all these groups."""
    connection = await Connection.to(port)
    for group in groups:
        await connection.ask(
            FIND_COORDINATOR, FindCoordinatorRequest(key=group)
        )  # makes Kafka's topic of offsets
        request = HeartbeatRequest(group_id=group, generation_id=0, member_id="nobody")
        while (await connection.ask(HEARTBEAT, request)).error_code in NOT_YET:  # noqa: ASYNC110  (only the broker knows)
            await asyncio.sleep(0.02)
    connection.close()


def make_topic(port: int, name: str, partitions: int) -> None:
    """Create a topic, and return once all of it is served."""
    with Wire(port) as wire:
        wire.create_topics([name], partitions)
        wire.wait_for_leaders(name, partitions, PATIENCE_S)


async def members(server: Server, arguments: argparse.Namespace) -> Figures:
    """Have all groups begin, wait, and restart one member after another, in all groups at once."""
    groups = [Group(number, arguments.members // arguments.groups) for number in range(arguments.groups)]
    for group in groups:
        make_topic(server.port, group.topic, GROUP_PARTITIONS)
    await coordinated(server.port, [group.name for group in groups])
    found: Figures = {"MB RSS before the members": server.spent()["rss_mb"]}
    cpu_s, started = machine.cpu_s(server.pid), time.perf_counter()
    async with asyncio.TaskGroup() as tasks:

        def begin(group: Group) -> Member:
            member = Member(group, server.port, arguments.heartbeat)
            tasks.create_task(member.live())
            return member

        async def restart(group: Group, living: list[Member]) -> float:
            left = 0.0
            for place, member in enumerate(living):
                group.unsettled(member)
                member.leaving.set()
                left, living[place] = time.perf_counter(), begin(group)
                await group.stable.wait()
            return left

        each = arguments.members // arguments.groups
        living = {group: [begin(group) for _ in range(each)] for group in groups}
        await asyncio.gather(*(group.stable.wait() for group in groups))
        found["s until all groups are stable"] = time.perf_counter() - started
        found["s of broker CPU until then"] = machine.cpu_s(server.pid) - cpu_s
        found |= await idle(server, arguments.seconds)
        grown_kb = (server.spent()["rss_mb"] - found["MB RSS before the members"]) * 1e3
        found["MB RSS with them"] = server.spent()["rss_mb"]
        found["kB RSS a connection"] = grown_kb / (each * len(groups) * 2)
        cpu_s, started = machine.cpu_s(server.pid), time.perf_counter()
        left = max(await asyncio.gather(*(restart(group, living[group]) for group in groups)))
        found["s from the last to leave until stable"] = time.perf_counter() - left
        found["s of the rolling restart in all"] = time.perf_counter() - started
        found["s of broker CPU in it"] = machine.cpu_s(server.pid) - cpu_s
        for member in itertools.chain(*living.values()):
            member.leaving.set()
    return found


async def idle(server: Server, seconds: float) -> Figures:
    """Return what a broker takes whose members wait, and what these take, in percent of a core."""
    await asyncio.sleep(seconds)  # until a JVM has compiled what it does often
    before, own, started = machine.cpu_s(server.pid), time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - started
    return {
        "% of a core while all wait": (machine.cpu_s(server.pid) - before) / took * 100,
        "% of a core that the members take": (time.process_time() - own) / took * 100,
    }


async def commits(server: Server, arguments: argparse.Namespace) -> Figures:
    """Commit by one connection and by some, each again as soon as it is answered."""
    make_topic(server.port, "committed", max(COMMITTERS))
    await coordinated(server.port, ["committers"])
    found: Figures = {}
    for count in COMMITTERS:
        connections = [await Connection.to(server.port) for _ in range(count)]
        await committed(connections, arguments.seconds / 2)  # warm
        cpu_s = machine.cpu_s(server.pid)
        took = await committed(connections, arguments.seconds)
        cpu_s = machine.cpu_s(server.pid) - cpu_s
        by = f"{count} connection{'s' if count > 1 else ''}"
        found[f"commits/s by {by}"] = len(took) / arguments.seconds
        for percent in (50, 99):
            found[f"ms p{percent} of a commit by {by}"] = float(np.percentile(took, percent)) * 1e3
        found[f"us of broker CPU a commit by {by}"] = cpu_s / len(took) * 1e6
        for connection in connections:
            connection.close()
    return found


async def committed(connections: Sequence[Connection], seconds: float) -> list[float]:
    """Commit by all connections for so long; return the seconds that each commit took."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def one(index: int, connection: Connection) -> None:
        part = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name="committed", partitions=[part])
        request = OffsetCommitRequest(group_id="committers", topics=[topic])
        frame = encode_request(OFFSET_COMMIT, VERSIONS[OFFSET_COMMIT], 1, "bench", request)
        while (began := time.perf_counter()) < end:
            response = await connection.exchange(OFFSET_COMMIT, frame)
            code = response.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                took.append(time.perf_counter() - began)
            elif code in NOT_YET:  # Kafka answers a heartbeat before it has loaded the offsets
                await asyncio.sleep(0.02)
            else:
                raise RuntimeError(f"a commit was refused: error {code}")

    await asyncio.gather(*(one(*each) for each in enumerate(connections)))
    return took


async def partitions(server: Server, arguments: argparse.Namespace) -> Figures:
    """Create a topic of many partitions, poll it, and start the broker anew with it."""
    started = time.perf_counter()
    make_topic(server.port, "many", arguments.partitions)
    of = f"{arguments.partitions:,} partitions"
    found = {
        f"s to create {of}": time.perf_counter() - started,
        "MB RSS with them all": server.spent()["rss_mb"],
    }
    found |= await polls(server, arguments)
    started = time.perf_counter()
    server.stop()
    found["s to stop with them"] = time.perf_counter() - started
    server.start()
    with Wire(server.port) as wire:
        wire.wait_for_leaders("many", arguments.partitions, PATIENCE_S)
    found["s to stop, start and serve them all"] = time.perf_counter() - started
    return found


async def polls(server: Server, arguments: argparse.Namespace) -> Figures:
    """Poll all partitions in a session, where nothing has been written and where one partition has been."""
    session, connection = Session("many"), await Connection.to(server.port)
    offsets = dict.fromkeys(range(arguments.partitions), 0)
    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(100))])
    found: Figures = {}
    with Wire(server.port) as wire:
        session.take(await connection.ask(FETCH, session.request(offsets, 0)))
        if not session.id:
            raise RuntimeError("the broker gave no fetch session")
        for kind in ("idle", "where one has grown"):
            spent: list[tuple[float, int]] = []
            end = time.perf_counter() + arguments.seconds
            for number in itertools.count():
                if number > FEWEST_POLLS and time.perf_counter() > end:
                    break
                index = number * 997 % arguments.partitions
                if kind != "idle":
                    wire.send_batch("many", batch, index)
                    wire.receive_ack()
                cpu_s, passed = machine.cpu_s(server.pid), connection.bytes
                response = await connection.ask(FETCH, session.request(offsets, 0))
                spent.append((machine.cpu_s(server.pid) - cpu_s, connection.bytes - passed))
                session.take(response)
                if kind != "idle":
                    offsets[index] += 1
                if bool(response.responses) != (kind != "idle"):
                    raise RuntimeError(f"a poll {kind} was answered with {len(response.responses)} topics")
            cpu, size = np.array(spent[len(spent) // 2 :]).mean(axis=0)  # warm
            found |= {f"us of broker CPU a poll {kind}": cpu * 1e6, f"bytes a poll {kind}": size}
    connection.close()
    return found


PARTS: Final[dict[str, Callable[[Server, argparse.Namespace], Awaitable[Figures]]]] = {
    "commits": commits,  # first: it warms a JVM up
    "members": members,
    "partitions": partitions,
}


def measure(kind: type[Server], arguments: argparse.Namespace) -> Figures:
    """Return the figures of one broker, by what they say."""
    settings = {
        "group.initial.rebalance.delay.ms": str(int(arguments.heartbeat * 1000)),
        # Those of members that are gone stay for two minutes, and nobody is to go without.
        "max.incremental.fetch.session.cache.slots": str(3 * arguments.members),
    }
    if kind is Kafka:
        settings["socket.listen.backlog.size"] = "4096"  # or a thousand clients at once wait for their SYN
    folder = own_folder()
    server = kind(folder / kind.kind, settings)

    async def bounded(part: Awaitable[Figures]) -> Figures:
        async with asyncio.timeout(PATIENCE_S + 4 * arguments.seconds):
            return await part

    try:
        server.start()
        found: Figures = {}
        for name, part in PARTS.items():
            if name in (arguments.only or PARTS):
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    found |= runner.run(bounded(part(server, arguments)))
        return found
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="bench.groups", description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka too; needs Java and Maven")
    parser.add_argument("--members", type=int, default=500)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=3_500)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--heartbeat", type=float, default=3, help="seconds between a member's heartbeats")
    parser.add_argument("--only", nargs="+", choices=PARTS)
    return parser.parse_args(words)


def main() -> int:
    """Measure and print."""
    arguments = parse()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # which the brokers inherit
    kinds: list[type[Server]] = [Kafka, Tidelog] if arguments.kafka else [Tidelog]
    found = {kind.kind: measure(kind, arguments) for kind in kinds}
    print(" " * 44 + "".join(kind.rjust(10) for kind in found))
    for name in found[Tidelog.kind]:
        print(name.ljust(44) + "".join(table.number(figures[name]).rjust(10) for figures in found.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
