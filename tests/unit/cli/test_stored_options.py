"""Options that a data folder keeps are shown and changed while no broker runs: the way back from a bad one."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.broker.catalog import ALL_BROKERS, CATALOG_FILE, Catalog, TopicRecord, new_topic_id
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.main import app
from tidelog.config.options import BrokerConfig
from tidelog.storage.log_manager import LogManager


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the folder of a broker that was stopped, with options that keep it from working."""
    data = tmp_path / "data"
    logs = LogManager(data, BrokerConfig(log_dir=data, node_id=7), lambda: 0)
    logs.lock()
    with closing(Catalog(data / CATALOG_FILE)) as catalog:
        catalog.set_broker_options("7", {"max.connections": "1", "nonsense": "x"})
        catalog.set_broker_options(ALL_BROKERS, {"log.cleaner.threads": "4"})
        catalog.add_topic(TopicRecord("t", new_topic_id(), 1, {"retention.ms": "soon"}))
    logs.abandon()
    return data


def configs(verb: str, data: Path, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["configs", verb, "--data-dir", str(data), *words])
    return result.exit_code, result.stdout, result.stderr


def shown(data: Path, *words: str) -> dict[str, str]:
    code, out, _ = configs("describe", data, *words, "--json")
    assert code == OK
    return {row["option"]: row["value"] for row in map(json.loads, out.splitlines())}


def test_what_is_kept_is_shown_for_a_broker_for_all_and_for_a_topic(data: Path) -> None:
    assert shown(data, "--broker", "7") == {"max.connections": "1", "nonsense": "x"}
    assert shown(data, "--all-brokers") == {"log.cleaner.threads": "4"}
    assert shown(data, "--topic", "t") == {"retention.ms": "soon"}
    assert configs("describe", data, "--broker", "8")[1] == f"broker 8: no option is kept in {data}\n"


def test_options_are_deleted_whatever_they_are_and_set_if_they_can_be(data: Path) -> None:
    words = [
        "--delete-config",
        "max.connections",
        "--delete-config",
        "nonsense",
        "--config",
        "log.retention.ms=5",
    ]
    code, out, _ = configs("alter", data, "--broker", "7", *words)
    assert (code, out.split("; ")[-1]) == (OK, "the next start uses it\n")
    assert shown(data, "--broker", "7") == {"log.retention.ms": "5"}
    assert configs("alter", data, "--all-brokers", "--delete-config", "log.cleaner.threads")[0] == OK
    assert shown(data, "--all-brokers") == {}
    assert configs("alter", data, "--topic", "t", "--config", "retention.ms=9")[0] == OK
    assert shown(data, "--topic", "t") == {"retention.ms": "9"}
    with closing(Catalog(data / CATALOG_FILE)) as catalog:
        assert catalog.changed(BrokerConfig(node_id=7)).topic.retention_ms == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--broker", "7", "--config", "log.retention.ms=soon"],
            USAGE,
            "log.retention.ms=soon: Not a number of type LONG",
        ),
        (
            ["--broker", "7", "--config", "node.id=8"],
            USAGE,
            "Cannot update these configs dynamically: [node.id]",
        ),
        (["--topic", "t", "--config", "nonsense=1"], USAGE, "Unknown topic config name: nonsense"),
        (["--topic", "u", "--delete-config", "retention.ms"], FAILED, "it has no topic u"),
        (
            ["--broker", "7", "--delete-config", "wat"],
            FAILED,
            "wat: no such option is stored; nothing was changed",
        ),
        (
            ["--broker", "7", "--delete-config", "max.connectionz", "--config", "log.retention.ms=5"],
            FAILED,
            "max.connectionz: no such option is stored; did you mean max.connections?; nothing was changed",
        ),
        (["--broker", "8", "--delete-config", "max.connections"], FAILED, "no such option is stored"),
        (["--all-brokers", "--delete-config", "max.connections"], FAILED, "no such option is stored"),
        (["--topic", "t", "--delete-config", "retention.bytes"], FAILED, "no such option is stored"),
        (["--topic", "t"], USAGE, "nothing to change"),
        (["--topic", "t", "--all-brokers", "--delete-config", "x"], USAGE, "name one of --topic, --broker"),
        (["--delete-config", "x"], USAGE, "name one of --topic, --broker"),
    ],
)
def test_what_cannot_be_is_said_and_changes_nothing(
    data: Path, words: list[str], code: int, said: str
) -> None:
    before = (data / CATALOG_FILE).read_bytes()
    found, _, err = configs("alter", data, *words)
    assert (found, said in err) == (code, True), err
    assert (data / CATALOG_FILE).read_bytes() == before


def test_beside_a_broker_nothing_is_changed(data: Path) -> None:
    logs = LogManager(data, BrokerConfig(log_dir=data, node_id=7), lambda: 0)
    logs.lock()
    try:
        code, _, err = configs("alter", data, "--broker", "7", "--delete-config", "max.connections")
    finally:
        logs.abandon()
    assert (code, "another broker uses this data folder" in err) == (FAILED, True)
    assert "max.connections" in shown(data, "--broker", "7")


def test_a_folder_that_is_no_data_folder_is_named_and_stays_empty(tmp_path: Path) -> None:
    for verb, words in (("describe", []), ("alter", ["--delete-config", "x"])):
        code, _, err = configs(verb, tmp_path, "--broker", "1", *words)
        assert (code, "there is no catalogue" in err) == (FAILED, True)
    assert not list(tmp_path.iterdir())
