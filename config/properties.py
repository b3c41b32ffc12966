"""Reader of Java's `.properties` format, the format of server.properties.

Knows nothing of options. Keeps the line on which each property begins, so that an error can name it.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

BLANKS = " \t\f"  # to Java, and nothing else of what Python would strip
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A name and its value, and the line, counted from 1, where they stand."""

    name: str
    text: str
    line: int


def read_properties(content: str) -> Iterator[Property]:
    """Yield the properties of a file in order; a later one of the same name is meant to win."""
    for line, text in _logical_lines(content):
        # The name ends at the first '=', ':' or blank that no backslash guards.
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", text, re.DOTALL)
        assert match is not None  # every part of the pattern may be empty
        yield Property(_unescape(match[1]), _unescape(text[match.end() :]), line)


def _logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """Yield each line with what its trailing backslashes join to it; comments and blanks are left out."""
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
