"""The command line itself: what it takes, how it fails, what it loads, how it prints."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.support.broker import COMMAND, environment
from tests.support.workload import one_batch
from tidelog import native
from tidelog.broker.catalog import SCHEMA_VERSION
from tidelog.cli import connect, formats, output
from tidelog.cli.arguments import parse_options
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tidelog.cli.main import app
from tidelog.cli.output import Column, print_rows
from tidelog.cli.text import called, shown
from tidelog.client import fetching
from tidelog.client.cluster import Partition
from tidelog.client.errors import STORAGE_FAILS, BrokerError
from tidelog.client.fetching import Record
from tidelog.commit import commit
from tidelog.config import times
from tidelog.protocol import compiled
from tidelog.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tidelog.protocol.records import build, entries
from tidelog.protocol.records.batch import read_header
from tidelog.protocol.records.message_set import build_message_set

RECORD = Record("tides", 1, 15, 1_709_283_600_250, 0, b"harbour", b"3.2 m", [("unit", b"m"), ("none", None)])

TOO_LONG = "\u00e4" * 16_384
TOO_LONG_WORDS = "\u00e4" * 60 + "... has 32,768 bytes; the protocol allows 32,767. Try"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tail"], "Missing argument 'TOPIC...'. Try: tidelog tail --help"),
        (["tial", "x"], "No such command 'tial'"),
        (["--nope"], "No such option '--nope'"),
        (["completion"], "Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish. Try"),
        (
            ["topics", "create", "x", "--partitions", "0"],
            "'--partitions': 0 is out of range, 1 to 2147483647. Try",
        ),
        (
            ["topics", "create", "x", "--config", "segment.bytes"],
            "--config segment.bytes: write it as name=value",
        ),
        (
            ["topics", "alter", "x"],
            "nothing to change: give --partitions N, --config NAME=VALUE or --delete-config",
        ),
        (["topics", "alter", "x", "--config", "a"], "--config a: write it as name=value"),
        (
            ["topics", "alter", "x", "--config", "a=1", "--delete-config", "a"],
            "--delete-config a: --config sets it",
        ),
        (["topics", "alter", "x", "--delete-config", " "], "--delete-config: the name is empty"),
        (
            ["delete-records", "x", "-p", "0", "--offset", str(1 << 63)],
            "'--offset': 9223372036854775808 is out of range, 0 to 9223372036854775807. Try",
        ),
        (["configs", "alter", "--config", "a=1"], "name either a --topic or a --broker"),
        (["configs", "describe", "--topic", "x", "--broker", "1"], "name either a --topic or a --broker"),
        (
            ["configs", "alter", "--topic", "x"],
            "nothing to change: give --config NAME=VALUE or --delete-config",
        ),
        (
            ["groups", "reset", "g", "--to-offset", "1"],
            "give either --topic NAME (NAME:0,1 for some partitions) or",
        ),
        (
            ["groups", "reset", "g", "--to-offset", "1", "--topic", "x", "--all-topics"],
            "give either --topic NAME",
        ),
        (
            ["groups", "reset", "g", "--topic", "x"],
            "give one target: --to-offset N, --to-time TIME, --by-duration",
        ),
        (["groups", "reset", "g", "--topic", "x", "--shift-by", "1", "--to-time", "now"], "give one target"),
        (
            ["groups", "reset", "g", "--topic", "x:", "--shift-by", "1"],
            "--topic x:: write it as NAME, or as NAME:0,1",
        ),
        (["groups", "reset", "g", "--topic", "x:1,a", "--shift-by", "1"], "--topic x:1,a: write it as NAME"),
        (
            ["groups", "reset", "g", "--topic", "x", "--to-offset", "-1"],
            "must be earliest, latest or an offset from 0 up",
        ),
        (
            ["groups", "reset", "g", "--topic", "x", "--to-offset", "9" * 20],
            "must be earliest, latest or an offset from 0 up",
        ),
        (["groups", "reset", "g", "--topic", "x", "--to-time", "soon"], "--to-time: 'soon' is not a time"),
        (
            ["groups", "reset", "g", "--topic", "x", "--by-duration", "2"],
            "--by-duration: '2' is not a duration",
        ),
        (["delete-records", "x"], "give one of --offset N, --before TIME and --all"),
        (
            ["delete-records", "x", "--all", "--before", "now"],
            "give one of --offset N, --before TIME and --all",
        ),
        (["delete-records", "x", "--offset", "5"], "--offset N needs exactly one --partition"),
        (["delete-records", "x", "--before", "soon"], "--before: 'soon' is not a time"),
        (["tail", "x", "--offset", "5"], "--offset 5 needs exactly one --partition, or write it as P:5"),
        (["tail", "x", "--offset", "5", "-p", "0", "-p", "1"], "--offset 5 needs exactly one --partition"),
        (["tail", "x", "--offset", "0:5", "-p", "0"], "--offset 0:5 and --partition cannot be combined"),
        (["tail", "x", "--offset", "0:5", "--offset", "-5"], "cannot be combined with an --offset for all"),
        (
            ["tail", "x", "--offset", "0:5", "--offset", "0:7"],
            "--offset 0:7: partition 0 has --offset 5 already",
        ),
        (["tail", "x", "--offset", "-5", "--offset", "-5"], "--offset -5: each partition has --offset -5"),
        (["tail", "x", "--since", "5M"], "--since: '5M': write m for M: units are in lower case"),
        (["tail", "x", "--since", "1h1h"], "--since: '1h1h' has h twice; write each unit once"),
        (["tail", "x", "--offset", "last"], "--offset last: write N, P:N or -N, such as 100, 0:100 or -5"),
        (["tail", "x", "--offset", "0:5", "--since", "now"], "--offset and --since cannot be combined"),
        (["tail", "x", "--first", "1", "-n", "1"], "--first and --last cannot be combined"),
        (["tail", "x", "--count", "-f"], "--count with --follow needs --until"),
        (["tail", "x", "--grep", "("], "--grep (: missing ), unterminated subpattern"),
        (["tail", "x", "--since", "soon"], "--since: 'soon' is not a time; write 09:00"),
        (["tail", "x", "--until", "2 ago"], "--until: '2 ago' is not a time"),
        (["tail", "x", "--format", "xml"], "--format xml: must be text, json or a template"),
        (
            ["tail", "x", "--format", "{nope}"],
            "--format: no such field {nope}; the fields are topic, partition",
        ),
        (["tail", "x", "--format", "{value"], "expected '}' before end of string"),
        (["offsets", "x", "--at", "25:00"], "--at: '25:00' is not a time"),
        (["topics", "list", "--bootstrap", "x:y"], "--bootstrap x:y: write it as host:port"),
        (["topics", "list", "--bootstrap", "::1:9092"], "with an IPv6 address as [::1]:9092"),
        (["topics", "list", "--bootstrap", "127.0.0.1:99999"], "the port is out of range, 1 to 65535"),
        (["topics", "list", "--bootstrap", "127.0.0.1:0"], "the port is out of range, 1 to 65535"),
        (["topics", "list", "--bootstrap", "h:" + "9" * 5000], "the port is out of range, 1 to 65535"),
        (["topics", "list", "--bootstrap", "a..b:9"], "'a..b' is not a host name: its parts, between dots"),
        (["topics", "list", "--bootstrap", "a" * 64 + ":9"], "is not a host name"),
        (
            ["topics", "create", "x", "--partitions", "2147483648"],
            "2147483648 is out of range, 1 to 2147483647",
        ),
        (["produce", "x", "--key-separator", ""], "'--key-separator': it is empty"),
        (
            ["produce", "x", "--key-separator", ":", "--key", "a"],
            "--key-separator and --key cannot be combined",
        ),
        (["produce", "x", "--null-value", "--json"], "--null-value and --json cannot be combined"),
        (["produce", "x", "--rate", "0"], "'--rate': 0 is not a number of records above 0. Try"),
        (["produce", "x", "--rate", "nan"], "'--rate': nan is not a number of records above 0. Try"),
        (["produce", "x", "--rate", "1e999"], "'--rate': inf is not a number of records above 0. Try"),
        (["produce", "x", "--rate", "fast"], "'--rate': 'fast' is not a valid float. Try"),
        (["produce", "x", "--header", "a"], "'a' is not NAME=VALUE"),
        (["produce", "x", "--timestamp", "soon"], "--timestamp: 'soon' is not a time"),
        (["produce", "x", "/no/such/file"], "File '/no/such/file' does not exist"),
        (["groups", "reset", "", "--topic", "x", "--to-offset", "1"], "GROUP is empty: a group must"),
        (["tail", "x", "--format", "{offset:zz}"], "Unknown format code 'z'"),
        (["tail", "x", "--format", "{key!x}"], "--format '{key!x}': "),
        (["tail", "x", "--format", "{key:5d}"], "Unknown format code 'd'"),
        (["tail", "x", "--format", "{offset!r:.2f}"], "Unknown format code 'f'"),
        (["tail", "x", "--format", "{offset:c}"], "--format '{offset:c}': "),
        (["tail", "x", "--format", "{offset:{key}}"], "'{key}' of a field cannot hold"),
        (["tail", "x", "--format", "{key:>10000}"], "a field has at most 9999 characters"),
        (["tail", "x", "--format", "{offset:." + "9" * 5000 + "f}"], "at most 9999"),
        (["tail", "x", "--first", "2x"], "'2x' is not a valid integer. Try"),
        (["tail", "x", "--first", "\u0662"], "'\u0662' is not a valid integer. Try"),
        (["tail", "x", "--first", "9" * 5000], f"'{'9' * 60}...' is not a valid integer. Try"),
        (["groups", "reset", "g", "--shift-by", "\u0662"], "'\u0662' is not a valid integer. Try"),
        (["tail", TOO_LONG], TOO_LONG_WORDS),
        (["produce", TOO_LONG], TOO_LONG_WORDS),
        (["topics", "create", TOO_LONG], TOO_LONG_WORDS),
        (["configs", "describe", "--topic", TOO_LONG], TOO_LONG_WORDS),
        (["groups", "describe", TOO_LONG], TOO_LONG_WORDS),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (USAGE, "", 1)
    assert err.startswith("tidelog: ")
    assert words in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["tail", "x"],
        ["offsets", "x"],
        ["produce", "x"],
        ["topics", "create", "x"],
        ["groups", "list"],
    ],
)
def test_no_broker_is_one_line_and_exit_code_3(arguments: list[str]) -> None:
    code, out, err = run(*arguments, "--bootstrap", "127.0.0.1:1")
    assert (code, out) == (UNREACHABLE, "")
    refused = (
        "tidelog: cannot reach a broker at 127.0.0.1:1: Connection refused; start one with tidelog serve"
    )
    assert err == f"{refused} --port 1\n"


def test_a_name_that_no_host_has_is_no_reason_to_start_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    code, out, err = run("topics", "list", "--bootstrap", "nowhere:9092")
    assert (code, out) == (UNREACHABLE, "")
    unreached = "tidelog: cannot reach a broker at nowhere:9092: Name or service not known"
    assert err == f"{unreached}; --bootstrap takes the host and port of a broker\n"


def test_a_slip_in_a_verb_is_told_in_whole_sentences() -> None:
    code, out, err = run("tpoics")
    assert (code, out) == (USAGE, "")
    assert err == "tidelog: No such command 'tpoics'. Did you mean 'topics'? Try: tidelog --help\n"


def test_several_suggestions_are_a_sentence_of_their_own() -> None:
    code, out, err = run("tail", "x", "--fo")
    assert (code, out) == (USAGE, "")
    said = "No such option '--fo'. Did you mean one of: '--follow', '--format', '--json'?"
    assert err == f"tidelog: {said} Try: tidelog tail --help\n"


NO_TEXT = "a\udcff"  # what Python makes of a byte that is no UTF-8


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create", NO_TEXT],
        ["topics", "create", "x", "--config", f"segment.bytes={NO_TEXT}"],
        ["topics", "describe", NO_TEXT],
        ["topics", "delete", NO_TEXT, "--yes"],
        ["topics", "alter", "x", "--config", f"segment.bytes={NO_TEXT}"],
        ["topics", "alter", "x", "--delete-config", NO_TEXT],
        ["configs", "describe", "--topic", NO_TEXT],
        ["groups", "describe", NO_TEXT],
        ["groups", "reset", "g", "--topic", NO_TEXT, "--to-offset", "1"],
        ["topics", "list", "--bootstrap", f"{NO_TEXT}:9"],
        ["produce", NO_TEXT],
        ["produce", "x", "--key-separator", NO_TEXT],
        ["tail", NO_TEXT],
        ["offsets", NO_TEXT],
    ],
)
def test_bytes_that_are_no_text_are_sent_nowhere(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "127.0.0.1:1")
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (USAGE, "", 1)
    assert "a\\udcff" in err
    assert "is not UTF-8" in err


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION, 3)"),
        (17, "a topic name has 1 to 249 ASCII letters, "),
        (56, f"{STORAGE_FAILS} (KAFKA_STORAGE_ERROR, 56)"),
        (29, "the broker answers TOPIC_AUTHORIZATION_FAILED, 29"),
        (999, "the broker answers error 999"),
    ],
)
def test_error_codes_are_explained(code: int, words: str) -> None:
    assert str(BrokerError("topic t", code)).startswith(f"topic t: {words}")
    assert str(BrokerError("topic t", code, "in the broker's words")) == "topic t: in the broker's words"


def test_hints_name_the_command_as_it_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/a folder/tidelog"])
    assert run("tail", "--zzz")[2].endswith(". Try: '/a folder/tidelog' tail --help\n")
    with pytest.raises(CommandError, match="'/a folder/tidelog' topics list shows all topics"):
        connect.choose(described())


def test_nothing_that_was_typed_reaches_a_terminal_as_a_control_character() -> None:
    assert shown("a\n\x1b[31m\x85\udcff\u00e4") == "a\\n\\x1b[31m\\x85\\udcff\u00e4"
    assert run("\x1b[31m")[2].startswith("tidelog: No such command '\\x1b[31m'.")


@pytest.mark.parametrize("arguments", [["--help"], ["tail", "--help"], ["--version"], ["dump", "LOG"]])
def test_a_reader_that_leaves_is_no_error(arguments: list[str], tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(b"".join(one_batch(1) for _ in range(2000)))
    reader, pipe = os.pipe()
    os.close(reader)
    line = [str(COMMAND), *(str(log) if word == "LOG" else word for word in arguments)]
    try:
        done = subprocess.run(line, stdout=pipe, stderr=subprocess.PIPE, timeout=50, env=environment())
    finally:
        os.close(pipe)
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_is_loaded_before_ctrl_c_is_heard() -> None:
    """Beside what Python itself has loaded when it starts."""
    assert loaded("import tidelog.cli.entry") - loaded("pass") == {
        "tidelog",
        "tidelog.cli",
        "tidelog.cli.entry",
    }


def test_the_broker_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "[::1]:1")
    code, _, err = run("topics", "list")
    assert code == UNREACHABLE
    assert "broker at [::1]:1" in err


def test_the_list_of_verbs_says_what_the_help_of_each_verb_begins_with() -> None:
    with click.Context(app) as context:
        for verb in app.list_commands(context):
            listed = app.get_command(context, verb)
            _, command, _ = app.resolve_command(context, [verb])
            assert listed is not None
            assert command is not None
            begins = " ".join((command.help or "").split())
            assert begins.startswith((listed.help or "").rstrip(" .")), verb


def test_a_shell_completes_verbs_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TIDELOG_COMPLETE", "bash_complete")
    for words, completed in (("tidelog topi", "topics"), ("tidelog tail --foll", "--follow")):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        assert run()[1] == f"plain,{completed}\n"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("bash_complete", "the shell has not set the words to complete: 'COMP_WORDS'"),
        ("nope", "must be bash_source, zsh_source or fish_source"),
        ("bash_nope", "must be bash_source, zsh_source or fish_source"),
    ],
)
def test_a_wrong_request_for_completion_is_one_line(
    wanted: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TIDELOG_COMPLETE", wanted)
    monkeypatch.delenv("COMP_WORDS", raising=False)
    assert run() == (USAGE, "", f"tidelog: _TIDELOG_COMPLETE={wanted}: {words}\n")


def test_a_completion_script_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(COMMAND)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=50,
            env={**environment(), "_TIDELOG_COMPLETE": "zsh_source"},
        )
    assert (done.returncode, done.stderr) == (
        FAILED,
        "tidelog: standard output: No space left on device\n",
    )


def commands(group: click.Group, above: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that a group lists, and those of the groups in it."""
    with click.Context(group, parent=above, info_name=group.name) as context:
        for name in group.list_commands(context):
            _, command, _ = group.resolve_command(context, [name])
            assert command is not None
            yield f"{context.command_path} {name}", command
            if isinstance(command, click.Group):
                yield from commands(command, context)


def test_each_list_of_verbs_fits_80_columns_and_each_argument_has_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    every = [("tidelog", app), *commands(app, click.Context(click.Command("")))]
    for path, command in every:
        with click.Context(command, info_name=path) as context:
            shown = command.get_help(context)
        assert not isinstance(command, click.Group) or "...\n" not in shown.partition("Commands:")[2], path
        for each in command.params:
            assert not isinstance(each, click.Argument) or each.help, (path, each.name)


def test_without_a_verb_it_shows_the_help() -> None:
    code, out, err = run()
    assert (code, err) == (USAGE, "")
    assert "serve" in out
    assert "Exit codes:" in out


def loaded(code: str) -> set[str]:
    """Return the names of the modules that a piece of code imports; those that find compiled ones do not count."""
    end = "import sys; print(*sys.modules, file=sys.stderr)"
    script = f"try:\n  {code}\nexcept SystemExit: pass\n{end}"
    env = {**os.environ, "TIDELOG_COMPILED": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.argv = ['tidelog', '--version']; from tidelog.cli.entry import run; run()",
        "import tidelog.cli.main, tidelog.cli.serve; tidelog.cli.text.called()",
    ],
)
def test_serve_and_version_load_no_client(code: str) -> None:
    modules = loaded(code)
    assert not {"construct", "tidelog.client", "rich"} & modules
    # What the package `crc32c` imports beside its compiled module: a seventh of a start.
    assert not {"crc32c", "importlib.metadata", "email", "argparse"} & modules
    # What is needed later, if at all: to delete a folder, to show a large float, to hold a clock.
    assert not {"shutil", "tempfile", "bz2", "lzma", "decimal", "tidelog.config.times"} & modules
    # To make a backup; `secrets` loads it too, and so does `random` in a Python without hashes of its own.
    assert "hashlib" not in modules - loaded("import random")


@pytest.mark.parametrize("kind", ["command", "folder", "file", "broken link"])
def test_the_command_is_named_as_the_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    first, second = tmp_path / "first" / "tidelog", tmp_path / "second" / "tidelog"
    for path in (first, second):
        path.parent.mkdir()
    second.touch(0o755)
    if kind == "folder":
        first.mkdir()
    elif kind == "broken link":
        first.symlink_to(tmp_path / "gone")
    else:
        first.touch(0o755 if kind == "command" else 0o644)
    monkeypatch.setenv("PATH", f"{first.parent}:{second.parent}")
    found, other = (first, second) if kind == "command" else (second, first)
    monkeypatch.setattr("sys.argv", [str(found)])
    assert called() == "tidelog"
    monkeypatch.setattr("sys.argv", [str(other)])
    assert called() == str(other)


WITHOUT_CYTHON = """
import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder

class WithoutCython:
    def find_spec(self, name, path, target=None):
        spec = PathFinder.find_spec(name, path) if name.startswith("tidelog.protocol.") else None
        is_compiled = spec is not None and spec.origin.endswith(EXTENSION_SUFFIXES[0])
        if name == "cython" or (INTERPRETED and is_compiled):
            raise ModuleNotFoundError(name="cython")  # as its source would

sys.meta_path.insert(0, WithoutCython())
sys.argv = ["tidelog", *sys.argv[1:]]
from tidelog.cli.entry import run
run()
"""


def without_cython(*words: str, interpreted: bool) -> subprocess.CompletedProcess[str]:
    script = f"INTERPRETED = {interpreted}{WITHOUT_CYTHON}"
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)


@pytest.mark.skipif(not compiled.COMPILED, reason="nothing is compiled here")
def test_what_is_compiled_runs_without_cython() -> None:
    done = without_cython("version", "--verbose", interpreted=False)
    assert (done.returncode, done.stderr, "bytes: compiled" in done.stdout) == (0, "", True)


def test_without_compiled_loops_and_cython_a_line_says_what_to_install() -> None:
    done = without_cython("version", "--verbose", interpreted=True)
    assert (done.returncode, done.stderr.count("\n")) == (FAILED, 1)
    assert done.stderr.startswith("tidelog: the loops over bytes are not compiled, ")
    assert without_cython("--help", interpreted=True).returncode == OK


def test_the_help_of_no_verb_loads_what_does_the_work() -> None:
    modules = loaded("""
  import click
  from tidelog.cli.main import app
  with click.Context(app) as context:
    for verb in app.list_commands(context):
      app.resolve_command(context, [verb])
  import tidelog.pipeline.commands
""")
    assert {"tidelog.cli.serve_command", "tidelog.cli.tail"} <= modules
    heavy = {"tidelog.broker.broker", "tidelog.client.cluster", "tidelog.storage.log", "rich", "uvloop"}
    assert not {*heavy, "construct", "sqlite3", "pyarrow", "importlib.metadata"} & modules


def test_a_start_does_not_look_for_garbage_among_what_it_imports() -> None:
    code = """
import atexit, gc, sys
looked_at = []
gc.callbacks.append(lambda phase, _: phase == "start" and looked_at.append(len(gc.get_objects())))
atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count(), max(looked_at, default=0)))
sys.argv = ["tidelog", "serve", "--config", "nope=1"]
from tidelog.cli.entry import run
run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == USAGE
    is_enabled, frozen, most = done.stdout.splitlines()[-1].split()
    assert is_enabled == "True"
    assert int(frozen) > 20_000
    assert int(most) < 5_000


def test_errors_are_one_line_whatever_they_hold() -> None:
    error = CommandError("one\n  two")
    assert (error.format_message(), error.exit_code) == ("one\\n  two", FAILED)


def test_topic_options() -> None:
    assert parse_options(["segment.bytes=100", " cleanup.policy = a=b "]) == {
        "segment.bytes": "100",
        "cleanup.policy": "a=b",
    }


COLUMNS = [Column("name", "name"), Column("count", "count", is_number=True)]
ROWS = [{"name": "tides", "count": 7}, {"name": "x[red]", "count": 1000}]


def test_rows_are_aligned_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(COLUMNS, ROWS, as_json=False, caption="not shown")
    assert capsys.readouterr().out == "name    count\ntides       7\nx[red]   1000\n"
    print_rows(COLUMNS, [], as_json=False)
    assert capsys.readouterr().out == "name  count\n"


def test_rows_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(COLUMNS, ROWS, as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that makes standard output a terminal of a width."""

    def of_width(width: int) -> None:
        monkeypatch.setattr(output, "is_terminal", lambda stream: True)
        for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", str(width))):
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("NO_COLOR", raising=False)

    return of_width


WIDE = [
    Column("name", "name"),
    Column("lag", "records left", is_number=True, bad=bool),
    output.time_column("at", "last write"),
    Column("why", "why", wraps=True),
]
WIDE_ROW = {
    "name": "tides",
    "lag": 12_345_678,
    "at": 1_709_283_600_250,
    "why": "the disk has no space for more " * 3,
}


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_rows_fit_a_terminal_and_only_a_reason_has_several_lines(
    width: int, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(width)
    print_rows(COLUMNS, ROWS, as_json=False, caption="at 09:00")
    assert "x[red]" in capsys.readouterr().out
    print_rows(WIDE, [WIDE_ROW], as_json=False)
    shown = capsys.readouterr().out
    assert "\x1b[31m" in shown
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= width
    # A table, or a line for each value.
    assert any("tides" in line and "12345678" in line for line in lines) == (width >= 60)


def test_colours_are_left_out_if_the_user_says_so(
    terminal: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(80)
    assert output.alarming("refused") == "\x1b[31mrefused\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    print_rows(WIDE, [WIDE_ROW], as_json=False)
    assert "\x1b[31m" not in capsys.readouterr().out
    assert output.alarming("refused") == "refused"


def test_colours_are_left_out_elsewhere() -> None:
    assert output.alarming("refused") == "refused"


@pytest.mark.parametrize("beside_output", [True, False])
@pytest.mark.parametrize("is_stdout", [True, False])
@pytest.mark.parametrize("total", [None, 10])
def test_progress_is_shown_on_a_terminal(
    beside_output: bool,
    is_stdout: bool,
    total: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda stream: stream is sys.stderr or is_stdout)
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    with output.progress("produce [red]x", total, beside_output=beside_output) as advance:
        advance(7)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("produce [red]x" in err) == (not (beside_output and is_stdout))


@pytest.mark.parametrize("is_stdin", [True, False])
def test_progress_is_not_shown_over_what_is_typed(
    is_stdin: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda stream: stream is not sys.stdin or is_stdin)
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    with output.progress("produce x", beside_input=True):
        pass
    assert ("produce x" in capsys.readouterr().err) == (not is_stdin)


def test_progress_is_not_shown_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("produce x") as advance:
        advance(7)
    assert capsys.readouterr() == ("", "")


def test_plain_bytes_hold_no_control_characters() -> None:
    assert output.plain(b"a\tb\n\x1b[31m\x7f") == "a\\tb\\n\\x1b[31m\\x7f"
    assert output.plain("grün \x85".encode()) == "grün \\x85"
    assert output.plain(b"\xff\xfe") == "\\xff\\xfe"
    assert output.plain(None) == "null"


def test_format_text() -> None:
    write, shown = formats.choose("text"), times.show(RECORD.timestamp).encode()
    assert write(RECORD) == shown + b"\t1:15\tharbour\t3.2 m\tunit=m none=\\N\n"
    bare = RECORD._replace(key=None, value=b"a\nb", headers=[])
    assert write(bare) == shown + b"\t1:15\t\\N\ta\\nb\n"


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 5000)))
def test_the_times_of_a_format_are_those_of_show(all_ms: list[int]) -> None:
    write = formats.choose("{time}")
    for ms in all_ms:
        assert write(RECORD._replace(timestamp=ms)).decode() == times.show(ms) + "\n"


PARTS = (
    st.none()
    | st.binary(max_size=9)
    | st.text(max_size=9).map(str.encode)
    | st.sampled_from([b"\\N", b'\\"'])
)
DRAWN = st.tuples(
    st.integers(0, 1 << 42),
    PARTS,
    PARTS,
    st.lists(st.tuples(st.text(max_size=3), PARTS), max_size=1).map(tuple),
)


@given(
    st.lists(DRAWN, min_size=1, max_size=9), st.sampled_from(["text", "json"]), st.booleans(), st.booleans()
)
def test_the_lines_of_a_batch_are_those_of_its_records(
    rows: list[Any], name: str, names_topic: bool, by_append: bool
) -> None:
    batch = build.build_batch(
        [build.Record(7 + number, *row) for number, row in enumerate(rows)], log_append_time=by_append
    )
    write = formats.choose(name, names_topic=names_topic)
    read = formats.line_reader(name, write, names_topic=names_topic)
    assert read is not None
    entry = Partition('t"', 1), memoryview(batch), 0, read_header(batch, 0), 8
    wanted = fetching.records(*entry)
    lines = read(*entry)
    assert [(line.offset, line.timestamp) for line in lines] == [
        (each.offset, each.timestamp) for each in wanted
    ]
    assert [line.text for line in lines] == list(map(write, wanted))


@pytest.mark.parametrize("magic", [0, 1])
def test_the_lines_of_older_formats_are_those_of_their_records(magic: int) -> None:
    message = build_message_set([build.Record(7, 5, b"k", b"v")], magic=magic)
    write = formats.choose("json")
    read = formats.line_reader("json", write)
    assert read is not None
    entry = Partition("t", 1), memoryview(message), 0, entries.peek(message, 0), 0
    assert [line.text for line in read(*entry)] == list(map(write, fetching.records(*entry)))


def test_format_json() -> None:
    line = json.loads(formats.choose("json")(RECORD._replace(key=None, value=b"\xff", timestamp_type=1)))
    assert line == {
        "topic": "tides",
        "partition": 1,
        "offset": 15,
        "timestamp": 1_709_283_600_250,
        "timestamp_type": "LogAppendTime",
        "key": None,
        "value_base64": "/w==",
        "headers": [{"name": "unit", "value": "m"}, {"name": "none", "value": None}],
    }


def test_a_template_gives_the_bytes_as_they_are() -> None:
    write = formats.choose("{offset:>4}\\t{key}={value} {headers}")
    record = RECORD._replace(value=b"\xff\x00\n{x}", headers=[])
    assert write(record) == b"  15\tharbour=\xff\x00\n{x} []\n"
    assert write(record._replace(key=None, value=None)) == b"  15\t= []\n"


def described(*partitions: int) -> MetadataResponseTopic:
    """The metadata of topic `t`."""
    parts = [
        MetadataResponsePartition(
            error_code=0, partition_index=n, leader_id=0, replica_nodes=[], isr_nodes=[]
        )
        for n in partitions
    ]
    return MetadataResponseTopic(error_code=0, name="t", partitions=parts)


def test_choose_partitions() -> None:
    assert [key.partition for key in connect.choose(described(2, 0, 1))] == [0, 1, 2]
    assert [key.partition for key in connect.choose(described(2, 0, 1), [2, 0, 2])] == [0, 2]
    with pytest.raises(CommandError, match="topic t has no partition 3; it has 3 partitions, from 0 on"):
        connect.choose(described(0, 1, 2), [3])
    with pytest.raises(CommandError, match="topic t does not exist"):
        connect.choose(described())


def test_version_says_what_is_compiled_and_of_which_commit() -> None:
    status, said, _ = run("version")
    assert (status, said) == (OK, f"tidelog {tidelog.__version__}\n")
    status, said, _ = run("version", "--verbose")
    words = dict(line.split(": ", 1) for line in said.splitlines()[2:])
    assert (status, words["requests"]) == (OK, native.state())
    assert (words["commit"], f"catalogue {SCHEMA_VERSION}, " in words["formats"]) == (
        commit() or "unknown",
        True,
    )
    assert words["loops over bytes"] in ("compiled", "interpreted")
