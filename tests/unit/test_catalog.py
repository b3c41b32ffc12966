"""The catalogue: durable across restarts, refusing what it did not write."""

import sqlite3
from pathlib import Path

import pytest

from tidelog.broker.catalog import PRODUCER_ID_BLOCK, Catalog, CatalogError, TopicRecord, new_topic_id


def test_topics_and_options_survive_a_restart(tmp_path: Path) -> None:
    topic = TopicRecord("tides", new_topic_id(), 3, {"retention.ms": "1000", "segment.bytes": "4096"})
    catalog = Catalog(tmp_path / "catalog")
    catalog.add_topic(topic)
    catalog.close()
    assert Catalog(tmp_path / "catalog").topics() == [topic]


def test_a_removed_topic_stays_a_deletion_until_its_folders_are_gone(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    catalog.add_topic(TopicRecord("tides", new_topic_id(), 1, {"retention.ms": "1"}))
    catalog.remove_topic("tides")
    catalog.close()
    catalog = Catalog(tmp_path / "catalog")
    assert catalog.topics() == []
    assert catalog.deletions() == ["tides"]
    catalog.deletion_done("tides")
    assert catalog.deletions() == []


def test_a_name_can_be_used_again_without_its_old_options(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    catalog.add_topic(TopicRecord("tides", new_topic_id(), 1, {"retention.ms": "1"}))
    catalog.remove_topic("tides")
    again = TopicRecord("tides", new_topic_id(), 2, {})
    catalog.add_topic(again)
    assert catalog.topics() == [again]


def test_producer_ids_are_never_given_out_twice_even_after_a_crash(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        catalog = Catalog(tmp_path / "catalog")
        given += [catalog.next_producer_id() for _ in range(PRODUCER_ID_BLOCK + 1)]
        catalog._db.close()  # no orderly close
    assert len(set(given)) == len(given)
    assert min(given) == 0


def test_a_file_that_is_no_catalogue_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "catalog"
    path.write_bytes(b"these are not the bytes of a database" * 100)
    with pytest.raises(CatalogError, match=str(path)):
        Catalog(path)


def test_a_catalogue_of_another_version_is_refused(tmp_path: Path) -> None:
    Catalog(tmp_path / "catalog").close()
    with sqlite3.connect(tmp_path / "catalog") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(CatalogError, match="schema 99"):
        Catalog(tmp_path / "catalog")
