"""lag: how far behind groups are, in records and in time.

Rows are `group, topic, partition, committed, end, lag, lag_s, past_end`. `lag_s` is the age of the first record that
the group has not passed, 0 at the end (`storage.search.lag`). An offset past the end has no lag. The job needs no
Spark: a row takes two lookups. A data folder needs no broker and gives the lag as of what is on disk; a broker is asked
over Kafka's API, which knows only the time that a record carries.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tidelog.client import groups
from tidelog.client.cluster import Cluster, Partition
from tidelog.client.lag import in_time
from tidelog.client.offsets import bounds
from tidelog.pipeline.brokers.connected import addresses, connected
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import from_segments, remote
from tidelog.pipeline.jobs.parts import committed, output, report
from tidelog.pipeline.jobs.parts.charts import Bars, Chart
from tidelog.pipeline.jobs.parts.committed import Reads, row_of
from tidelog.pipeline.jobs.parts.exit_codes import OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import APPEND, RECORD
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.search.lag import waits_ms
from tidelog.storage.sources import PATIENT

COLUMNS: Final = ("group", "topic", "partition", "committed", "end", "lag", "lag_s", "past_end")


def run(flags: JobFlags, group: str, html: str) -> int:
    """Print the lag of all groups, or of one; return the exit code."""
    flags.demand_no_times("the lag is always that of now")
    kind, _, where = flags.source.partition(":")
    if flags.clock not in (RECORD, APPEND):
        raise WrongOption(f"--clock: {flags.clock!r} is none of {RECORD}, {APPEND}")
    report.demand_place(html)
    if kind == "segments" and where and not remote.is_remote(where):
        found = committed.in_folder(Path(where), now_ms())
    elif kind == "broker" and where:
        addresses(where)
        with connected(where) as cluster:
            found = _committed_at(cluster, group)
    else:
        raise WrongOption(
            f"--source: {remote.shown(flags.source)!r} is not valid; write segments:FOLDER or broker:HOST:PORT"
        )
    wanted = {
        reads: offset
        for reads, offset in sorted(found.items())
        if group in ("", reads.group) and flags.topic in ("", reads.topic)
    }
    if flags.topic and not wanted:
        _demand_topic(kind, where, flags.topic)
    if flags.dry_run:
        counts = {"groups": len({reads.group for reads in wanted}), "rows": len(wanted)}
        sizes = committed.sizes(Path(where)) if kind == "segments" else {}
        output.print_account(counts | sizes, as_json=flags.as_json)
        return OK
    if group and not wanted:
        raise PipelineError(
            f"group {group} has committed nothing{f' of {flags.topic}' if flags.topic else ''}"
        )
    if kind == "segments":
        rows = list(in_folder(Path(where), wanted, flags.clock, now_ms()))
    else:
        rows = list(at_broker(where, wanted, flags.clock, now_ms()))
    output.print_rows(COLUMNS, rows, as_json=flags.as_json)
    _warn(rows)
    if html:
        report.write(html, "Lag of groups", COLUMNS, rows, _charts(rows))
    return OK


def _warn(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["past_end"]:
            Progress("lag").say(
                f"group {row['group']} has committed {row['committed']:,} of {row['topic']}-{row['partition']}, "
                f"{row['past_end']:,} past the end: the log was cut, or the topic was created again; set the offset "
                "with tidelog groups reset"
            )


def _demand_topic(kind: str, where: str, topic: str) -> None:
    """Raise PipelineError if the topic does not exist."""
    if kind == "segments":
        from_segments.partitions(where, topic)
        return
    with connected(where) as cluster:
        cluster.topic(topic)


def in_folder(
    data_dir: Path, wanted: Mapping[Reads, int], clock: str, at_ms: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each committed offset. A partition that is gone has no end."""
    there = from_segments.topics(str(data_dir))
    timeline = APPEND_TIME if clock == APPEND else RECORD_TIME
    for reads, offset in wanted.items():
        row = row_of(reads, offset)
        if reads.partition in there.get(reads.topic, ()):
            with from_segments.opened(str(data_dir), reads.topic, [reads.partition], at_ms) as logs:
                ((log, _, _),) = logs
                end, position = log.log_end_offset, max(offset, log.log_start_offset)
                behind_ms = waits_ms(log, position, timeline, at_ms, PATIENT)
            row = row_of(reads, offset, position, end)
            if position < end:
                row["lag_s"] = None if behind_ms is None else behind_ms / 1000
        yield row


def _committed_at(cluster: Cluster, group: str) -> dict[Reads, int]:
    """Return the committed offsets of one group, or of all."""
    names = [group] if group else sorted(groups.list_groups(cluster))
    return {
        Reads(name, key.topic, key.partition): offset
        for name in names
        for key, offset in groups.committed(cluster, name).items()
    }


def at_broker(address: str, wanted: Mapping[Reads, int], clock: str, at_ms: int) -> Iterator[dict[str, Any]]:
    """Yield rows like `in_folder`; `wanted` must be sorted by group. WrongOption for `--clock append`."""
    if clock == APPEND:
        raise WrongOption(
            "--clock append: Kafka's protocol does not tell when records were appended; use --source segments:FOLDER"
        )
    with connected(address) as cluster:
        named = {Partition(reads.topic, reads.partition) for reads in wanted}
        found = cluster.topics(sorted({key.topic for key in named})) if named else []
        there = {Partition(topic.name, each.partition_index) for topic in found for each in topic.partitions}
        known = bounds(cluster, sorted(named & there))
        ends = {key: end for key, (_, end) in known.items()}
        for _, of_group in groupby(wanted, key=lambda reads: reads.group):
            keys = {Partition(reads.topic, reads.partition): reads for reads in of_group}
            positions = {
                key: max(wanted[reads], known[key][0]) for key, reads in keys.items() if key in known
            }
            lags = in_time(cluster, positions, ends, frozenset(), at_ms)
            for key, reads in keys.items():
                if key not in known:
                    yield row_of(reads, wanted[reads])
                    continue
                row = row_of(reads, wanted[reads], positions[key], ends[key])
                if positions[key] < ends[key]:
                    waits_ms = lags[key].waits_ms
                    row["lag_s"] = None if waits_ms is None else waits_ms / 1000
                yield row


def _charts(rows: list[dict[str, Any]]) -> list[Chart]:
    named = [(f"{row['group']} {row['topic']}-{row['partition']}", row) for row in rows]
    # An unknown lag, such as that of an offset past the end, is not 0: it gets no bar.
    records = [(name, row["lag"]) for name, row in named if row["lag"] is not None]
    waits = [(name, 1000 * row["lag_s"]) for name, row in named if row["lag_s"] is not None]
    return [Bars("Records behind", "records", records), Bars("Time behind", "ms", waits)]
