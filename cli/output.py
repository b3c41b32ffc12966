"""The output of verbs: tables, JSON lines, the bytes of records, progress.

Tables are drawn with rich on a terminal only; elsewhere they are aligned text. Control characters in records are
escaped.
"""

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tidelog.cli.text import CONTROLS, shown
from tidelog.cli.time_options import now_ms
from tidelog.config import times

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Row = Mapping[str, Any]
# Between the columns of a table on a terminal.
_GAP: Final = 2
# A column that wraps is not narrower.
_WRAPPED_WIDTH: Final = 12
# Made once, for output of a million lines.
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


class Column(NamedTuple):
    """A column of a table: its key in rows and JSON, its title, and how to show a value.

    On a terminal, `short` shows the value, a column that `wraps` may have several lines, and a value that is `bad` has
    a colour.
    """

    key: str
    title: str
    show: Callable[[Any], str] = str
    is_number: bool = False
    short: Callable[[Any], str] | None = None
    wraps: bool = False
    bad: Callable[[Any], bool] = lambda _: False


def or_dash(value: object) -> str:
    """Return a value for a cell, on one line, - for none."""
    return "-" if value is None else shown(str(value))


def time(timestamp_ms: int | None) -> str:
    """Return a time for a cell, - for none."""
    return "-" if timestamp_ms is None else times.show(timestamp_ms)


def short_time(timestamp_ms: int | None) -> str:
    """Return a time for a cell on a terminal, - for none."""
    return "-" if timestamp_ms is None else times.show_short(timestamp_ms, now_ms())


def time_column(key: str, title: str) -> Column:
    """Return a column of times."""
    return Column(key, title, time, short=short_time)


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
    if is_terminal(sys.stdout):
        from rich.console import Console

        if caption:
            print(caption)
        console = Console()
        console.print(table(columns, rows, console.width))
    else:
        _print_aligned(columns, [[column.show(row[column.key]) for column in columns] for row in rows])


def to_json(value: object) -> str:
    """Return a value as one line of JSON."""
    return _encode(value)


def alarming(text: str, *, is_warning: bool = False) -> str:
    """Return text in red, or of a warning in yellow, if standard output is a terminal with colours.

    With NO_COLOR there are none.
    """
    has_colours = (
        is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    return f"\x1b[{33 if is_warning else 31}m{text}\x1b[0m" if has_colours else text


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
    what: str, total: int | None = None, *, beside_output: bool = False, beside_input: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield a function to report progress, which is shown on stderr if that is a terminal.

    Without a total, it shows the rate. With `beside_output`, the verb prints meanwhile, and with `beside_input` it
    reads stdin: then nothing is shown if that is a terminal too.
    """
    beside = [sys.stdout] * beside_output + [sys.stdin] * beside_input
    if not is_terminal(sys.stderr) or any(map(is_terminal, beside)):
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


def table(columns: Sequence[Column], rows: Iterable[Row], width: int) -> "RenderableType":
    """Return rows for a terminal of a width: as a table, or if that does not fit, a line for each value."""
    from rich.console import Group
    from rich.text import Text

    lines = [
        [
            Text((column.short or column.show)(value), "red" if column.bad(value) else "", overflow="fold")
            for column in columns
            for value in [row[column.key]]
        ]
        for row in rows
    ]
    widths = _widths(columns, lines, width)
    if widths is None:
        names = [Text(f"{column.title}: ") for column in columns]
        blocks = [[name + cell for name, cell in zip(names, line, strict=True)] for line in lines]
        return Group(*[line for block in blocks for line in (*block, Text())])
    return _drawn(columns, lines, widths)


def _widths(columns: Sequence[Column], lines: "Sequence[Sequence[Text]]", width: int) -> list[int] | None:
    """Return the widths of columns; None if they do not fit. A title may have a line for each word."""
    cells = [max([line[at].cell_len for line in lines], default=0) for at in range(len(columns))]
    titles = [len(column.title) for column in columns]
    words = [max(map(len, column.title.split())) for column in columns]
    for least in (titles, words):
        widths = [
            max(size, min(cell, _WRAPPED_WIDTH) if column.wraps else cell)
            for column, size, cell in zip(columns, least, cells, strict=True)
        ]
        left = width - sum(widths) - _GAP * (len(columns) - 1)
        if left >= 0:
            for at, column in enumerate(columns):
                if column.wraps:
                    more = min(left, max(0, cells[at] - widths[at]))
                    widths[at] += more
                    left -= more
            return widths
    return None


def _drawn(
    columns: Sequence[Column], lines: "Sequence[Sequence[Text]]", widths: Sequence[int]
) -> "RenderableType":
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        drawn.add_column(column.title, justify=justify, width=width, overflow="fold")
    for line in lines:
        drawn.add_row(*line)
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
