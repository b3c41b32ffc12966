"""The standard output of a job: its rows, as a table or JSON lines, and its account. Nothing else is printed there."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.pipeline.jobs.parts.scan import Scan

Row = Mapping[str, Any]


def print_rows(columns: Sequence[str], rows: Iterable[Row], *, as_json: bool) -> None:
    """Print rows: as JSON lines, or as an aligned table."""
    if as_json:
        for row in rows:
            print(json.dumps({name: row[name] for name in columns}, ensure_ascii=False))
        return
    lines = [list(columns), *([_shown(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_account(account: Row, *, as_json: bool) -> None:
    """Print what a job did: as one JSON document, or in one line."""
    if as_json:
        print(json.dumps(account, ensure_ascii=False))
        return
    print(", ".join(f"{name} {_shown(value)}" for name, value in account.items()))


def print_scan(found: "Scan", *, as_json: bool) -> None:
    """Print what would be read."""
    print(json.dumps(found._asdict()) if as_json else found.words)


def print_scans(found: Sequence[tuple[str, "Scan"]], *, as_json: bool) -> None:
    """Print what would be read of a source and of the tiers that it is compared with, by name."""
    (_, first), *others = found
    if not others:
        print_scan(first, as_json=as_json)
    elif as_json:
        print(
            json.dumps(
                first._asdict() | {"against": [{"tier": name} | each._asdict() for name, each in others]}
            )
        )
    else:
        for name, each in found:
            print(f"{name}: {each.words}")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
