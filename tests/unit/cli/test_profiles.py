"""Which broker a verb connects to: the option, the environment, profiles, and the default."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.cli import health
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import UNREACHABLE, USAGE
from tidelog.cli.main import app

PROFILES = """
[default]
bootstrap = "127.0.0.1:1"
[work]
bootstrap = "127.0.0.1:2"
"""


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDELOG_BOOTSTRAP", "TIDELOG_PROFILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config/tidelog.toml").write_text(PROFILES)


def ping(*arguments: str, **environ: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments, env=environ)
    assert not result.stdout
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("arguments", "environ", "port"),
    [
        ("ping", {}, 1),
        ("--profile work ping", {}, 2),
        ("ping", {"TIDELOG_PROFILE": "work"}, 2),
        ("--profile default ping", {"TIDELOG_PROFILE": "work"}, 1),
        ("ping", {"TIDELOG_BOOTSTRAP": "127.0.0.1:3", "TIDELOG_PROFILE": "work"}, 3),
        ("--profile work ping", {"TIDELOG_BOOTSTRAP": "127.0.0.1:3"}, 2),
        ("--profile nope ping --bootstrap 127.0.0.1:4", {"TIDELOG_BOOTSTRAP": "127.0.0.1:3"}, 4),
        ("--profile work topics list", {}, 2),
    ],
)
def test_the_nearest_name_of_a_broker_counts(arguments: str, environ: dict[str, str], port: int) -> None:
    status, said = ping(*arguments.split(), **environ)
    assert status == UNREACHABLE
    assert f"127.0.0.1:{port}" in said


def test_health_asks_the_usual_port_of_the_host_that_a_profile_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(address: str) -> None:
        asked.append(address)
        raise CommandError("no answer")

    monkeypatch.setattr(health, "_ask", ask)
    CliRunner().invoke(app, ["health"], env={"TIDELOG_BOOTSTRAP": "broker.example:9092"})
    CliRunner().invoke(app, ["health"])
    CliRunner().invoke(app, ["health", "--http", "a:1"])
    assert asked == ["broker.example:9464", "127.0.0.1:9464", "a:1"]
    ended = CliRunner().invoke(app, ["health"], env={"TIDELOG_BOOTSTRAP": ":x"})
    assert ended.exit_code == USAGE
    assert "name the broker with --http" in ended.stderr


def test_without_a_file_it_is_the_usual_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tidelog.toml").write_text('[default]\nbootstrap = "127.0.0.1:5"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "127.0.0.1:5" in ping("ping")[1]
    (tmp_path / "tidelog.toml").unlink()
    assert "Default: TIDELOG_BOOTSTRAP, the profile, or" in " ".join(
        CliRunner().invoke(app, ["ping", "--help"]).stdout.split()
    )
    status, said = ping("--profile", "work", "ping")
    assert status == USAGE
    assert said == (
        f'tidelog: {tmp_path}/tidelog.toml: does not exist; write [work] and bootstrap = "HOST:PORT"\n'
    )
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME")
    CliRunner().invoke(app, ["ping"])  # a container may have no home


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default\n", "is not TOML: Expected ']'"),
        ("\xff", "is not TOML: 'utf-8'"),
        ("[other]\nbootstrap = 1\n", "has no profile work; it has other"),
        ("[work]\nbootstrap = 1\n", 'profile work must be [work] with bootstrap = "HOST:PORT" alone'),
        ("[work]\n", "profile work must be"),
        ("work = 1\n", "profile work must be"),
        ('[work]\nbootstrap = "a:1"\nport = 2\n', "profile work must be"),
        ('[work]\nbootstrap = "a:b:c"\n', "--bootstrap a:b:c: "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / ".config/tidelog.toml").write_bytes(text.encode("latin-1"))
    status, said = ping("--profile", "work", "ping")
    assert (status, said.count("\n")) == (USAGE, 1)
    assert words in said


def test_a_folder_in_place_of_the_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / ".config/tidelog.toml").unlink()
    (tmp_path / ".config/tidelog.toml").mkdir()
    assert ping("ping") == (USAGE, f"tidelog: {tmp_path}/.config/tidelog.toml: Is a directory\n")


def test_a_profile_after_the_verb_is_told_to_go_before_it() -> None:
    status, said = ping("ping", "--profile", "work")
    assert status == USAGE
    assert "--profile goes before the verb: tidelog --profile NAME VERB" in said


def test_several_brokers_at_once_are_refused() -> None:
    status, said = ping("ping", "--bootstrap", "a:1,b:2")
    assert status == USAGE
    assert "name one broker" in said
