"""The catalogue: durable across restarts, refusing what it did not write."""

import os
import re
import socket
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tidelog.broker.catalog import (
    ALL_BROKERS,
    FIRST_EPOCH_MAX,
    PRODUCER_ID_BLOCK,
    ROOM_BYTES,
    Catalog,
    CatalogError,
    OtherSchema,
    TopicRecord,
    new_topic_id,
    read,
)
from tidelog.broker.catalog_check import faults
from tidelog.config import stored
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.storage.errors import StorageError


def test_topics_and_options_survive_a_restart(tmp_path: Path) -> None:
    topic = TopicRecord("tides", new_topic_id(), 3, {"retention.ms": "1000", "segment.bytes": "4096"})
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        catalog.add_topic(topic)
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        assert catalog.topics() == [topic]


def test_a_removed_topic_stays_a_deletion_until_its_folders_are_gone(tmp_path: Path) -> None:
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        catalog.add_topic(TopicRecord("tides", new_topic_id(), 1, {"retention.ms": "1"}))
        catalog.remove_topic("tides")
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        assert catalog.topics() == []
        assert catalog.deletions() == ["tides"]
        catalog.deletion_done("tides")
        assert catalog.deletions() == []


def test_a_name_can_be_used_again_without_its_old_options(tmp_path: Path) -> None:
    again = TopicRecord("tides", new_topic_id(), 2, {})
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        catalog.add_topic(TopicRecord("tides", new_topic_id(), 1, {"retention.ms": "1"}))
        catalog.remove_topic("tides")
        catalog.add_topic(again)
        assert catalog.topics() == [again]


def test_producer_ids_are_never_reserved_twice_even_after_a_crash(tmp_path: Path) -> None:
    reserved: list[int] = []
    for _ in range(3):
        with closing(
            Catalog(tmp_path / "catalog")
        ) as catalog:  # closing writes nothing: this is a crash, too
            reserved += [*catalog.reserve_producer_ids(), *catalog.reserve_producer_ids()]
    assert reserved == list(range(reserved[0], reserved[0] + 6 * PRODUCER_ID_BLOCK))


def test_I1_a_producer_never_gets_the_id_of_one_that_a_log_from_elsewhere_remembers(tmp_path: Path) -> None:
    """Its first batch would be taken for one that the other has sent: acknowledged, and not stored."""
    taken = [range(1 << 20)]  # as Kafka gives them out
    for name in ("a", "b", "c"):
        with closing(Catalog(tmp_path / name)) as catalog:
            ids = catalog.reserve_producer_ids()
        assert not any(ids.start < other.stop and other.start < ids.stop for other in taken)
        assert 0 <= ids.start < ids.stop < 1 << 63
        taken.append(ids)


def test_producer_ids_begin_with_the_one_that_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.SystemRandom.randrange", lambda *_: 0)
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        assert catalog.reserve_producer_ids() == range(PRODUCER_ID_BLOCK)


def test_options_and_partitions_are_changed_without_touching_the_rest(tmp_path: Path) -> None:
    id_ = new_topic_id()
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        catalog.add_topic(TopicRecord("tides", id_, 3, {"retention.ms": "1", "segment.bytes": "2"}))
        catalog.add_topic(TopicRecord("waves", new_topic_id(), 1, {"retention.ms": "1"}))
        catalog.set_options("tides", {"segment.ms": "3"})
        catalog.set_options("gone", {})
        catalog.set_partitions({"tides": 5, "gone": 5})
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        tides, waves = catalog.topics()
    assert tides == TopicRecord("tides", id_, 5, {"segment.ms": "3"})
    assert (waves.partitions, waves.options) == (1, {"retention.ms": "1"})


def test_options_of_brokers_are_kept_for_each_and_for_all(tmp_path: Path) -> None:
    path = tmp_path / "catalog"
    with closing(Catalog(path)) as catalog:
        catalog.set_broker_options("1", {"log.retention.ms": "1", "log.segment.bytes": "2"})
        catalog.set_broker_options("1", {"log.retention.ms": "3"})
        catalog.set_broker_options("2", {"log.retention.ms": "4"})
        catalog.set_broker_options(ALL_BROKERS, {"log.segment.bytes": "50"})
    with closing(Catalog(path)) as catalog:
        found = {broker: catalog.broker_options(broker) for broker in ("1", "2", "3", ALL_BROKERS)}
        changed = catalog.changed(BrokerConfig(node_id=1))
    assert found == {
        "1": {"log.retention.ms": "3"},
        "2": {"log.retention.ms": "4"},
        "3": {},
        ALL_BROKERS: {"log.segment.bytes": "50"},
    }
    assert read(path).options == {broker: options for broker, options in found.items() if options}
    assert (changed.topic.retention_ms, changed.topic.segment_bytes) == (3, 50)


def test_a_stored_option_that_cannot_be_honoured_is_named_and_the_others_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        own = {"log.retention.ms": "soon", "log.cleaner.threads": "3000", "log.segment.bytes": "50"}
        catalog.set_broker_options("1", own)
        catalog.set_broker_options(ALL_BROKERS, {"no.such": "1", "log.retention.ms": "7"})
        changed = catalog.changed(BrokerConfig(node_id=1))
    # The broker's own retention cannot be read, so it is not known that 7 ms is what it should be.
    assert (changed.topic.segment_bytes, changed.topic.retention_ms, changed.log_cleaner_threads) == (
        50,
        -1,
        1,
    )
    problems = sorted(message.partition(" delete it: ")[2] for message in caplog.messages)
    assert [problem.partition(": ")[0] for problem in problems] == [
        "Unknown config name",
        "log.cleaner.threads=3000",
        "log.retention.ms=soon",
    ]


def test_stored_options_that_hold_only_together_are_all_kept() -> None:
    own = {
        "bad": "1",
        "log.cleaner.min.compaction.lag.ms": "10",
        "log.cleaner.max.compaction.lag.ms": "20",
    }
    start = BrokerConfig(topic=TopicConfig(max_compaction_lag_ms=5))
    changed, refused = stored.broker_options(start, own, {})
    assert (changed.topic.min_compaction_lag_ms, changed.topic.max_compaction_lag_ms) == (10, 20)
    assert len(refused) == 1


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "log.cleanup.policy",
        "log.retention.bytes",
        "log.retention.hours",
        "log.retention.minutes",
        "log.retention.ms",
    ],
)
def test_a_broker_whose_retention_cannot_be_read_keeps_records(name: str, is_own: bool) -> None:
    start = BrokerConfig(topic=TopicConfig(retention_ms=1, retention_bytes=1))
    settings = ({name: "some"}, {}) if is_own else ({}, {name: "some"})
    changed, (problem,) = stored.broker_options(start, *settings)
    found = changed.topic
    kept = {"cleanup": found.cleanup_policy == (), "bytes": found.retention_bytes == -1}
    kept["ms"] = found.retention_ms == -1
    part = {"log.cleanup.policy": "cleanup", "log.retention.bytes": "bytes"}.get(name, "ms")
    assert kept == dict.fromkeys(kept, False) | {part: True}
    assert "applies, which deletes no records" in problem


def test_a_retention_that_can_be_read_stands_beside_one_that_cannot() -> None:
    both = {"log.retention.hours": "some", "log.retention.ms": "5"}
    changed, (problem,) = stored.broker_options(BrokerConfig(), both, {})
    assert changed.topic.retention_ms == 5
    assert "holds" not in problem


def test_a_topic_whose_retention_cannot_be_read_keeps_its_records() -> None:
    options = {
        "retention.ms": "soon",
        "retention.bytes": "some",
        "segment.bytes": "50",
        "cleanup.policy": "shred",
        "no.such": "1",
    }
    kept, refused = stored.topic_options(TopicConfig(), options)
    assert kept == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": "50",
        "cleanup.policy": "",
    }
    assert len(refused) == 4


def test_new_topics_begin_above_the_epochs_of_all_that_were_deleted(tmp_path: Path) -> None:
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        assert catalog.first_epoch() == 0
        for next_epoch in (7, 3, FIRST_EPOCH_MAX + 1):  # the last is damage, or from elsewhere
            catalog.remove_topic("t", next_epoch)
            assert catalog.first_epoch() == 7
        catalog.remove_topic("t", FIRST_EPOCH_MAX)
        assert catalog.first_epoch() == FIRST_EPOCH_MAX
    with closing(sqlite3.connect(tmp_path / "catalog")) as db:
        db.execute("UPDATE counter SET value = ? WHERE name = 'leader_epoch'", (1 << 40,))
        db.commit()
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        assert catalog.first_epoch() == 0


def test_what_the_disk_refuses_is_not_there_and_can_be_done_again(
    tmp_path: Path,
) -> None:
    topic = TopicRecord("tides", new_topic_id(), 1, {"retention.ms": "1"})
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        catalog._db.execute(
            f"PRAGMA max_page_count = {catalog._db.execute('PRAGMA page_count').fetchone()[0]}"
        )
        many = {f"option-{number}": "x" * 1000 for number in range(1000)}
        with pytest.raises(
            StorageError, match=r"catalog: cannot be used \(database or disk is full\); free space"
        ):
            catalog.add_topic(TopicRecord("tides", new_topic_id(), 1, many))
        assert catalog.topics() == []
        catalog._db.execute("PRAGMA max_page_count = 1000000")
        catalog.add_topic(topic)
        catalog.add_topic(topic)
        assert catalog.topics() == [topic]


def test_a_file_that_is_no_catalogue_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "catalog"
    path.write_bytes(b"these are not the bytes of a database" * 100)
    with pytest.raises(CatalogError, match=f"{path}: not a catalogue that can be read"):
        Catalog(path)


def test_a_disk_without_room_for_the_catalogue_is_said_to_be_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def connect_to_one_page(path: Path, **options: Any) -> sqlite3.Connection:
        db = connect(path, **options)
        db.execute("PRAGMA max_page_count = 1")
        return db

    monkeypatch.setattr(sqlite3, "connect", connect_to_one_page)
    with pytest.raises(CatalogError, match="catalog: the disk is full; make room on it"):
        Catalog(tmp_path / "catalog")


@pytest.mark.parametrize(("version", "age"), [(1, "an older"), (99, "a newer")])
def test_a_catalogue_of_another_version_is_refused(tmp_path: Path, version: int, age: str) -> None:
    path = tmp_path / "catalog"
    Catalog(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    message = rf"{age} version of Tidelog wrote .* \(schema {version}, this one reads 2\); use that version"
    for use in (Catalog, read, faults):
        with pytest.raises(OtherSchema, match=message):
            use(path)


def test_P12_a_topic_can_be_deleted_where_nothing_can_grow(tmp_path: Path) -> None:
    """People make room on a full disk by deleting: neither the file nor its journal may need any."""
    names = [f"topic-{number:03d}" for number in range(200)]
    with closing(Catalog(tmp_path / "catalog")) as catalog:
        for name in names:
            catalog.add_topic(TopicRecord(name, new_topic_id(), 1, {"retention.ms": "1" * 300}))
        sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
        assert sizes["catalog-journal"] >= ROOM_BYTES
        for name in names:
            catalog.remove_topic(name)
            catalog.deletion_done(name)
            assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == sizes
    # And so it is in the next start, and in one after a crash between the two steps that make room.
    with closing(sqlite3.connect(tmp_path / "catalog")) as db:
        db.execute("CREATE TABLE room (bytes BLOB)")
    (tmp_path / "catalog-journal").unlink(missing_ok=True)
    with closing(Catalog(tmp_path / "catalog")):
        assert (tmp_path / "catalog-journal").stat().st_size >= ROOM_BYTES
    with closing(sqlite3.connect(tmp_path / "catalog")) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'room'").fetchone() == (0,)


def test_V10_a_catalogue_is_checked_beside_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "catalog"
    assert faults(path) == []
    path.touch()  # it was made, and never begun
    assert faults(path) == []
    with closing(Catalog(path)) as catalog:
        assert faults(path) == []
        catalog.add_topic(TopicRecord("tides", new_topic_id(), 3, {"retention.ms": "1000"}))
        assert faults(path) == []
    assert faults(path) == []


@pytest.mark.parametrize(
    ("position", "damage", "what"),
    [
        (0, b"\0", "not a catalogue that can be read"),
        # SQLite 3.40, and then 3.53
        (101, b"\x7f", "[Pp]age 1: free space corruption"),
        (4096, b"\xff" * 8, "not a catalogue that can be read|page 2: btreeInitPage"),
    ],
)
def test_V10_a_catalogue_that_is_damaged_is_told(
    tmp_path: Path, position: int, damage: bytes, what: str
) -> None:
    path = tmp_path / "catalog"
    with closing(Catalog(path)) as catalog:
        catalog.add_topic(TopicRecord("tides", new_topic_id(), 3, {"retention.ms": "1000"}))
    sound = path.read_bytes()
    path.write_bytes(sound[:position] + damage + sound[position + len(damage) :])
    (found,) = faults(path)
    assert re.search(what, found)
    path.write_bytes(sound[: len(sound) // 2])
    assert faults(path)
    path.write_bytes(b"nothing of the kind" * 100)
    (found,) = faults(path)
    assert "not a catalogue that can be read" in found


def test_V10_whatever_is_damaged_in_a_catalogue_is_an_answer_or_an_error_of_ours(tmp_path: Path) -> None:
    """SQLite's messages may hold bytes that are no text."""
    path = tmp_path / "catalog"
    with closing(Catalog(path)) as catalog:
        catalog.add_topic(TopicRecord("tides", new_topic_id(), 3, {"retention.ms": "1000"}))
    sound = path.read_bytes()
    for at in [*range(0, 3000, 29), *range(3000, 4096, 7), *range(4096, 16384, 101)]:
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0xFF]) + sound[at + 1 :])
        with suppress(StorageError):  # of another version
            faults(path)
        with suppress(CatalogError):
            read(path)


def test_a_catalogue_without_its_tables_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "catalog"
    Catalog(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.executescript("DROP TABLE topic_option")
    (found,) = faults(path)
    assert "no such table: topic_option" in found


def test_V10_a_change_that_was_cut_off_is_no_damage(tmp_path: Path) -> None:
    """As the next start undoes it; nothing is written where it lies."""
    live, path = tmp_path / "live", tmp_path / "catalog"
    with closing(Catalog(live)) as catalog:
        catalog.add_topic(TopicRecord("tides", new_topic_id(), 3, {}))
    with closing(sqlite3.connect(live, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = PERSIST; PRAGMA cache_size = 2; BEGIN")
        rows = [(f"t{number}", new_topic_id() * 20, 1) for number in range(500)]
        db.executemany("INSERT INTO topic VALUES (?, ?, ?)", rows)
        names = {"live": "catalog", "live-journal": "catalog-journal"}
        for name, copy in names.items():
            (tmp_path / copy).write_bytes((tmp_path / name).read_bytes())
        assert faults(live) == []
        db.execute("ROLLBACK")
    with pytest.raises(CatalogError, match="it is being changed"):
        read(path)
    before = {copy: (tmp_path / copy).read_bytes() for copy in names.values()}
    assert faults(path) == []
    assert before == {copy: (tmp_path / copy).read_bytes() for copy in names.values()}
    assert before["catalog"] != live.read_bytes()
    with closing(Catalog(path)) as catalog:
        assert [topic.name for topic in catalog.topics()] == ["tides"]


@pytest.mark.parametrize(
    ("counter", "value", "said"),
    [
        ("leader_epoch", -1, "leader_epoch is -1, not 0 to 1073741824"),
        ("leader_epoch", 1 << 40, "leader_epoch is 1099511627776"),
        ("producer_id", -5, "producer_id is -5, not 1000 to"),
        ("producer_id", (1 << 63) - 1, "producer_id is 9223372036854775807"),
    ],
)
def test_a_counter_that_makes_no_sense_is_named(tmp_path: Path, counter: str, value: int, said: str) -> None:
    path = tmp_path / "catalog"
    catalog = Catalog(path)
    catalog.raise_first_epoch(3)
    catalog.reserve_producer_ids()
    catalog.close()
    assert faults(path) == []
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE counter SET value = ? WHERE name = ?", (value, counter))
        db.commit()
    (found,) = faults(path)
    assert said in found
    assert "restore the catalogue from a backup" in found


def test_an_epoch_that_makes_no_sense_does_not_stay(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    catalog.raise_first_epoch(3)
    catalog.close()
    with closing(sqlite3.connect(tmp_path / "catalog")) as db:
        db.execute("UPDATE counter SET value = 1 << 40")
        db.commit()
    catalog = Catalog(tmp_path / "catalog")
    catalog.raise_first_epoch(7)
    assert catalog.first_epoch() == 7
    catalog.close()


@pytest.mark.parametrize("kind", ["folder", "FIFO", "socket", "journal", "link"])
def test_a_catalogue_that_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """To open a FIFO for reading waits for a writer."""
    path = tmp_path / "catalog"
    at_fault = path
    with socket.socket(socket.AF_UNIX) as bound:
        if kind == "folder":
            path.mkdir()
        elif kind == "FIFO":
            os.mkfifo(path)
        elif kind == "socket":
            bound.bind(str(path))
        elif kind == "link":
            path.symlink_to("nowhere")
        else:
            Catalog(path).close()
            at_fault = tmp_path / "catalog-journal"
            at_fault.unlink()
            os.mkfifo(at_fault)
    message = f"{at_fault} is not a regular file; move it away"
    (found,) = faults(path)
    assert found.startswith(message)
    for use in (Catalog, read):
        with pytest.raises(CatalogError, match=message):
            use(path)
