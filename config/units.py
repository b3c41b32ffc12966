"""Sizes and durations in options: `7d`, `64MiB`, and the plain numbers that they stand for.

The name of an option says its unit. Files, the environment and the command line may have these; a client sends plain
numbers, as to Kafka.
"""

import re
from typing import Final

_MS: Final = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
_TIMES: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_SIZES: Final = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_TIME_UNITS: Final = {"w": 604_800_000, **_TIMES, "ms": 1}
_SIZE_UNITS: Final = {
    **{name.lower(): unit for name, unit in _SIZES.items()},
    "tb": 10**12,
    "gb": 10**9,
    "mb": 10**6,
    "kb": 10**3,
    "b": 1,
}
_BYTES = re.compile(r"(.*\.)?bytes(\.per\.second)?|.*\.buffer\.size|log\.index\.size\.max\.bytes")
_PART = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,9}))?\s*([A-Za-z]+)\s*")


def plain(name: str, text: str) -> str:
    """Return the number that a size or duration stands for, in the unit of the option; other text as it is.

    ValueError for a unit that the option does not take, and for a value that is no whole number of the option's unit.
    """
    text = text.strip()
    kind = _unit_of(name)
    parts = list(_PART.finditer(text))
    if kind is None or not parts or "".join(part[0] for part in parts) != text:
        return text
    units, unit, accepted, what = kind
    total, seen = 0, set()
    for part in parts:
        factor = units.get(part[3].lower() if units is _SIZE_UNITS else part[3])
        if factor is None:
            raise ValueError(f"{part[3]} is not a unit; {accepted}")
        if factor in seen:
            raise ValueError(f"{part[3]} occurs twice; write each unit once, such as 1h30m")
        seen.add(factor)
        digits, scale = part[1] + (part[2] or ""), 10 ** len(part[2] or "")
        value, rest = divmod(int(digits) * factor, scale)
        if rest:
            raise ValueError(f"not a whole number of {what}")
        total += value
    whole, rest = divmod(total, unit)
    if rest:
        raise ValueError(f"not a whole number of {what}")
    return str(whole)


def readable(name: str, text: str | None) -> str | None:
    """Return the value of an option with what it is in a larger unit, if that is exact: `604800000 (7d)`."""
    kind = _unit_of(name)
    if text is None or kind is None or not re.fullmatch("[1-9][0-9]{0,17}", text):
        return text
    value = int(text) * kind[1]
    larger, space = (_SIZES, " ") if kind[0] is _SIZE_UNITS else (_TIMES, "")
    for unit, factor in larger.items():
        if value % factor == 0 and factor > kind[1]:
            return f"{text} ({value // factor}{space}{unit})"
    return text


def _unit_of(name: str) -> tuple[dict[str, int], int, str, str] | None:
    """Return the units that an option takes, its own unit, the words for both; None if it has no unit."""
    if _BYTES.fullmatch(name):
        accepted = "write B, KiB, MiB, GiB or TiB, or KB, MB, GB or TB (powers of 1000)"
        return _SIZE_UNITS, 1, accepted, "bytes"
    last = name.rpartition(".")[2]
    if last in _MS:
        what = "milliseconds" if last == "ms" else last
        return _TIME_UNITS, _MS[last], "write ms, s, m, h, d or w", what
    return None
