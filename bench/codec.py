"""Readers and writers against the construct Structs that judge them in tests: `python -m bench.codec`."""

import statistics
import timeit
from collections.abc import Callable
from typing import Any

from tests.support.constructs import plain, struct_of
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.wire.api import Api

ROUNDS = 5
SECONDS_A_ROUND = 0.2

PRODUCE_16_KIB = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=[
        TopicProduceData(
            name="benchmark",
            partition_data=[PartitionProduceData(index=0, records=memoryview(bytes(16_384)))],
        )
    ],
)
LIST_OFFSETS_10 = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsTopic(
            name="benchmark",
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(10)],
        )
    ],
)


def median_us(action: Callable[[], object]) -> float:
    """Give the median time of a call over some rounds, in microseconds."""
    timer = timeit.Timer(action)
    count, once = timer.autorange()
    count = max(1, int(count * SECONDS_A_ROUND / once))
    return statistics.median(timer.repeat(ROUNDS, count)) / count * 1e6


def measure(api: Api, version: int, request: Any) -> list[tuple[str, float, float]]:
    """Give our time and construct's, of decoding and encoding a request."""
    write, read = api.request_writer(version), api.reader(version)
    struct = struct_of(api.request, version, flexible=api.is_flexible(version))
    data = b"".join(write(request)[0])
    frame, end, values = memoryview(bytearray(data)), len(data), plain(request)
    assert struct.build(values) == data
    return [
        ("decode", median_us(lambda: read(frame, 0, end)), median_us(lambda: struct.parse(data))),
        ("encode", median_us(lambda: write(request)), median_us(lambda: struct.build(values))),
    ]


def main() -> None:
    """Print both times and their ratio."""
    print(f"{'':34}{'ours':>12}{'construct':>12}{'ratio':>8}")
    for name, api, version, request in (
        ("Produce v9, 16 KiB", PRODUCE, 9, PRODUCE_16_KIB),
        ("ListOffsets v7, 10 partitions", LIST_OFFSETS, 7, LIST_OFFSETS_10),
    ):
        for direction, ours, theirs in measure(api, version, request):
            print(f"{direction} {name:<27}{ours:>9.2f} us{theirs:>9.1f} us{theirs / ours:>7.0f}x")


if __name__ == "__main__":
    main()
