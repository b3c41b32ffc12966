"""Guesses at what a misspelt name was meant to be."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the closest of `known`, or nothing where none is close."""
    import difflib  # only an error needs it, and every start would pay for it

    guess = difflib.get_close_matches(name.lower().replace("_", "."), list(known), n=1, cutoff=0.7)
    return f"; did you mean {guess[0]}?" if guess else ""
