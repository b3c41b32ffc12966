"""The output of verbs: tables, JSON lines, the bytes of records, progress.

Tables are drawn with rich on a terminal only; elsewhere they are aligned text. Control characters in records are
escaped.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.cli.text import CONTROLS, shown
from tidelog.config import times

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]
# Made once, for output of a million lines.
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


class Column(NamedTuple):
    """A column of a table: its key in rows and JSON, its title, and how to show a value."""

    key: str
    title: str
    show: Callable[[Any], str] = str
    is_number: bool = False


def or_dash(value: object) -> str:
    """Return a value for a cell, on one line, - for none."""
    return "-" if value is None else shown(str(value))


def time(timestamp_ms: int | None) -> str:
    """Return a time for a cell, - for none."""
    return "-" if timestamp_ms is None else times.show(timestamp_ms)


def known(number: int) -> int | None:
    """Return a number of a response or a file, None for -1."""
    return None if number < 0 else number


def duration(length_ms: int | None) -> str:
    """Return a duration for a cell, - for none."""
    return "-" if length_ms is None else times.show_duration(length_ms)


def size(number: int | None) -> str:
    """Return a number of bytes for a cell in its largest unit, - for none: 900 B, 1.5 MiB."""
    if number is None:
        return "-"
    value, units = float(number), iter(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = next(units)
    while value >= 1024 and (larger := next(units, None)):
        value, unit = value / 1024, larger
    return f"{number} B" if unit == "B" else f"{value:.1f} {unit}"


def print_rows(columns: Sequence[Column], rows: Iterable[Row], *, as_json: bool, caption: str = "") -> None:
    """Print rows: as JSON lines, on a terminal as a table with a caption, otherwise as aligned text."""
    if as_json:
        for row in rows:
            print(to_json(row))
        return
    lines = _cells(columns, rows)
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
    """Tell whether a stream is a terminal."""
    return stream.isatty()


def plain(data: bytes | None) -> str:
    r"""Return bytes of a record as text that is safe to print: \n, \t and \x1b are escaped."""
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.translate(CONTROLS)


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes of a record for JSON: under their name if they are UTF-8, else as `<name>_base64`."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


@contextmanager
def progress(
    what: str, total: int | None = None, *, beside_output: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield a function to report progress, which is shown on stderr if that is a terminal.

    Without a total, it shows the rate. With `beside_output`, the verb prints meanwhile: then nothing is shown if stdout
    is a terminal too.
    """
    if not is_terminal(sys.stderr) or (beside_output and is_terminal(sys.stdout)):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False)]
    if total is None:
        columns += [TextColumn("{task.completed:,}"), TaskProgressColumn(show_speed=True)]
    else:
        columns += [BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


def _cells(columns: Sequence[Column], rows: Iterable[Row]) -> list[list[str]]:
    return [[column.show(row[column.key]) for column in columns] for row in rows]


def table(columns: Sequence[Column], rows: Iterable[Row]) -> "Table":
    """Return rows as a table for a terminal."""
    return _table(columns, _cells(columns, rows))


def _print_table(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> None:
    from rich.console import Console

    Console().print(_table(columns, lines))


def _table(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    drawn = Table()
    for column in columns:
        drawn.add_column(column.title, justify="right" if column.is_number else "left", overflow="fold")
    for line in lines:
        drawn.add_row(*map(Text, line))
    return drawn


def _print_aligned(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> None:
    titles = [column.title for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *lines, strict=True)]
    for line in [titles, *lines]:
        cells = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())
