"""What is given as name=value on the command line, again and again: options of a topic or of a broker.

Refuses to know what an option means.
"""

from collections.abc import Sequence

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import USAGE


def parse_options(texts: Sequence[str], flag: str = "--option") -> dict[str, str]:
    """Return options from name=value texts. CommandError for what is none."""
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"{flag} {text}: write it as name=value, such as segment.bytes=1000000", USAGE)
        options[name.strip()] = value.strip()
    return options
