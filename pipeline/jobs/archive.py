"""archive: copy the sealed segments of a topic, with what lies beside them, to a store.

A task ships each segment, in waves; after each wave the manifests are replaced, so a run that was stopped goes on where
the last wave ended. `parts.archives` is the layout of the store.
"""

from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import from_segments, segments, snapshot
from tidelog.pipeline.files.pieces import Piece
from tidelog.pipeline.jobs.parts import archives, output
from tidelog.pipeline.jobs.parts.archives import Manifest
from tidelog.pipeline.jobs.parts.exit_codes import FAILED, OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.place import Place, place
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import Scan
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.protocol.records.batch import NO_TIMESTAMP
from tidelog.protocol.records.record_times import BEYOND, UNKNOWN
from tidelog.storage import files
from tidelog.storage.layout import LOG
from tidelog.storage.log import Log

COLUMNS: Final = ("file", "bytes", "finding")
_WAVES_PER_CORE: Final = 4  # segments of a wave, for each core


class New(NamedTuple):
    """A segment that is to be shipped, and what its manifest will say of it."""

    piece: Piece
    described: dict[str, Any]


class Found(NamedTuple):
    """What of a partition is archived, what is new, what else there is, and the offsets that nobody has any more."""

    manifest: Manifest
    is_begun: bool
    new: list[New]
    others: int
    lost: tuple[int, int] | None


def run(flags: JobFlags, out: str, is_to_verify: bool) -> int:
    """Ship what is new, or look at what is there; return the exit code."""
    flags.demand_no_times("an archive has all sealed segments")
    if is_to_verify:
        if not out:
            raise WrongOption("--out is missing; name the archive that is to be read")
        return _verify(flags, place("--out", out))
    chosen = flags.chosen()
    flags.folder("shipped")
    target = None if flags.dry_run and not out else place("--out", out)
    found = look(chosen, target)
    if flags.dry_run:
        pieces = [each.piece for one in found for each in one.new]
        counts = sum(piece.size_bytes for piece in pieces), len(pieces), None
        flags.print_scan(Scan(len(pieces), sum(one.others for one in found), *counts))
        return OK
    assert target is not None
    return _ship(flags, chosen, target, found)


def look(chosen: Options, target: Place | None) -> list[Found]:
    """Return what there is to do, for each partition; PipelineError where the archive is of another log."""
    with from_segments.wanted_logs(chosen, now_ms()) as logs:
        return [_look(log, target) for log, _, _ in logs]


def _look(log: Log, target: Place | None) -> Found:
    topic_id = log.topic_id.hex() if log.topic_id else ""
    archived = None if target is None else archives.load(target, f"{log.topic}-{log.partition}")
    manifest = archived or Manifest(log.topic, log.partition, topic_id, log.log_start_offset)
    where = f"the archive of {log.topic}-{log.partition}"
    if manifest.topic_id and topic_id and manifest.topic_id != topic_id:
        raise PipelineError(
            f"{where} is of another topic of this name, of id {manifest.topic_id}, not {topic_id}: the topic was made "
            "anew; name another folder in --out"
        )
    described = {
        each["base_offset"]: each
        for number in range(len(log.segments))
        for each in segments.verifying(log, partial(_described, log, number))
    }
    sizes = manifest.log_bytes()
    new: list[New] = []
    for number, segment in enumerate(log.segments[:-1]):
        base, next_offset = segment.base_offset, segment.next_offset
        if next_offset <= log.log_start_offset:
            continue  # Nothing that can be read is in it.
        if base >= manifest.next_offset:
            new.append(New(segments.whole(log, number), described[base]))
            continue
        status = files.status(segment.path(LOG))
        size = segment.size if status is None else status.size
        if sizes.get(base) != size:
            raise PipelineError(
                f"{where} has other bytes than {segment.path(LOG)}, which has {size}: the log was cut or compacted; "
                "name another folder in --out"
            )
    is_gone = manifest.segments and new and new[0].piece.base_offset > manifest.next_offset
    lost = (manifest.next_offset, new[0].piece.base_offset) if is_gone else None
    return Found(manifest, archived is not None, new, len(log.segments) - len(new), lost)


def _described(log: Log, number: int) -> list[dict[str, Any]]:
    """Return what a manifest says of a segment; null is what is not known."""
    segment = log.segments[number]
    summary, is_counted = segment.summary, not segment.is_known_by_index
    return [
        {
            "base_offset": segment.base_offset,
            "next_offset": segment.next_offset,
            "records": summary.record_count if is_counted else None,
            "batches": summary.batch_count if is_counted else None,
            "min_timestamp": _known(summary.min_timestamp, UNKNOWN, BEYOND),
            "max_timestamp": _known(summary.max_timestamp),
            "first_append_time": _known(summary.first_append_ms),
            "last_append_time": _known(summary.last_append_ms) if summary.batch_count else None,
        }
    ]


def _known(time_ms: int, *unknown: int) -> int | None:
    return None if time_ms in (NO_TIMESTAMP, *unknown) else time_ms


def _ship(flags: JobFlags, chosen: Options, target: Place, found: list[Found]) -> int:
    progress = Progress("archive")
    # A folder without a log cannot be read: none is made for a partition that has only an active segment.
    begun_now = [one for one in found if one.new and not one.is_begun]
    for one in begun_now:
        archives.begin(target, one.manifest)
    new = {(each.piece.partition, each.piece.base_offset): each for one in found for each in one.new}
    taken = snapshot.taken([each.piece for each in new.values()], now_ms())
    kept = [New(piece, new[piece.partition, piece.base_offset].described) for piece in taken]
    try:
        _ship_in_waves(flags, chosen, target, found, kept, progress)
    finally:
        snapshot.release(taken)
    for one in (each for each in found if each.is_begun or each.new):
        archives.ship_beside(Path(chosen.place, one.manifest.folder), target)
    archives.close(target)
    counts = {
        "segments": len(kept),
        "bytes": sum(piece.size_bytes for piece in taken),
        "others": sum(one.others for one in found),
    }
    flags.print_account("archive", counts, out=target.shown)
    return _report_loss(found, len(new) - len(kept), progress)


def _ship_in_waves(
    flags: JobFlags, chosen: Options, target: Place, found: list[Found], new: list[New], progress: Progress
) -> None:
    if not new:
        return
    context, ship = flags.session().sparkContext, partial(_shipped, target, chosen.bad, chosen.quarantine)
    current = {one.manifest.partition: one.manifest for one in found}
    wave, begun = _WAVES_PER_CORE * context.defaultParallelism, monotonic()
    for first in range(0, len(new), wave):
        some = new[first : first + wave]
        done = context.parallelize(some, len(some)).map(ship).collect()
        for partition in sorted({each.piece.partition for each in some}):
            more = [
                described
                for each, described in zip(some, done, strict=True)
                if each.piece.partition == partition
            ]
            current[partition] = current[partition].with_segments(more)
            archives.save(target, current[partition])
        count = first + len(some)
        progress.say(f"{count:,} of {len(new):,} segments, {count / (monotonic() - begun):,.1f} segments/s")


def _shipped(target: Place, how: str, kept: str, new: New) -> dict[str, Any]:
    """Ship a segment, in a worker; return what its manifest says of it."""
    try:
        return archives.ship(new.piece, new.described, target, how, kept)
    finally:
        snapshot.release([new.piece])


def _report_loss(found: list[Found], gone: int, progress: Progress) -> int:
    """Say what will never be in the archive; return the exit code."""
    lost = [(one.manifest.folder, *one.lost) for one in found if one.lost is not None]
    for folder, first, end in lost:
        progress.say(f"{folder}: offsets {first} to {end - 1} were deleted before they were archived")
    if gone:
        progress.say(f"retention has deleted {gone} segments before they were archived")
    return FAILED if lost or gone else OK


def _verify(flags: JobFlags, target: Place) -> int:
    """Read all that the manifests name; print what is not what was written."""
    found = [each for each in archives.manifests(target) if flags.topic in ("", each.topic)]
    gone = [each for each in archives.gone(target) if flags.topic in ("", each.rpartition("-")[0])]
    if not found and not gone:
        raise PipelineError(
            f"{target.path}: no manifest {f'of {flags.topic} ' * bool(flags.topic)}is in it; name an archive in --out"
        )
    if flags.dry_run:
        named = [each for one in found for segment in one.segments for each in segment["files"]]
        account = {"files": len(named), "bytes": sum(each["bytes"] for each in named)}
        output.print_account(account, as_json=flags.as_json)
        return OK
    looked = [each for one in found for each in archives.verify(target, one)]
    looked += [(f"{folder}/{archives.MANIFEST}", 0, "it is gone") for folder in gone]
    rows = [dict(zip(COLUMNS, each, strict=True)) for each in looked if each[2]]
    flags.print_rows(COLUMNS, rows)
    size = sum(each[1] for each in looked)
    Progress("archive").say(f"{len(looked):,} files, {size:,} bytes: {len(rows):,} findings")
    return FAILED if rows else OK
