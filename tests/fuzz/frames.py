"""Frames to begin with, and ways to spoil them.

Owns: the seeds (recorded from real clients, and the same requests in every other version), and the mutations.
Refuses to know: sockets. Invariant: the same random generator gives the same cases.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.fuzz.record import CORPUS, TOPIC_ID_LINE
from tidelog.protocol.frame import encode_request, read_request_header, skip_header_tags
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest
from tidelog.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.errors import EncodeError, WireError
from tidelog.protocol.wire.schema import fields_of

MOST_FRAMES, MOST_COPIES, MOST_BYTES = 25, 3000, 1 << 20
# What a count, a length, an offset or a time may be and seldom is.
_INTEGERS = [
    *(
        0,
        1,
        2,
        127,
        128,
        255,
        256,
        32767,
        32768,
        65535,
        1 << 16,
        1 << 18,
        (1 << 18) + 1,
        1 << 20,
        100_000_000,
    ),
    *(
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        (1 << 62),
        (1 << 63) - 1,
        -1,
        -2,
        -3,
        -4,
        -5,
        -(1 << 31),
        -(1 << 63),
    ),
]
ENDS = ("half", "half", "half", "close", "reset", "stay")


@dataclass(frozen=True)
class Case:
    """What one connection sends: frames with their sizes, how they are cut into packets, and how it ends."""

    frames: tuple[bytes, ...]
    cuts: int  # what the cuts follow from; 0 sends everything in one packet
    end: str

    def packets(self) -> list[bytes]:
        """Return what is sent, piece by piece."""
        data = b"".join(self.frames)
        if not self.cuts or len(data) < 2:
            return [data]
        rng = random.Random(self.cuts)
        places = sorted(rng.sample(range(1, len(data)), min(rng.randrange(1, 12), len(data) - 1)))
        return [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]

    def text(self) -> str:
        return "\n".join(
            [f"end {self.end} cuts {self.cuts}", *(f"frame {frame.hex()}" for frame in self.frames)]
        )


def read_cases(text: str) -> list[Case]:
    """Read what `Case.text` wrote, any number of them; other lines are words for people."""
    cases: list[Case] = []
    for line in text.splitlines():
        first, _, rest = line.partition(" ")
        if first == "end":
            end, _, cuts = rest.split()
            cases.append(Case((), int(cuts), end))
        elif first == "frame":
            cases[-1] = dataclasses.replace(cases[-1], frames=(*cases[-1].frames, bytes.fromhex(rest)))
    return cases


# What no client sent while it was recorded.
_UNRECORDED: list[tuple[int, Any]] = [
    (
        23,
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="corpus", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                )
            ]
        ),
    ),
    (
        29,
        DescribeAclsRequest(
            resource_type_filter=2,
            resource_name_filter="corpus",
            principal_filter=None,
            host_filter="*",
            operation=1,
            permission_type=1,
        ),
    ),
    (
        48,
        DescribeClientQuotasRequest(
            components=[ComponentData(entity_type="client-id", match_type=0, match="corpus")], strict=True
        ),
    ),
    (60, DescribeClusterRequest(include_cluster_authorized_operations=True)),
]


@dataclass(frozen=True)
class Seed:
    """A sound request: its frame without the size, and its parts where we can read them."""

    body: bytes
    api: Api | None = None
    version: int = 0
    request: Any = None


@cache
def seeds(topic_id: bytes) -> tuple[Seed, ...]:
    """Return the recorded frames, naming this topic id instead of theirs, and each in every version that holds it."""
    recorded_id, found = b"", list[Seed]()
    for line in CORPUS.read_text().splitlines():
        who, text = line.split()
        body = bytes.fromhex(text)
        if who == TOPIC_ID_LINE:
            recorded_id = body
        else:
            found.append(_understood(body.replace(recorded_id, topic_id)))
    others: dict[tuple[int, int], Seed] = {}
    requests = [(seed.api.key, seed.request) for seed in found if seed.api]
    for key, request in [*requests, *_UNRECORDED]:
        api = APIS[key]
        for version in range(api.min_version, api.max_version + 1):
            try:
                body = encode_request(api, version, 7, "fuzz", request)[4:]
            except (WireError, EncodeError):
                continue  # that version cannot say it
            others.setdefault((key, version), Seed(body, api, version, request))
    return (*found, *others.values())


def _understood(body: bytes) -> Seed:
    view, end = memoryview(body), len(body)
    key_version, _, _, position = read_request_header(view, 0, end)
    api, version = APIS.get(key_version >> 16), key_version & 0xFFFF
    if api is None or not api.min_version <= version <= api.max_version:
        return Seed(body)
    if api.is_flexible(version):
        position = skip_header_tags(view, position, end)
    request, _ = api.reader(version)(view, position, end)
    return Seed(body, api, version, request)


# -- of bytes --------------------------------------------------------------------------------------------------------


def _flip(rng: random.Random, body: bytearray) -> None:
    for _ in range(rng.randrange(1, 5)):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def _overwrite(rng: random.Random, body: bytearray) -> None:
    at, size = rng.randrange(len(body)), rng.choice((1, 2, 4, 8))
    body[at : at + size] = _integer(rng, size)


def _integer(rng: random.Random, size: int) -> bytes:
    value = rng.choice(_INTEGERS) if rng.random() < 0.8 else rng.getrandbits(64)
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def _varint(rng: random.Random, body: bytearray) -> None:
    value, at, out = abs(rng.choice(_INTEGERS)), rng.randrange(len(body)), bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    body[at : at + rng.randrange(3)] = [*out, value]


def _cut(rng: random.Random, body: bytearray) -> None:
    del body[rng.randrange(len(body)) :]


def _cut_out(rng: random.Random, body: bytearray) -> None:
    at = rng.randrange(len(body))
    del body[at : at + rng.randrange(1, 16)]


def _repeat(rng: random.Random, body: bytearray) -> None:
    at = rng.randrange(len(body))
    body[at:at] = body[at : at + rng.randrange(1, 64)] * rng.choice((1, 1, 2, 10, 500))


def _insert(rng: random.Random, body: bytearray) -> None:
    at = rng.randrange(len(body))
    body[at:at] = rng.randbytes(rng.randrange(1, 20))


def _append(rng: random.Random, body: bytearray) -> None:
    body += rng.choice((bytes(rng.randrange(1, 5)), rng.randbytes(rng.randrange(1, 200))))


def _other_version(rng: random.Random, body: bytearray) -> None:
    body[2:4] = rng.choice((rng.randrange(20), rng.getrandbits(16))).to_bytes(2, "big")


def _other_api(rng: random.Random, body: bytearray) -> None:
    body[0:2] = rng.choice((rng.choice(list(APIS)), rng.randrange(100), rng.getrandbits(16))).to_bytes(
        2, "big"
    )


_OF_BYTES: list[Callable[[random.Random, bytearray], None]] = [
    *(_flip, _flip, _overwrite, _overwrite, _overwrite, _varint, _cut, _cut_out, _repeat, _insert, _append),
    *(_other_version, _other_version, _other_api),
]


# -- of meaning ------------------------------------------------------------------------------------------------------


def _changed(rng: random.Random, message: Any) -> Any:
    """Return a message with some things in it changed: numbers, texts, how often an element stands there."""
    for _ in range(rng.randrange(1, 4)):
        places = list(_places(message))
        if not places:
            break
        owner, name, value = rng.choice(places)
        message = _with(message, owner, name, _new_value(rng, value))
        if isinstance(value, list):
            break  # Lists of thousands in lists of thousands would be gigabytes.
    return message


def _places(message: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield what can be changed: its owner, its name, its value."""
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        yield message, field.name, value
        for each in value[:3] if isinstance(value, list) else [value]:
            if _is_message(each):
                yield from _places(each)


def _is_message(value: Any) -> bool:
    return hasattr(type(value), "__wire_fields__")


def _new_value(rng: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(_INTEGERS)
    if isinstance(value, str):
        texts = (
            "",
            "ü",
            "..",
            value * 2,
            value + "x",
            "a" * 249,
            "b" * 300,
            "/",
            "corpus",
            f"n{rng.random()}",
        )
        return rng.choice(texts)
    if isinstance(value, list):
        return value * rng.choice((0, 2, 10, MOST_COPIES))
    if isinstance(value, bytes) and len(value) == 16:
        return rng.choice((bytes(16), rng.randbytes(16)))
    if isinstance(value, bytes | memoryview) and len(value):
        body = bytearray(value)
        rng.choice(_OF_BYTES)(rng, body)
        return bytes(body)
    return None


def _with(message: Any, owner: Any, name: str, value: Any) -> Any:
    """Return a copy of a message in which one field of it, or of one inside it, has another value."""
    fields = {field.name: getattr(message, field.name) for field in fields_of(type(message))}
    if message is owner:
        return type(message)(**{**fields, name: value})
    for field, inner in fields.items():
        if isinstance(inner, list):
            fields[field] = [_with(each, owner, name, value) if _is_message(each) else each for each in inner]
        elif _is_message(inner):
            fields[field] = _with(inner, owner, name, value)
    return type(message)(**fields)


# -- cases -----------------------------------------------------------------------------------------------------------


def spoiled(rng: random.Random, pool: tuple[Seed, ...]) -> bytes:
    """Return a frame with its size: a sound one, one with another meaning, one with wrong bytes, or no frame at all."""
    seed = rng.choice(pool)
    body = bytearray(seed.body)
    kind = rng.random()
    if kind < 0.25 and seed.api is not None:
        request = _changed(rng, seed.request)
        try:
            body = bytearray(encode_request(seed.api, seed.version, rng.getrandbits(31), "fuzz", request)[4:])
        except (WireError, EncodeError, AttributeError, TypeError, OverflowError, ValueError):
            kind = 0.5  # It cannot be said in that version.
    if 0.25 <= kind < 0.8:
        for _ in range(rng.randrange(1, 4)):
            if body:
                rng.choice(_OF_BYTES)(rng, body)
    elif 0.8 <= kind < 0.86:
        other = rng.choice(pool).body
        body = body[: rng.randrange(len(body))] + other[rng.randrange(len(other)) :]
    elif kind >= 0.97:
        body = bytearray(rng.randbytes(rng.randrange(1, 300)))
    del body[MOST_BYTES:]
    size = len(body)
    if rng.random() < 0.03:
        size = rng.choice(
            (0, size + 1, size - 1, size + 70, 20_000, 2_000_000, 99_000_000, 1 << 30, (1 << 32) - 1)
        )
    return (size & 0xFFFFFFFF).to_bytes(4, "big") + bytes(body)


def cases(rng: random.Random, count: int, pool: tuple[Seed, ...]) -> list[Case]:
    """Return what so many connections send."""
    return [
        Case(
            tuple(spoiled(rng, pool) for _ in range(rng.choice((1, 1, 1, 2, 5, MOST_FRAMES)))),
            rng.choice((0, 0, rng.getrandbits(30))),
            rng.choice(ENDS),
        )
        for _ in range(count)
    ]
