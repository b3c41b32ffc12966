"""An archive: sealed segments of logs in a store, with a manifest for each partition.

The layout is that of a data folder, `TOPIC-PARTITION/BASE.log` with its indexes, so `source=segments:` reads an archive
like a data folder. Overwriting cannot lose anything: a file in a manifest is never written again or removed; a file
gets its name only when it is complete; and the manifest is replaced after the files that it names. After a run that was
stopped, the next one may write files again that are in no manifest yet. A folder with a log but without a manifest is
not part of an archive, and is never touched.

The archive also has the checkpoints of a cleanly closed data folder. They show a reader what the store has lost at the
end of a log. Only one job at a time may write to an archive.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyarrow import fs

from tidelog.pipeline import quarantine
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.files import pieces
from tidelog.pipeline.files.pieces import Piece
from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.quarantine import Damaged
from tidelog.protocol.records.checksum import crc32c
from tidelog.storage import checkpoints, files
from tidelog.storage.layout import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    LOG,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SUFFIXES,
    partition_of,
)

MANIFEST: Final = "manifest.json"
VERSION: Final = 1
_READ_BYTES: Final = 8 << 20


class Manifest(NamedTuple):
    """The archived segments of a partition, each with its offsets, counts, times in ms, and files."""

    topic: str
    partition: int
    topic_id: str  # in hexadecimal digits; empty if unknown
    log_start_offset: int
    segments: tuple[dict[str, Any], ...] = ()

    @property
    def folder(self) -> str:
        """The folder of the partition in the archive."""
        return f"{self.topic}-{self.partition}"

    @property
    def next_offset(self) -> int:
        """The offset after the last archived one; 0 in a new archive."""
        return self.segments[-1]["next_offset"] if self.segments else 0

    def log_bytes(self) -> dict[int, int]:
        """Return the size of each segment's `.log` file, by base offset."""
        return {
            segment["base_offset"]: each["bytes"]
            for segment in self.segments
            for each in segment["files"]
            if each["name"].endswith(LOG)
        }

    def with_segments(self, more: Iterable[Mapping[str, Any]]) -> "Manifest":
        """Return a manifest with more segments."""
        return self._replace(segments=(*self.segments, *map(dict, more)))


def load(place: Place, folder: str) -> Manifest | None:
    """Return the manifest of a partition; None if there is none. PipelineError if it is not valid."""
    path = place.under(f"{folder}/{MANIFEST}")
    try:
        with place.files.open_input_stream(path) as stream:
            data = stream.read()
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(data)
        if fields.pop("version") != VERSION:
            raise ValueError(f"only version {VERSION} is known")
        found = Manifest(**fields)
        found.log_bytes()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(f"{path}: it is no manifest of an archive ({error}); restore it") from None
    return found._replace(segments=tuple(found.segments))


def begin(place: Place, manifest: Manifest) -> None:
    """Create the folder and manifest of a partition; PipelineError if the folder has a log without a manifest."""
    target = place.under(manifest.folder)
    there = place.files.get_file_info(fs.FileSelector(target, allow_not_found=True))
    if any(each.base_name.endswith(LOG) for each in there):
        raise PipelineError(
            f"{target}: it has a log without {MANIFEST}, so it is no archive; name another folder in --out"
        )
    save(place, manifest)


def save(place: Place, manifest: Manifest) -> None:
    """Replace the manifest of a partition. Its files must be complete."""
    place.files.create_dir(place.under(manifest.folder), recursive=True)
    document = {"version": VERSION, **manifest._asdict()}
    if place.is_local:
        files.sync_folder(Path(place.under(manifest.folder)))
    place.write(f"{manifest.folder}/{MANIFEST}", [json.dumps(document, indent=1).encode()])


def manifests(place: Place) -> list[Manifest]:
    """Return all manifests of an archive."""
    there = place.files.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
    names = sorted(each.base_name for each in there if partition_of(each.base_name) is not None)
    return [found for name in names if (found := load(place, name)) is not None]


def gone(place: Place) -> list[str]:
    """Return the folders of archived partitions whose manifests are gone."""
    try:
        with place.files.open_input_stream(place.under(RECOVERY_POINTS)) as stream:
            lines = stream.read().decode().splitlines()
    except FileNotFoundError:
        return []
    there = {each.folder for each in manifests(place)}
    return sorted({"-".join(line.split(" ")[:2]) for line in lines[2:]} - there)


def close(place: Place) -> None:
    """Write the checkpoints of the archive, as a broker does when it stops."""
    found = [each for each in manifests(place) if each.segments]
    place.files.create_dir(place.path, recursive=True)  # it does not exist if nothing was copied
    for name, field in ((LOG_STARTS, "log_start_offset"), (RECOVERY_POINTS, "next_offset")):
        lines = [f"{each.topic} {each.partition} {getattr(each, field)}" for each in found]
        place.write(name, [checkpoints.encoded(lines)])
    place.write(CLEAN_SHUTDOWN, [b'{"version":0,"brokerEpoch":-1}'])


def ship(piece: Piece, described: Mapping[str, Any], place: Place, how: str, kept: str) -> dict[str, Any]:
    """Copy a segment into an archive, its log last, and return its entry for the manifest.

    Every batch is verified. Damage is treated as option `bad` says; if that goes on, the damaged bytes are copied too,
    and a reader of the archive finds them.
    """
    folder, stem = f"{piece.topic}-{piece.partition}", piece.path.stem
    source = Path(piece.snapshot or piece.folder)
    there = place.files.get_file_info(place.under(f"{folder}/{stem}{LOG}"))
    if there.is_file and there.size != piece.end:
        raise PipelineError(
            f"{there.path}: another log is there, of {there.size} bytes, while {piece.path} has {piece.end}, and no "
            "manifest names it; name another folder in --out"
        )
    shipped = []
    for suffix in SUFFIXES:
        data = None if suffix == LOG else files.load(source / f"{stem}{suffix}")
        if data is not None:
            shipped.append(_put(place, f"{folder}/{stem}{suffix}", [data]))
    damage: list[dict[str, Any]] = []
    content = _verified(piece, quarantine.handler(how, kept, piece.topic, piece.partition), damage)
    shipped.append(_put(place, f"{folder}/{stem}{LOG}", content))
    if shipped[-1]["bytes"] != piece.end:
        raise PipelineError(f"{piece.path}: it has changed while it was read; run it again")
    return {**described, "damage": damage, "files": shipped}


def ship_beside(source: Path, place: Place) -> None:
    """Copy the files of a partition's folder that belong to no segment: topic id and leader epochs."""
    for name in (PARTITION_METADATA, LEADER_EPOCHS):
        data = files.load(source / name)
        if data is not None:
            place.write(f"{source.name}/{name}", [data])


def verify(place: Place, manifest: Manifest) -> Iterator[tuple[str, int, str]]:
    """Yield name, size and finding of every file in a manifest; the finding is empty if the file is intact."""
    for each in (each for segment in manifest.segments for each in segment["files"]):
        path = place.under(f"{manifest.folder}/{each['name']}")
        size = crc = 0
        finding = ""
        try:
            with place.files.open_input_stream(path) as stream:
                while data := stream.read(_READ_BYTES):
                    size, crc = size + len(data), crc32c(data, crc)
        except FileNotFoundError:
            finding = "it is gone"
        else:
            if size != each["bytes"]:
                finding = f"it has {size} bytes, and had {each['bytes']}"
            elif f"{crc:08x}" != each["crc32c"]:
                finding = f"its CRC-32C is {crc:08x}, and was {each['crc32c']}"
        yield f"{manifest.folder}/{each['name']}", size, finding


def _verified(piece: Piece, deal_with: quarantine.Bad, damage: list[dict[str, Any]]) -> Iterator[Any]:
    """Yield all bytes of a piece, batch by batch; append its damage to a list."""
    damaged: list[Damaged] = []

    def bad(path: Path, start: int, data: Damaged, reason: str) -> None:
        deal_with(path, start, data, reason)
        damaged.append(data)
        damage.append({"position": start, "bytes": data.size_bytes, "reason": reason})

    for found in pieces.batches(piece, bad):
        yield from _taken(damaged)
        yield found.data[found.at : found.at + found.header.size_bytes]
    yield from _taken(damaged)


def _taken(damaged: list[Damaged]) -> Iterator[bytes]:
    """Yield the bytes of all damage in a list, and empty the list."""
    while damaged:
        yield from damaged.pop(0).parts()


def _put(place: Place, name: str, chunks: Iterable[Any]) -> dict[str, Any]:
    """Write a file; return its entry for the manifest."""
    size, crc = place.write(name, chunks)
    return {"name": Path(name).name, "bytes": size, "crc32c": f"{crc:08x}"}
