"""deadletter: list a quarantine, show the batches in it, and send the records of its sound batches to a topic.

`pipeline.quarantine` writes the files. A batch is sound if its checksum is correct and its records can be decoded.
Other batches are counted as damaged.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.brokers.connected import addresses, connected
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.jobs.parts import output
from tidelog.pipeline.jobs.parts.exit_codes import FAILED, OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.protocol.records import entries, message_set
from tidelog.protocol.records.batch import MAGIC
from tidelog.protocol.records.build import Record, read_records
from tidelog.protocol.records.errors import CorruptBatch, RecordError, RecordsError
from tidelog.storage import files

if TYPE_CHECKING:
    from tidelog.pipeline.writing.produce import Sender

Readable = bytes | files.Map
COLUMNS: Final = ("name", "topic", "partition", "position", "bytes", "reason")
BATCH_COLUMNS: Final = ("at", "bytes", "base_offset", "records", "state")
# The fields that every note has.
_NOTE: Final[dict[str, Callable[[Any], Any]]] = {
    "file": str,
    "position": int,
    "bytes": int,
    "topic": str,
    "partition": int,
    "reason": str,
}
_COUNTED: Final = ("sent", "damaged", "refused")


class Batch(NamedTuple):
    """A batch at a position of the bytes: its records, or why they cannot be read."""

    at: int
    bytes: int
    base_offset: int | None
    records: list[Record]
    state: str


def run(flags: JobFlags, folder: str, name: str, is_redrive: bool) -> int:
    """List the quarantine, show one range, or send the records; return the exit code."""
    flags.demand_no_times("the whole quarantine is listed or sent")
    if not folder:
        raise WrongOption("--folder is missing; name the folder of --bad quarantine:FOLDER")
    notes = list(kept(Path(folder)))
    if is_redrive:
        return _redrive(flags, notes)
    if not name:
        flags.print_rows(COLUMNS, notes)
        return OK
    found = [note for note in notes if note["name"] == name]
    if not found:
        raise PipelineError(f"{folder}: there is no {name} in it; leave out --inspect to list what there is")
    for note in found:
        rows = [each._asdict() | {"records": len(each.records)} for each in batches(_data(note))]
        flags.print_rows(BATCH_COLUMNS, rows)
    return OK


def kept(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the note of each range in a quarantine, by topic, partition, file and position."""
    if not folder.is_dir():
        raise PipelineError(f"{folder} is no folder; name the folder of --bad quarantine:FOLDER")
    notes = []
    for path in folder.glob("*/*.json"):
        try:
            note = json.loads(path.read_bytes())
            fields = {name: _NOTE[name](note[name]) for name in _NOTE}
            notes.append({**fields, "name": path.stem, "path": str(path.with_suffix("")) + ".bin"})
        except (ValueError, LookupError, TypeError):
            raise PipelineError(f"{path}: it is no note of a quarantine; remove or restore it") from None
    yield from sorted(
        notes, key=lambda note: (note["topic"], note["partition"], note["file"], note["position"])
    )


def batches(data: Readable) -> Iterator[Batch]:
    """Yield the batches in bytes. Bytes in which no batch can be recognized come as one, at the end."""
    view, at = memoryview(data), 0
    while len(view) - at >= entries.BYTES_MIN:
        try:
            header = entries.peek(view, at)
        except CorruptBatch:
            break  # the header is cut off
        size = header.size_bytes
        if size < entries.BYTES_MIN or size > len(view) - at:
            break
        records: list[Record] = []
        state = "sound"
        if not entries.check_crc(view, at, header):
            state = "wrong checksum"
        elif header.magic == MAGIC and header.is_control:
            state = "marker"
        else:
            try:
                read = read_records if header.magic == MAGIC else message_set.read_records
                records = list(read(view[at : at + size]))
            except (RecordsError, RecordError) as error:
                state = str(error)
        yield Batch(at, size, header.base_offset, records, state)
        at += size
    if at < len(view):
        yield Batch(at, len(view) - at, None, [], "no batch can be recognized")


def _data(note: dict[str, Any]) -> Readable:
    """Map the bytes of a range, which may be a whole segment, into memory."""
    data = files.map_readonly(Path(note["path"]))
    if len(data) < note["bytes"]:
        raise PipelineError(f"{note['path']}: of {note['bytes']} bytes {len(data)} are there; restore it")
    return data


def _redrive(flags: JobFlags, notes: list[dict[str, Any]]) -> int:
    kind, _, address = flags.source.partition(":")
    if kind != "broker" or not address or not flags.topic:
        raise WrongOption(
            "--redrive sends to a broker: name it by --source broker:HOST:PORT, and the topic by --topic"
        )
    addresses(address)
    with nullcontext() if flags.dry_run else _sending(address, flags.topic) as sender:
        counts = _sent(notes, flags.topic, sender)
    if sender is not None:
        _warn(address, sender)
    output.print_account(
        {"job": "deadletter", **{name: counts[name] for name in _COUNTED}, "topic": flags.topic},
        as_json=flags.as_json,
    )
    damaged, refused = counts["damaged"], counts["refused"]
    if damaged or refused:
        Progress("deadletter").say(
            f"{damaged} ranges and {refused} records with a header without a value cannot be sent; they stay in the "
            "quarantine"
        )
    return FAILED if damaged or refused else OK


def _warn(address: str, sender: "Sender") -> None:
    from tidelog.pipeline.writing import late

    for line in late.warnings(address, sender.oldest_ms):
        Progress("deadletter").say(line)


def _sent(notes: list[dict[str, Any]], topic: str, sender: "Sender | None") -> Counter[str]:
    """Send the sound records with their times and origins; without a sender only count them."""
    from tidelog.pipeline.writing import produce, target

    counts: Counter[str] = Counter()
    for note in notes:
        for each in batches(_data(note)):
            counts["damaged"] += each.state not in ("sound", "marker")
            for record in each.records:
                headers = headers_of(record)
                counts["refused" if headers is None else "sent"] += 1
                if sender is not None and headers is not None:
                    place = f"{note['topic']}-{note['partition']}@{record.offset}"
                    headers.append((target.HEADER, place.encode()))
                    at_ms = record.timestamp if record.timestamp >= 0 else None
                    sender.send(
                        produce.Record(place, topic, record.value, record.key, tuple(headers), None, at_ms)
                    )
    return counts


def headers_of(record: Record) -> list[tuple[str, bytes]] | None:
    """Return the headers of a record as the client sends them; None if one of them has no value."""
    found = [(name, value) for name, value in record.headers if value is not None]
    return found if len(found) == len(record.headers) else None


@contextmanager
def _sending(address: str, topic: str) -> Iterator["Sender"]:
    """Yield a sender; PipelineError at the end unless the broker has acknowledged all records."""
    from tidelog.pipeline.writing.produce import Sender

    with connected(address) as cluster:
        cluster.topic(topic)  # it must exist: a mistyped name creates no topic
    sender = Sender(address)
    try:
        yield sender
        sender.finish()
    except BaseException as error:
        sender.abandon()
        if isinstance(error, PipelineError):
            raise PipelineError(
                f"{error}; the records sent before stay, and another run sends them again"
            ) from error
        raise
