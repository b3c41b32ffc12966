"""Suggestions for misspelt names."""

from collections.abc import Iterable


def guess(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the closest known name; None if none is close."""
    import difflib  # only for errors: it would slow down each start

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` with the closest known name; an empty text if none is close."""
    found = guess(name.lower().replace("_", "."), known, cutoff=0.7)
    return "" if found is None else f"; did you mean {found}?"
