"""The partitions and records to read: what options and predicates leave together."""

from tidelog.pipeline.decode import Window
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.options import APPEND, Options
from tidelog.pipeline.pushdown import LEAST, MOST, Bounds, Wanted


def chosen_partitions(chosen: Options, found: Wanted, there: list[int]) -> list[int]:
    """Return the partitions that are read, of those that are there."""
    named = chosen.partitions
    if named is not None and not named <= set(there):
        missing = min(named - set(there))
        raise PipelineError(f"option partitions: {chosen.topic} has no partition {missing}; it has {there}")
    pushed = found.partitions
    return [each for each in there if (named is None or each in named) and (pushed is None or each in pushed)]


def window_of(chosen: Options, found: Wanted) -> Window:
    """Return what options and predicates leave together. A record without a time is in no range of times.

    Options ask for an exact range; predicates are of what the column shows, which may be a bound.
    """
    first = LEAST if chosen.from_ms is None else chosen.from_ms
    end = MOST if chosen.to_ms is None else chosen.to_ms
    create, append, exact = found.create_time, found.append_time, Bounds()
    if chosen.clock == APPEND:
        exact = exact.narrowed(first, end)
        append = append.narrowed(first, end)
    else:
        create = create.narrowed(first, end)
    return Window(max(found.offset.first, 0), found.offset.end, _times(create), _times(append), _times(exact))


def _times(bounds: Bounds) -> tuple[int, int] | None:
    return None if bounds == Bounds() else (max(bounds.first, 0), bounds.end)
