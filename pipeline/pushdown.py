"""Bounds of partitions, offsets and times, from Spark's predicates.

Bounds only narrow what is read: Spark applies each predicate again, so a bound may be wider than its predicate, and a
predicate without a bound is left to Spark.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import datasource
from pyspark.sql.datasource import Filter

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# Below every number of 64 bits, or equal, and beyond every one: where there is no end, nothing lies behind it.
LEAST, MOST = -(1 << 63), 1 << 63


class Bounds(NamedTuple):
    """The least value that is wanted, and the first that is too large."""

    first: int = LEAST
    end: int = MOST

    def narrowed(self, first: int = LEAST, end: int = MOST) -> "Bounds":
        """Return what these leave."""
        return Bounds(max(self.first, first), min(self.end, end))


class Wanted(NamedTuple):
    """Bounds of offsets and of both times in ms, and the partitions, None for all."""

    partitions: frozenset[int] | None = None
    offset: Bounds = Bounds()
    create_time: Bounds = Bounds()
    append_time: Bounds = Bounds()


def wanted(filters: Iterable[Filter]) -> Wanted:
    """Return what predicates, all of which hold, leave."""
    found = Wanted()
    for each in filters:
        found = _narrowed(found, each)
    return found


def _narrowed(found: Wanted, predicate: Filter) -> Wanted:
    attribute: tuple[str, ...] = getattr(predicate, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else ""
    value = getattr(predicate, "value", None)
    if name == "partition":
        among = _among(predicate, value)
        if among is None:
            return found
        return found._replace(partitions=among if found.partitions is None else found.partitions & among)
    if (
        name not in ("offset", "create_time", "append_time")
        or value is None
        or isinstance(value, tuple | list)
    ):
        return found
    whole = _number(value)
    bounds: Bounds = getattr(found, name)
    match predicate:
        case datasource.EqualTo() | datasource.EqualNullSafe():
            bounds = bounds.narrowed(whole, whole + 1)
        case datasource.GreaterThan() | datasource.GreaterThanOrEqual():
            bounds = bounds.narrowed(first=whole)
        case datasource.LessThan() | datasource.LessThanOrEqual():
            bounds = bounds.narrowed(end=whole + 1)
    changed: dict[str, Any] = {name: bounds}
    return found._replace(**changed)


def _among(predicate: Filter, value: Any) -> frozenset[int] | None:
    match predicate:
        case datasource.EqualTo() | datasource.EqualNullSafe():
            return frozenset([value])
        case datasource.In():
            return frozenset(value)
    return None


def _number(value: Any) -> int:
    """Return an offset, or a time in whole milliseconds."""
    if not isinstance(value, datetime):
        return int(value)
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND
