"""The catalogue: durable across restarts, refusing what it did not write."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tidelog.broker.catalog import PRODUCER_ID_BLOCK, Catalog, CatalogError, TopicRecord, new_topic_id


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


def test_producer_ids_are_never_given_out_twice_even_after_a_crash(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        with closing(
            Catalog(tmp_path / "catalog")
        ) as catalog:  # closing writes nothing: this is a crash, too
            given += [catalog.next_producer_id() for _ in range(PRODUCER_ID_BLOCK + 1)]
    assert len(set(given)) == len(given)
    assert min(given) == 0


def test_a_file_that_is_no_catalogue_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "catalog"
    path.write_bytes(b"these are not the bytes of a database" * 100)
    with pytest.raises(CatalogError, match=str(path)):
        Catalog(path)


def test_a_catalogue_of_another_version_is_refused(tmp_path: Path) -> None:
    Catalog(tmp_path / "catalog").close()
    with closing(sqlite3.connect(tmp_path / "catalog")) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(CatalogError, match="schema 99"):
        Catalog(tmp_path / "catalog")
