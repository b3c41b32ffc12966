"""What the broker knows besides the logs: topics, their ids and options, its own options, the producer ids given out.

One SQLite file in the data folder. Every change is one durable transaction, made before its effect is answered: it
happens or raises StorageError, and then nothing of it is there. The file has room inside, and its journal is kept, so
that a topic can be deleted where the disk is full: that is how people make room.
Used by one thread only: maintenance, once the thread that starts the broker has opened it.
"""

import errno
import logging
import secrets
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn

from tidelog.config import stored
from tidelog.config.options import BrokerConfig
from tidelog.storage import files
from tidelog.storage.errors import OnError, StorageError

_log = logging.getLogger(__name__)

CATALOG_FILE = "catalog.sqlite"
SCHEMA_VERSION = 2
# Kafka hands ids out in blocks of this size too: a start after a crash skips at most one block.
PRODUCER_ID_BLOCK = 1000
# Where they may begin: far beyond those of a Kafka cluster, and with room for as many again.
FIRST_PRODUCER_ID_MAX = 1 << 62
# The largest leader epoch that a new topic may begin with; each unclean start takes one more, up to 2^31-1.
FIRST_EPOCH_MAX = 1 << 30
# What a deletion may change, many times over, so that its journal needs no more room than it has.
ROOM_BYTES = 256 << 10

# With which a journal of SQLite begins (its file format, 3.0); zeros once the change is committed.
_JOURNAL_MAGIC_BYTES = 8

# What SQLite says of a file that is damaged, and not of one that it cannot get at. A text that is none has no code.
_DAMAGED: Final = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, None)
_PRIMARY_CODE: Final = 0xFF  # of an error code that says more
# So many of its findings are told.
_FAULTS_MAX: Final = 3
_HEADING: Final = "*** "  # of each database that it has checked

_SCHEMA = """
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
# The options of a broker stand under its id, those of all brokers under this.
ALL_BROKERS = ""
OptionsOfBrokers = dict[str, dict[str, str]]


class CatalogError(Exception):
    """The catalogue's file cannot be used; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic as the catalogue holds it: its name, 16-byte id, number of partitions and own options."""

    name: str
    id: bytes
    partitions: int
    options: dict[str, str]


class Contents(NamedTuple):
    """What a catalogue holds. The counters are `leader_epoch` and `producer_id`, once they were used."""

    topics: list[TopicRecord]
    options: OptionsOfBrokers
    counters: dict[str, int]


class Catalog:
    """The catalogue in `path`, made if it is missing."""

    def __init__(self, path: Path, full: Callable[[OSError], None] = lambda _: None) -> None:
        """Open it; `full` is told when the disk has no room for a change."""
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
            # With a journal that stays, a commit is that its header is overwritten, and synced: a committed topic
            # survives a power cut.
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
            raise CatalogError(_other_version(self.path, version))

    def _make_room(self) -> None:
        """Have the journal be as large as a deletion needs it, and as much free in the file; later, on a full disk."""
        journal = files.status(_journal_of(self.path))
        if journal is not None and journal.size >= ROOM_BYTES:
            return
        # Only what was there before a transaction goes into its journal.
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
        """Return every topic, by name."""
        with self._as_storage_error():
            return _topics(self._db)

    def contents(self) -> Contents:
        """Return all that it holds but the deletions."""
        with self._as_storage_error():
            return _contents(self._db, self.path)

    def add_topic(self, topic: TopicRecord) -> None:
        """Make a topic durable, as `add_topics` does."""
        self.add_topics([topic])

    def add_topics(self, topics: Iterable[TopicRecord]) -> None:
        """Make topics durable, all or none, in place of what failed creations may have left under their names."""
        with self._as_storage_error(), self._db:
            for topic in topics:
                self._db.execute("DELETE FROM topic WHERE name = ?", (topic.name,))
                self._db.execute(
                    "INSERT INTO topic VALUES (?, ?, ?)", (topic.name, topic.id, topic.partitions)
                )
                rows = [(topic.name, name, value) for name, value in topic.options.items()]
                self._db.executemany("INSERT INTO topic_option VALUES (?, ?, ?)", rows)

    def set_partitions(self, counts: Mapping[str, int]) -> None:
        """Have topics, by name, have so many partitions, durably, all or none."""
        rows = [(count, name) for name, count in counts.items()]
        with self._as_storage_error(), self._db:
            self._db.executemany("UPDATE topic SET partitions = ? WHERE name = ?", rows)

    def set_options(self, name: str, options: Mapping[str, str]) -> None:
        """Have a topic have these options and no others, durably."""
        rows = [(name, option, value) for option, value in options.items()]
        with self._as_storage_error(), self._db:
            self._db.execute("DELETE FROM topic_option WHERE topic = ?", (name,))
            self._db.executemany("INSERT INTO topic_option VALUES (?, ?, ?)", rows)

    def broker_options(self, broker: str) -> dict[str, str]:
        """Return what was set while a broker ran, by its id, or while all did (`ALL_BROKERS`)."""
        with self._as_storage_error():
            return _options(self._db).get(broker, {})

    def set_broker_options(self, broker: str, options: Mapping[str, str]) -> None:
        """Have a broker, or all, have these options and no others, durably."""
        rows = [(broker, option, value) for option, value in options.items()]
        with self._as_storage_error(), self._db:
            self._db.execute("DELETE FROM broker_option WHERE broker = ?", (broker,))
            self._db.executemany("INSERT INTO broker_option VALUES (?, ?, ?)", rows)

    def changed(self, config: BrokerConfig) -> BrokerConfig:
        """Return a broker's configuration under what was set while it ran; log what of that cannot be honoured."""
        own, everywhere = (self.broker_options(each) for each in (str(config.node_id), ALL_BROKERS))
        changed, refused = stored.broker_options(config, own, everywhere)
        for problem in refused:
            _log.error("stored option of the broker not honoured, set or delete it: %s", problem)
        return changed

    def remove_topic(self, name: str, next_epoch: int = 0) -> None:
        """Forget a topic, as `remove_topics` does."""
        self.remove_topics([name], next_epoch)

    def remove_topics(self, names: Iterable[str], next_epoch: int = 0) -> None:
        """Forget topics and their options, durably; their folders are to be deleted until `deletion_done`.

        The leader epochs of new topics begin at `next_epoch` or above from now on, as `raise_first_epoch` has it.
        """
        with self._as_storage_error(), self._db:
            for name in names:
                self._db.execute("DELETE FROM topic WHERE name = ?", (name,))
                self._db.execute("INSERT OR IGNORE INTO deletion VALUES (?)", (name,))
            self._raise_first_epoch(next_epoch)

    def raise_first_epoch(self, epoch: int) -> None:
        """Have the leader epochs of new topics begin at `epoch` or above, durably.

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

        It is above the epochs of deleted topics, and not below those of the topics there are. A client that has seen an
        epoch ignores what it hears of a topic of that name with an older one.
        """
        with self._as_storage_error():
            row = self._db.execute("SELECT value FROM counter WHERE name = 'leader_epoch'").fetchone()
        return row[0] if row and 0 <= row[0] <= FIRST_EPOCH_MAX else 0

    def deletion_done(self, name: str) -> None:
        """Note that nothing of a removed topic is left on disk."""
        with self._as_storage_error(), self._db:
            self._db.execute("DELETE FROM deletion WHERE topic = ?", (name,))

    def deletions(self) -> list[str]:
        """Return the removed topics whose folders may still be there."""
        with self._as_storage_error():
            return [name for (name,) in self._db.execute("SELECT topic FROM deletion")]

    def reserve_producer_ids(self) -> range:
        """Return producer ids that were never reserved before, by this start or an earlier one.

        The first is drawn by chance, once for all: a log from elsewhere remembers producers, and what a new one sends
        with the id of one of those would be taken for what that has sent before.
        """
        first = secrets.randbelow(FIRST_PRODUCER_ID_MAX)
        with self._as_storage_error(), self._db:
            (end,) = self._db.execute(
                "INSERT INTO counter VALUES ('producer_id', ?2 + ?1)"
                " ON CONFLICT (name) DO UPDATE SET value = value + ?1 RETURNING value",
                (PRODUCER_ID_BLOCK, first),
            ).fetchone()
        return range(end - PRODUCER_ID_BLOCK, end)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _as_storage_error(self) -> OnError[sqlite3.Error]:
        """Turn what SQLite says into the error that callers know."""
        return OnError(sqlite3.Error, self._fail)

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            self._full(OSError(errno.ENOSPC, str(error), str(self.path)))
        message = f"{self.path}: cannot be used ({error}); free space there, or mend the disk, and try again"
        raise StorageError(message) from error


def new_topic_id() -> bytes:
    """Return a random 16-byte topic id; never one of the two that Kafka reserves (all zero, and one)."""
    return uuid.uuid4().bytes


def read(path: Path) -> Contents:
    """Return what is in a catalogue that a broker may have open: nothing is locked, and nothing written.

    CatalogError where it cannot be read, or where a change to it is under way, or was never finished.
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
    """Return what is wrong with a catalogue: by SQLite's own check, or else what `refused` says of its contents.

    Nothing is wrong with one that is not there, or empty. A broker may have it open: nothing is locked, and nothing
    written. A change that was cut off is undone in a copy, as the next start would undo it. StorageError where it
    cannot be looked at, or is another version's.
    """
    journal = _journal_of(path)
    try:
        if irregular := _irregular(path):
            return [irregular]
        if not _size(path):
            return []
        if not _is_hot(journal):
            return _faults_in(path, lambda: _connect_beside(path), refused)
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
    except CatalogError as error:
        raise StorageError(str(error)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # that one, of a message with damaged names in it
        code = getattr(error, "sqlite_errorcode", None)
        if (code if code is None else code & _PRIMARY_CODE) in _DAMAGED:
            return [f"not a catalogue that can be read ({error}); restore it from a backup"]
        raise StorageError(f"{path}: {error}") from error


def _connect_beside(path: Path) -> sqlite3.Connection:
    """Connect to a catalogue whose broker holds its lock on the file for as long as it runs."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)


def _irregular(path: Path) -> str | None:
    """Say that a catalogue or its journal is no regular file, or return None: opening a FIFO may block for ever.

    Nor is a broken link: SQLite would make its file elsewhere.
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
    """Tell whether a journal that stays holds a change that was not committed: then it begins with a header."""
    if not _size(journal):
        return False
    with open(journal, "rb") as file:
        return any(file.read(_JOURNAL_MAGIC_BYTES))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _version(db: sqlite3.Connection) -> int:
    """Return the version of the schema; 0 where there is none yet."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _other_version(path: Path, version: int) -> str:
    return (
        f"{path}: written by another version of Tidelog (schema {version}, this one has {SCHEMA_VERSION}); "
        "use that version, or another data folder"
    )


def _contents(db: sqlite3.Connection, path: Path) -> Contents:
    version = _version(db)
    if version != SCHEMA_VERSION:
        raise CatalogError(_other_version(path, version))
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
