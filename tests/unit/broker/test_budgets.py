"""What one request may cost, in counts that no machine changes: instructions of Python, memory, system calls.

Requests go one after another over loopback to a broker that has served many before. A change that needs more than
its budget raises the number here, and says why in its message; one that needs less lowers it.
"""

import asyncio
import gc
import platform
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from tests.support.broker import Broker as BrokerProcess
from tests.support.builders import produce_request
from tests.support.raw_client import FETCH, LIST_OFFSETS, PRODUCE, RawClient
from tidelog import native
from tidelog.broker.broker import Broker
from tidelog.broker.clock import Clock
from tidelog.broker.net import busy_poll
from tidelog.broker.net.server import Server
from tidelog.config.load import load
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.registry import APIS

METADATA = 3
START_MS = 1_700_000_000_000
WARM, COUNTED = 300, 200


class Budget(NamedTuple):
    """Most of each, for one request, over all threads of the broker."""

    peak_bytes: int  # held at once beyond what is held between requests
    kept_blocks: float  # of memory that are still there when it is over
    syscalls: float  # but for futex and epoll


BUDGETS = {
    #                         peak_bytes  kept  syscalls
    "produce":              Budget(12_000,  0.5,      4.5),
    "produce on disk":      Budget(16_000,  0.5,      9.5),  # with an append time for each
    "produce of 64 KiB":    Budget(20_000,  0.5,     10),  # comes in two to four reads
    "fetch":                Budget(18_000,  0.5,      3.5),
    "fetch of 64 KiB":      Budget(80_000,  0.5,      4.5),
    "list offsets by time": Budget(18_000,  0.5,      3.5),
    "commit":               Budget(16_000,  0.5,      9.5),
}  # fmt: skip

# The CPU of a request: how many instructions of Python's bytecode its event loop and its flusher execute for it. The
# same whatever the machine does beside it, but not in C or Cython; and each version of Python compiles to its own. In
# how many reads a large request comes is chance.
#
# The loop itself is not counted: the broker runs on another one, and how often it turns while it polls for the next
# request depends on the machine.
NOT_COUNTED = (str(Path(asyncio.__file__).parent), selectors.__file__, busy_poll.__file__)
INSTRUCTIONS = {
    (3, 11): {
        "produce": 1188,
        "produce on disk": 1804,
        "fetch": 1314,
        "fetch of 64 KiB": 1413,
        "list offsets by time": 1394,
        "commit": 3225,
    },
    (3, 13): {
        "produce": 1074,
        "produce on disk": 1649,
        "fetch": 1183,
        "fetch of 64 KiB": 1271,
        "list offsets by time": 1255,
        "commit": 2898,
    },
}
MORE = 1.05


def small_batch(number: int = 0) -> bytes:
    return build_batch([Record(0, START_MS + number, None, b"x" * 100)])


def request_of(what: str) -> bytes:
    """Return the frame that asks for it."""
    if what == "produce of 64 KiB":
        records = build_batch([Record(i, START_MS, None, b"x" * 1000) for i in range(64)])
        return encode_request(APIS[PRODUCE], 9, 1, "budget", produce_request("t", records, 0, acks=1))
    if what.startswith("produce"):
        acks = -1 if what == "produce on disk" else 1
        return encode_request(
            APIS[PRODUCE], 9, 1, "budget", produce_request("t", small_batch(), 0, acks=acks)
        )
    if what.startswith("fetch"):
        most = 65_536 if what == "fetch of 64 KiB" else 1
        wanted = FetchPartition(partition=0, fetch_offset=100, partition_max_bytes=most)
        topics = [FetchTopic(topic="filled", partitions=[wanted])]
        fetch = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=most, topics=topics)
        return encode_request(APIS[FETCH], 12, 1, "budget", fetch)
    if what == "commit":
        committed = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=100, committed_metadata=""
        )
        offsets = [OffsetCommitRequestTopic(name="t", partitions=[committed])]
        commit = OffsetCommitRequest(group_id="budget", topics=offsets)
        return encode_request(OFFSET_COMMIT, 8, 1, "budget", commit)
    partition = ListOffsetsPartition(partition_index=0, timestamp=START_MS + 500)
    topic = ListOffsetsTopic(name="filled", partitions=[partition])
    return encode_request(
        APIS[LIST_OFFSETS], 7, 1, "budget", ListOffsetsRequest(replica_id=-1, topics=[topic])
    )


class Client:
    """A connection that allocates nothing of note while it asks: it shares a process with what is measured."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = memoryview(bytearray(1 << 20))

    def ask(self, frame: bytes, times: int = 1) -> None:
        for _ in range(times):
            self._socket.sendall(frame)
            filled, wanted = 0, 4
            while filled < wanted:
                received = self._socket.recv_into(self._answer[filled:])
                assert received, "the broker closed the connection"
                filled += received
                if filled >= 4:
                    wanted = 4 + int.from_bytes(self._answer[:4], "big")

    def fill(self) -> None:
        """Make the topics, and put a thousand small batches into one of them."""
        for name in ("t", "filled"):
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
            )
            self.ask(encode_request(APIS[METADATA], 9, 1, "budget", request))
        for number in range(1000):
            request = produce_request("filled", small_batch(number), 0, acks=1)
            self.ask(encode_request(APIS[PRODUCE], 9, 1, "budget", request))

    def close(self) -> None:
        self._socket.close()


class Counts(NamedTuple):
    """Totals of COUNTED requests."""

    instructions: Counter[str]  # by thread
    peak_bytes: int
    kept_blocks: int


async def count(folder: Path, what: str, measure: str) -> Counts:
    """Serve on this thread's loop, ask from another, and count one kind of thing here."""
    instructions: Counter[str] = Counter()
    is_counting = False

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if event == "opcode":
            if is_counting:
                instructions[threading.current_thread().name] += 1
        elif event == "call":
            if frame.f_code.co_filename.startswith(NOT_COUNTED):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace

    loop = asyncio.get_running_loop()
    clock = Clock()
    clock.hold(
        START_MS
    )  # An append time is written once a millisecond: how often that is depends on the machine.
    broker = Broker(load(None, {}, {"log.dir": str(folder)}).on_port(0), clock)
    if measure == "instructions":
        threading.settrace(trace)  # for the threads that the broker starts
    try:
        broker.start()
    finally:
        threading.settrace(None)
    server = Server(broker)
    ready: asyncio.Future[list[tuple[str, int]]] = loop.create_future()
    running = asyncio.create_task(server.run(ready.set_result))
    port = (await ready)[0][1]
    client = Client(port)
    frame = request_of(what)
    try:
        await asyncio.to_thread(client.fill)
        if measure == "memory":
            tracemalloc.start()
        await asyncio.to_thread(client.ask, frame, WARM)
        gc.collect()
        if measure == "instructions":
            sys.settrace(trace)
            await asyncio.to_thread(client.ask, frame, WARM)
            is_counting = True
            await asyncio.to_thread(client.ask, frame, COUNTED)
            is_counting = False
            return Counts(instructions, 0, 0)
        if measure == "memory":
            peaks, kept = [], []
            for _ in range(3):  # What other threads do now and then is none of it: the smallest counts.
                tracemalloc.reset_peak()
                before, blocks = tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()
                await asyncio.to_thread(client.ask, frame, COUNTED)
                peaks.append(tracemalloc.get_traced_memory()[1] - before)
                kept.append(sys.getallocatedblocks() - blocks)
            return Counts(instructions, min(peaks), min(kept))
        raise AssertionError(measure)
    finally:
        sys.settrace(None)
        tracemalloc.stop()
        client.close()
        server.stop()
        await asyncio.wait_for(running, 20)
        broker.stop()


@pytest.mark.skipif(native.state() == native.COMPILED, reason="compiled code executes no bytecode")
@pytest.mark.skipif(sys.version_info[:2] not in INSTRUCTIONS, reason="nothing is known of this version")
@pytest.mark.parametrize("what", [what for what in BUDGETS if what != "produce of 64 KiB"])
async def test_instructions_of_a_request(tmp_path: Path, what: str) -> None:
    # The first time in a process, Python 3.13.0 does not trace the frame that the flusher loops in.
    await count(tmp_path / "first", what, "instructions")
    counted = (await count(tmp_path / "second", what, "instructions")).instructions
    each = (counted[threading.current_thread().name] + counted["flusher"]) / COUNTED
    usual = INSTRUCTIONS[sys.version_info[:2]][what]
    assert usual / MORE <= each <= usual * MORE, f"{each:.0f} instructions a request, not {usual}"


@pytest.mark.parametrize("what", BUDGETS)
async def test_memory_of_a_request(tmp_path: Path, what: str) -> None:
    counts = await count(tmp_path, what, "memory")
    kept = counts.kept_blocks / COUNTED
    assert counts.peak_bytes <= BUDGETS[what].peak_bytes, f"{counts.peak_bytes} bytes at the peak"
    assert kept <= BUDGETS[what].kept_blocks, f"{kept:.2f} blocks of memory kept a request"


@contextmanager
def traced(pid: int, out: Path) -> Iterator[None]:
    """Count the system calls of all threads of a process."""
    command = ["strace", "-f", "-c", "-q", "-o", str(out), "-p", str(pid)]
    strace = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 10
        while not _is_traced(pid):
            if strace.poll() is not None or time.monotonic() > deadline:
                pytest.skip("this machine does not let strace attach")
            time.sleep(0.01)
        yield
    finally:
        if strace.poll() is None:
            strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=20)


def _is_traced(pid: int) -> bool:
    statuses = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return all("TracerPid:\t0\n" not in status for status in statuses)


def syscalls_in(summary: str) -> Counter[str]:
    """Read what `strace -c` wrote: time, seconds, microseconds a call, calls, perhaps errors, name.

    Without futex and epoll: how often two threads meet at the interpreter's lock, and how often the loop looks for the
    next request, is chance.
    """
    rows = [line.split() for line in summary.splitlines() if not line.endswith((" futex", " epoll_pwait"))]
    return Counter(
        {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit() and row[-1] != "total"}
    )


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("what", BUDGETS)
def test_system_calls_of_a_request(tmp_path: Path, what: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        client = Client(broker.start().port)
        client.fill()
        frame = request_of(what)
        client.ask(frame, WARM)
        with traced(broker.pid, tmp_path / "summary"):
            client.ask(frame, COUNTED)
        client.close()
    calls = syscalls_in((tmp_path / "summary").read_text())
    each = {name: number / COUNTED for name, number in calls.most_common() if number >= COUNTED / 10}
    assert calls.total() / COUNTED <= BUDGETS[what].syscalls, each


def page_faults(pid: int) -> int:
    """Return how many pages a process has been given that did not have to come from a disk."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[7])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have rules of their own")
def test_answers_get_memory_that_the_process_has_already(tmp_path: Path) -> None:
    ahead, rounds = 8, 20
    records = build_batch([Record(0, START_MS, None, b"x" * 900_000)])
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics)
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.start()) as client:
        client.metadata("t")
        client.produce("t", records)

        def ask() -> None:
            for _ in range(ahead):
                client.send(FETCH, 12, request)
            for _ in range(ahead):
                assert len(client.receive_frame()) > 900_000

        for _ in range(rounds):
            ask()
        before = page_faults(broker.pid)
        for _ in range(rounds):
            ask()
        each = (page_faults(broker.pid) - before) / rounds / ahead
    assert each <= 20, f"{each:.0f} fresh pages an answer of 220"
