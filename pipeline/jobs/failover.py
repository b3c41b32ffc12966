"""failover: find where on cluster B a group that has read a topic on cluster A continues, so that it misses nothing.

The rule: take the append time on A of the last record that the group has consumed, subtract the largest latency on A
(append time minus create time), and look up the result on B by create time. Every unread record on A was appended after
that record, so it was created no earlier than that time. B's lookup is exact even if create times are out of order, so
none of these records lies before the offset that it finds. Clocks need not agree: B's clock plays no part, and the
difference between A's clock and the producers' is part of the latency.

If the rule does not apply to a partition, for example because no append time is known, the group starts at the start of
B's log. Both clusters must have the same partitions, because keys choose partitions by their number.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.client.admin import topic_options
from tidelog.client.cluster import Partition
from tidelog.client.groups import commit
from tidelog.client.offsets import EARLIEST, LATEST, offsets_of
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import from_segments, segments
from tidelog.pipeline.jobs.parts import committed
from tidelog.pipeline.jobs.parts.committed import Reads
from tidelog.pipeline.jobs.parts.exit_codes import OK
from tidelog.pipeline.jobs.parts.flags import JobFlags, duration_ms
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import FAIL
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset, by_time
from tidelog.storage.search.by_time import RECORD_TIME
from tidelog.storage.sources import PATIENT

COLUMNS: Final = ("group", "partition", "offset", "rule", "bound")
BY_TIME, START = "append time less max latency", "start of the log"
READ: Final = "partition int, create_time timestamp, append_time timestamp, timestamp_type string"


class Found(NamedTuple):
    """The start and end of B's log, and the first offset with a create time at or after the requested one."""

    start: int
    end: int
    offset: int


def run(flags: JobFlags, group: str, target: str, max_latency: str, is_applied: bool) -> int:
    """Print where each group continues, and commit it with `--apply`; return the exit code."""
    _check(flags, target, is_applied)
    least_ms = duration_ms("--max-latency", max_latency) if max_latency else None
    chosen = flags.chosen()
    found = scan(chosen)
    if flags.dry_run:
        flags.print_scan(found)
        return OK
    wanted = _committed(chosen.place, chosen.topic, group)
    progress = Progress("failover")
    progress.say(found.words)
    demand_searchable(target, chosen.topic, from_segments.topics(chosen.place)[chosen.topic])
    # Committed offsets were read first, so records appended while latencies are measured are unread.
    latencies = measured(flags, least_ms)
    for partition, latency_ms in sorted(latencies.items()):
        words = "not known of all records" if latency_ms is None else f"{latency_ms:,} ms at most"
        progress.say(f"{chosen.topic}-{partition}: latency {words}")
    times = since(chosen.place, chosen.topic, wanted, latencies)
    rows = list(starts(wanted, times, looked_up(target, chosen.topic, times)))
    flags.print_rows(COLUMNS, rows)
    if is_applied:
        _apply(target.partition(":")[2], chosen.topic, rows)
        progress.say(f"committed {len(rows):,} offsets at {target}")
    return OK


def _check(flags: JobFlags, target: str, is_applied: bool) -> None:
    flags.folder("searched by append time and for groups")
    kind, _, where = target.partition(":")
    if kind not in ("segments", "broker") or not where:
        raise WrongOption(
            f"--target: {target or 'it is missing'}; write broker:HOST:PORT or segments:FOLDER, of cluster B"
        )
    if is_applied and kind != "broker":
        raise WrongOption(
            "--apply: only a broker keeps the offsets of groups; write --target broker:HOST:PORT"
        )
    flags.demand_no_times("the largest latency is measured over all records")
    if flags.bad != FAIL:
        raise WrongOption(f"--bad {flags.bad}: the latency of damaged records is unknown; leave it out")


def _committed(place: str, topic: str, group: str) -> dict[Reads, int]:
    """Return the committed offsets of the topic on A."""
    found = {
        reads: offset
        for reads, offset in sorted(committed.in_folder(Path(place), now_ms()).items())
        if reads.topic == topic and group in ("", reads.group)
    }
    gone = [reads for reads in found if reads.partition not in from_segments.topics(place)[topic]]
    if gone:
        raise PipelineError(
            f"{place}: group {gone[0].group} has read {topic}-{gone[0].partition}, which is not there any more"
        )
    if not found and group:
        raise PipelineError(
            f"{place}: group {group} has committed nothing of {topic}; leave out --group to show all groups that have"
        )
    if not found:
        raise PipelineError(
            f"{place}: no group has committed offsets of {topic}; name the data folder of the broker that has the "
            "groups"
        )
    return found


def measured(flags: JobFlags, least_ms: int | None) -> dict[int, int | None]:
    """Return the largest latency of each partition of A with records; None if that of a record is unknown."""
    from tidelog.pipeline.transforms.windows import largest_delays

    rows = largest_delays(flags.read(flags.session(), READ)).collect()
    return {
        row["partition"]: None
        if row["unknown"]
        else row["max_ms"]
        if least_ms is None
        else max(least_ms, row["max_ms"])
        for row in rows
    }


def since(
    place: str, topic: str, wanted: Mapping[Reads, int], latencies: Mapping[int, int | None]
) -> dict[Reads, int | None]:
    """Return a lower bound of the create times of the records that each group has not read; None if unknown."""
    partitions = sorted({reads.partition for reads in wanted})
    found: dict[Reads, int | None] = dict.fromkeys(wanted)
    with from_segments.opened(place, topic, partitions, now_ms()) as logs:
        for log, _, _ in logs:
            latency_ms = latencies.get(log.partition)
            for reads, offset in wanted.items():
                if reads.partition == log.partition and latency_ms is not None:
                    append_ms = unread_from_ms(log, offset)
                    found[reads] = None if append_ms is None else append_ms - latency_ms
    return found


def unread_from_ms(log: Log, offset: int) -> int | None:
    """Return a lower bound of the append times of the records at or after an offset; None if unknown.

    It is the append time of the record before the offset, the last one that was read. If that record is deleted, the
    offset is the start of the log, and the first record takes its place. An append time that is only an upper bound
    does not count; the last exact one before it does. If the offset is past the end of the log, records were lost or
    the offset is of another log, so it is unknown what was read of this one.
    """
    start = log.log_start_offset
    if not start <= offset <= log.log_end_offset:
        return None
    last = max(offset - 1, start)
    for number in range(by_offset.segment_number(log.segments, last), -1, -1):

        def look(number: int = number) -> list[int]:
            segment = log.segments[number]
            index = segment.append_index
            if not len(index):
                return []
            entry = index.time_at(last - segment.base_offset)
            if not entry.is_bound and segment.base_offset + entry.relative_offset <= last:
                return [entry.time_ms]
            entries = map(index.entry, range(len(index)))
            return [
                entry.time_ms
                for entry in entries
                if not entry.is_bound and segment.base_offset + entry.relative_offset <= last
            ][-1:]

        if found := segments.verifying(log, look):
            return found[0]
    return None


def starts(
    wanted: Mapping[Reads, int], times: Mapping[Reads, int | None], found: Mapping[Reads, Found]
) -> Iterator[dict[str, Any]]:
    """Yield where each group continues in each partition.

    `bound` limits how many records it reads again: no more than B has from there on, and no more than it has read.
    """
    for reads in sorted(wanted):
        place, is_by_time = found[reads], times[reads] is not None
        offset = place.offset if is_by_time else place.start
        yield {
            "group": reads.group,
            "partition": reads.partition,
            "offset": offset,
            "rule": BY_TIME if is_by_time else START,
            "bound": min(place.end - offset, wanted[reads]),
        }


def demand_searchable(target: str, topic: str, ours: list[int]) -> None:
    """Raise PipelineError unless cluster B can be searched by create time and has the same partitions as A."""
    kind, _, where = target.partition(":")
    if kind == "segments":
        there, settings = from_segments.topics(where).get(topic, []), {}
    else:
        with connected(where) as cluster:
            there, settings = list(cluster.topic(topic).leaders), topic_options(cluster, topic)
    if ours != there:
        raise PipelineError(
            f"{where}: it has partitions {there} of {topic}, and A has {ours}; keys choose partitions by their number, "
            "so they must be the same"
        )
    for name, wrong in (("lookup.clock", "append"), ("message.timestamp.type", "LogAppendTime")):
        if settings.get(name) == wrong:
            raise PipelineError(
                f"topic {topic} at {where} has {name}={wrong}, so it cannot be searched by create time; name its "
                "files, --target segments:FOLDER, or change the option"
            )


def looked_up(target: str, topic: str, times: Mapping[Reads, int | None]) -> dict[Reads, Found]:
    """Return what cluster B has at or after each create time; for None, only its start and end."""
    kind, _, where = target.partition(":")
    return (_in_folder if kind == "segments" else _at_broker)(where, topic, times)


def _in_folder(place: str, topic: str, times: Mapping[Reads, int | None]) -> dict[Reads, Found]:
    found: dict[Reads, Found] = {}
    with from_segments.opened(place, topic, sorted({each.partition for each in times}), now_ms()) as logs:
        for log, _, _ in logs:
            end = log.log_end_offset
            for reads, time_ms in times.items():
                if reads.partition != log.partition:
                    continue
                first = None
                if time_ms is not None:
                    first = by_time.first_at_or_after(log, time_ms, RECORD_TIME, PATIENT)
                found[reads] = Found(log.log_start_offset, end, end if first is None else first.offset)
    return found


def _at_broker(address: str, topic: str, times: Mapping[Reads, int | None]) -> dict[Reads, Found]:
    partitions, found = {reads.partition for reads in times}, {}
    with connected(address) as cluster:
        begin = offsets_of(cluster, topic, dict.fromkeys(partitions, EARLIEST))
        # Before the lookup: records appended in between are read.
        ends = offsets_of(cluster, topic, dict.fromkeys(partitions, LATEST))
        for group in {reads.group for reads in times}:
            of = {reads.partition: time_ms for reads, time_ms in times.items() if reads.group == group}
            known = {number: max(0, time_ms) for number, time_ms in of.items() if time_ms is not None}
            firsts = offsets_of(cluster, topic, known) if known else {}
            for number in of:
                first = firsts.get(number, -1)
                offset = first if first >= 0 else ends[number]
                found[Reads(group, topic, number)] = Found(begin[number], ends[number], offset)
    return found


def _apply(address: str, topic: str, rows: list[dict[str, Any]]) -> None:
    with connected(address) as cluster:
        for group in sorted({row["group"] for row in rows}):
            offsets = {
                Partition(topic, row["partition"]): row["offset"] for row in rows if row["group"] == group
            }
            commit(cluster, group, offsets)
