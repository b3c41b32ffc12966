"""All rows of the table, one file a family, in the order in which they are measured and printed."""

from bench.row import Row
from bench.rows import (
    consume,
    durable,
    growth,
    idle,
    lookups,
    mixed,
    partitions,
    produce,
    requests,
    retention,
    start,
)

FAMILIES = (produce, consume, requests, durable, lookups, mixed, start, idle, partitions, retention, growth)
ROWS: tuple[Row, ...] = tuple(row for family in FAMILIES for row in family.ROWS)


def select(names: str, quick: bool) -> list[Row]:
    """Return the rows whose names are given, separated by commas (a part of a name will do), or the headline rows."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        return [row for row in ROWS if row.quick or not quick]
    known = {row.name for row in ROWS}
    found = [
        row for row in ROWS if any(name == row.name if name in known else name in row.name for name in wanted)
    ]
    if not found:
        raise SystemExit(f"bench: no row is named {names}; there are: {', '.join(row.name for row in ROWS)}")
    return found
