"""audit-keys: the keys that a group has not read to the end, with the last offset produced and the last delivered.

The rows are the same as in `tidelog audit keys`: both use `pipeline.key_audit`. Here each partition is a task, and the
source is a broker or files. Committed offsets come from the broker, from the `__consumer_offsets` of the data folder,
or from a file. The result is as of the start of the job: later offsets are left out.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidelog.client.cluster import Partition
from tidelog.client.groups import committed as committed_by
from tidelog.pipeline import key_audit
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts import committed as commits
from tidelog.pipeline.jobs.parts.exit_codes import OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.key_audit import Behind, Bounds
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.protocol.records import entries
from tidelog.protocol.records.build import READ_LIMIT_BYTES
from tidelog.storage.compaction.reading import Entry

COLUMNS: Final = (
    "partition",
    "key",
    "produced_offset",
    "delivered_offset",
    "delivered",
    "behind",
    "behind_ms",
)
_AT_ONCE: Final = 100  # batches


def run(flags: JobFlags, group: str, committed: str) -> int:
    """Print the keys that are behind; return the exit code."""
    from tidelog.pipeline.tasks import KINDS

    chosen, began_ms = flags.chosen(), now_ms()
    flags.demand_no_times("what was delivered is counted over the whole log")
    if bool(group) == bool(committed):
        raise WrongOption("name either the group (--group) or a file of its committed offsets (--committed)")
    spans = KINDS[chosen.kind].topic_offsets(chosen, began_ms).spans
    offsets = _in_file(committed, chosen.topic) if committed else _of_group(chosen, group, list(spans))
    found = scan(chosen)
    if flags.dry_run:
        flags.print_scan(found)
        return OK
    progress = Progress("audit-keys")
    progress.say(found.words)
    bounds = {each: Bounds(start, end, offsets.get(each, 0)) for each, (start, end) in spans.items()}
    keys = records = 0

    def counted(rows: Iterator[tuple[int, Behind]]) -> Iterator[tuple[int, Behind]]:
        nonlocal keys, records
        for partition, each in rows:
            keys, records = keys + 1, records + each.records
            yield partition, each

    rows = counted(_rows(flags, chosen, bounds))
    if flags.as_json:
        for partition, each in rows:
            print(json.dumps(each.row(partition, began_ms), ensure_ascii=False))
    else:
        flags.print_rows(COLUMNS, (_shown(*row, began_ms) for row in rows))
    progress.say(f"{keys:,} keys behind, by {records:,} records")
    return OK


def _shown(partition: int, each: Behind, now_ms: int) -> dict[str, Any]:
    key = None if each.key is None else each.key.decode("utf-8", "backslashreplace")
    return {"delivered": None, **each.row(partition, now_ms), "key": key}


def _rows(flags: JobFlags, chosen: Options, bounds: dict[int, Bounds]) -> Iterator[tuple[int, Behind]]:
    """Yield the keys by partition. All partitions are counted before the first row; the rows are kept on disk."""
    from pyspark import StorageLevel

    context = flags.session().sparkContext
    tasks = context.parallelize(sorted(bounds.items()), max(len(bounds), 1))
    found = tasks.flatMap(partial(behind, chosen)).persist(StorageLevel.DISK_ONLY)
    try:
        found.count()
        yield from found.toLocalIterator()
    finally:
        found.unpersist()


def behind(chosen: Options, task: tuple[int, Bounds]) -> Iterator[tuple[int, Behind]]:
    """Yield the keys of a partition that the group has not read to the end."""
    partition, bounds = task
    if max(bounds.committed, bounds.start) >= bounds.end:
        return
    for each in key_audit.behind(partial(_read, chosen, partition), bounds):
        yield partition, each


def _read(chosen: Options, partition: int, start: int, end: int) -> Iterator[list[Entry]]:
    """Yield the batches of a range of offsets, some at a time."""
    from tidelog.pipeline.tasks import KINDS

    kind = KINDS[chosen.kind]
    pieces = kind.between(chosen, {partition: (start, end)}, now_ms()) if start < end else []
    try:
        found: list[Entry] = []
        for piece in pieces:
            for data, at, header in kind.batches(piece, chosen):
                if header.record_count == entries.UNKNOWN:
                    header = entries.read(data, at, READ_LIMIT_BYTES)
                found.append(Entry(header, data[at : at + header.size_bytes]))
                if len(found) == _AT_ONCE:
                    yield found
                    found = []
        yield found
    finally:
        kind.release(pieces)


def _of_group(chosen: Options, group: str, partitions: list[int]) -> dict[int, int]:
    """Return a group's committed offsets of a topic; PipelineError if a data folder has none of the group."""
    if chosen.kind == "broker":
        with connected(chosen.place) as cluster:
            wanted = [Partition(chosen.topic, number) for number in partitions]
            offsets = committed_by(cluster, group, wanted)
        return {each.partition: offset for each, offset in offsets.items()}
    if remote.is_remote(chosen.place):
        raise WrongOption(
            "--group: an object store has no groups; name a file of the group's committed offsets (--committed)"
        )
    found = commits.in_folder(Path(chosen.place), now_ms())
    if group not in {reads.group for reads in found}:
        raise PipelineError(f"group {group} has committed nothing in {chosen.place}; name another group")
    return {
        reads.partition: offset
        for reads, offset in found.items()
        if (reads.group, reads.topic) == (group, chosen.topic)
    }


def _in_file(name: str, topic: str) -> dict[int, int]:
    """Read offsets from a file: JSON lines with `partition` and `committed`, as `lag --json` prints them."""
    found: dict[int, int] = {}
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongOption(f"--committed: {name} cannot be read: {error}") from None
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row = json.loads(line)
            partition, offset = int(row["partition"]), int(row["committed"])
        except (ValueError, KeyError, TypeError):
            raise WrongOption(
                f"--committed: line {number} of {name} has no committed offset; write one JSON document a line: "
                '{"partition": 0, "committed": 17}'
            ) from None
        if row.get("topic", topic) != topic:
            continue
        if partition in found:
            raise WrongOption(
                f"--committed: {name} has partition {partition} twice; keep the lines of one group"
            )
        found[partition] = offset
    return found
