"""Guesses at what a misspelt name was meant to be."""

from collections.abc import Iterable


def guess(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the one of `known` that is closest to a name, None where none is close."""
    import difflib  # only an error needs it, and every start would pay for it

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the closest of `known`, or nothing where none is close."""
    found = guess(name.lower().replace("_", "."), known, cutoff=0.7)
    return "" if found is None else f"; did you mean {found}?"
