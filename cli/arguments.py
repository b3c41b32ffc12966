"""What the command lines of several verbs have in common.

Refuses to know what is done with it. Invariant: a text that goes to a broker is UTF-8.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import USAGE
from tidelog.cli.text import is_utf8, shown


def sent(value: Any) -> Any:
    """Refuse what cannot be sent to a broker: every text that goes there has this as its callback."""
    texts = value if isinstance(value, (list, tuple)) else [value or ""]
    for text in texts:
        if not is_utf8(text):
            raise typer.BadParameter(f"{shown(text)} is not UTF-8, and a broker takes nothing else")
    return value


Bootstrap = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT", envvar="TIDELOG_BOOTSTRAP", callback=sent, help="Where the broker listens."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", callback=sent, show_default=False)]
LOCAL: Final = "127.0.0.1:9092"
TIME_HELP: Final = (
    "09:00, 'yesterday 09:00', -1h, 2024-03-01T09:00, '09:00 UTC', @1709283600; local unless it says its zone"
)
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", callback=sent, help="Set an option; may be repeated."),
]
Deleted = Annotated[
    list[str] | None,
    typer.Option(
        "--delete-config",
        metavar="NAME",
        callback=sent,
        help="Return an option to its default; may be repeated.",
    ),
]


def parse_options(texts: Sequence[str], flag: str = "--option") -> dict[str, str]:
    """Return options from name=value texts; CommandError for what is none."""
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"{flag} {text}: write it as name=value, such as segment.bytes=1000000", USAGE)
        options[name.strip()] = value.strip()
    return options
