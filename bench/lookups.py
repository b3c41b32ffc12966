"""Time lookups over the wire, each held against a linear scan: `python -m bench.lookups`.

Fills one topic in order and one with 1 % of its records up to an hour late, asks for random times, and compares every
answer with what a scan of all timestamps finds. Prints lookups a second.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from tidelog.protocol.frame import decode_response, encode_request
from tidelog.protocol.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.wire.api import Api

RECORDS_A_BATCH = 100
BATCHES_A_REQUEST_AHEAD = 50
SHAPES = 64  # distinct patterns of timestamps; batches differ by their base timestamp too
LATE_MAX_MS = 3_600_000
VALUE = b"x" * 100
START_MS = 1_700_000_000_000

Times = NDArray[np.int64]


class Client:
    """One blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb", 1 << 16)

    def send(self, api: Api, version: int, request: object) -> None:
        self._socket.sendall(encode_request(api, version, 1, "bench", request))

    def receive(self, api: Api, version: int) -> object:
        size = int.from_bytes(self._stream.read(4), "big")
        return decode_response(api, version, self._stream.read(size))[1]

    def offset_at(self, topic: str, timestamp: int) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
        )
        self.send(LIST_OFFSETS, 7, request)
        response = self.receive(LIST_OFFSETS, 7)
        answer = response.topics[0].partitions[0]  # type: ignore[attr-defined]
        assert answer.error_code == 0
        return int(answer.offset)


@contextmanager
def broker(folder: Path) -> Iterator[int]:
    """Run a broker on a free port; give the port."""
    ready = folder / "ready"
    command = [Path(sys.executable).with_name("tidelog"), "serve", "--data-dir", folder / "data"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--ready-file", ready, "--log-level", "warning"], stdout=subprocess.DEVNULL
    )
    try:
        while not ready.exists():
            assert process.poll() is None, "the broker ended"
            time.sleep(0.005)
        yield int(ready.read_text().rsplit(":", 1)[1])
    finally:
        process.terminate()
        process.wait(30)


def shapes(late: float, rng: np.random.Generator) -> list[tuple[bytearray, Times]]:
    """Make batches to send again and again: each with the timestamps of its records, from 0."""
    made = []
    for _ in range(SHAPES):
        times = np.arange(RECORDS_A_BATCH, dtype=np.int64)
        is_late = rng.random(RECORDS_A_BATCH) < late
        times[is_late] -= rng.integers(1, LATE_MAX_MS, is_late.sum())
        records = [Record(i, LATE_MAX_MS + int(t), None, VALUE) for i, t in enumerate(times)]
        made.append((bytearray(build_batch(records, base_offset=0)), times - times[0]))
    return made


def fill(client: Client, topic: str, size_bytes: int, late: float, rng: np.random.Generator) -> Times:
    """Produce batches until the topic has that size; return all timestamps in the order of their offsets."""
    client.send(
        CREATE_TOPICS,
        7,
        CreateTopicsRequest(
            topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)], timeout_ms=1000
        ),
    )
    client.receive(CREATE_TOPICS, 7)
    patterns = shapes(late, rng)
    written, base, in_flight, all_times = 0, START_MS, 0, []
    while written < size_bytes:
        data, times = patterns[int(rng.integers(SHAPES))]
        data[27:35] = base.to_bytes(8, "big", signed=True)
        data[35:43] = (base + int(times.max())).to_bytes(8, "big", signed=True)
        data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
        partition = PartitionProduceData(index=0, records=memoryview(data))
        request = ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
        )
        client.send(PRODUCE, 7, request)
        in_flight += 1
        if in_flight == BATCHES_A_REQUEST_AHEAD:
            client.receive(PRODUCE, 7)
            in_flight -= 1
        all_times.append(base + times)
        written += len(data)
        base += RECORDS_A_BATCH
    for _ in range(in_flight):
        client.receive(PRODUCE, 7)
    return np.concatenate(all_times)


def scan(times: Times, wanted: Times) -> list[int]:
    """Return what a scan from the first record finds: the first offset at or after each time, or -1."""
    largest_so_far = np.maximum.accumulate(times)
    found = np.searchsorted(largest_so_far, wanted, side="left")
    return [int(offset) if offset < len(times) else -1 for offset in found]


def measure(client: Client, topic: str, times: Times, lookups: int, rng: np.random.Generator) -> float:
    """Ask for random times, check every answer, and return lookups a second."""
    wanted = rng.integers(times.min() - 1000, times.max() + 1000, lookups)
    started = time.perf_counter()
    answers = [client.offset_at(topic, int(when)) for when in wanted]
    elapsed = time.perf_counter() - started
    wrong = [
        (int(when), answer, right)
        for when, answer, right in zip(wanted, answers, scan(times, wanted), strict=True)
        if answer != right
    ]
    assert not wrong, f"{len(wrong)} of {lookups} answers are wrong, the first: {wrong[0]}"
    return lookups / elapsed


def main() -> None:
    """Fill, ask, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--lookups", type=int, default=1000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as port:
        client = Client(port)
        for topic, late in (("in-order", 0.0), ("late", 0.01)):
            times = fill(client, topic, arguments.megabytes * 1_000_000, late, rng)
            rates = sorted(measure(client, topic, times, arguments.lookups, rng) for _ in range(5))
            print(
                f"{topic}: {len(times):,} records, {arguments.lookups} lookups x 5, all equal to a scan, "
                f"median {rates[2]:,.0f}/s [{rates[0]:,.0f}-{rates[-1]:,.0f}], one after another"
            )


if __name__ == "__main__":
    main()
