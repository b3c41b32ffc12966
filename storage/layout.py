"""The layout of a data folder: the names of its files and folders, its lock and its ids.

The names are Kafka's, except those of summaries, append indexes and `boot-id`. Owns the check that a folder belongs to
this broker, or to a single Kafka node, which comes before any change in it, even its lock.
"""

import base64
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.config.kinds import LONG_MAX
from tidelog.protocol.topic_names import CLUSTER_METADATA
from tidelog.storage import backup, files
from tidelog.storage.errors import DataDirLocked, ForeignDataDir

# In the data folder.
META: Final = "meta.properties"
LOCK: Final = ".lock"
CUTS: Final = ".backup"
BOOT: Final = "boot-id"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
DELETE_SUFFIX: Final = "-delete"  # ends the folder name of a partition that is being deleted
NAME_BYTES_MAX: Final = 255  # the longest name of a file or folder on Linux
_PARTITION: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,9})")

# In the folder of a partition.
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
LOG, INDEX, TIME_INDEX, APPEND_INDEX, SUMMARY = ".log", ".index", ".timeindex", ".appendindex", ".summary"
SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, APPEND_INDEX, SUMMARY)
_OF_SEGMENT: Final = re.compile(r"([0-9]{20})(.*)")

_VERSION: Final = "1"
# What a new data folder may hold: the lock, a `meta.properties` that a crashed start has half written, and what file
# systems and desktops leave.
_HARMLESS: Final = frozenset({LOCK, f"{META}.tmp", "lost+found", ".DS_Store", ".gitkeep"})


def partition_of(name: str) -> tuple[str, int] | None:
    """Return the topic and number in the name of a partition's folder; None for another folder."""
    match = _PARTITION.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match and match["topic"] != CLUSTER_METADATA else None


def of_segment(name: str) -> tuple[int, str] | None:
    """Return the offset and the suffix in the name of a file of a segment; None for another file."""
    match = _OF_SEGMENT.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def bases_in(folder: Path) -> list[int]:
    """Return the base offsets of the segments in a partition's folder, in order."""
    found = [of_segment(name) for name, is_folder in files.list_folder(folder) if not is_folder]
    return [each[0] for each in found if each is not None and each[1] == LOG]


class Misplaced(NamedTuple):
    """An entry of a partition's folder that keeps the partition from being opened, and why."""

    name: str
    what: str


def look_through(folder: Path) -> tuple[list[str], list[Misplaced]]:
    """Return the names in a partition's folder, in order, and the entries that keep it from being opened."""
    entries = files.list_typed(folder)
    misplaced = [
        Misplaced(entry.name, what)
        for entry, is_regular in entries
        if (what := _misplaced(entry, is_regular)) is not None
    ]
    return [entry.name for entry, _ in entries], misplaced


def _misplaced(entry: files.Entry, is_regular: bool) -> str | None:
    """Return why an entry keeps the partition from being opened; None if it does not."""
    if not is_regular:
        return "not a regular file"
    found = of_segment(entry.name)
    if entry.is_folder and (found or entry.name == LEADER_EPOCHS):
        return "a folder where a file belongs"
    if found and found[1].startswith(LOG) and found[0] > LONG_MAX:
        return f"a log with an offset above {LONG_MAX}"
    return None


class Identity(NamedTuple):
    """The ids in `meta.properties`."""

    cluster_id: str
    directory_id: str


def lock(folder: Path, node_id: int) -> files.FolderLock:
    """Lock a data folder for this process, and create it if it is missing. Raise DataDirLocked or ForeignDataDir.

    A foreign folder stays untouched. Another broker may take the folder between the check and the lock, so `identify`
    checks again.
    """
    with _unusable(folder):
        if files.status(folder) is not None:
            _known_identity(folder, node_id)
        files.make_folder(folder)
        return files.FolderLock(folder / LOCK)


def check(folder: Path, node_id: int) -> None:
    """Raise what `lock` would raise for a data folder. Changes nothing."""
    with _unusable(folder):
        if files.status(folder) is not None:
            _known_identity(folder, node_id)
        files.check_writable(folder)
        if files.is_locked(folder / LOCK):
            raise BlockingIOError


@contextmanager
def _unusable(folder: Path) -> Iterator[None]:
    """Raise DataDirLocked or ForeignDataDir for an error of the system."""
    try:
        yield
    except BlockingIOError:
        raise DataDirLocked(
            f"{folder}: another broker uses this data folder; stop it, or name another folder"
        ) from None
    except OSError as error:
        what = f"{error.filename or folder}: {error.strerror}"
        if isinstance(error, PermissionError):
            what += "; run the broker as the owner of the folder, or give it the folder with chown"
        raise ForeignDataDir(f"{folder}: cannot be used as a data folder: {what}") from None


def identify(folder: Path, node_id: int) -> Identity:
    """Return the ids of a data folder; write new ones into an empty folder. Raise ForeignDataDir."""
    identity = _known_identity(folder, node_id)
    if identity is None:
        identity = Identity(new_id(), new_id())
        lines = ["#", f"version={_VERSION}", f"cluster.id={identity.cluster_id}", f"node.id={node_id}"]
        files.write_atomically(
            folder / META, "\n".join([*lines, f"directory.id={identity.directory_id}", ""]).encode()
        )
    return identity


def contents(folder: Path) -> list[files.Entry]:
    """Return what a folder holds besides what a new data folder may hold; nothing if it is missing."""
    if files.status(folder) is None:
        return []
    return [entry for entry in files.list_folder(folder) if entry.name not in _HARMLESS]


def _known_identity(folder: Path, node_id: int) -> Identity | None:
    """Return the ids of a data folder, None for an empty one. Writes nothing. Raise ForeignDataDir."""
    path = folder / META
    # List before reading the ids: another broker that starts now writes its ids before other files.
    names = [name for name, _ in files.list_folder(folder)]
    data = files.load(path)
    _refuse_backup(folder, is_data=data is not None)
    if data is None:
        foreign = [name for name in names if name not in _HARMLESS]
        if foreign:
            raise ForeignDataDir(
                f"{folder}: holds {foreign[0]!r} but no {META}, so it is no data folder; use an empty one"
            )
        return None
    properties = _properties(data)
    version, node = properties.get("version"), properties.get("node.id")
    if version != _VERSION:
        raise ForeignDataDir(
            f"{path}: version {version!r} is not {_VERSION}; this data folder is of another kind"
        )
    if node != str(node_id):
        raise ForeignDataDir(f"{path}: belongs to node {node}, this broker is {node_id}; set node.id={node}")
    if not properties.get("cluster.id"):
        raise ForeignDataDir(f"{path}: no cluster.id; this data folder is of another kind")
    return Identity(properties["cluster.id"], properties.get("directory.id", ""))


def _refuse_backup(folder: Path, *, is_data: bool) -> None:
    """Raise ForeignDataDir for a backup, for the files in it, and for the links that one is made from."""
    real = files.real(folder)
    if real.parent.name == CUTS and files.status(data := real.parent.parent / META) is not None:
        raise ForeignDataDir(
            f"{folder}: holds links to the files of {data.parent}, for a backup; use that folder"
        )
    made_of = real.parent if real.name == backup.FILES else real
    if files.status(made_of / backup.MANIFEST) is None or (is_data and made_of == real):
        return
    if backup.is_unfinished(made_of):
        raise ForeignDataDir(
            f"{folder}: belongs to the backup {made_of}, which is not finished; make it again: "
            f"tidelog backup --to {made_of}"
        )
    raise ForeignDataDir(
        f"{folder}: belongs to the backup {made_of}, which must not change; make a data folder of it: "
        f"tidelog restore --from {made_of} --data-dir DIR"
    )


def node_id_of(folder: Path) -> str | None:
    """Return the node id in a folder's `meta.properties`; None without one."""
    data = files.load(folder / META)
    return None if data is None else _properties(data).get("node.id")


def _properties(data: bytes) -> dict[str, str]:
    # Comments become entries too, but their names begin with # or !.
    pairs = (line.partition("=") for line in data.decode("utf-8", "replace").splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def new_id() -> str:
    """Return a random id of 22 characters, as Kafka does; it does not start with a dash, for use in a shell."""
    while True:
        text = _encode(uuid.uuid4().bytes)
        if not text.startswith("-"):
            return text


def _encode(id_bytes: bytes) -> str:
    return base64.urlsafe_b64encode(id_bytes).decode().rstrip("=")


def is_same_boot(folder: Path) -> bool:
    """Tell whether the system has not been restarted since the last start here, and no write or sync has failed.

    Then everything that was written is there, however the process ended, and damage is not due to a crash.
    """
    boot_id = files.boot_id()
    try:
        return boot_id is not None and files.load(folder / BOOT) == boot_id
    except files.Irregular:
        return False  # `save_boot` replaces it.


def save_boot(folder: Path) -> None:
    """Write the id of the system's boot, after a start has recovered what an earlier boot left."""
    boot_id = files.boot_id()
    if boot_id is not None and not is_same_boot(folder):
        files.write_atomically(folder / BOOT, boot_id)


def save_topic_id(folder: Path, topic_id: bytes) -> None:
    """Write `partition.metadata`. It may be lost: the catalogue has the id too."""
    files.write(folder / PARTITION_METADATA, topic_id_file(topic_id))


def topic_id_file(topic_id: bytes) -> bytes:
    """Return the content of `partition.metadata`."""
    return f"version: 0\ntopic_id: {_encode(topic_id)}\n".encode()


def load_topic_id(folder: Path) -> bytes | None:
    """Return the topic id in a partition's folder; None if there is none."""
    data = files.load(folder / PARTITION_METADATA)
    try:
        return None if data is None else topic_id_in(data)
    except ValueError:
        return None


def topic_id_in(data: bytes) -> bytes:
    """Return the topic id in the content of a `partition.metadata`. Raise ValueError that says what is wrong."""
    found: bytes | None = None
    for number, line in enumerate(data.decode("ascii", "replace").splitlines(), 1):
        name, _, value = line.partition(":")
        if name == "topic_id":
            with suppress(ValueError):
                found = base64.urlsafe_b64decode(value.strip() + "==")
            if found is None or len(found) != 16:
                raise ValueError(f"line {number} is no topic id")
        elif (name, value.strip()) != ("version", "0"):
            raise ValueError(f"line {number} is neither version 0 nor a topic id")
    if found is None:
        raise ValueError("names no topic id")
    return found
