"""`tidelog explain compaction`, on folders in which passes were made, or are due."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_cli_explain import AT, files_of, run, told
from tests.support.logs import open_log
from tests.unit.storage.test_compaction import keyed
from tidelog.broker.catalog import Catalog, TopicRecord, new_topic_id
from tidelog.cli.exit_codes import OK
from tidelog.storage.compaction import passes as compaction
from tidelog.storage.compaction import plan
from tidelog.storage.log import Log

COMPACTED = {"cleanup_policy": ("compact",), "segment_bytes": 600}


def clean(log: Log, now_ms: int) -> None:
    """Make a pass over all that may be compacted."""
    due = plan.due(log, now_ms, by_yield=False)
    assert due is not None
    for _ in compaction.clean(
        log, due, buffer_bytes=1 << 20, load_factor=0.9, structural=lambda step: step()
    ):
        pass


def a_topic(folder: Path, is_clean: bool = False, **options: str) -> Path:
    """A data folder with a topic of one partition of several segments, and a pass over it."""
    catalog = Catalog(folder / "catalog.sqlite")
    catalog.add_topic(TopicRecord("t", new_topic_id(), 1, {"cleanup.policy": "compact", **options}))
    catalog.close()
    log = open_log(folder / "t-0", now_ms=AT, **COMPACTED)
    for n in range(40):
        value = None if n == 3 else b"v%d" % n
        log.append(keyed((b"k%d" % (n % 7), value), at=AT + n), AT + n)
    if is_clean:
        clean(log, AT + 100)
    log.close()
    return folder


def explained(folder: Path, *words: object) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    options, rows = told("compaction", "t", "--data-dir", folder, *words)
    *segments, answer = rows
    assert (answer.pop("kind"), answer.pop("partition")) == ("answer", 0)
    assert {row["kind"] for row in segments} == {"segment"}
    return options, segments, answer


def test_what_is_due_is_told_segment_by_segment(tmp_path: Path) -> None:
    folder = a_topic(tmp_path)
    before = files_of(folder)
    options, segments, answer = explained(folder)
    assert options["cleanup.policy"] == {"value": "compact", "source": "topic"}
    assert "min.cleanable.dirty.ratio" in options
    *sealed, active = segments
    assert active["why"] == "stays: it is the active segment"
    assert {row["why"] for row in sealed} == {
        "may be due: that depends on a sample of its keys, which --keys reads"
    }
    assert {(row["clean_to"], row["yield"], row["garbage"]) for row in sealed} == {(None, None, None)}
    assert sum(row["records"] for row in segments) == 40
    assert answer["due"] is None
    assert answer["dirty"] == answer["garbage"] == 1
    assert answer["why"] == "a pass may be due: 100.0% of it may be garbage, and from 50.0% on one is"
    _, segments, answer = explained(folder, "--keys")
    assert answer["due"]
    assert segments[0]["garbage"] > 0.5
    assert segments[0]["why"] == "due: its garbage is worth the copy"
    assert files_of(folder) == before


def test_what_a_pass_has_won_is_told(tmp_path: Path) -> None:
    _, segments, answer = explained(a_topic(tmp_path, is_clean=True))
    first = segments[0]
    assert first["clean_to"] == segments[-1]["segment"]
    assert first["cleaned"] == AT + 100
    assert first["yield"] == round(1 - first["bytes"] / first["source_bytes"], 4)
    assert first["yield"] > 0.3
    assert answer["dirty"] == 0


@pytest.mark.parametrize(
    ("options", "why", "answer"),
    [
        ({"cleanup.policy": "delete"}, "stays: cleanup.policy=delete", "it is not compacted"),
        (
            {"min.compaction.lag.ms": "9000000000000"},
            "waits: it or an earlier segment is younger than min.compaction.lag.ms=9000000000000",
            "no pass is due",
        ),
        (
            {"max.compaction.lag.ms": "1"},
            "due: it has waited for max.compaction.lag.ms=1",
            "a pass is due: see",
        ),
    ],
)
def test_the_options_of_the_topic_decide(
    tmp_path: Path, options: dict[str, str], why: str, answer: str
) -> None:
    _, segments, due = explained(a_topic(tmp_path, **options))
    assert segments[0]["why"] == why
    assert due["why"].startswith(answer)


def test_tombstones_that_may_go_are_due(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", now_ms=AT, **COMPACTED, delete_retention_ms=1000)
    for n in range(30):
        log.append(keyed((b"k%d" % n, None), at=AT + n), AT + n)
    clean(log, AT + 100)
    log.close()
    words = ["--config", "log.cleanup.policy=compact"]
    _, segments, answer = explained(tmp_path, *words)
    assert segments[0]["horizon"] == AT + 1100
    assert segments[0]["why"] == "due: tombstones in it may go now"
    assert answer["due"]


def test_people_get_a_table_and_a_line_for_each_partition(tmp_path: Path) -> None:
    code, out, _ = run("compaction", "t", "--data-dir", a_topic(tmp_path, is_clean=True))
    assert code == OK
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["partition", "segment", "ends"]
    assert lines[-2].startswith("options: cleanup.policy=compact (topic), ")
    assert lines[-1].startswith("partition 0: no pass is due: ")
