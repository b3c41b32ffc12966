"""The `tidelog` command: its verbs, and their exit codes.

An error is one line on stderr.

Exit codes: 0 done; 1 failed (the broker refused, something is damaged, or the user did not confirm); 2 wrong usage;
3 the broker cannot be reached, or stopped answering; 4 `fsck` could not read; 130 Ctrl-C. `serve` and `tail` usually
end by Ctrl-C, so they exit with 0.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

import click
from click.exceptions import Exit, NoArgsIsHelpError

import tidelog
from tidelog.cli import completion
from tidelog.cli.arguments import Verbs
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.imports import uncollected
from tidelog.cli.profiles import profile_option
from tidelog.cli.text import called, drop_output, examples, note

# Each verb: the module and name of its command, and its line in the list of verbs. The module is imported when the verb
# runs, so `--help` is fast.
_VERBS: Final = {
    "serve": ("serve_command.serve", "Run the broker until SIGTERM, SIGHUP or Ctrl-C."),
    "dump": ("dump.dump", "Show what a file of a partition holds, and any damage."),
    "fsck": ("fsck.fsck", "Check logs and the files beside them, and list damage."),
    "backup": ("backup.backup", "Copy the data of a running broker, as of one moment."),
    "restore": ("restore.restore", "Make a data folder from a backup."),
    "import": ("importing.import_folder", "Copy the log of a partition into a data folder."),
    "produce": ("produce.produce", "Send each line as a record."),
    "tail": ("tail.tail", "Print the records of topics, partitions merged by time."),
    "copy": ("copying.copy", "Copy topics from one cluster to another."),
    "offsets": ("offsets.offsets", "Show where each partition starts and ends."),
    "delete-records": ("delete_records.delete_records", "Delete the oldest records of a topic."),
    "log-dirs": ("log_dirs.log_dirs", "Show the size of each partition, and how full the disk is."),
    "ping": ("ping.ping", "Ask a broker whether it answers."),
    "doctor": ("doctor.doctor", "Check the clock, the disk, the limits and a broker."),
    "top": ("top.top", "Show topics, clients and groups by rate and lag."),
    "health": ("health.health", "Show whether a broker is healthy."),
    "pipeline": ("pipeline.pipeline", "Run a job over the log: backfill, ingest, audit, others."),
    "topics": ("topics.topics", "Create, list, describe, alter and delete topics."),
    "configs": ("configs.configs", "Show and change the options of topics and of the broker."),
    "groups": ("group_reset.groups", "List, describe, reset and delete consumer groups."),
    "fork": ("fork.fork", "Make the topic NEW with what TOPIC held at a time."),
    "audit": ("audit_command.audit", "Compare what a group has read with what was produced."),
    "explain": ("explain_command.explain", "Explain what a broker does, from its data folder."),
    "completion": (
        "completion.completion",
        "Print the script that completes command lines in a shell.",
    ),
    "version": ("version.version", "Print the version."),
    "test-control": ("control.test_control", "Move the clock of a broker, and make requests fail."),
}


class _Formatter(click.HelpFormatter):
    """Writes help that breaks no line within the name of an option."""

    # As wide as a hyphen, and no place for a line break.
    _HYPHEN: Final = "\u2011"

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(self._kept(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of names and descriptions."""
        super().write_dl([(name, self._kept(text)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """Return the help."""
        return super().getvalue().replace(self._HYPHEN, "-")

    def _kept(self, text: str) -> str:
        return re.sub(r"--\w[\w-]*", lambda name: name[0].replace("-", self._HYPHEN), text)


# Of each verb, and of the jobs of the pipeline.
click.Context.formatter_class = _Formatter


class _Tidelog(Verbs):
    """The command as a whole. An error is one line, and a closed pipe is not an error."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the verb that the command line names."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and _load(command), rest

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **__: Any
    ) -> NoReturn:
        """Run a verb, and exit with its code. A write to standard output that fails is an error."""
        name = prog_name or "tidelog"
        try:
            status = self._run(name, sys.argv[1:] if args is None else list(args))
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output(sys.stdout)  # the reader has closed the pipe, as `| head` does
            status = OK
        except OSError as error:
            drop_output(sys.stdout)
            note(f"{error.filename or 'standard output'}: {error.strerror or error}")
            status = FAILED
        try:
            sys.stderr.flush()
        except OSError:
            drop_output(sys.stderr)
        sys.exit(status)

    def _run(self, name: str, args: list[str]) -> int:
        try:
            if wanted := os.environ.get(completion.VARIABLE):
                return self._complete(name, wanted)
            with self.make_context(name, args) as context:
                status: int = self.invoke(context)
                return status
        except Exit as end:
            return end.exit_code
        except NoArgsIsHelpError as error:
            print(error.format_message())
            return error.exit_code
        except click.ClickException as error:
            note(_with_hint(error.format_message(), error))
            return error.exit_code

    def _complete(self, name: str, wanted: str) -> int:
        """Print the completion script of a shell, or the words that complete a command line."""
        from click.shell_completion import shell_complete

        try:
            status = shell_complete(self, {}, name, completion.VARIABLE, wanted)
        except (KeyError, ValueError) as error:
            raise CommandError(
                f"{completion.VARIABLE}={wanted}: the shell has not set the words to complete: {error}", USAGE
            ) from None
        if status:
            raise CommandError(
                f"{completion.VARIABLE}={wanted}: must be bash_source, zsh_source or fish_source", USAGE
            )
        return OK


def _load(listed: click.Command) -> click.Command:
    module, _, name = _VERBS[str(listed.name)][0].partition(".")
    with uncollected():
        found = getattr(import_module(f"tidelog.cli.{module}"), name)
    assert isinstance(found, click.Command)
    return found


def _with_hint(message: str, error: click.ClickException) -> str:
    """Return an error message, for wrong usage with the help of the verb."""
    if isinstance(error, click.NoSuchOption) and error.option_name == "--profile":
        message = "--profile goes before the verb: tidelog --profile NAME VERB"
    # click writes some suggestions in brackets.
    message = re.sub(r"\((Did you mean .*\?)\)$", r"\1", message).rstrip(".")
    message = re.sub(r"\s*\n\s*", " ", message)  # a list of choices has a line each
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    _, *verbs = context.command_path.split(" ")
    end = "" if message.endswith("?") else "."
    return f"{message}{end} Try: {' '.join([called(), *verbs])} --help"


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        print(f"tidelog {tidelog.__version__}")
        context.exit()


app = _Tidelog(
    "tidelog",
    commands=[click.Command(verb, help=listed) for verb, (_, listed) in _VERBS.items()],
    help="A broker for Kafka clients, whose log is addressed by time as exactly as by offset.",
    epilog=examples(
        "tidelog serve --data-dir data",
        "echo hello | tidelog produce greetings",
        "tidelog tail greetings --follow",
    )
    + "\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 no answer from the broker, 4 could not check, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    params=[
        profile_option,
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version.",
        ),
    ],
)
