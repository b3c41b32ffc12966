"""The work of `tidelog explain`: retention, compaction, and look-ups by time, explained from a data folder.

The decisions are those of `storage.retention`, `storage.compaction.plan` and `storage.search`. Nothing is locked or
written, and a broker may run on the folder. Options are read as `serve` reads them, and the output names those that
matter. A topic that is not in the catalogue is taken from its folders, as a broker would adopt it.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.broker.catalog import ALL_BROKERS, CATALOG_FILE, CatalogError, TopicRecord, read
from tidelog.cli import time_options
from tidelog.cli.broker_options import configure
from tidelog.cli.configs import SOURCES
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, USAGE
from tidelog.cli.output import Column, known, or_dash, print_rows, time_column, to_json
from tidelog.cli.text import counted, note, shown
from tidelog.config import stored, times
from tidelog.config.errors import ConfigError
from tidelog.config.table import Described, Source
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records import keys
from tidelog.protocol.records.steps import at_once
from tidelog.storage import files, read_only, retention
from tidelog.storage.checkpoints import load_offsets
from tidelog.storage.compaction import plan as plans
from tidelog.storage.compaction import survey
from tidelog.storage.errors import StorageError
from tidelog.storage.layout import LOG, LOG_STARTS, partition_of
from tidelog.storage.log import Log
from tidelog.storage.retention import BEFORE_START, TOO_MUCH, Verdict
from tidelog.storage.search import explained
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME, Timeline
from tidelog.storage.search.explained import Step, Unread
from tidelog.storage.segment import Segment
from tidelog.storage.summary import OFFSET_MAX

RETENTION_OPTIONS: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "retention.clock")
COMPACTION_OPTIONS: Final = (
    "cleanup.policy",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
)
LOOKUP_OPTIONS: Final = ("lookup.clock",)
CLOCKS: Final = {"record": RECORD_TIME, "append": APPEND_TIME}
_BEGINS: Final = {"record": "its largest record time", "append": "its last append", "created": "its creation"}


class Where(NamedTuple):
    """The partitions to explain, and the options of their broker."""

    topic: str
    partition: int | None  # None for all
    data_dir: Path | None
    config_file: Path | None
    overrides: Sequence[str]


class _Topic(NamedTuple):
    """A topic, before its logs are opened."""

    name: str
    folder: Path
    partitions: list[int]
    config: TopicConfig
    options: list[Described]  # each option of `config` with the source of its value
    is_told: bool  # whether options of the broker were given


def _yes_or_dash(is_so: bool) -> str:
    return "yes" if is_so else "-"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


_SEGMENT: Final = (
    Column("partition", "partition", is_number=True),
    Column("segment", "segment", is_number=True),
    Column("next_offset", "ends before", is_number=True),
    Column("bytes", "bytes", is_number=True),
)
RETENTION: Final = (
    *_SEGMENT,
    time_column("age_begins", "age begins"),
    Column("age_bound", "or earlier", _yes_or_dash),
    time_column("expires", "expires"),
    Column("why", "why", wraps=True),
)
COMPACTION: Final = (
    *_SEGMENT,
    Column("records", "records", is_number=True),
    Column("clean_to", "clean to", or_dash, is_number=True),
    time_column("cleaned", "last pass"),
    Column("yield", "yield", _share, is_number=True),
    Column("garbage", "garbage", _share, is_number=True),
    time_column("horizon", "deletes go"),
    Column("why", "why", wraps=True),
)
OFFSET: Final = (
    *_SEGMENT,
    Column("what", "is"),
    time_column("largest_time", "largest time"),
    time_column("entry_time", "index entry"),
    Column("entry_bound", "or earlier", _yes_or_dash),
    Column("entry_offset", "to offset", or_dash, is_number=True),
    Column("position", "from position", or_dash, is_number=True),
    Column("bytes_read", "bytes read", is_number=True),
    Column("why", "why", wraps=True),
)
RANGE: Final = (
    Column("partition", "partition", is_number=True),
    Column("clock", "clock"),
    Column("offset", "first offset", or_dash, is_number=True),
    Column("end_offset", "ends before", or_dash, is_number=True),
    Column("reads", "reads", is_number=True),
    Column("bytes_read", "bytes read", is_number=True),
)


def retentions(where: Where, as_json: bool) -> int:
    """Print when each segment expires; return the exit code."""
    now_ms = time_options.now_ms()
    with _opened(where, now_ms) as (topic, logs):
        rows = [
            _of(log) | _verdict(verdict, log)
            for log in logs
            for verdict in retention.verdicts(log.segments, log.log_start_offset, log.config, now_ms)
        ]
    _print(topic, RETENTION_OPTIONS, as_json, RETENTION, "its segments under retention", rows)
    return OK


def _verdict(verdict: Verdict, log: Log) -> dict[str, Any]:
    segment = verdict.segment
    return {
        "segment": segment.base_offset,
        "next_offset": segment.next_offset,
        "bytes": segment.size,
        "age_begins": verdict.stamp.time_ms,
        "age_by": verdict.stamp.by,
        "age_bound": retention.is_bound(segment, verdict.stamp),
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
    if not config.deletes:
        return f"stays: cleanup.policy={','.join(config.cleanup_policy)}, so nothing expires"
    if verdict.due_ms is None:
        is_empty = config.retention_ms != retention.UNLIMITED
        return "stays: it is the active segment, and empty" if is_empty else "stays: retention.ms=-1"
    if verdict.held_by is not None:
        return f"stays: the older segment at {verdict.held_by} has to go first"
    appends = ", unless more is appended" if verdict.segment.is_active else ""
    if retention.is_late(verdict.segment, config):
        bound = "retention.ms" if config.retention_ms < config.late_ms else "log.retention.check.interval.ms"
        span_ms = min(config.retention_ms, config.late_ms)
        return f"stays: its records were late; they can be read for {bound}={span_ms} after the last append{appends}"
    return f"stays: {age}{appends}"


def compactions(where: Where, reads_keys: bool, as_json: bool) -> int:
    """Print how far each segment is compacted, and what is due; return the exit code."""
    now_ms = time_options.now_ms()
    rows: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    with _opened(where, now_ms) as (topic, logs):
        for log in logs:
            if reads_keys:
                _look_at_keys(log, now_ms)
            plan = plans.wanted(log, now_ms)
            rows += [_of(log) | _state(each, log, plan, now_ms) for each in log.segments]
            answers.append(_of(log, "answer") | _due(log, plan, now_ms))
    caption = "its segments under compaction"
    _print(topic, COMPACTION_OPTIONS, as_json, COMPACTION, caption, rows, answers)
    for row in () if as_json else answers:
        due = "" if row["due_at"] is None else f"; a pass is due at {times.show(row['due_at'])} at the latest"
        print(f"partition {row['partition']}: {row['why']}{due}")
    return OK


def _look_at_keys(log: Log, now_ms: int) -> None:
    """Estimate the garbage of each segment from samples of keys, as a broker does."""
    candidates = [each for each in plans.compactable(log, now_ms) if not each.summary.damage]
    secret = secrets.token_bytes(keys.SECRET_BYTES)
    for segment in candidates:
        segment.sample = at_once(survey.sampled(segment, secret))
    survey.estimate(candidates)


def _state(segment: Segment, log: Log, plan: plans.Plan | None, now_ms: int) -> dict[str, Any]:
    summary, sample = segment.summary, segment.sample
    yielded = 1 - segment.size / summary.source_bytes if summary.source_bytes > 0 else None
    return {
        "segment": segment.base_offset,
        "next_offset": segment.next_offset,
        "bytes": segment.size,
        "records": summary.record_count,
        "clean_to": known(summary.cleaned_to),
        "cleaned": known(summary.cleaned_ms),
        "source_bytes": known(summary.source_bytes),
        "yield": None if yielded is None else round(yielded, 4),
        "garbage": None if sample is None else round(sample.garbage_bytes / max(segment.size, 1), 4),
        "horizon": known(summary.horizon_ms),
        "why": _why_compacted(segment, log, plan, now_ms),
    }


def _why_compacted(segment: Segment, log: Log, plan: plans.Plan | None, now_ms: int) -> str:
    config = log.config
    if not config.compacts:
        return "stays: cleanup.policy=delete"
    if segment is log.active:
        return "stays: it is the active segment"
    if segment.next_offset <= log.log_start_offset:
        return f"stays: it ends before the log's start, {log.log_start_offset}"
    if segment.summary.damage:
        return "stays: some of its bytes are damaged"
    if segment not in plans.compactable(log, now_ms):
        return f"waits: it or an earlier segment is younger than min.compaction.lag.ms={config.min_compaction_lag_ms}"
    if plan is not None and segment in plan.must:
        if plans.has_expired(segment, now_ms):
            return "due: tombstones in it may go now"
        if plans.overdue_ms([segment] * plans.is_dirty(segment), config, now_ms) > 0:
            return f"due: it has waited for max.compaction.lag.ms={config.max_compaction_lag_ms}"
        return "due: a later segment is due"
    if plan is not None and plan.by_yield:
        if segment.sample is None:
            return "may be due: that depends on a sample of its keys, which --keys reads"
        if segment in plans.worth_it(plan.candidates, config):
            return "due: its garbage is worth the copy"
        return "rests: other segments save more for the bytes copied"
    return "rests: it has been in a pass" if not plans.is_dirty(segment) else "rests: no pass is due"


def _due(log: Log, plan: plans.Plan | None, now_ms: int) -> dict[str, Any]:
    """Return whether a pass over a log is due, why, and when."""
    segments = plans.compactable(log, now_ms)
    garbage = plans.garbage_ratio(segments)
    most = max(log.config.min_cleanable_dirty_ratio, plans.GARBAGE_MIN)
    is_bound = any(each.sample is None for each in segments)
    share = f"{garbage:.1%} of it {'may be' if is_bound else 'is'} garbage, "
    if not log.config.compacts:
        why = "it is not compacted: cleanup.policy=delete"
    elif plan is None:
        why = f"no pass is due: {share}not more than {most:.1%}"
    elif plan.must:
        why = "a pass is due: see the segments above"
    elif is_bound:
        why = f"a pass may be due: {share}and from {most:.1%} on one is"
    else:
        why = f"a pass is due: {share}more than {most:.1%}"
    return {
        "due": None if plan is not None and not plan.must and is_bound else plan is not None,
        "due_at": plans.next_due_ms(log, now_ms),
        "dirty": round(plans.dirty_ratio(segments), 4),
        "garbage": round(garbage, 4),
        "garbage_bound": is_bound,
        "why": why,
    }


def offset(where: Where, at: str, clock_name: str | None, as_json: bool) -> int:
    """Print how the first record at or after a time is found; return the exit code."""
    now_ms = time_options.now_ms()
    at_ms = time_options.time_ms("--at", at, now_ms)
    rows: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    with _opened(where, now_ms) as (topic, logs):
        name, timeline = _clock(topic, clock_name)
        for log in logs:
            found = explained.first_at_or_after(log, at_ms, timeline)
            rows += [_of(log) | _step(step) for step in found.steps]
            answer = {
                "offset": found.answer and found.answer.offset,
                "timestamp": found.answer and found.answer.timestamp,
                "bound": found.answer is not None and explained.is_bound(log, found.answer.offset, timeline),
                "bytes_read": sum(step.bytes_read for step in found.steps),
            }
            unread = explained.unread_before(log, found.answer, at_ms, timeline)
            answers.append(_answer(log, name, answer, unread))
    _print(topic, LOOKUP_OPTIONS, as_json, OFFSET, f"at or after {times.show(at_ms)}", rows, answers)
    for row in () if as_json else answers:
        found_at = "nothing" if row["offset"] is None else f"offset {row['offset']}, {_dated(row)}"
        print(f"{_by(row)}{found_at}; {counted(row['bytes_read'], 'byte')} read")
        _print_damage(row, "they may have held an earlier record")
    return OK


def time_range(where: Where, since: str, until: str, clock_name: str | None, as_json: bool) -> int:
    """Print the range of offsets that holds a range of times; return the exit code."""
    now_ms = time_options.now_ms()
    from_ms = time_options.time_ms("--from", since, now_ms)
    to_ms = time_options.time_ms("--to", until, now_ms)
    first, end = times.show(from_ms), times.show(to_ms)
    if from_ms > to_ms:
        raise CommandError(f"--from {since} is later than --to {until}: {first} is after {end}", USAGE)
    answers: list[dict[str, Any]] = []
    with _opened(where, now_ms) as (topic, logs):
        name, timeline = _clock(topic, clock_name)
        for log in logs:
            offsets, reads, bytes_read = explained.between(log, from_ms, to_ms, timeline)
            ends = (offsets[0], offsets[-1]) if offsets else ()
            answer = {
                "offset": offsets.start if offsets else None,
                "end_offset": offsets.stop if offsets else None,
                "bound": any(explained.is_bound(log, each, timeline) for each in ends),
                "reads": reads,
                "bytes_read": bytes_read,
            }
            unread = explained.unread_beside(log, offsets, from_ms, to_ms, timeline)
            answers.append(_answer(log, name, answer, unread))
    _print(topic, LOOKUP_OPTIONS, as_json, RANGE, f"from {first} on and before {end}", answers)
    for row in () if as_json else answers:
        if row["bound"]:
            print(f"{_by(row)}at an end only a bound is known, so the range may hold other records too")
        _print_damage(row, "they may have held records of the range")
    return OK


def _clock(topic: _Topic, name: str | None) -> tuple[str, Timeline]:
    """Return the name of a clock, by default the topic's, and its timeline."""
    name = name or topic.config.lookup_clock
    return name, CLOCKS[name]


def _print(
    topic: _Topic,
    names: Sequence[str],
    as_json: bool,
    columns: Sequence[Column],
    caption: str,
    rows: Sequence[dict[str, Any]],
    answers: Sequence[dict[str, Any]] = (),
) -> None:
    """Print the options and rows as a table, or with the answers as JSON."""
    options = {
        option.name: {"value": option.text, "source": SOURCES[option.source]}
        for option in topic.options
        if option.name in names
    }
    if as_json:
        for row in ({"kind": "options", "topic": topic.name, "options": options}, *rows, *answers):
            print(to_json(row))
        return
    print_rows(columns, rows, as_json=False, caption=f"{topic.name}: {caption}")
    words = [f"{name}={each['value']} ({each['source']})" for name, each in options.items()]
    is_default = any(each["source"] == SOURCES[Source.DEFAULT] for each in options.values())
    hint = (
        "; the broker's --config-file and --config are not known here"
        if is_default and not topic.is_told
        else ""
    )
    print(f"options: {', '.join(words)}{hint}")


def _of(log: Log, kind: str = "segment") -> dict[str, Any]:
    return {"kind": kind, "partition": log.partition}


def _answer(log: Log, clock: str, answer: dict[str, Any], unread: Iterable[Unread]) -> dict[str, Any]:
    damage = [_damage(each) for each in unread]
    return _of(log, "answer") | {"clock": clock} | answer | {"damage": damage}


def _by(row: dict[str, Any]) -> str:
    return f"partition {row['partition']}, by {row['clock']} time: "


def _dated(row: dict[str, Any]) -> str:
    at = times.show(row["timestamp"])
    return f"at {at} or earlier (a bound)" if row["bound"] else at


def _damage(unread: Unread) -> dict[str, Any]:
    end = unread.next_offset if unread.next_offset < OFFSET_MAX else None
    place = {"file": str(unread.segment.path(LOG)), "position": unread.start, "end": unread.end}
    return place | {"next_offset": end}


def _print_damage(row: dict[str, Any], what: str) -> None:
    for place in row["damage"]:
        upto = "the log's end" if place["next_offset"] is None else f"offset {place['next_offset'] - 1}"
        where = f"{shown(place['file'])}@{place['position']}"
        print(f"{_by(row)}damaged bytes at {where}, up to {upto}, were skipped: {what}")


def _step(step: Step) -> dict[str, Any]:
    entry_ms, entry_offset = step.time_entry or (None, None)
    return {
        "segment": step.segment.base_offset,
        "next_offset": step.segment.next_offset,
        "bytes": step.segment.size,
        "what": step.what,
        "largest_time": step.largest_ms if step.largest_ms >= 0 else None,
        "entry_time": entry_ms,
        "entry_bound": step.is_entry_bound,
        "entry_offset": entry_offset,
        "position": step.position,
        "reads": step.reads,
        "bytes_read": step.bytes_read,
        "why": step.why,
    }


@contextmanager
def _opened(where: Where, now_ms: int) -> Iterator[tuple[_Topic, Iterator[Log]]]:
    """Yield the topic and the logs of the partitions, each opened read-only when it is reached."""
    try:
        topic = _topic(where)
        yield topic, _logs(where, topic, now_ms)
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from error
    except (CatalogError, StorageError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename or where.data_dir}: {error.strerror or error}") from error


def _logs(where: Where, topic: _Topic, now_ms: int) -> Iterator[Log]:
    partitions = topic.partitions if where.partition is None else [where.partition]
    if not set(partitions) <= set(topic.partitions):
        raise CommandError(
            f"--partition {where.partition}: {topic.name} has no such partition; the last is {topic.partitions[-1]}",
            USAGE,
        )
    starts = load_offsets(topic.folder / LOG_STARTS)
    for number in partitions:
        path, start = topic.folder / f"{topic.name}-{number}", starts.get((topic.name, number), 0)
        yield read_only.load(path, topic.name, number, topic.config, start, now_ms)


def _topic(where: Where) -> _Topic:
    """Return the topic in the catalogue, with the partitions that a start would adopt from folders."""
    broker = configure(where.config_file, where.overrides, where.data_dir)
    is_told = where.config_file is not None or bool(where.overrides)
    folder, name = broker.log_dir, where.topic
    catalog = folder / CATALOG_FILE
    named = [partition_of(each) for each, is_folder in files.list_folder(folder) if is_folder]
    adopted = [each[1] for each in named if each is not None and each[0] == name]
    records: list[TopicRecord] = []
    left_out: list[str] = []
    if files.status(catalog) is not None:
        records, set_options, _ = read(catalog)
        own, everywhere = (set_options.get(each, {}) for each in (str(broker.node_id), ALL_BROKERS))
        broker, left_out = stored.broker_options(broker, own, everywhere)
    record = next((record for record in records if record.name == name), None)
    if record is None and not adopted:
        raise CommandError(f"{folder} has no topic {shown(name)}")
    if record is None:
        note(
            f"topic {name} is not in the catalogue of {folder} yet: a broker that starts there adopts its folders, "
            "and the topic gets the broker's options"
        )
    made = range(record.partitions) if record is not None else ()
    defaults = broker.topic_defaults()
    options, topic_left_out = stored.topic_options(defaults, record.options if record is not None else {})
    for problem in (*left_out, *topic_left_out):
        note(f"a stored option is ignored: {problem}")
    config = defaults.override(options, source=f"topic {name}").bounded_by(defaults)
    return _Topic(
        name, folder, sorted({*made, *adopted}), config, list(config.describe(broker.synonyms)), is_told
    )
