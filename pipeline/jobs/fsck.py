"""fsck: check all logs of a data folder, with a task for each partition.

It finds what `tidelog fsck` finds, except partitions without a folder: only a check of the whole data folder shows
them.
"""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.jobs.parts import output
from tidelog.pipeline.jobs.parts.exit_codes import FAILED, OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.storage.fsck import Fsck, NothingToCheck

COLUMNS: Final = ("kind", "file", "position", "finding")


def run(flags: JobFlags, is_deep: bool) -> int:
    """Print the findings; return the exit code."""
    flags.demand_no_times("the whole log is checked")
    where = flags.folder("checked")
    place = Path(where).absolute()  # executors have other working directories
    folders = [
        f"{place}/{topic}-{partition}"
        for topic, partitions in from_segments.topics(where).items()
        for partition in partitions
        if flags.topic in ("", topic)
    ]
    if not folders:
        raise PipelineError(f"{where}: no log {f'of {flags.topic} ' if flags.topic else ''}is in it")
    if flags.dry_run:
        sizes = from_segments.sizes(map(Path, folders))
        output.print_account({"partitions": len(folders)} | sizes, as_json=flags.as_json)
        return OK
    context = flags.session().sparkContext
    found = context.parallelize(folders, len(folders)).flatMap(partial(checked, is_deep)).collect()
    rows = [row for row in found if row["kind"] != "looked"]
    looked = [row for row in found if row["kind"] == "looked"]
    flags.print_rows(COLUMNS, rows)
    damage = sum(row["kind"] != "note" for row in rows)
    log_bytes = sum(row["position"] for row in looked)
    Progress("fsck").say(f"{len(looked):,} partitions, {log_bytes:,} bytes of log: {damage:,} findings")
    return FAILED if damage else OK


def checked(is_deep: bool, folder: str) -> Iterator[dict[str, Any]]:
    """Check a partition's folder, in a worker; yield its findings, then a row with the bytes of log that were read."""
    logging.disable(logging.CRITICAL)  # storage logs findings for a broker
    try:
        check = Fsck(Path(folder), deep=is_deep, repair=False)
        for each in check.problems():
            kind = "note" if each.is_note else "damage" if each.is_seen else "unreadable"
            yield _row(kind, str(each.path), each.position, each.what)
        yield _row("looked", folder, check.tally.log_bytes, "")
    except (NothingToCheck, OSError) as error:
        yield _row("unreadable", folder, 0, str(error))
    finally:
        logging.disable(logging.NOTSET)


def _row(kind: str, file: str, position: int, finding: str) -> dict[str, Any]:
    return {"kind": kind, "file": file, "position": position, "finding": finding}
