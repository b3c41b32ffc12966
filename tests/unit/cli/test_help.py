"""The help of each verb: its examples, its types, and its line breaks."""

import re
import shlex

import click
import pytest

from tests.unit.cli.test_cli import commands
from tidelog.cli.main import app
from tidelog.pipeline import commands as jobs

EVERY = [("tidelog", app), *commands(app, click.Context(click.Command("")))]
EVERY += [(f"tidelog pipeline {job}", command) for job, command in jobs.app.commands.items()]
# What click shows for a type without a name of its own.
NO_TYPES = {"TEXT", "INTEGER", "FLOAT", "INTEGER RANGE", "FLOAT RANGE", "BOOLEAN", "<LAMBDA>", "FUNCTION"}


def help_of(path: str, command: click.Command) -> str:
    # The job shows the help of `tidelog pipeline`.
    shown = jobs.app if path == "tidelog pipeline" else command
    with click.Context(shown, info_name=path) as context:
        return shown.get_help(context)


def parsed(words: list[str]) -> str:
    """Return the path of the verb of a command line, which is parsed as at a prompt, and not run."""
    command: click.Command = app
    context = command.make_context("tidelog", words)
    while isinstance(command, click.Group) or context.command_path == "tidelog pipeline":
        group = jobs.app if not isinstance(command, click.Group) else command
        rest = [*context._protected_args, *context.args]
        name, found, rest = group.resolve_command(context, rest)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return context.command_path


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[path for path, _ in EVERY])
def test_a_help_has_two_examples_that_the_command_line_takes(
    path: str, command: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    shown = help_of(path, command)
    assert not any(re.search(r"--[\w-]*-$|(^|[ (])-$", line) for line in shown.splitlines())
    assert max(map(len, shown.splitlines())) <= 80
    lines = shown.replace("\\\n", "").partition("\n  Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert len(lines) >= 2
    for line in lines:
        assert line.startswith("    ")
        used = re.findall(r"\btidelog ([^|<)]*)", line)
        verbs = [parsed(shlex.split(words)) for words in used]
        assert verbs
        assert any(f"{verb} ".startswith(f"{path} ") for verb in verbs), line


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[path for path, _ in EVERY])
def test_a_help_names_what_an_option_takes(path: str, command: click.Command) -> None:
    with click.Context(command, info_name=path) as context:
        for each in command.params:
            if isinstance(each, click.Option) and not (each.is_flag or each.hidden):
                assert each.make_metavar(context) not in NO_TYPES, (path, each.name)
