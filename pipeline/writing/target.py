"""The topic that a sink writes to: its partitions, and the records that it has already. Knows nothing of Spark.

Each record has its origin in a header, `NAME@NUMBER`, for example `orders-3@1041`. A writer that resumes an earlier one
reads these headers; `Written` keeps them as runs of numbers. It reads from the marks of the job on, which are committed
offsets of a consumer group: no record of the job lies before them.
"""

import time
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy

from tidelog.client import groups
from tidelog.client.cluster import Cluster, Partition
from tidelog.client.errors import UnknownTopic
from tidelog.client.fetching import poll
from tidelog.client.offsets import EARLIEST, LATEST, offsets_of
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.errors import PipelineError
from tidelog.protocol.error_codes import ErrorCode

HEADER: Final = "tidelog.source"
_NUMBER_END: Final = (1 << 63) - 1  # a number and its successor have 64 bits
_SILENT_S: Final = 60  # how long a read waits without progress
_WAIT_MS: Final = 500


class Written:
    """The origins of the records in a topic."""

    def __init__(self, numbers: Mapping[str, "array[int]"] | None = None) -> None:
        self._runs = {name: _runs(of_one) for name, of_one in (numbers or {}).items()}

    def has(self, origin: str) -> bool:
        """Return whether the topic has a record with an origin."""
        name, number = parsed(origin)
        starts, stops = self._runs.get(name, ((), ()))
        place = bisect_right(starts, number) - 1
        return place >= 0 and number < stops[place]


class LookedAt(NamedTuple):
    """The origins that were found in a topic, and the offsets of each partition that were read: [start, end)."""

    written: Written
    starts: dict[int, int]
    ends: dict[int, int]


def parsed(origin: str) -> tuple[str, int]:
    """Parse NAME@NUMBER; ValueError."""
    name, at, number = origin.rpartition("@")
    is_number = bool(at) and number.isascii() and number.isdecimal()
    if not is_number or int(number) >= _NUMBER_END:
        raise ValueError(f"{origin!r} is not of the form NAME@NUMBER, such as orders-3@1041")
    return name, int(number)


def partitions(address: str, topic: str) -> frozenset[int]:
    """Return the partitions of a topic; PipelineError if the topic does not exist, or no broker answers."""
    with connected(address) as cluster:
        return frozenset(_partitions(cluster, address, topic))


def look(address: str, topic: str, job: str, read: bool) -> LookedAt:
    """Read the topic from the marks of a job on; without `read`, only find its end."""
    with connected(address) as cluster:
        numbers = _partitions(cluster, address, topic)
        ends = offsets_of(cluster, topic, dict.fromkeys(numbers, LATEST))
        if not read:
            return LookedAt(Written(), dict(ends), ends)
        first = offsets_of(cluster, topic, dict.fromkeys(numbers, EARLIEST))
        marks = groups.committed(cluster, _group(job), [Partition(topic, number) for number in numbers])
        for key, marked in marks.items():
            # If the topic was deleted and created again, it may be shorter than the mark.
            if first[key.partition] <= marked <= ends[key.partition]:
                first[key.partition] = marked
        return LookedAt(_read(cluster, topic, first, ends), first, ends)


def look_again(address: str, topic: str, starts: Mapping[int, int]) -> Written:
    """Return the records that were appended since the topic ended at `starts`."""
    with connected(address) as cluster:
        numbers = _partitions(cluster, address, topic)
        ends = offsets_of(cluster, topic, dict.fromkeys(numbers, LATEST))
        first = offsets_of(cluster, topic, dict.fromkeys(numbers, EARLIEST))
        since = {number: max(starts.get(number, 0), first[number]) for number in numbers}
        return _read(cluster, topic, since, ends)


def mark(address: str, topic: str, job: str, offsets: Mapping[int, int]) -> None:
    """Set the offsets from which a later `look` of this job reads."""
    with connected(address) as cluster:
        places = {Partition(topic, number): offset for number, offset in offsets.items()}
        groups.commit(cluster, _group(job), places)


def _group(job: str) -> str:
    return f"tidelog.sink.{job}"


def _partitions(cluster: Cluster, address: str, topic: str) -> list[int]:
    try:
        return cluster.partitions(topic)
    except UnknownTopic:
        raise PipelineError(
            f"topic {topic} is not on {address}; create it: tidelog topics create {topic} --bootstrap {address}"
        ) from None


def _read(cluster: Cluster, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]) -> Written:
    """Read the origins of the records in a range of each partition."""
    numbers: dict[str, array[int]] = defaultdict(lambda: array("q"))
    left = {Partition(topic, number): starts[number] for number, end in ends.items() if starts[number] < end}
    last_news = time.monotonic()
    while left:
        answers = cluster.retried(f"records of {topic}", lambda: poll(cluster, left, _WAIT_MS))
        for key, answer in answers.items():
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
                name = ErrorCode(answer.error_code).name
                raise PipelineError(f"{key}@{answer.next_offset}: the broker answers {name}")
            for record in answer.records:
                _note(record.headers, numbers)
            if answer.next_offset > left[key]:
                last_news = time.monotonic()
                del left[key]  # and to the end of the dict, so that the next poll asks for the others first
                if answer.next_offset < ends[key.partition]:
                    left[key] = answer.next_offset
        if left and time.monotonic() - last_news > _SILENT_S:
            places = ", ".join(f"{key}@{offset}" for key, offset in left.items())
            raise PipelineError(f"the broker sent nothing for {_SILENT_S} s, of {places}")
    return Written(numbers)


def _note(headers: Sequence[tuple[str, bytes | None]], numbers: Mapping[str, "array[int]"]) -> None:
    # The last one: a record that was copied before still has the header of its first copy.
    origin = next((value for key, value in reversed(headers) if key == HEADER), None)
    if origin is None:
        return
    try:
        name, number = parsed(origin.decode())
    except ValueError:
        return  # the header of another program
    numbers[name].append(number)


def _runs(numbers: "array[int]") -> tuple[list[int], list[int]]:
    """Return the first number of each run, and the one after its last."""
    sorted_once = numpy.unique(numpy.frombuffer(numbers, dtype=numpy.int64))
    breaks = numpy.flatnonzero(numpy.diff(sorted_once) != 1)
    starts = sorted_once[numpy.concatenate(([0], breaks + 1))]
    stops = sorted_once[numpy.concatenate((breaks, [len(sorted_once) - 1]))] + 1
    return starts.tolist(), stops.tolist()
