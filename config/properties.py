"""A reader of Java's `.properties` format, the format of server.properties."""

import re
from collections.abc import Iterator
from typing import NamedTuple

BLANKS = " \t\f"  # Java's blanks; Python would strip others too
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A name, its value, and the line that it starts on, from 1."""

    name: str
    text: str
    line: int


def read_properties(content: str) -> Iterator[Property]:
    """Yield the properties of a file in order; a later one replaces an earlier one of the same name."""
    for line, text in _logical_lines(content):
        # The name ends at the first '=', ':' or blank without a backslash.
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", text, re.DOTALL)
        assert match is not None  # the pattern matches the empty text
        yield Property(_unescape(match[1]), _unescape(text[match.end() :]), line)


def _logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """Yield lines joined at trailing backslashes, without comments and blank lines."""
    begun, joined = 0, ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", content), start=1):
        text = raw.lstrip(BLANKS)
        if not joined:
            if not text or text[0] in "#!":
                continue
            begun = number
        joined += text
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield begun, joined
        joined = ""
    if joined:
        yield begun, joined


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else ESCAPES.get(escaped, escaped)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text, flags=re.DOTALL)
