"""What the broker stores besides the logs: topics and their options, its own options, reserved producer ids.

It is one SQLite file in the data folder. Each change is one durable transaction, committed before its effect is
answered; a change that raises StorageError leaves nothing behind. The file keeps free space and its journal, so that a
topic can be deleted on a full disk.

Used by one thread only: maintenance, after the thread that starts the broker has opened it.
"""

import errno
import logging
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from tidelog.config import stored
from tidelog.config.options import BrokerConfig
from tidelog.storage import files
from tidelog.storage.errors import OnError, StorageError

_log = logging.getLogger(__name__)

CATALOG_FILE: Final = "catalog.sqlite"
# Rises with each change of any file in the data folder that an earlier version would misread or lose: it then refuses
# the folder.
SCHEMA_VERSION: Final = 2
# Kafka reserves blocks of this size, too. A start after a crash skips at most one block.
PRODUCER_ID_BLOCK: Final = 1000
# The bound of the first id: far above the ids of a Kafka cluster, with room for as many again.
FIRST_PRODUCER_ID_MAX: Final = 1 << 62
# The largest leader epoch that a new topic may begin with. Each unclean start uses one more, up to 2^31-1.
FIRST_EPOCH_MAX: Final = 1 << 30
# Several times what a deletion may change, so that its journal never needs more room than it has.
ROOM_BYTES: Final = 256 << 10

# The length of the magic that begins an SQLite journal (file format, 3.0). It is zeros once the change is committed.
_JOURNAL_MAGIC_BYTES: Final = 8

# Error codes of a damaged file, as opposed to one that cannot be accessed. Text that is not UTF-8 has no code.
_DAMAGED: Final = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, None)
_PRIMARY_CODE: Final = 0xFF  # of an extended error code
# The most findings of SQLite's check that are reported.
_FAULTS_MAX: Final = 3
_HEADING: Final = "*** "  # precedes the findings of each database

_SCHEMA: Final = """
CREATE TABLE topic (name TEXT PRIMARY KEY, id BLOB NOT NULL UNIQUE, partitions INTEGER NOT NULL) STRICT;
CREATE TABLE topic_option (
    topic TEXT NOT NULL REFERENCES topic (name) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (topic, name)
) STRICT;
CREATE TABLE deletion (topic TEXT PRIMARY KEY) STRICT;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE broker_option (
    broker TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (broker, name)
) STRICT;
"""
# The key of the options of all brokers; the options of one broker are stored under its id.
ALL_BROKERS: Final = ""
OptionsOfBrokers = dict[str, dict[str, str]]


class CatalogError(Exception):
    """The catalogue cannot be used; the message names its file and says what to do."""


class OtherSchema(CatalogError, StorageError):
    """Another version of Tidelog wrote the data folder."""


class TopicRecord(NamedTuple):
    """A topic in the catalogue: its name, 16-byte id, number of partitions and own options."""

    name: str
    id: bytes
    partitions: int
    options: dict[str, str]


class Contents(NamedTuple):
    """The contents of a catalogue. The counters are `leader_epoch` and `producer_id`, each once it was used."""

    topics: list[TopicRecord]
    options: OptionsOfBrokers
    counters: dict[str, int]


class Catalog:
    """The catalogue in `path`, created if it is missing."""

    def __init__(self, path: Path, full: Callable[[OSError], None] = lambda _: None) -> None:
        """Open it; `full` is called with the error when the disk has no room for a change."""
        if irregular := _irregular(path):
            raise CatalogError(irregular)
        self.path = path
        self._full = full
        try:
            self._db = sqlite3.connect(path, isolation_level="IMMEDIATE", check_same_thread=False)
        except sqlite3.Error as error:
            raise CatalogError(
                f"{path}: cannot be opened ({error}); let the broker read and write it"
            ) from error
        try:
            # With a persistent journal, a commit overwrites its header and syncs it. So a committed topic survives a
            # power cut.
            self._db.executescript(
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = PERSIST;"
                "PRAGMA synchronous = EXTRA; PRAGMA foreign_keys = ON;"
            )
            self._make_schema()
            self._make_room()
        except CatalogError:
            self._db.close()
            raise
        except sqlite3.DatabaseError as error:
            self._db.close()
            message = f"{path}: not a catalogue that can be read ({error}); restore it from a backup"
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                message = f"{path}: the disk is full; make room on it"
            raise CatalogError(message) from error

    def _make_schema(self) -> None:
        version = _version(self._db)
        if not version:
            self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise _other_schema(self.path, version)

    def _make_room(self) -> None:
        """Grow the journal and the file's free space to what a deletion needs. On a full disk, leave it for a later
        start.
        """
        journal = files.status(_journal_of(self.path))
        if journal is not None and journal.size >= ROOM_BYTES:
            return
        # A journal records only pages that existed before the transaction, so this takes two.
        try:
            with self._as_storage_error(), self._db:
                self._db.execute("DROP TABLE IF EXISTS room")
                self._db.execute("CREATE TABLE room (bytes BLOB) STRICT")
                self._db.execute("INSERT INTO room VALUES (zeroblob(?))", (ROOM_BYTES,))
            with self._as_storage_error(), self._db:
                self._db.execute("UPDATE room SET bytes = randomblob(?)", (ROOM_BYTES,))
                self._db.execute("DROP TABLE room")
        except StorageError as error:
            _log.warning("no room to delete topics on a full disk: %s", error)

    def topics(self) -> list[TopicRecord]:
        """Return every topic, sorted by name."""
        with self._as_storage_error():
            return _topics(self._db)

    def contents(self) -> Contents:
        """Return everything but the deletions."""
        with self._as_storage_error():
            return _contents(self._db, self.path)

    def add_topic(self, topic: TopicRecord) -> None:
        """Store a topic, as `add_topics` does."""
        self.add_topics([topic])

    def add_topics(self, topics: Iterable[TopicRecord]) -> None:
        """Store topics, all or none, in place of the remains of failed creations under their names.

        Folders of these names are theirs from now on, even if they were on the list of `deletions`.
        """
        with self._as_storage_error(), self._db:
            for topic in topics:
                self._db.execute("DELETE FROM topic WHERE name = ?", (topic.name,))
                self._db.execute("DELETE FROM deletion WHERE topic = ?", (topic.name,))
                self._db.execute(
                    "INSERT INTO topic VALUES (?, ?, ?)", (topic.name, topic.id, topic.partitions)
                )
                rows = [(topic.name, name, value) for name, value in topic.options.items()]
                self._db.executemany("INSERT INTO topic_option VALUES (?, ?, ?)", rows)

    def set_partitions(self, counts: Mapping[str, int]) -> None:
        """Set the number of partitions of topics, by name: durably, all or none."""
        rows = [(count, name) for name, count in counts.items()]
        with self._as_storage_error(), self._db:
            self._db.executemany("UPDATE topic SET partitions = ? WHERE name = ?", rows)

    def set_options(self, name: str, options: Mapping[str, str]) -> None:
        """Replace the options of a topic, durably."""
        rows = [(name, option, value) for option, value in options.items()]
        with self._as_storage_error(), self._db:
            self._db.execute("DELETE FROM topic_option WHERE topic = ?", (name,))
            self._db.executemany("INSERT INTO topic_option VALUES (?, ?, ?)", rows)

    def broker_options(self, broker: str) -> dict[str, str]:
        """Return the dynamic options of a broker, by its id, or of all brokers (`ALL_BROKERS`)."""
        with self._as_storage_error():
            return _options(self._db).get(broker, {})

    def set_broker_options(self, broker: str, options: Mapping[str, str]) -> None:
        """Replace the dynamic options of a broker, or of all, durably."""
        rows = [(broker, option, value) for option, value in options.items()]
        with self._as_storage_error(), self._db:
            self._db.execute("DELETE FROM broker_option WHERE broker = ?", (broker,))
            self._db.executemany("INSERT INTO broker_option VALUES (?, ?, ?)", rows)

    def changed(self, config: BrokerConfig) -> BrokerConfig:
        """Return a configuration with the stored dynamic options applied; log each that cannot be honoured."""
        own, everywhere = (self.broker_options(each) for each in (str(config.node_id), ALL_BROKERS))
        changed, refused = stored.broker_options(config, own, everywhere)
        for problem in refused:
            _log.error("stored option of the broker not honoured, set or delete it: %s", problem)
        return changed

    def remove_topic(self, name: str, next_epoch: int = 0) -> None:
        """Remove a topic, as `remove_topics` does."""
        self.remove_topics([name], next_epoch)

    def remove_topics(self, names: Iterable[str], next_epoch: int = 0) -> None:
        """Remove topics and their options, durably. Their folders are on the list of `deletions` until `deletion_done`.

        The leader epochs of new topics then begin at `next_epoch` or above (`raise_first_epoch`).
        """
        with self._as_storage_error(), self._db:
            for name in names:
                self._db.execute("DELETE FROM topic WHERE name = ?", (name,))
                self._db.execute("INSERT OR IGNORE INTO deletion VALUES (?)", (name,))
            self._raise_first_epoch(next_epoch)

    def raise_first_epoch(self, epoch: int) -> None:
        """Let the leader epochs of new topics begin at `epoch` or above, durably.

        An epoch above FIRST_EPOCH_MAX comes from damage or from a log made elsewhere. It is ignored, because new topics
        need epochs too.
        """
        with self._as_storage_error(), self._db:
            self._raise_first_epoch(epoch)

    def _raise_first_epoch(self, epoch: int) -> None:
        if epoch <= FIRST_EPOCH_MAX:
            self._db.execute(
                "INSERT INTO counter VALUES ('leader_epoch', ?)"
                " ON CONFLICT (name) DO UPDATE SET value = max(iif(value <= ?, value, 0), excluded.value)",
                (epoch, FIRST_EPOCH_MAX),
            )

    def first_epoch(self) -> int:
        """Return the leader epoch with which a new topic begins.

        It is above the epochs of deleted topics, and not below those of existing ones. A client that has seen an epoch
        ignores metadata of a topic of that name with an older one.
        """
        with self._as_storage_error():
            row = self._db.execute("SELECT value FROM counter WHERE name = 'leader_epoch'").fetchone()
        return row[0] if row and 0 <= row[0] <= FIRST_EPOCH_MAX else 0

    def deletion_done(self, name: str) -> None:
        """Record that the folders of a removed topic are gone."""
        with self._as_storage_error(), self._db:
            self._db.execute("DELETE FROM deletion WHERE topic = ?", (name,))

    def deletions(self) -> list[str]:
        """Return the removed topics whose folders may still exist."""
        with self._as_storage_error():
            return [name for (name,) in self._db.execute("SELECT topic FROM deletion")]

    def reserve_producer_ids(self) -> range:
        """Return producer ids that were never reserved before, by this start or an earlier one.

        The first id of a catalogue is random. A log from elsewhere remembers the producers that wrote it; a new
        producer with one of their ids would have its records taken for duplicates of theirs.
        """
        first = random.SystemRandom().randrange(FIRST_PRODUCER_ID_MAX)
        with self._as_storage_error(), self._db:
            (end,) = self._db.execute(
                "INSERT INTO counter VALUES ('producer_id', ?2 + ?1)"
                " ON CONFLICT (name) DO UPDATE SET value = value + ?1 RETURNING value",
                (PRODUCER_ID_BLOCK, first),
            ).fetchone()
        return range(end - PRODUCER_ID_BLOCK, end)

    def copy(self, path: Path) -> None:
        """Write a copy to a new file; nothing is synced."""
        with self._as_storage_error(), closing(sqlite3.connect(path)) as target:
            self._db.backup(target)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _as_storage_error(self) -> OnError[sqlite3.Error]:
        """Turn errors of SQLite into StorageError."""
        return OnError(sqlite3.Error, self._fail)

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            self._full(OSError(errno.ENOSPC, str(error), str(self.path)))
        message = (
            f"{self.path}: cannot be used ({error}); free space on its disk, or repair it, and try again"
        )
        raise StorageError(message) from error


def new_topic_id() -> bytes:
    """Return a random 16-byte topic id, never one of the two that Kafka reserves (zero and one)."""
    return uuid.uuid4().bytes


def read(path: Path) -> Contents:
    """Return the contents of a catalogue that a broker may have open. Locks and writes nothing.

    CatalogError if it cannot be read, or if a change to it is under way or was never finished.
    """
    journal = _journal_of(path)
    if irregular := _irregular(path):
        raise CatalogError(irregular)
    if _is_hot(journal) or not _size(path):
        raise CatalogError(_unreadable(path, journal))
    try:
        with closing(_connect_beside(path)) as db:
            contents = _contents(db, path)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise CatalogError(f"{path}: not a catalogue that can be read ({error}); try again") from error
    if _is_hot(journal):
        raise CatalogError(_unreadable(path, journal))
    return contents


def faults(path: Path, refused: Callable[[Contents], list[str]]) -> list[str]:
    """Return what is wrong with a catalogue: the findings of SQLite's check, or else those of `refused` about its
    contents.

    A missing or empty catalogue is sound. A broker may have it open: nothing is locked or written. An unfinished change
    is rolled back in a copy, as the next start would do it. StorageError if it cannot be read, OtherSchema if another
    version wrote it.
    """
    journal = _journal_of(path)
    try:
        if irregular := _irregular(path):
            return [irregular]
        if not _size(path):
            return []
        if not _is_hot(journal):
            return _faults_in(path, lambda: _connect_beside(path), refused)
        # Not at the top: a broker needs neither, and they load the modules of four compressors.
        import shutil
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            shutil.copyfile(path, copy)
            shutil.copyfile(journal, _journal_of(copy))
            return _faults_in(path, lambda: sqlite3.connect(copy), refused)
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}") from error


def _faults_in(
    path: Path, connect: Callable[[], sqlite3.Connection], refused: Callable[[Contents], list[str]]
) -> list[str]:
    try:
        with closing(connect()) as db:
            found = [row for (row,) in db.execute(f"PRAGMA quick_check({_FAULTS_MAX})")]
            if found != ["ok"]:
                lines = [line for each in found for line in each.splitlines()]
                return ["; ".join(line for line in lines if not line.startswith(_HEADING)) or "damaged"]
            return refused(_contents(db, path)) if _version(db) else []
    # UnicodeDecodeError: an error message that quotes a damaged name
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", None)
        if (code if code is None else code & _PRIMARY_CODE) in _DAMAGED:
            return [f"not a catalogue that can be read ({error}); restore it from a backup"]
        raise StorageError(f"{path}: {error}") from error


def _connect_beside(path: Path) -> sqlite3.Connection:
    """Connect without a lock: a running broker holds the lock on the file as long as it runs."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)


def _irregular(path: Path) -> str | None:
    """Return a problem if a catalogue or its journal is not a regular file: opening a FIFO may block for ever.

    A broken link is refused, too: SQLite would create its target.
    """
    for each in (path, _journal_of(path)):
        if not each.is_file() and (each.exists() or each.is_symlink()):
            return f"{each} is not a regular file; move it away, and restore the catalogue from a backup"
    return None


def _journal_of(path: Path) -> Path:
    return path.with_name(path.name + "-journal")


def _unreadable(path: Path, journal: Path) -> str:
    if not path.exists():
        return f"{path}: there is no catalogue; name the folder that a broker has its data in"
    return f"{path}: it is being changed ({journal.name}); try again, or start the broker if none runs"


def _is_hot(journal: Path) -> bool:
    """Tell whether a persistent journal holds a change that was not committed: then it begins with a header."""
    if not _size(journal):
        return False
    with open(journal, "rb") as file:
        return any(file.read(_JOURNAL_MAGIC_BYTES))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _version(db: sqlite3.Connection) -> int:
    """Return the version of the schema; 0 for a new file."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _other_schema(path: Path, version: int) -> OtherSchema:
    age = "a newer" if version > SCHEMA_VERSION else "an older"
    return OtherSchema(
        f"{path}: {age} version of Tidelog wrote this data folder (schema {version}, this one reads {SCHEMA_VERSION}); "
        "use that version, or restore a copy that this one wrote (docs/upgrade.md)"
    )


def _contents(db: sqlite3.Connection, path: Path) -> Contents:
    version = _version(db)
    if version != SCHEMA_VERSION:
        raise _other_schema(path, version)
    counters = dict(db.execute("SELECT name, value FROM counter ORDER BY name").fetchall())
    return Contents(_topics(db), _options(db), counters)


def _topics(db: sqlite3.Connection) -> list[TopicRecord]:
    options = _grouped(db.execute("SELECT topic, name, value FROM topic_option"))
    rows = db.execute("SELECT name, id, partitions FROM topic ORDER BY name").fetchall()
    return [TopicRecord(name, id_, count, options.get(name, {})) for name, id_, count in rows]


def _options(db: sqlite3.Connection) -> OptionsOfBrokers:
    return _grouped(db.execute("SELECT broker, name, value FROM broker_option ORDER BY broker, name"))


def _grouped(rows: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    options: dict[str, dict[str, str]] = {}
    for owner, name, value in rows:
        options.setdefault(owner, {})[name] = value
    return options
