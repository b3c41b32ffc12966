"""deadletter: what a read has put into quarantine, listed, looked into, and sent to a topic as far as it is whole.

Owns the reading of a quarantine's files (`pipeline.quarantine` writes them). What is sent is batches that are sound:
with a right checksum, and records that can be read. The others stay what they are, damage, and are counted.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.pipeline.brokers.cluster import Cluster, addresses
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.jobs.parts import output
from tidelog.pipeline.jobs.parts.exit_codes import FAILED, OK
from tidelog.pipeline.jobs.parts.flags import Asked
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.protocol.records import entries, message_set
from tidelog.protocol.records.batch import MAGIC
from tidelog.protocol.records.build import Record, read_records
from tidelog.protocol.records.errors import CorruptBatch, RecordError, RecordsError

COLUMNS: Final = ("name", "topic", "partition", "position", "bytes", "reason")
BATCH_COLUMNS: Final = ("at", "bytes", "base_offset", "records", "state")
# What a note says, at least.
_NOTE: Final[dict[str, Callable[[Any], Any]]] = {
    "file": str,
    "position": int,
    "bytes": int,
    "topic": str,
    "partition": int,
    "reason": str,
}
_WAIT_S: Final = 60


class Batch(NamedTuple):
    """What lies at a position of the bytes: its records, or why they cannot be read."""

    at: int
    bytes: int
    base_offset: int | None
    records: list[Record]
    state: str


def run(asked: Asked, folder: str, name: str, is_redrive: bool) -> int:
    """List, look into one, or send; return the exit code."""
    if not folder:
        raise WrongOption("--folder is missing; name the folder of --bad quarantine:FOLDER")
    notes = list(kept(Path(folder)))
    if is_redrive:
        return _redrive(asked, notes)
    if not name:
        output.print_rows(COLUMNS, notes, as_json=asked.as_json)
        return OK
    found = [note for note in notes if note["name"] == name]
    if not found:
        raise PipelineError(f"{folder}: there is no {name} in it; without --inspect it lists what there is")
    for note in found:
        rows = [each._asdict() | {"records": len(each.records)} for each in batches(_data(note))]
        output.print_rows(BATCH_COLUMNS, rows, as_json=asked.as_json)
    return OK


def kept(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the note of each range that is kept, by topic, partition, file and position."""
    if not folder.is_dir():
        raise PipelineError(f"{folder} is no folder; name the one of --bad quarantine:FOLDER")
    notes = []
    for path in folder.glob("*/*.json"):
        try:
            note = json.loads(path.read_bytes())
            told = {name: _NOTE[name](note[name]) for name in _NOTE}
            notes.append({**told, "name": path.stem, "path": str(path.with_suffix("")) + ".bin"})
        except (ValueError, LookupError, TypeError):
            raise PipelineError(f"{path}: is no note of a quarantine; take it away, or restore it") from None
    yield from sorted(
        notes, key=lambda note: (note["topic"], note["partition"], note["file"], note["position"])
    )


def batches(data: bytes) -> Iterator[Batch]:
    """Yield what can be told of the batches in bytes, up to where nothing can."""
    view, at = memoryview(data), 0
    while len(view) - at >= entries.BYTES_MIN:
        try:
            header = entries.peek(view, at)
        except CorruptBatch:
            break  # not even its header is all there
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
        yield Batch(at, len(view) - at, None, [], "no batch can be told")


def _data(note: dict[str, Any]) -> bytes:
    return Path(note["path"]).read_bytes()


def _redrive(asked: Asked, notes: list[dict[str, Any]]) -> int:
    kind, _, address = asked.source.partition(":")
    if kind != "broker" or not address or not asked.topic:
        raise WrongOption(
            "--redrive sends to a broker: name it by --source broker:HOST:PORT, and the topic by --topic"
        )
    addresses(address)
    found = [(note, each) for note in notes for each in batches(_data(note))]
    read = [(note, record) for note, each in found for record in each.records]
    sound = [(note, record) for note, record in read if _can_be_sent(record)]
    empty = len(read) - len(sound)
    damaged = sum(each.state not in ("sound", "marker") for _, each in found)
    account = {
        "job": "deadletter",
        "sent": len(sound),
        "damaged": damaged,
        "empty": empty,
        "topic": asked.topic,
    }
    if not asked.dry_run:
        _send(address, asked.topic, sound)
    output.print_account(account, as_json=asked.as_json)
    if damaged or empty:
        Progress("deadletter").say(
            f"{damaged} ranges, and {empty} records with neither key nor value or with a header without a value, "
            "cannot be sent, and stay where they are"
        )
    return FAILED if damaged or empty else OK


def _can_be_sent(record: Record) -> bool:
    """Tell whether the client library sends a record: one that has something, and all that its headers should have."""
    has_headers = all(value is not None for _, value in record.headers)
    return has_headers and (record.key is not None or record.value is not None)


def _send(address: str, topic: str, found: list[tuple[dict[str, Any], Record]]) -> None:
    """Send records with the time that they have, and where they were; PipelineError unless all have arrived."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what fails is raised, and said once
    with Cluster(address) as cluster:
        cluster.topic(topic)  # a name that is mistyped makes no topic
    try:
        settings = {
            "bootstrap_servers": address,
            "acks": "all",
            "enable_idempotence": True,
            "max_request_size": 100 << 20,  # how large a record may be the broker says
        }
        with closing(KafkaProducer(**settings)) as producer:
            sent = []
            for note, record in found:
                place = f"{note['topic']}-{note['partition']}@{record.offset}".encode()
                headers = [*record.headers, ("tidelog.source", place)]
                at_ms = record.timestamp if record.timestamp >= 0 else None
                sent.append(producer.send(topic, record.value, record.key, headers, timestamp_ms=at_ms))
            for each in sent:
                each.get(timeout=_WAIT_S)
    except KafkaError as error:
        raise PipelineError(
            f"not all was sent to {topic} of {address}: {error}; sending again may send twice"
        ) from None
