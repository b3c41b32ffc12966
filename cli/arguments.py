"""Arguments and options that several verbs share.

Text that is sent to a broker is UTF-8, and no longer than the protocol allows.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tidelog.cli import completion, profiles
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import USAGE
from tidelog.cli.text import is_utf8, note, shortened, shown

_Command = TypeVar("_Command", bound=Callable[..., Any] | click.Command)

TIME_HELP: Final = (
    "09:00, 'yesterday 09:00', 1h (ago), 2024-03-01T09:00, '09:00 UTC', @1709283600; local without a zone"
)
PATH: Final = click.Path(path_type=Path)
# The protocol has the length of a string as an int16.
TEXT_MAX_BYTES: Final = 32_767


class Integer(click.ParamType[int, Any]):
    """A whole number in ASCII digits, within bounds."""

    name = "integer"

    def __init__(self, least: int | None = None, most: int | None = None) -> None:
        """Accept numbers between the bounds, which are included; None is no bound."""
        self._least, self._most = least, most

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002  (click gives them)
        """Return what help shows for the number."""
        return "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; BadParameter for other text, and for a number out of bounds."""
        if isinstance(value, str) and not re.fullmatch("[+-]?[0-9]{1,30}", value):
            self.fail(f"{shortened(value)!r} is not a valid integer", param, ctx)
        number = int(value)
        if (self._least is not None and number < self._least) or (
            self._most is not None and number > self._most
        ):
            bounds = f"{self._least} or more" if self._most is None else f"{self._least} to {self._most}"
            self.fail(f"{number} is out of range, {bounds}", param, ctx)
        return number


class Spelled(click.Option):
    """An option with spellings that the help does not list: `also` works as well, `old` prints a note too."""

    def __init__(
        self, *arguments: Any, also: Sequence[str] = (), old: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._also, self._old = also, old

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Declare the spellings; a value of an old one is kept apart, so that `consume_value` sees it."""
        super().add_to_parser(parser, ctx)
        action = "append" if self.multiple else "store"
        for flag in self._also:
            parser.add_option(obj=self, opts=[flag], dest=self.name, action=action)
        for flag in self._old:
            parser.add_option(obj=self, opts=[flag], dest=flag, action=action)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        """Return the value, with those of old spellings, and where it is from."""
        given = dict(opts)
        for flag in self._old:
            if flag in opts:
                if not ctx.resilient_parsing:  # a shell asks for completions
                    note(f"{flag} is an old spelling; write {self.opts[0]}")
                if self.multiple:
                    given[str(self.name)] = [*given.get(str(self.name), ()), *opts[flag]]
                else:
                    given.setdefault(str(self.name), opts[flag])
        return super().consume_value(ctx, given)


class Verbs(click.Group):
    """A group whose help lists commands in the order of their declaration."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click gives it)
        """Return the names of the commands."""
        return list(self.commands)


def utf8(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Check a text that is sent to a broker: the callback of such options."""
    for text in value if isinstance(value, (list, tuple)) else [value or ""]:
        if not is_utf8(text):
            raise click.BadParameter(f"{shown(text)} is not UTF-8, which the protocol requires")
        if (size := len(text.encode())) > TEXT_MAX_BYTES:
            raise click.BadParameter(
                f"{shortened(text)} has {size:,} bytes; the protocol allows {TEXT_MAX_BYTES:,}"
            )
    return value


def topic_option(help: str, *names: str, **more: Any) -> Callable[[_Command], _Command]:
    """Declare an option that takes a topic."""
    of_topics: dict[str, Any] = {"metavar": "NAME", "callback": utf8, "shell_complete": completion.topics}
    return click.option("--topic", *names, help=help, **(of_topics | more))


def group_option(help: str, **more: Any) -> Callable[[_Command], _Command]:
    """Declare an option that takes a group."""
    of_groups: dict[str, Any] = {"metavar": "NAME", "callback": utf8, "shell_complete": completion.groups}
    return click.option("--group", "-g", help=help, **(of_groups | more))


topic_argument = click.argument(
    "topic",
    metavar="TOPIC",
    callback=utf8,
    shell_complete=completion.topics,
    help="The name of the topic.",
)
group_argument = click.argument(
    "group",
    metavar="GROUP",
    callback=utf8,
    shell_complete=completion.groups,
    help="The name of the group.",
)
bootstrap_option = click.option(
    "--bootstrap",
    "-b",
    cls=Spelled,
    also=("--bootstrap-server", "--brokers"),
    metavar="HOST:PORT",
    default=profiles.bootstrap,
    show_default=False,
    callback=utf8,
    help="Where the broker listens. Default: TIDELOG_BOOTSTRAP, the profile, or 127.0.0.1:9092.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
partitions_option = click.option(
    "--partition",
    "-p",
    "partitions",
    type=Integer(0),
    multiple=True,
    help="Default: all; may be repeated.",
)


topic_options_option = click.option(
    "--config",
    "options",
    cls=Spelled,
    old=("--option",),
    metavar="NAME=VALUE",
    multiple=True,
    callback=utf8,
    help="Set an option of a new topic; may be repeated.",
)
config_option = click.option(
    "--config",
    metavar="NAME=VALUE",
    multiple=True,
    callback=utf8,
    help="Set an option; may be repeated.",
)
delete_config_option = click.option(
    "--delete-config",
    metavar="NAME",
    multiple=True,
    callback=utf8,
    help="Return an option to its default; may be repeated.",
)


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern, with `*` and `?`."""
    return not {"*", "?"}.isdisjoint(name)


def is_match(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern; no name matches what is not a pattern."""
    return is_pattern(pattern) and fnmatchcase(name, pattern.replace("[", "[[]"))


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Return options from name=value texts, with sizes and durations as plain numbers; CommandError for other text."""
    from tidelog.config.units import plain

    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"--config {text}: write it as name=value, such as segment.bytes=64MiB", USAGE)
        try:
            options[name.strip()] = plain(name.strip(), value.strip())
        except ValueError as error:
            raise CommandError(f"--config {text}: {error}", USAGE) from None
    return options
