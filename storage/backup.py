"""A backup: copies of the files of a data folder, and a manifest with their sizes and checksums, which is written last.

    DIR/files/           a data folder as of one moment (`cut`), as a kill would have left it
    DIR/manifest.json    what is in it; empty until the backup is complete, and locked by the process that makes it

Owns this format, and copies that are verified: a checksum is computed from the bytes that are copied, and compared with
what the disk has of the copy. No broker starts on DIR or on DIR/files (`layout`).
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from tidelog.storage import files
from tidelog.storage.errors import StorageError

FILES: Final = "files"
MANIFEST: Final = "manifest.json"
VERSION: Final = 1
_PIECE_BYTES: Final = 1 << 20
# How much a copy writes before it is synced: the syncs of a broker on that disk wait for little more.
_SYNC_BYTES: Final = 16 << 20

Progress = Callable[[int], None]  # called with the bytes of each piece


class Copied(NamedTuple):
    """A file of a backup."""

    bytes: int
    sha256: str


class Manifest(NamedTuple):
    """What a backup holds: its files by relative path, and facts about the broker and the moment."""

    files: Mapping[str, Copied]
    about: Mapping[str, Any]

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(each.bytes for each in self.files.values())


class Rate:
    """Paces a copy to a number of bytes a second; 0 for no limit."""

    def __init__(self, bytes_per_second: int) -> None:
        """Begin now."""
        self._bytes_per_second = bytes_per_second
        self._began_s = time.monotonic()
        self._bytes = 0

    def wait(self, count: int) -> None:
        """Wait until this many more bytes are due."""
        if self._bytes_per_second:
            self._bytes += count
            time.sleep(max(0.0, self._began_s + self._bytes / self._bytes_per_second - time.monotonic()))


def copy(source: Path, target: Path, count: int, pace: Progress) -> Copied:
    """Copy the first `count` bytes of a file, and its modification time, durably; verify what the disk has.

    StorageError if the source is shorter, or the disk returns other bytes. OSError.
    """
    import hashlib  # loads a large part of OpenSSL, which a start need not do

    reading, writing = files.File(source, read_only=True), files.File(target, create=True)
    digest, synced = hashlib.sha256(), 0
    while writing.size < count:
        piece = reading.pread(min(_PIECE_BYTES, count - writing.size), writing.size)
        if not piece:
            raise StorageError(f"{source}: ends after {reading.size} of {count} bytes")
        digest.update(piece)
        writing.append(piece)
        if writing.size - synced >= _SYNC_BYTES:
            writing.sync()
            synced = writing.size
        pace(len(piece))
    files.keep_time(source, target)
    writing.sync()
    writing.forget_clean(0)  # so that the next read is one of the disk
    copied = Copied(count, digest.hexdigest())
    if _sha256(writing) != copied.sha256:
        raise StorageError(f"{target}: the disk returns other bytes than were written; use another disk")
    writing.forget_clean(0)
    return copied


def _sha256(file: files.File) -> str:
    import hashlib  # here for the same reason as in `copy`

    digest = hashlib.sha256()
    for position in range(0, file.size, _PIECE_BYTES):
        digest.update(file.pread(_PIECE_BYTES, position))
    return digest.hexdigest()


def names_in(folder: Path, below: str = "") -> Iterator[str]:
    """Yield the relative path of every file in a folder and the folders in it, in order."""
    for name, is_folder in files.list_folder(folder / below):
        path = str(PurePosixPath(below, name))
        if is_folder:
            yield from names_in(folder, path)
        else:
            yield path


def sync_folders(folder: Path) -> None:
    """Put the names in a folder, and in the folders in it, on disk."""
    for name, is_folder in files.list_folder(folder):
        if is_folder:
            sync_folders(folder / name)
    files.sync_folder(folder)


def is_unfinished(folder: Path) -> bool:
    """Tell whether a folder holds a backup that is being made, or was not finished. OSError."""
    manifest = files.status(folder / MANIFEST)
    return manifest is not None and not manifest.size


def save(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which completes a backup; everything else is on disk. OSError."""
    content = {
        "version": VERSION,
        **manifest.about,
        "files": {name: each._asdict() for name, each in manifest.files.items()},
    }
    files.write_atomically(folder / MANIFEST, (json.dumps(content, indent=1) + "\n").encode())


def load(folder: Path) -> Manifest:
    """Read the manifest of a backup, and check that the same files are there. StorageError, OSError."""
    path = folder / MANIFEST
    if files.status(folder) is None:
        raise StorageError(f"{folder}: there is no such folder")
    data = files.load(path)
    if data is None:
        raise StorageError(f"{folder}: has no {MANIFEST}, so it is no backup")
    if not data:
        raise StorageError(
            f"{folder}: this backup was not finished; make it again: tidelog backup --to {folder}"
        )
    try:
        content = json.loads(data)
        version = content.pop("version")
        if isinstance(version, int) and version > VERSION:
            raise StorageError(
                f"{path}: a newer version of Tidelog wrote this backup (format {version}, this one reads {VERSION}); "
                "restore it with that version"
            )
        if version != VERSION:
            raise ValueError(f"version {version!r}")
        listed = {name: Copied(int(e["bytes"]), str(e["sha256"])) for name, e in content.pop("files").items()}
        manifest = Manifest(listed, {**content, "node_id": int(content["node_id"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(f"{path}: damaged ({error}); nothing was restored; use another backup") from error
    there = set(names_in(folder / FILES)) if files.status(folder / FILES) is not None else set()
    if missing := sorted(manifest.files.keys() - there):
        raise StorageError(
            f"{folder / FILES / missing[0]}: missing; nothing was restored; use another backup"
        )
    if extra := sorted(there - manifest.files.keys()):
        raise StorageError(
            f"{folder / FILES / extra[0]}: is not in {MANIFEST}; nothing was restored; move it away"
        )
    return manifest


def copy_back(source: Path, target: Path, expected: Copied, pace: Progress) -> None:
    """Copy a file of a backup, as `copy`; StorageError if it is not what the manifest says."""
    status = files.status(source)
    size = 0 if status is None else status.size
    if size != expected.bytes:
        problem = f"has {size} bytes, and had {expected.bytes} in the backup"
    elif copy(source, target, size, pace).sha256 != expected.sha256:
        problem = "its bytes are not those of the backup (SHA-256)"
    else:
        return
    raise StorageError(f"{source}: damaged: {problem}; nothing was restored; use another backup")
