"""The `tidelog` command without its verbs: what they have in common, and how all of them end.

An error is one line on stderr.

Exit codes: 0 done; 1 failed (what the broker refused, what is damaged, what a person did not confirm); 2 the command
line cannot be understood; 3 the broker cannot be reached, or stopped answering; 4 `fsck` could not
look; 130 Ctrl-C. `serve` and `tail` are meant to be ended by Ctrl-C: they exit with 0.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import tidelog
from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.text import called, drop_output, note


class _Tidelog(TyperGroup):
    """The command as a whole: it says errors in one line, and nothing when nobody reads on."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a verb and exit with its code; a device that takes no more output is an error like others."""
        extra["standalone_mode"] = False
        try:
            with _reader_may_leave():
                status = OK  # that of a reader that leaves
                status = self._run(*args, **extra)
                sys.stdout.flush()
        except typer.TyperException as error:
            note(_with_hint(error.format_message(), error))
            status = error.exit_code
        except OSError as error:
            drop_output(sys.stdout)
            note(f"{error.filename or 'standard output'}: {error.strerror or error}")
            status = FAILED
        try:
            sys.stderr.flush()
        except OSError:
            drop_output(sys.stderr)
        sys.exit(status)

    def _run(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except typer.TyperException as error:
            context = getattr(error, "ctx", None)
            if context is None or error.format_message() != context.get_help():
                raise
            print(error.format_message())  # a verb was missing
            return error.exit_code


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Let a reader that has had enough (`| head`) be no error: typer, and rich where it shows the help, exit with 1."""
    try:
        yield
    except BrokenPipeError:
        drop_output(sys.stdout)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        drop_output(sys.stdout)


def _with_hint(message: str, error: typer.TyperException) -> str:
    """Return what was wrong, and name the help of the verb whose command line it was."""
    message = message.rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    _, *verbs = context.command_path.split(" ")
    end = "" if message.endswith("?") else "."
    return f"{message}{end} Try: {' '.join([called(), *verbs])} --help"


def new_app() -> typer.Typer:
    """Return the command without its verbs."""
    app = typer.Typer(
        name="tidelog",
        cls=_Tidelog,
        help="A broker for Kafka clients, whose log is addressed by time as exactly as by offset.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no answer from the broker, 4 could not look, "
        "130 Ctrl-C.",
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich takes longer to load than all else
    )
    app.callback()(_tidelog)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidelog {tidelog.__version__}")
        raise typer.Exit


def _tidelog(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
