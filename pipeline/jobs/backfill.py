"""backfill: write the records of an exact range of times to a table.

A second run over the same topic and range changes nothing: in Delta it replaces the rows of the range, in Parquet the
files of the first run, which it knows by their names.
"""

import hashlib
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from datetime import UTC
from functools import partial
from typing import Final
from uuid import uuid4

from tidelog.config import times
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.jobs.parts import delta, landing, table_out
from tidelog.pipeline.jobs.parts.exit_codes import OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.landing import Landed
from tidelog.pipeline.jobs.parts.place import Place, place
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.jobs.parts.table_out import DELTA, JSON, PARQUET, Form
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import APPEND, Options
from tidelog.pipeline.ranges import TIME_END_MS
from tidelog.pipeline.tables import RECORDS
from tidelog.pipeline.tasks import Task, planned

_LONGEST: Final = 180  # characters of a topic in a file name, which may have 255
_NAME: Final = re.compile(
    r"(?:[^/]+/)?(?P<topic>.+)-by-(?P<clock>\w+)-(?P<first>start|\d+)-(?P<end>end|\d+)-\d+\.parquet"
)


def run(flags: JobFlags, out: str, form: Form) -> int:
    """Write the range; return the exit code."""
    chosen = flags.chosen()
    form.demand_append_time(chosen)
    if form.decode == JSON:
        flags.demand_not_local("--decode json")
    found = scan(chosen)
    if flags.dry_run:
        flags.print_scan(found)
        return OK
    target = place("--out", out)
    table_out.demand_form(target, form)
    if form.format_name == PARQUET:
        _refuse_overlap(target, chosen)
    progress = Progress("backfill")
    progress.say(found.words)
    for left in landing.clear_left(target, now_ms()):
        progress.say(f"removed {left}, which a killed run had left")
    folder = landing.own_folder()
    try:
        watched = progress.watching(lambda: landing.rows_staged(target, folder), found.records_at_most)
        landed = _staged(flags, chosen, form, target, folder, watched)
        if form.format_name == DELTA:
            _demand_ingested(target, folder, landed, chosen.topic)
            delta.replace(target, folder, landed, _predicate(chosen), form.by)
        else:
            landing.put(target, folder, landed, _prefix(chosen))
    finally:
        landing.discard(target, folder)
    counts = {
        "rows": sum(each.rows for each in landed),
        "files": len(landed),
        "bytes": sum(each.bytes for each in landed),
    }
    undecoded = {"undecoded": sum(each.undecoded for each in landed)} if form.decode else {}
    flags.print_account("backfill", counts, out=out, **undecoded)
    return OK


def _staged(
    flags: JobFlags,
    chosen: Options,
    form: Form,
    target: Place,
    folder: str,
    watched: AbstractContextManager[None],
) -> list[Landed]:
    """Write the records to a folder of the target, while that is watched; return the files."""
    if form.decode == JSON:
        from tidelog.pipeline.jobs.parts import staging

        frame = form.decoded(flags.read(flags.session()))
        with watched:
            return staging.stage(frame, target, folder, form)
    target.files.create_dir(target.under(folder), recursive=True)
    work = partial(_written, chosen, form, Place(target.uri, target.under(folder)))
    with planned(chosen) as tasks:
        engine = flags.engine_for(sum(task.size_bytes for task in tasks))
        with watched:
            return [each for landed in engine.each(work, [*enumerate(tasks)]) for each in landed]


def _written(chosen: Options, form: Form, staged: Place, numbered: tuple[int, Task]) -> list[Landed]:
    """Write the records of a task, where the engine runs it; return the files."""
    number, task = numbered
    name = f"{number:05d}-{uuid4().hex}.staged"  # Spark may run a task twice.
    with closing(task.rows(RECORDS.names, chosen)) as rows:
        return landing.written(map(form.completed, rows), staged, name, number, form.folders)


def _prefix(chosen: Options) -> str:
    """Return the prefix of the file names of a topic and range."""
    first = "start" if chosen.from_ms is None else chosen.from_ms
    end = "end" if chosen.to_ms is None else chosen.to_ms
    return f"{_name(chosen.topic)}-by-{chosen.clock}-{first}-{end}"


def _name(topic: str) -> str:
    """Return a topic's name for file names. A long one is cut and gets a digest."""
    if len(topic) <= _LONGEST:
        return topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return f"{topic[: _LONGEST - 17]}~{digest}"  # no topic has a tilde in its name


def has_written(target: Place, topic: str) -> bool:
    """Return whether a place has Parquet files of a topic that this job has written."""
    found = map(_NAME.fullmatch, landing.files_of(target, f"{_name(topic)}-by-"))
    return any(each is not None and each["topic"] == _name(topic) for each in found)


def _demand_ingested(target: Place, folder: str, landed: Sequence[Landed], topic: str) -> None:
    """Raise PipelineError if staged records lie after the position of an ingest stream: it would write them again."""
    if not table_out.is_claimed(target, topic):
        return
    there = delta.ends(target, topic)
    for partition, end in sorted(delta.staged_ends(target, folder, landed, topic).items()):
        if end > there.get(partition, 0):
            raise PipelineError(
                f"{target.uri} has records of topic {topic} by ingest, which has not reached {topic}-{partition}@"
                f"{end - 1} yet, and would write it again: name an earlier --to, or let ingest reach it first"
            )


def _refuse_overlap(target: Place, chosen: Options) -> None:
    """Raise PipelineError if other files may have some of the same records, which would then be there twice."""
    if table_out.is_claimed(target, chosen.topic):
        raise PipelineError(
            f"{target.uri} has records of topic {chosen.topic} by ingest, and may have the same ones: name another "
            "--out, or write both with --format delta, which replaces the rows of the range"
        )
    first, end = chosen.from_ms or 0, TIME_END_MS if chosen.to_ms is None else chosen.to_ms
    for name in sorted(landing.files_of(target, f"{_name(chosen.topic)}-by-")):
        found = _NAME.fullmatch(name)
        if (
            found is None
            or found["topic"] != _name(chosen.topic)
            or name.rpartition("/")[2].startswith(f"{_prefix(chosen)}-")
        ):
            continue
        there = (
            0 if found["first"] == "start" else int(found["first"]),
            TIME_END_MS if found["end"] == "end" else int(found["end"]),
        )
        if found["clock"] != chosen.clock or (first < there[1] and there[0] < end):
            raise PipelineError(
                f"{target.under(name)} may have some of the same records: name the same range as that file, or another "
                "--out, or write --format delta, which replaces the rows of the range"
            )


def _predicate(chosen: Options) -> str:
    """Return the SQL condition for the rows of a topic and range."""
    column = "append_time" if chosen.clock == APPEND else "create_time"
    conditions = [f"topic = '{chosen.topic}'"]
    for sign, at_ms in ((">=", chosen.from_ms), ("<", chosen.to_ms)):
        if at_ms is not None:
            conditions.append(f"{column} {sign} '{times.show(at_ms, UTC)}'")
    return " AND ".join(conditions)
