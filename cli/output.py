"""What the verbs say: tables, JSON lines, the content of records, progress.

Owns the difference between a terminal and a program at the other end: rich is loaded for a terminal only. Refuses to
know topics and files. Invariant: nothing from a record reaches a terminal as a control character.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final, NamedTuple

from tidelog.cli.text import CONTROLS, shown
from tidelog.config import times

Row = Mapping[str, Any]
# Made once: there may be a million lines.
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


class Column(NamedTuple):
    """A column of a table: its key in the rows and in JSON, its title, how a value is shown."""

    key: str
    title: str
    show: Callable[[Any], str] = str
    is_number: bool = False


def or_dash(value: object) -> str:
    """Return a value of a cell on one line, - for none."""
    return "-" if value is None else shown(str(value))


def time(timestamp_ms: int | None) -> str:
    """Return a time for a cell, - for none."""
    return "-" if timestamp_ms is None else times.show(timestamp_ms)


def known(number: int) -> int | None:
    """Return a number of an answer or a file, in which -1 stands for none."""
    return None if number < 0 else number


def duration(length_ms: int | None) -> str:
    """Return a length of time for a cell, - for none."""
    return "-" if length_ms is None else times.show_duration(length_ms)


def print_rows(columns: Sequence[Column], rows: Iterable[Row], *, as_json: bool, caption: str = "") -> None:
    """Print rows: as JSON a line each, on a terminal as a table under its caption, otherwise aligned."""
    if as_json:
        for row in rows:
            print(to_json(row))
        return
    lines = [[column.show(row[column.key]) for column in columns] for row in rows]
    if is_terminal(sys.stdout):
        if caption:
            print(caption)
        _print_table(columns, lines)
    else:
        _print_aligned(columns, lines)


def to_json(value: object) -> str:
    """Return a value as one line of JSON."""
    return _encode(value)


def is_terminal(stream: IO[Any]) -> bool:
    """Tell whether a person reads this stream."""
    return stream.isatty()


def plain(data: bytes | None) -> str:
    r"""Return bytes of a record as text that is safe to look at: \n, \t and \x1b are spelled out."""
    return "null" if data is None else data.decode("utf-8", "backslashreplace").translate(CONTROLS)


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes of a record under their name: text where they are UTF-8, otherwise `<name>_base64`."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how much more is done; shown on stderr while only stderr is a terminal."""
    if is_terminal(sys.stdout) or not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


def _print_table(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in columns:
        table.add_column(column.title, justify="right" if column.is_number else "left", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    Console().print(table)


def _print_aligned(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> None:
    titles = [column.title for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *lines, strict=True)]
    for line in [titles, *lines]:
        cells = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())
