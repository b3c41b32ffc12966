"""Reads the committed offsets of groups from `__consumer_offsets` in a data folder, without a broker.

Offsets of a transaction count once it is committed. Damage is an error, because it may hide commits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.pipeline import quarantine
from tidelog.pipeline.decode import Window
from tidelog.pipeline.errors import DamagedLog
from tidelog.pipeline.files import from_segments, pieces
from tidelog.pipeline.files.pieces import Found
from tidelog.pipeline.options import FAIL, TASK_BYTES
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.messages import OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.records import message_set
from tidelog.protocol.records.batch import MAGIC
from tidelog.protocol.records.build import read_records
from tidelog.protocol.records.errors import RecordError, RecordsError
from tidelog.protocol.topic_names import OFFSETS_TOPIC
from tidelog.protocol.wire.errors import WireError

# The type in the key of a control record, after the version.
_COMMIT_MARKER = 1


class Reads(NamedTuple):
    """A partition that a group reads."""

    group: str
    topic: str
    partition: int


def row_of(reads: Reads, committed: int, position: int = 0, end: int | None = None) -> dict[str, Any]:
    """Return the row of a committed offset; the group continues at `position`. `end` is None if the log is gone.

    Past the end of the log the lag is unknown: the log was cut, or the offset is of an earlier log.
    """
    row: dict[str, Any] = {**reads._asdict(), "committed": committed, "end": end}
    if end is None:
        return row | {"lag": None, "lag_s": None, "past_end": None}
    is_past = position > end
    return row | {
        "lag": None if is_past else end - position,
        "lag_s": None if is_past else 0.0,
        "past_end": max(0, position - end),
    }


def in_folder(data_dir: Path, now_ms: int) -> dict[Reads, int]:
    """Return the committed offset of each group and partition; DamagedLog if the topic is damaged."""
    committed: dict[Reads, int] = {}
    partitions = from_segments.topics(str(data_dir)).get(OFFSETS_TOPIC, [])
    bad = quarantine.handler(FAIL, "", OFFSETS_TOPIC, 0)
    with from_segments.opened(str(data_dir), OFFSETS_TOPIC, partitions, now_ms) as logs:
        for log in logs:
            undecided: dict[int, list[tuple[Reads, int | None]]] = {}
            for piece in from_segments.planned(log, Window(), TASK_BYTES):
                for found in pieces.batches(piece, bad):
                    try:
                        _note(found, undecided, committed)
                    except (RecordsError, RecordError, WireError) as error:
                        raise DamagedLog(
                            f"{piece.path}@{found.position}: offsets of groups cannot be read: {error}"
                        ) from None
    return committed


def sizes(data_dir: Path) -> dict[str, int]:
    """Return the number of segments and bytes that `in_folder` reads."""
    partitions = from_segments.topics(str(data_dir)).get(OFFSETS_TOPIC, [])
    return from_segments.sizes(data_dir / f"{OFFSETS_TOPIC}-{partition}" for partition in partitions)


def _note(
    found: Found, undecided: dict[int, list[tuple[Reads, int | None]]], committed: dict[Reads, int]
) -> None:
    header = found.header
    data = found.data[found.at : found.at + header.size_bytes]
    if header.is_control:
        ended = undecided.pop(header.producer_id, [])
        keys = [record.key for record in read_records(data)]
        if keys and keys[0] is not None and int.from_bytes(keys[0][2:4], "big") == _COMMIT_MARKER:
            _apply(ended, committed)
        return
    commits = list(_commits(data, header.magic))
    if header.is_transactional:
        undecided.setdefault(header.producer_id, []).extend(commits)
    else:
        _apply(commits, committed)


def _commits(data: memoryview, magic: int) -> Iterator[tuple[Reads, int | None]]:
    """Yield the committed offsets in a batch; None is a tombstone."""
    for record in (read_records if magic == MAGIC else message_set.read_records)(data):
        pair = None if record.key is None else records.read(record.key, record.value)
        key, value = pair or (None, None)
        if not isinstance(key, OffsetCommitKey):
            continue
        offset = value.offset if isinstance(value, OffsetCommitValue) else None
        yield Reads(key.group, key.topic, key.partition), offset


def _apply(commits: list[tuple[Reads, int | None]], committed: dict[Reads, int]) -> None:
    for reads, offset in commits:
        if offset is None:
            committed.pop(reads, None)
        else:
            committed[reads] = offset
