"""Kafka 3.9 itself as the judge of older formats: what its validator stores of a produce, what its fetches convert to.

Entry by entry the same: offsets, attributes, times, keys, the bytes within payloads, which codecs alone may pack
otherwise. We depart from it, and these cases leave out, where:

- a wrapper's offset does not fit a payload whose offsets are 0, 1, ...: we keep the payload, it compresses it anew;
- a batch has headers or a producer's id and the topic's format is older: we drop them, it refuses the batch;
- a producer sets LogAppendTime: we refuse it, it looks at topics with LogAppendTime alone;
- the last message is cut short, or the length of a key less than -1: we refuse it, it takes what is before, and null.
"""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.support.batches import NOW_MS
from tests.support.java import SOURCES_39, needs_java, run_java
from tests.support.messages import LIMIT, RULES, convert, message, shifted, validated_as, wrapper
from tidelog.protocol.records import batch, build, compression, legacy
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.records.message_set import build_message_set, entries, open_payload, read_records
from tidelog.protocol.records.recompress import Target
from tidelog.protocol.records.topic_format import assign_offsets
from tidelog.protocol.records.validate import Rules

pytestmark = [needs_java, pytest.mark.java]

BASE = 10_000_000_000


class Answer(NamedTuple):
    """What Kafka made of bytes, or why it did not."""

    is_right: bool
    max_timestamp: int
    count: int
    data: bytes
    why: str


class Produce(NamedTuple):
    """A produce, and the topic that it is for."""

    topic: int
    append_time: bool
    difference_max_ms: int
    codec: int | None
    data: bytes

    def question(self) -> str:
        codec = "producer" if self.codec is None else compression.NAMES[self.codec]
        return (
            f"store {self.topic} {self.append_time:d} {self.difference_max_ms} {codec} "
            f"{BASE} {NOW_MS} {self.data.hex()}"
        )


def ask(questions: Sequence[str]) -> list[Answer]:
    done = run_java("FormatJudge", stdin="\n".join(questions) + "\n", sources=SOURCES_39)
    assert done.returncode == 0, done.stderr
    answers = []
    for line in done.stdout.splitlines():
        verdict, first, rest = line.split(" ", 2)
        if verdict == "OK":
            count, _, data = rest.partition(" ")
            answers.append(Answer(True, int(first), int(count), bytes.fromhex(data), ""))
        else:
            answers.append(Answer(False, 0, 0, b"", f"{first}: {rest}"))
    assert len(answers) == len(questions)
    return answers


def content(data: bytes) -> list[object]:
    """All that is in stored bytes but for what a codec may do otherwise: sizes, checksums over packed payloads."""
    found: list[object] = []
    position = 0
    while position < len(data):
        if data[position + batch.MAGIC_POSITION] == batch.MAGIC:
            header = batch.read_header(data, position)
            found.append(header._replace(batch_length=0, crc=0))
            found += build.read_records(data, position)
            position += header.size_bytes
            continue
        entry = legacy.read_entry(data, position, len(data))
        assert legacy.check_crc(data, position, entry)
        found.append((entry.offset, entry.magic, entry.attributes, entry.timestamp, entry.key_length))
        found.append(open_payload(data, entry, LIMIT) if entry.codec else legacy.value_of(data, entry))
        position += entry.size_bytes
        found += read_records(data, entry.position, position)
    return found


def drawn(chance: random.Random, *, gaps: bool = False) -> list[Record]:
    """Draw a few records, some without a time, a key or a value."""
    found = []
    offset = 0
    for _ in range(chance.randrange(1, 8)):
        time = chance.choice([-1, NOW_MS, NOW_MS - chance.randrange(5000), NOW_MS + chance.randrange(5000)])
        key = chance.choice([None, b"", b"key", chance.randbytes(5)])
        value = chance.choice([None, b"", b"value" * 9, chance.randbytes(30)])
        found.append(Record(offset, time, key, value))
        offset += 1 + (chance.randrange(3) if gaps else 0)
    return found


def built(magic: int, given: Sequence[Record], codec: int, *, append_time: bool = False) -> bytes:
    if magic == 2:
        return build_batch(given, codec=codec, log_append_time=append_time)
    return build_message_set(given, magic=magic, codec=codec, log_append_time=append_time)


def produces(chance: random.Random) -> Iterator[Produce]:
    for _ in range(1500):
        magic = chance.randrange(3)
        given = drawn(chance, gaps=magic < 2 and chance.random() < 0.3)
        data = bytearray(built(magic, given, chance.randrange(5 if magic == 2 else 4)))
        if magic < 2 and chance.random() < 0.3 and legacy.read_entry(data, 0, len(data)).codec:
            legacy.set_offset(data, 0, 0)  # as librdkafka does
        codec = chance.choice([None, None, 0, 1, 2, 3])
        difference = chance.choice([1 << 62, 1 << 62, 1000])
        yield Produce(chance.randrange(3), chance.random() < 0.3, difference, codec, bytes(data))


def wrong_produces() -> Iterator[Produce]:
    """What neither takes."""
    transaction = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    plain = [Record(0, NOW_MS, b"k", b"v")]
    for magic in (0, 1):
        inner = bytearray(message(magic))
        inner[-1] ^= 1
        one, packed = message(magic), wrapper(magic, 1, message(magic))
        for data in (
            b"",
            inner,
            wrapper(magic, 2, bytes(inner)),
            wrapper(magic, 3, message(1 - magic)),
            wrapper(magic, 1, packed),
            wrapper(magic, 1, b""),
            message(magic, value=None, attributes=1),
            message(magic, attributes=4),
            message(magic, attributes=1, value=b"nonsense"),
            one + packed,
            packed + one,
            packed + packed,
            one + message(1 - magic),
            wrapper(1, 1, message(1, 0) + message(1, 5), 3),
        ):
            for topic in (0, 1, 2):
                yield Produce(topic, False, 1 << 62, None, bytes(data))
        yield Produce(magic, False, 1 << 62, None, build_batch(plain, **transaction))  # type: ignore[arg-type]
        yield Produce(magic, False, 1 << 62, None, build_batch(plain, codec=4))
        yield Produce(magic, False, 1 << 62, 4, build_batch(plain))


def ours(produce: Produce) -> Answer:
    rules = Rules(produce.append_time, *([produce.difference_max_ms] * 2), *RULES_SIZES)
    wanted = None if produce.codec is None else Target(produce.codec, None)
    try:
        out, known = validated_as(produce.topic, bytearray(produce.data), rules, NOW_MS, wanted, BASE)
    except RecordsError as error:
        return Answer(False, 0, 0, b"", str(error))
    if known.header.magic != 2:
        assign_offsets(out, known, BASE)
        return Answer(True, known.max_timestamp, known.header.record_count, bytes(out), "")
    batch.set_base(out, 0, BASE, 0)
    return Answer(True, known.max_timestamp, known.header.record_count, bytes(out), "")


RULES_SIZES = (RULES.max_batch_bytes, RULES.max_decompressed_bytes)


def test_S60_S62_S63_S64_S65_what_a_topic_stores_is_what_kafka_stores() -> None:
    """S46 to S48, S68, S71, S72, S74, S75."""
    asked = list(produces(random.Random(7)))
    verdicts = set()
    for produce, theirs in zip(asked, ask([produce.question() for produce in asked]), strict=True):
        mine = ours(produce)
        verdicts.add(mine.is_right)
        assert mine.is_right == theirs.is_right, (produce, mine.why, theirs.why)
        assert mine.count == theirs.count
        assert content(mine.data) == content(theirs.data), produce
        # Under v0 there is no time, whatever the topic's type; Kafka then answers the clock's.
        if not (produce.topic == 0 and produce.append_time):
            assert mine.max_timestamp == theirs.max_timestamp
    assert verdicts == {True, False}


def test_S62_S64_what_a_topic_refuses_kafka_refuses() -> None:
    asked = list(wrong_produces())
    for produce, theirs in zip(asked, ask([produce.question() for produce in asked]), strict=True):
        assert (ours(produce).is_right, theirs.is_right) == (False, False), (produce, theirs)


def test_S67_what_an_old_client_fetches_is_what_kafka_sends() -> None:
    """S66, S69, S70, S73, S76 to S78: logs of all formats, from each offset, with holes and markers."""
    chance = random.Random(7)
    asked = []
    for _ in range(1000):
        stored, offset = list[tuple[int, bytes]](), chance.randrange(100)
        first = offset
        for _ in range(chance.randrange(1, 4)):
            given = shifted(drawn(chance, gaps=True), offset)
            magic, codec, append_time = chance.randrange(3), chance.randrange(4), chance.random() < 0.3
            if magic == 2 and chance.random() < 0.1:
                marker = [Record(offset, NOW_MS, bytes(4), bytes(6))]
                entry = build_batch(marker, control=True, producer_id=1, producer_epoch=0, transactional=True)
            else:
                entry = built(magic, given, codec, append_time=append_time)
            stored.append((given[-1].offset, entry))
            offset = given[-1].offset + 1 + chance.randrange(3)
        wanted = chance.randrange(first, offset)
        # What is read of a log begins with what holds the offset.
        data = b"".join(entry for last, entry in stored if last >= wanted)
        asked.append((chance.randrange(2), wanted, data))
    asked.append((1, 0, build_batch(drawn(chance), codec=4)))
    answers = ask([f"convert {magic} {offset} {data.hex()}" for magic, offset, data in asked])
    for (magic, offset, data), theirs in zip(asked, answers, strict=True):
        try:
            mine = b"".join(piece.data for piece in convert(data, 0, len(data), magic, offset, LIMIT))
        except RecordsError:
            assert not theirs.is_right
            continue
        assert theirs.is_right, theirs.why
        assert content(mine) == content(theirs.data)
        if not any(entry.codec for entry in entries(mine)):
            assert mine == theirs.data
