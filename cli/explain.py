"""`tidelog explain`: why a segment stays or goes, and how a time leads to an offset, read from a data folder.

Owns the words and tables. Decides nothing: what expires says `storage.retention`, what is found `storage.search`. Reads
the folder as it is, while a broker runs on it or none; takes no lock, and writes nothing. What a broker was told on its
command line it does not know: `--config` names the file that has it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.broker.catalog import CATALOG_FILE, CatalogError, TopicRecord, read_topics
from tidelog.broker.clock import Clock
from tidelog.cli import times
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, USAGE
from tidelog.cli.output import Column, print_rows, to_json
from tidelog.cli.text import shown
from tidelog.config.errors import ConfigError
from tidelog.config.load import load as load_config
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import read_only, retention
from tidelog.storage.checkpoints import load_offsets
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LOG_STARTS
from tidelog.storage.retention import BEFORE_START, TOO_MUCH, Verdict
from tidelog.storage.search import explained
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.search.explained import Step

CLOCKS: Final = {"record": RECORD_TIME, "append": APPEND_TIME}
_BEGINS: Final = {"record": "its largest record time", "append": "its last append", "created": "its creation"}


class Where(NamedTuple):
    """What of which folder is to be explained."""

    topic: str
    partition: int | None  # None for all
    data_dir: Path | None
    config_file: Path | None


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None or timestamp_ms < 0 else times.show(timestamp_ms)


_SEGMENT: Final = (
    Column("partition", "partition", is_number=True),
    Column("segment", "segment", is_number=True),
    Column("next_offset", "ends before", is_number=True),
    Column("bytes", "bytes", is_number=True),
)
RETENTION: Final = (
    *_SEGMENT,
    Column("age_begins", "age begins", _time),
    Column("expires", "expires", _time),
    Column("why", "why"),
)
OFFSET: Final = (
    *_SEGMENT,
    Column("what", "is"),
    Column("largest_time", "largest time", _time),
    Column("entry_time", "index entry", _time),
    Column("entry_offset", "to offset", _or_dash, is_number=True),
    Column("position", "from position", _or_dash, is_number=True),
    Column("bytes_read", "bytes read", is_number=True),
    Column("why", "why"),
)


def retained(where: Where, as_json: bool, clock: Clock) -> int:
    """Print when each segment goes, and by which rule; return the exit code."""
    now_ms = clock.now_ms()
    rows = [
        {"partition": log.partition, **_verdict(verdict, log)}
        for log in _logs(where, now_ms)
        for verdict in retention.verdicts(log.segments, log.log_start_offset, log.config, now_ms)
    ]
    print_rows(
        RETENTION, rows, as_json=as_json, caption=f"{where.topic}: what retention makes of its segments"
    )
    return OK


def _verdict(verdict: Verdict, log: Log) -> dict[str, Any]:
    segment = verdict.segment
    return {
        "segment": segment.base_offset,
        "next_offset": segment.next_offset,
        "bytes": segment.size,
        "age_begins": verdict.stamp.time_ms,
        "age_by": verdict.stamp.by,
        "rule": verdict.rule,
        "expires": verdict.due_ms,
        "held_by": verdict.held_by,
        "why": _why(verdict, log, log.config),
    }


def _why(verdict: Verdict, log: Log, config: TopicConfig) -> str:
    begins = f"{_BEGINS[verdict.stamp.by]} (retention.clock={config.retention_clock})"
    age = f"retention.ms={config.retention_ms} after {begins}"
    if verdict.rule == BEFORE_START:
        return f"goes: it ends before the log's start, {log.log_start_offset}"
    if verdict.rule == TOO_MUCH:
        return f"goes: the segments after it hold retention.bytes={config.retention_bytes}"
    if verdict.rule is not None:
        return f"goes: {age}"
    if verdict.due_ms is None:
        is_empty = config.retention_ms != retention.UNLIMITED
        return "stays: it is empty, and takes the appends" if is_empty else "stays: retention.ms=-1"
    if verdict.held_by is not None:
        return f"stays: not before the segment at {verdict.held_by}, which is older"
    appends = ", unless more is appended" if verdict.segment.is_active else ""
    return f"stays: {age}{appends}"


def looked_up(where: Where, at: str, clock_name: str | None, as_json: bool, clock: Clock) -> int:
    """Print how the first record at or after a time is found; return the exit code."""
    if clock_name is not None and clock_name not in CLOCKS:
        raise CommandError(f"--clock {shown(clock_name)}: it is one of {', '.join(CLOCKS)}", USAGE)
    now_ms = clock.now_ms()
    at_ms = times.option("--at", at, now_ms)
    rows: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for log in _logs(where, now_ms):
        name = clock_name or log.config.lookup_clock
        try:
            answer, steps = explained.first_at_or_after(log, at_ms, CLOCKS[name])
        except StorageError as error:
            raise CommandError(str(error)) from error
        rows += [{"partition": log.partition, **_step(step)} for step in steps]
        answers.append(
            {
                "partition": log.partition,
                "clock": name,
                "offset": answer and answer.offset,
                "timestamp": answer and answer.timestamp,
                "bytes_read": sum(step.bytes_read for step in steps),
            }
        )
    if as_json:
        for kind, each in (("segment", rows), ("answer", answers)):
            for row in each:
                print(to_json({"kind": kind} | row))
        return OK
    print_rows(OFFSET, rows, as_json=False, caption=f"{where.topic}: at or after {times.show(at_ms)}")
    for row in answers:
        found = (
            "nothing" if row["offset"] is None else f"offset {row['offset']}, {times.show(row['timestamp'])}"
        )
        print(
            f"partition {row['partition']}, by {row['clock']} time: {found}; {row['bytes_read']} bytes read"
        )
    return OK


def _step(step: Step) -> dict[str, Any]:
    entry_ms, entry_offset = step.time_entry or (None, None)
    return {
        "segment": step.segment.base_offset,
        "next_offset": step.segment.next_offset,
        "bytes": step.segment.size,
        "what": step.what,
        "largest_time": step.largest_ms if step.largest_ms >= 0 else None,
        "entry_time": entry_ms,
        "entry_offset": entry_offset,
        "position": step.position,
        "reads": step.reads,
        "bytes_read": step.bytes_read,
        "why": step.why,
    }


def _logs(where: Where, now_ms: int) -> Iterator[Log]:
    """Yield the logs of the partitions that were asked for, opened for reading."""
    try:
        broker = load_config(where.config_file, os.environ, {})
        folder = where.data_dir or broker.log_dir
        record = _record(read_topics(folder / CATALOG_FILE), where.topic, folder)
        config = _config(broker, record)
        starts = load_offsets(folder / LOG_STARTS)
        for number in _partitions(record, where.partition):
            start = starts.get((record.name, number), 0)
            path = folder / f"{record.name}-{number}"
            yield read_only.load(path, record.name, number, config, start, now_ms)
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from error
    except (CatalogError, StorageError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename or where.data_dir}: {error.strerror or error}") from error


def _record(records: list[TopicRecord], topic: str, folder: Path) -> TopicRecord:
    record = next((record for record in records if record.name == topic), None)
    if record is None:
        raise CommandError(f"{folder}: there is no topic {shown(topic)} in it")
    return record


def _config(broker: BrokerConfig, record: TopicRecord) -> TopicConfig:
    defaults = broker.topic_defaults()
    return defaults.override(record.options, source=f"topic {record.name}").bounded_by(defaults)


def _partitions(record: TopicRecord, partition: int | None) -> list[int]:
    if partition is None:
        return list(range(record.partitions))
    if partition >= record.partitions:
        raise CommandError(
            f"--partition {partition}: {record.name} has {record.partitions}, counted from 0", USAGE
        )
    return [partition]
