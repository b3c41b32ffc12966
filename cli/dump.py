"""`tidelog dump`: the contents of the files of a partition, read without a broker.

It judges each part of a file, and repairs nothing. A broker may be writing the file, so an incomplete end is reported
but is no error. Memory is bounded by a batch, or by an index.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final, NamedTuple
from uuid import UUID

import click

from tidelog.cli.arguments import PATH, json_option
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.formats import TIMESTAMP_TYPES, json_content, plain_headers
from tidelog.cli.output import alarming, plain, progress, to_json
from tidelog.cli.text import examples
from tidelog.config.times import show
from tidelog.protocol.records import entries, legacy, message_set
from tidelog.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_POSITION,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    PREFIX_BYTES,
    BatchHeader,
    check_crc,
    read_header,
)
from tidelog.protocol.records.build import Record, read_records
from tidelog.protocol.records.compression import NAMES
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage import append_index, offset_index, producer_state, time_index
from tidelog.storage.blocks import DIGEST_BYTES
from tidelog.storage.summary import Summary

# Suffixes of files that deletion or compaction has put aside.
_ASIDE: Final = (".deleted", ".cleaned", ".swap")
# How far to search for a whole batch after a damaged one.
SEARCH_MAX_BYTES: Final = 16 << 20


class Part(NamedTuple):
    """A part of a file: its fields for JSON, its text, and whether it is sound."""

    fields: dict[str, Any]
    text: str
    is_sound: bool = True


@click.command(
    "dump",
    epilog=examples(
        "tidelog dump data/orders-0/00000000000000000000.log --records",
        "tidelog dump data/orders-0/00000000000000000000.timeindex --json",
    ),
)
@click.argument(
    "file",
    type=PATH,
    help="A .log, .index, .timeindex, .appendindex, .snapshot or .summary of a partition.",
)
@click.option("--records", "--deep", "records", is_flag=True, help="Show the records in each batch too.")
@json_option
def dump(file: Path, records: bool, as_json: bool) -> int:
    """Show what a file of a partition holds, and any damage. A running broker is not disturbed.

    An incomplete last batch is reported but is no error, since a broker may be writing it.
    """
    is_sound = True
    for part in _parts(file, records):
        print(
            to_json(part.fields | {"ok": part.is_sound})
            if as_json
            else part.text
            if part.is_sound
            else alarming(part.text)
        )
        is_sound &= part.is_sound
    return OK if is_sound else FAILED


def _parts(path: Path, with_records: bool) -> Iterator[Part]:
    base_offset, parts_of = _kind(path)
    if path.exists() and not path.is_file():
        raise CommandError(f"{path}: not a regular file")
    try:
        with open(path, "rb") as file, progress(path.name, _size(file), beside_output=True) as advance:
            yield from parts_of(file, base_offset, with_records, advance)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


Advance = Callable[[int], None]
PartsOf = Callable[[IO[bytes], int, bool, Advance], Iterator[Part]]


def _kind(path: Path) -> tuple[int, PartsOf]:
    """Return the base offset in the name of a file, and the function that reads this kind of file."""
    name = path.name
    for ending in _ASIDE:
        name = name.removesuffix(ending)
    base, _, kind = name.partition(".")
    if kind not in _KINDS or not base.isdecimal():
        if not path.is_file():
            raise CommandError(f"{path}: {'not a file' if path.exists() else os.strerror(errno.ENOENT)}")
        known = ", ".join(f".{known}" for known in _KINDS)
        raise CommandError(f"{path}: dump reads files named <20 digits> followed by one of {known}", USAGE)
    return int(base), _KINDS[kind]


def _size(file: IO[bytes]) -> int:
    """Return the current size in bytes, and go to the start."""
    size = file.seek(0, 2)
    file.seek(0)
    return size


# A segment's log.


def _log(file: IO[bytes], _base_offset: int, with_records: bool, advance: Advance) -> Iterator[Part]:
    position, size = 0, _size(file)
    while position < size:
        file.seek(position)
        head = file.read(HEADER_BYTES)
        end = position + _entry_bytes(head)
        if position < end <= size:
            data = head[: end - position] + file.read(max(0, end - position - len(head)))
            yield from _entry(position, data, with_records)
        else:
            next_position = _next_batch(file, position, size)
            is_torn = next_position == size and end > size
            yield _torn(position, size, end) if is_torn else _unreadable(position, next_position)
            end = next_position
        advance(end - position)
        position = end


def _entry_bytes(head: bytes) -> int:
    """Return the size of an entry of any format, from its first bytes; 0 if they are not an entry."""
    if len(head) <= MAGIC_POSITION:
        return HEADER_BYTES
    size = PREFIX_BYTES + int.from_bytes(head[LENGTH_POSITION:PREFIX_BYTES], "big", signed=True)
    smallest = HEADER_BYTES if head[MAGIC_POSITION] == MAGIC else legacy.HEAD_BYTES
    return size if size >= smallest and head[MAGIC_POSITION] <= MAGIC else 0


def _next_batch(file: IO[bytes], position: int, size: int) -> int:
    """Return the position of the first whole batch after a damaged one, or the end of the search."""
    file.seek(position)
    data = file.read(SEARCH_MAX_BYTES)
    at = data.find(MAGIC, MAGIC_POSITION + 1)
    while 0 <= at <= len(data) - (HEADER_BYTES - MAGIC_POSITION):
        start = at - MAGIC_POSITION
        if check_crc(data, start, read_header(data, start)):
            return position + start
        at = data.find(MAGIC, at + 1)
    return min(size, position + len(data))


def _unreadable(position: int, end: int) -> Part:
    fields = {"kind": "unreadable", "position": position, "bytes": end - position}
    return Part(
        fields, f"unreadable: {end - position} bytes from position {position} are not a batch", is_sound=False
    )


def _torn(position: int, size: int, end: int) -> Part:
    fields = {"kind": "torn", "position": position, "bytes": size - position}
    text = (
        f"the last batch, at position {position}, is not whole: {size - position} of {end - position} bytes "
        "(it is being written, or is torn; a broker that opens the log removes it)"
    )
    return Part(fields, text)


def _entry(position: int, data: bytes, with_records: bool) -> Iterator[Part]:
    if data[MAGIC_POSITION] == MAGIC:
        return _batch(position, data, with_records)
    return _legacy(position, data, with_records)


def _legacy(position: int, data: bytes, with_records: bool) -> Iterator[Part]:
    header = entries.peek(data)
    is_right = entries.check_crc(data, 0, header)
    fields = {
        "kind": "legacy",
        "position": position,
        "offset": header.base_offset,
        "bytes": len(data),
        "magic": header.magic,
        "codec": NAMES[header.codec] if header.codec < len(NAMES) else header.codec,
    }
    if header.magic:
        fields["timestamp"] = header.max_timestamp
        fields["timestamp_type"] = TIMESTAMP_TYPES[header.is_log_append_time]
    yield _part(fields | {"crc_ok": is_right}, is_sound=is_right)
    if with_records:
        yield from _records(position, message_set.read_records(data))


def _batch(position: int, data: bytes, with_records: bool) -> Iterator[Part]:
    header = read_header(data)
    is_right = check_crc(data, 0, header)
    yield _part(_batch_fields(position, header) | {"crc_ok": is_right}, is_sound=is_right)
    if with_records:
        yield from _records(position, read_records(data))


def _records(position: int, records: Iterable[Record]) -> Iterator[Part]:
    try:
        for record in records:
            content = json_content(record.key, record.value, record.headers)
            fields = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
            headers = plain_headers(record.headers)
            text = (
                f"  record offset={record.offset} timestamp={show(record.timestamp)} "
                f"key={plain(record.key)} value={plain(record.value)}"
            )
            yield Part(fields | content, f"{text} headers: {headers}" if headers else text)
    except RecordsError as error:
        fields = {"kind": "unreadable", "position": position, "error": str(error)}
        yield Part(fields, f"  its records cannot be read: {error}", is_sound=False)


def _batch_fields(position: int, header: BatchHeader) -> dict[str, Any]:
    codec = NAMES[header.codec] if header.codec < len(NAMES) else header.codec
    fields: dict[str, Any] = {
        "kind": "batch",
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size_bytes,
        "codec": codec,
        "timestamp_type": TIMESTAMP_TYPES[header.is_log_append_time],
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
    }
    if header.producer_id != NO_PRODUCER_ID:
        fields["producer_id"] = header.producer_id
        fields["producer_epoch"] = header.producer_epoch
        fields["base_sequence"] = header.base_sequence
    for name, is_so in (
        ("transactional", header.is_transactional),
        ("control", header.is_control),
        ("delete_horizon", header.has_delete_horizon),
    ):
        if is_so:
            fields[name] = True
    return fields


# What lies beside it.


def _offset_index(file: IO[bytes], base_offset: int, _deep: bool, advance: Advance) -> Iterator[Part]:
    last = (-1, -1)
    for entry in _index_entries(file.read(), offset_index.ENTRY, advance):
        if isinstance(entry, Part):
            yield entry
            continue
        fields = {"kind": "entry", "offset": base_offset + entry[0], "position": entry[1]}
        yield _part(fields, is_sound=entry[0] > last[0] and entry[1] > last[1])
        last = entry


def _time_index(file: IO[bytes], base_offset: int, _deep: bool, advance: Advance) -> Iterator[Part]:
    last = (-1, -1)
    for entry in _index_entries(file.read(), time_index.ENTRY, advance):
        if isinstance(entry, Part):
            yield entry
            continue
        fields = {"kind": "entry", "timestamp": entry[0], "offset": base_offset + entry[1]}
        yield _part(fields, is_sound=entry[0] > last[0] and entry[1] >= last[1])
        last = entry


def _append_index(file: IO[bytes], base_offset: int, _deep: bool, advance: Advance) -> Iterator[Part]:
    data, size = file.read(), append_index.ENTRY_BYTES
    if not data:
        return
    header, entries = append_index.parsed(data)
    if header is None:
        yield _damaged("its header is damaged, or is not that of an append index of this version")
    else:
        topic_id = str(UUID(bytes=header.topic_id))
        yield _part(
            {"kind": "header"} | header._asdict() | {"origin": header.origin.name, "topic_id": topic_id}
        )
    for number, entry in enumerate(append_index.sound_entries(entries)):
        if entry is None:
            position = append_index.HEADER_BYTES + number * size
            yield _part({"kind": "entry", "position": position}, is_sound=False)
        else:
            fields = {
                "kind": "entry",
                "append_ms": entry.time_ms,
                "offset": base_offset + entry.relative_offset,
            }
            yield _part(fields | {"bound": True} if entry.is_bound else fields)
        advance(size)
    if len(entries) % size:
        yield _rest("torn", len(entries) % size)


def _index_entries(data: bytes, layout: Struct, advance: Advance) -> Iterator[tuple[int, int] | Part]:
    """Yield the entries, and a part for the rest: preallocated space, or an entry that is being written."""
    whole = len(data) - len(data) % layout.size
    for position in range(0, whole, layout.size):
        first, second = layout.unpack_from(data, position)
        if position and not (first or second):
            yield _rest("unused", len(data) - position)
            return
        yield first, second
        advance(layout.size)
    if whole < len(data):
        yield _rest("torn", len(data) - whole)


def _rest(kind: str, count: int) -> Part:
    return _part({"kind": kind, "bytes": count})


def _snapshot(file: IO[bytes], _base_offset: int, _deep: bool, _advance: Advance) -> Iterator[Part]:
    batches = producer_state.decode(file.read())
    if batches is None:
        yield _damaged("not a whole snapshot of a known version")
        return
    for producer_id, epoch, batch in sorted(batches, key=lambda row: row[0]):
        fields = {"kind": "batch", "producer_id": producer_id, "producer_epoch": epoch}
        yield _part(fields | batch._asdict())


def _summary(file: IO[bytes], _base_offset: int, _deep: bool, _advance: Advance) -> Iterator[Part]:
    data = file.read()
    summary = Summary.decode(data)
    if summary is None:
        yield _damaged(Summary.fault(data))
        return
    fields = asdict(summary)
    damage, digests, minima = fields.pop("damage"), fields.pop("digests"), fields.pop("minima").stretches
    fields |= {"digests": len(digests) // DIGEST_BYTES}
    fields |= {"stretches": len(minima.times), "stretch_bytes": minima.stretch_bytes}
    yield _part({"kind": "summary"} | fields)
    for place in damage:
        yield _part({"kind": "damage"} | place._asdict(), is_sound=False)


def _damaged(why: str) -> Part:
    return Part({"kind": "unreadable", "error": why}, f"unreadable: {why}", is_sound=False)


_KINDS: Final[dict[str, PartsOf]] = {
    "log": _log,
    "index": _offset_index,
    "timeindex": _time_index,
    "appendindex": _append_index,
    "snapshot": _snapshot,
    "summary": _summary,
}


def _part(fields: dict[str, Any], *, is_sound: bool = True) -> Part:
    """Return a part whose text is its kind and its fields as name=value."""
    words = [f"{name}={_word(name, value)}" for name, value in fields.items() if name != "kind"]
    verdict = [] if is_sound else ["DAMAGED"]
    return Part(fields, " ".join([fields["kind"], *words, *verdict]), is_sound)


def _word(name: str, value: Any) -> str:
    if name.endswith(("timestamp", "_ms")):
        return show(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
