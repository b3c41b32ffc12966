"""The spellings of options that verbs share, and the old ones that still work."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.cli.broker_options import configure
from tidelog.cli.exit_codes import OK, USAGE
from tidelog.cli.main import app
from tidelog.config.errors import ConfigError


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("verb", "old"),
    [
        (["topics", "create", "x"], "--option"),
        (["test-control", "create-topic", "x"], "--option"),
        (["import", "/no/folder-0", "--topic", "x", "--data-dir", "/no/data"], "--option"),
        (["explain", "retention", "x"], "--override"),
        (["serve"], "--override"),
    ],
)
def test_an_old_spelling_works_with_a_note_and_is_not_in_the_help(verb: list[str], old: str) -> None:
    new_code, _, new_error = run(*verb, "--config", "a")
    code, _, error = run(*verb, old, "a")
    assert (code, error) == (USAGE, f"tidelog: {old} is an old spelling; write --config\n{new_error}")
    assert new_code == USAGE
    assert "write it as name=value" in new_error
    code, usage, error = run(*verb, "--help")
    assert (code, error) == (OK, "")
    assert "--config NAME=VALUE" in usage
    assert old not in usage


def test_limit_is_an_old_spelling_of_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "a:b:c")
    code, _, error = run("tail", "x", "--limit", "5")
    assert (code, error.count("\n")) == (USAGE, 2)
    assert error.startswith("tidelog: --limit is an old spelling; write --first\n")
    code, _, error = run("tail", "x", "--limit", "0")
    assert "--first': 0 is out of range, 1 or more" in error
    assert "--limit" not in run("tail", "--help")[1]


def test_old_and_new_spellings_add_up() -> None:
    code, _, error = run(
        "topics", "create", "x", "--option", "a=1", "--config", "b=2", "--bootstrap", "nowhere:x"
    )
    assert (code, error.count("\n")) == (USAGE, 2)


def test_config_with_a_file_is_the_file_of_the_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a=b"
    folder.mkdir()
    file = folder / "server.properties"
    file.write_text("node.id=7\nnum.partitions=2\n")
    config = configure(None, [str(file), "num.partitions=3"], None)
    assert (config.node_id, config.num_partitions) == (7, 3)
    assert capsys.readouterr().err.count(f"write --config-file {file}\n") == 1
    assert configure(file, ["num.partitions=3"], None) == config
    assert capsys.readouterr().err == ""


def test_config_without_a_value_or_a_file_names_both_spellings() -> None:
    with pytest.raises(ConfigError, match="write it as name=value; --config-file takes a file"):
        configure(None, ["num.partitions"], None)


@pytest.mark.parametrize("flag", ["-b", "--bootstrap", "--bootstrap-server", "--brokers"])
@pytest.mark.parametrize(
    "verb", [["tail", "x"], ["topics", "list"], ["configs", "describe", "--topic", "x"], ["ping"]]
)
def test_a_broker_is_named_by_any_of_its_spellings(verb: list[str], flag: str) -> None:
    code, _, error = run(*verb, flag, "a:b:c")
    assert (code, error.count("\n")) == (USAGE, 1)
    assert "a:b:c" in error


def test_the_last_spelling_wins_and_the_help_shows_two() -> None:
    assert "--bootstrap c:d" in run("topics", "list", "-b", "a:b", "--brokers", "c:d")[2]
    usage = run("topics", "list", "--help")[1]
    assert "-b, --bootstrap HOST:PORT" in usage
    assert "--brokers" not in usage


@pytest.mark.parametrize(
    "verb",
    [["topics", "create", "x"], ["topics", "alter", "x"], ["configs", "alter", "--topic", "x"]],
)
def test_a_wrong_unit_is_refused_before_a_broker_is_asked(verb: list[str]) -> None:
    code, _, error = run(*verb, "--config", "retention.ms=7 fortnights", "-b", "nowhere:9092")
    said = "--config retention.ms=7 fortnights: fortnights is not a unit; write ms, s, m, h, d or w"
    assert (code, error) == (USAGE, f"tidelog: {said}\n")
