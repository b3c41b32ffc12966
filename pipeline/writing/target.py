"""The topic that is written to: its partitions, and which records it has already.

Owns how a writer finds the records of an earlier attempt. Each record says in a header where it came from,
`NAME@NUMBER`, for instance `orders-3@1041`; `Written` keeps those that were found, as runs of numbers. Where to begin
looking a group's committed offsets in the broker say, its marks: no record of the job is before them. Knows nothing of
Spark.
"""

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from tidelog.pipeline.errors import PipelineError

HEADER: Final = "tidelog.source"
_NUMBER_END: Final = (1 << 63) - 1  # a number, and the one behind it, are of 64 bits
_ANSWER_MS: Final = 10_000  # how long a broker may be silent, at the start
_SILENT_S: Final = 60  # and while it is read


class Written:
    """Where the records came from that a topic has."""

    def __init__(self, numbers: Mapping[str, "array[int]"] | None = None) -> None:
        self._runs = {name: _runs(of_one) for name, of_one in (numbers or {}).items()}

    def has(self, origin: str) -> bool:
        """Return whether a record that came from there was found."""
        name, number = parsed(origin)
        starts, stops = self._runs.get(name, ((), ()))
        place = bisect_right(starts, number) - 1
        return place >= 0 and number < stops[place]


class LookedAt(NamedTuple):
    """What a look at a topic found, and the part of each partition that it saw: [start, end)."""

    written: Written
    starts: dict[int, int]
    ends: dict[int, int]


def parsed(origin: str) -> tuple[str, int]:
    """Return name and number; ValueError where it is not NAME@NUMBER."""
    name, at, number = origin.rpartition("@")
    is_number = bool(at) and number.isascii() and number.isdecimal()
    if not is_number or int(number) >= _NUMBER_END:
        raise ValueError(f"{origin!r} is not of the form NAME@NUMBER, such as orders-3@1041")
    return name, int(number)


def partitions(address: str, topic: str) -> frozenset[int]:
    """Return the partitions of a topic; PipelineError where it, or the broker, is not there."""
    with _consumer(address) as consumer:
        return _partitions(consumer, address, topic)


def look(address: str, topic: str, job: str, read: bool) -> LookedAt:
    """Return what is in the topic from the marks of a job on, or, without `read`, only where it ends."""
    with _consumer(address, job) as consumer:
        ends = _ends(consumer, address, topic)
        if not read:
            return LookedAt(Written(), dict(ends), ends)
        first = _beginnings(consumer, topic, ends)
        for number in ends:
            marked = consumer.committed(TopicPartition(topic, number))
            # A topic of this name that was made anew may be shorter than the mark.
            if marked is not None and first[number] <= marked <= ends[number]:
                first[number] = marked
        return LookedAt(_read(consumer, topic, first, ends), first, ends)


def look_again(address: str, topic: str, starts: Mapping[int, int]) -> Written:
    """Return what has come to the topic since it ended there, of what is there still."""
    with _consumer(address) as consumer:
        ends = _ends(consumer, address, topic)
        first = _beginnings(consumer, topic, ends)
        return _read(
            consumer, topic, {number: max(starts.get(number, 0), first[number]) for number in ends}, ends
        )


def mark(address: str, topic: str, job: str, offsets: Mapping[int, int]) -> None:
    """Have the next look of this job begin there."""
    with _consumer(address, job) as consumer:
        places = {TopicPartition(topic, number): offset for number, offset in offsets.items()}
        consumer.assign(list(places))
        consumer.commit({place: OffsetAndMetadata(offset, "", -1) for place, offset in places.items()})


def _partitions(consumer: KafkaConsumer, address: str, topic: str) -> frozenset[int]:
    found = consumer.partitions_for_topic(topic)
    if not found:
        raise PipelineError(
            f"topic {topic} is not on {address}; make it: tidelog topics create {topic} --bootstrap {address}"
        )
    return frozenset(found)


def _ends(consumer: KafkaConsumer, address: str, topic: str) -> dict[int, int]:
    places = [TopicPartition(topic, number) for number in sorted(_partitions(consumer, address, topic))]
    return {place.partition: offset for place, offset in consumer.end_offsets(places).items()}


def _beginnings(consumer: KafkaConsumer, topic: str, numbers: Iterable[int]) -> dict[int, int]:
    places = [TopicPartition(topic, number) for number in numbers]
    return {place.partition: offset for place, offset in consumer.beginning_offsets(places).items()}


def _read(consumer: KafkaConsumer, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]) -> Written:
    """Return what the records of a part of each partition say of where they came from."""
    numbers: dict[str, array[int]] = defaultdict(lambda: array("q"))
    left = {TopicPartition(topic, number) for number, end in ends.items() if starts.get(number, 0) < end}
    consumer.assign(list(left))
    for place in left:
        consumer.seek(place, starts.get(place.partition, 0))
    while left:
        before = {place: consumer.position(place) for place in left}
        for records in consumer.poll(timeout_ms=_SILENT_S * 1000).values():
            for record in records:
                _note(record.headers, numbers)
        if before == {place: consumer.position(place) for place in left}:
            raise PipelineError(
                f"{topic}: the broker sent nothing for {_SILENT_S} s, of {sorted(left)} at {before}"
            )
        left = {place for place in left if consumer.position(place) < ends[place.partition]}
        consumer.pause(*(consumer.assignment() - left))
    return Written(numbers)


def _note(headers: list[tuple[str, bytes | None]], numbers: Mapping[str, "array[int]"]) -> None:
    # The last one: what is copied twice keeps the header of its first copy.
    origin = next((value for key, value in reversed(headers) if key == HEADER), None)
    if origin is None:
        return
    try:
        name, number = parsed(origin.decode())
    except ValueError:
        return  # somebody else's
    numbers[name].append(number)


def _runs(numbers: "array[int]") -> tuple[list[int], list[int]]:
    """Return the first of each run of numbers, and the one behind its last."""
    sorted_once = numpy.unique(numpy.frombuffer(numbers, dtype=numpy.int64))
    breaks = numpy.flatnonzero(numpy.diff(sorted_once) != 1)
    starts = sorted_once[numpy.concatenate(([0], breaks + 1))]
    stops = sorted_once[numpy.concatenate((breaks, [len(sorted_once) - 1]))] + 1
    return starts.tolist(), stops.tolist()


@contextmanager
def _consumer(address: str, job: str | None = None) -> Iterator[KafkaConsumer]:
    """Hand out a consumer that is told which partitions to read; its errors are said in our words."""
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id=None if job is None else f"tidelog.sink.{job}",
            enable_auto_commit=False,
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            bootstrap_timeout_ms=_ANSWER_MS,
            max_partition_fetch_bytes=8 << 20,
            max_poll_records=10_000,
        )
    except KafkaError as error:
        raise PipelineError(
            f"no broker answers at {address} ({type(error).__name__}: {error}); is it running?"
        ) from error
    try:
        yield consumer
    except KafkaError as error:
        raise PipelineError(f"broker {address}: {type(error).__name__}: {error}") from error
    finally:
        consumer.close(autocommit=False)
