"""compact: remove the records that later ones supersede, in the data folder of a stopped broker.

`storage.compaction` does the work, as in a broker. All sealed segments are compacted, however little that frees. The
job needs no Spark: the loops are compiled code, and threads share the partitions.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tidelog.config.load import load
from tidelog.config.topic_options import TopicConfig
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.jobs.parts import archives
from tidelog.pipeline.jobs.parts.exit_codes import FAILED, OK
from tidelog.pipeline.jobs.parts.flags import JobFlags, duration_ms
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.now import now_ms
from tidelog.protocol.records.steps import at_once
from tidelog.storage import files
from tidelog.storage.compaction import passes, plan
from tidelog.storage.errors import DataDirLocked, StorageError
from tidelog.storage.fsck import Fsck
from tidelog.storage.layout import node_id_of
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager

COLUMNS: Final = ("partition", "segment", "next_offset", "records", "bytes", "source_bytes", "yield")
_LOAD: Final = 0.9


def run(flags: JobFlags, delete_retention: str, buffer_bytes: int, threads: int, rolls: bool) -> int:
    """Compact the topic, and print its segments; return the exit code, 1 if something is damaged."""
    where = flags.folder("compacted")
    if not flags.topic:
        raise WrongOption("--topic is missing; see --help")
    flags.demand_no_times("the whole log is compacted")
    folder, length_ms = Path(where), duration_ms("--delete-retention", delete_retention)
    partitions = from_segments.partitions(where, flags.topic)
    for each in partitions:
        if files.status(folder / f"{flags.topic}-{each}" / archives.MANIFEST) is not None:
            raise PipelineError(
                f"{where}: it is an archive, whose files never change; compact the data folder instead"
            )
    if flags.dry_run:
        flags.print_rows(COLUMNS, list(_as_it_is(where, flags.topic, partitions)))
        return OK
    config = TopicConfig(
        cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=length_ms
    )
    progress = Progress("compact")
    with _opened(folder, flags.topic, config) as logs:
        for log in logs if rolls else ():
            if log.active.size:
                log.roll(now_ms())
        with ThreadPoolExecutor(min(threads, len(logs)), "compact") as pool:
            done = list(pool.map(partial(_compact, buffer_bytes, progress), logs))
        rows = [row for log in logs for row in _rows(log)]
    flags.print_rows(COLUMNS, rows)
    total = sum(done, Counter[str]())
    names = ("records", "dropped", "read_bytes", "freed_bytes")
    words = [f"{name} {total[name]:,}" for name in names]
    progress.say(f"{', '.join(words)}, seconds {monotonic() - flags.begun:,.1f}")
    return FAILED if _is_damaged(folder, flags.topic, partitions, progress) else OK


@contextmanager
def _opened(folder: Path, topic: str, config: TopicConfig) -> Iterator[list[Log]]:
    """Open the data folder as a broker would, and close it in order; PipelineError if a broker has it open."""
    defaults = load(None, {}, {"log.dir": str(folder), "node.id": _node_id(folder)})
    manager = LogManager(folder, defaults, now_ms)
    try:
        manager.open(lambda name: config if name == topic else defaults.topic_defaults())
    except DataDirLocked:
        raise PipelineError(f"{folder}: a broker has this data folder open; stop it first") from None
    except StorageError as error:
        raise PipelineError(str(error)) from error
    try:
        yield [log for _, log in sorted(manager.logs.items()) if log.topic == topic]
    finally:
        manager.close()


def _node_id(folder: Path) -> str:
    """Return the id of the node that the folder belongs to."""
    found = node_id_of(folder)
    if found is None:
        raise PipelineError(
            f"{folder}: it has no meta.properties, so it is no data folder of a broker; name one in segments:FOLDER"
        )
    return found


def _compact(buffer_bytes: int, progress: Progress, log: Log) -> Counter[str]:
    """Compact a log, in as many passes as its keys need; return the sums over all passes."""
    total: Counter[str] = Counter()
    records, reached = 0, -1
    while (due := plan.everything(log, now_ms())) is not None:
        steps = passes.clean(
            log, due, buffer_bytes=buffer_bytes, load_factor=_LOAD, structural=lambda do: do()
        )
        try:
            done = at_once(steps)
        except StorageError as error:
            raise PipelineError(f"{log}: {error}") from error
        progress.say(
            f"{log}: keys up to offset {done.cleaned_to:,}: {done.records_dropped:,} of {done.records:,} records go"
        )
        total.update(dropped=done.records_dropped, read_bytes=done.read_bytes, freed_bytes=done.freed_bytes)
        records = max(records, done.records)
        if done.cleaned_to <= reached:
            break
        reached = done.cleaned_to
    return Counter({"records": records, **total})


def _rows(log: Log) -> Iterator[dict[str, Any]]:
    for each in log.segments:
        source_bytes = each.summary.source_bytes if each.summary.source_bytes > 0 else None
        yield {
            "partition": log.partition,
            "segment": each.base_offset,
            "next_offset": each.next_offset,
            "records": each.summary.record_count,
            "bytes": each.size,
            "source_bytes": source_bytes,
            "yield": None if source_bytes is None else round(1 - each.size / source_bytes, 4),
        }


def _as_it_is(where: str, topic: str, partitions: list[int]) -> Iterator[dict[str, Any]]:
    with from_segments.opened(where, topic, partitions, now_ms()) as logs:
        for log, _, _ in logs:
            yield from _rows(log)


def _is_damaged(folder: Path, topic: str, partitions: list[int], progress: Progress) -> bool:
    """Check the compacted partitions and report problems; return whether there are any."""
    is_damaged = False
    for each in partitions:
        for problem in Fsck(folder / f"{topic}-{each}", deep=True, repair=False).problems():
            if not problem.is_note:
                progress.say(f"{problem.path}@{problem.position}: {problem.what}")
                is_damaged = True
    return is_damaged
