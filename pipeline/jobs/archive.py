"""archive: copy the sealed segments of a topic, with their indexes, to a store.

Each segment is a task, and tasks run in waves. The manifests are replaced after each wave, so a run that was stopped
continues after the last complete wave. `parts.archives` defines the layout of the store.
"""

from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import from_segments, listings, segments, snapshot
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
from tidelog.storage.layout import LOG
from tidelog.storage.log import Log

COLUMNS: Final = ("file", "bytes", "finding")
_DESCRIBED: Final = (
    "base_offset",
    "next_offset",
    "records",
    "batches",
    "min_timestamp",
    "max_timestamp",
    "first_append_time",
    "last_append_time",
)
_SEGMENTS_PER_CORE: Final = 4  # in a wave


class New(NamedTuple):
    """A segment to copy, and its description for the manifest."""

    piece: Piece
    described: dict[str, Any]


class Found(NamedTuple):
    """A partition: its manifest, the new segments, the number of other segments, and the range that was deleted."""

    manifest: Manifest
    is_begun: bool
    new: list[New]
    others: int
    lost: tuple[int, int] | None


def run(flags: JobFlags, out: str, is_to_verify: bool) -> int:
    """Copy new segments, or verify an archive; return the exit code."""
    flags.demand_no_times("an archive has all sealed segments")
    if is_to_verify:
        if not out:
            raise WrongOption("--out is missing; name the archive to verify")
        return _verify(flags, place("--out", out))
    chosen = flags.chosen()
    flags.folder("archived")
    target = None if flags.dry_run and not out else place("--out", out)
    found = look(chosen, target)
    if flags.dry_run:
        pieces = [each.piece for one in found for each in one.new]
        others, size = sum(one.others for one in found), sum(piece.size_bytes for piece in pieces)
        flags.print_scan(Scan(len(pieces), others, size, len(pieces), None))
        return OK
    assert target is not None
    return _ship(flags, chosen, target, found)


def look(chosen: Options, target: Place | None) -> list[Found]:
    """Compare each partition with the archive; PipelineError if the archive is of another log."""
    with from_segments.wanted_logs(chosen, now_ms()) as logs:
        return [_look(log, target) for log, _, _ in logs]


def _look(log: Log, target: Place | None) -> Found:
    topic_id = log.topic_id.hex() if log.topic_id else ""
    archived = None if target is None else archives.load(target, f"{log.topic}-{log.partition}")
    manifest = archived or Manifest(log.topic, log.partition, topic_id, log.log_start_offset)
    where = f"the archive of {log.topic}-{log.partition}"
    if manifest.topic_id and topic_id and manifest.topic_id != topic_id:
        raise PipelineError(
            f"{where} is of another topic of this name, with id {manifest.topic_id}, not {topic_id}: the topic was "
            "deleted and created again; name another folder in --out"
        )
    rows = {row["base_offset"]: row for row in listings.segments_of(log).rows}
    sizes = manifest.log_bytes()
    new: list[New] = []
    for number, segment in enumerate(log.segments[:-1]):
        base, next_offset = segment.base_offset, segment.next_offset
        if next_offset <= log.log_start_offset:
            continue  # It has no readable record.
        if base >= manifest.next_offset:
            described = {name: rows[base][name] for name in _DESCRIBED}
            new.append(New(segments.whole(log, number), described))
        elif sizes.get(base) != rows[base]["bytes"]:
            raise PipelineError(
                f"{where} has another size for {segment.path(LOG)}, which has {rows[base]['bytes']} bytes: the log was "
                "cut or compacted; name another folder in --out"
            )
    is_gone = manifest.segments and new and new[0].piece.base_offset > manifest.next_offset
    lost = (manifest.next_offset, new[0].piece.base_offset) if is_gone else None
    return Found(manifest, archived is not None, new, len(log.segments) - len(new), lost)


def _ship(flags: JobFlags, chosen: Options, target: Place, found: list[Found]) -> int:
    progress = Progress("archive")
    # A reader rejects a folder without a segment, so a partition with only an active segment gets none.
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
    engine = flags.engine_for(sum(each.piece.size_bytes for each in new))
    ship = partial(_shipped, target, chosen.bad, chosen.quarantine)
    current = {one.manifest.partition: one.manifest for one in found}
    wave, begun = _SEGMENTS_PER_CORE * engine.cores, monotonic()
    for first in range(0, len(new), wave):
        some = new[first : first + wave]
        done = engine.each(ship, some)
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
    """Copy a segment, where the engine runs it; return its entry for the manifest."""
    try:
        return archives.ship(new.piece, new.described, target, how, kept)
    finally:
        snapshot.release([new.piece])


def _report_loss(found: list[Found], gone: int, progress: Progress) -> int:
    """Report what the archive will never have; return the exit code."""
    lost = [(one.manifest.folder, *one.lost) for one in found if one.lost is not None]
    for folder, first, end in lost:
        progress.say(f"{folder}: offsets {first} to {end - 1} were deleted before they were archived")
    if gone:
        progress.say(f"retention has deleted {gone} segments before they were archived")
    return FAILED if lost or gone else OK


def _verify(flags: JobFlags, target: Place) -> int:
    """Read all files that the manifests name; print those that differ from what was written."""
    found = [each for each in archives.manifests(target) if flags.topic in ("", each.topic)]
    gone = [each for each in archives.gone(target) if flags.topic in ("", each.rpartition("-")[0])]
    if not found and not gone:
        raise PipelineError(
            f"{target.path}: no manifest {f'of {flags.topic} ' if flags.topic else ''}is in it; name an archive in "
            "--out"
        )
    if flags.dry_run:
        named = [each for one in found for segment in one.segments for each in segment["files"]]
        account = {"files": len(named), "bytes": sum(each["bytes"] for each in named)}
        output.print_account(account, as_json=flags.as_json)
        return OK
    checked = [each for one in found for each in archives.verify(target, one)]
    checked += [(f"{folder}/{archives.MANIFEST}", 0, "it is gone") for folder in gone]
    rows = [dict(zip(COLUMNS, each, strict=True)) for each in checked if each[2]]
    flags.print_rows(COLUMNS, rows)
    size = sum(each[1] for each in checked)
    Progress("archive").say(f"{len(checked):,} files, {size:,} bytes: {len(rows):,} findings")
    return FAILED if rows else OK
