"""Times as people write them: text to milliseconds since the epoch, and back.

Times without a zone are local; `zone` sets the local zone in tests, None is the system's. A time between two
milliseconds is rounded up, so that "at or after" stays true. A text that is probably a mistake is refused: a search
from 1970 on would find something, but not what the user meant.
"""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

ACCEPTED: Final = (
    "09:00, 'yesterday 09:00', 5m or '2 hours ago', 2024-03-01, 2024-03-01T09:00 (local unless it ends in Z, +02:00, "
    "UTC or a zone such as Europe/Berlin), or @ and epoch seconds or milliseconds"
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_UNITS_MS: Final = {
    1: ("ms", "millisecond", "milliseconds"),
    1_000: ("s", "sec", "secs", "second", "seconds"),
    60_000: ("m", "min", "mins", "minute", "minutes"),
    3_600_000: ("h", "hr", "hrs", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
    604_800_000: ("w", "week", "weeks"),
}
_SHORT: Final = tuple(names[0] for names in _UNITS_MS.values())
_UNIT_MS: Final = {name: unit_ms for unit_ms, names in _UNITS_MS.items() for name in names}
_LARGE_UNITS: Final = (
    (86_400_000, "d", 3_600_000, "h"),
    (3_600_000, "h", 60_000, "m"),
    (60_000, "m", 1_000, "s"),
)

# No time is longer. It bounds numbers, so that a float holds them, and the names of zones.
_LONGEST: Final = 200

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)[\s,]*")
_LETTERS = re.compile(r"\d\s*([A-Za-z]+)")
_SPANS = re.compile(rf"(?:{_SPAN.pattern})+")
_NUMBER = re.compile(r"\d+(?:\.\d{1,3})?")
_CLOCK = re.compile(r"(\d{1,2}):\d\d.*")
# Nine o'clock is 09.00 in half of Europe.
_DOTTED_CLOCK = re.compile(r"(?:.* )?(\d{1,2}(?:\.\d\d){1,2})(?:z|[+-]\d\d:?\d\d)?(?: \S+)?")
_OFFSET = re.compile(r"(z|[+-]\d\d:?\d\d)")
_ZONE = re.compile(r"[A-Za-z][\w+-]*(?:/[\w+-]+)*")
_HAS_ZONE = re.compile(r"[t: ]\d\d\S*(z|[+-]\d\d(:?\d\d)?)$")
_UTC: Final = ("utc", "gmt", "z")
# As seconds, larger numbers are after the year 5138, so they are milliseconds ...
_MILLISECONDS_FROM: Final = 10**11
# ... and from here on, microseconds or less.
_FINER_FROM: Final = 10**14
# 2000-01-01. A smaller number is rather a year, an hour or an offset, unless it has an @.
_MEANT_FROM_MS: Final = 946_684_800_000


class TimeError(ValueError):
    """A text is not a time; the message says what is."""


def parse(text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """Return the time of a text, in ms since the epoch; TimeError."""
    if len(text) > _LONGEST:
        raise _no_time(f"{text[:_LONGEST]}...")
    words = " ".join(text.lower().split())
    if words == "now":
        return now_ms
    if words.endswith("ago"):
        found_ms = now_ms - _span_ms(text, words.removesuffix("ago"))
    elif words.startswith("-"):
        found_ms = now_ms - _span_ms(text, words.removeprefix("-"))
    elif _is_span(words):
        found_ms = _bare_span_ms(text, words, now_ms)
    elif words.startswith("@") and _NUMBER.fullmatch(words, 1):
        found_ms = _epoch_ms(text, words[1:])
    elif slip := _DOTTED_CLOCK.fullmatch(words):
        raise TimeError(f"'{text}' is not a time; write {slip[1].replace('.', ':')} for a time of day")
    elif _NUMBER.fullmatch(words):
        found_ms = _bare_number_ms(text, words)
    else:
        words, zone = _split_zone(text, words, zone)
        found_ms = _to_ms(_moment(text, words, now_ms, zone))
    if found_ms < 0:
        raise TimeError(f"'{text}' is before 1970, and no record is that old")
    return found_ms


def duration_ms(text: str) -> int:
    """Return the duration of a text; TimeError."""
    words = " ".join(text.lower().split())
    with suppress(TimeError):
        if len(text) <= _LONGEST and words:
            return _span_ms(text, words)
    raise TimeError(f"'{text[:_LONGEST]}' is not a duration; write 90s, '2 hours' or 1h30m")


def show_duration(length_ms: int) -> str:
    """Return a duration in its two largest units: 250ms, 12.5s, 2h 5m, 3d 4h."""
    if length_ms < 0:
        return f"-{show_duration(-length_ms)}"
    if length_ms < 1_000:
        return f"{length_ms}ms"
    if length_ms < 60_000:
        return f"{length_ms / 1000:g}s"
    larger_ms, larger, smaller_ms, smaller = next(unit for unit in _LARGE_UNITS if length_ms >= unit[0])
    rest = length_ms % larger_ms // smaller_ms
    return f"{length_ms // larger_ms}{larger}" + (f" {rest}{smaller}" if rest else "")


def show(timestamp_ms: int, zone: tzinfo | None = None) -> str:
    """Return a timestamp in ISO form with milliseconds and its zone; '-' for none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone(zone)
    except (OverflowError, ValueError):
        return f"{timestamp_ms} ms"  # a producer may send any timestamp
    return moment.isoformat(timespec="milliseconds")


def show_short(timestamp_ms: int, now_ms: int, zone: tzinfo | None = None) -> str:
    """Return a timestamp in local time, in at most 16 characters: with milliseconds only today."""
    text, today = show(timestamp_ms, zone), show(now_ms, zone)
    if "T" not in text:
        return text
    if text[:10] == today[:10]:
        return text[11:23]
    return f"{text[5:10]} {text[11:19]}" if text[:4] == today[:4] else f"{text[:10]} {text[11:16]}"


def _no_time(text: str) -> TimeError:
    return TimeError(f"'{text}' is not a time; write {ACCEPTED}")


def _span_ms(text: str, words: str) -> int:
    """Return the duration of '2 hours', '1h30m' or '90 min'."""
    for written in _LETTERS.finditer(text):
        if written[1].lower() in _SHORT and not written[1].islower():
            raise TimeError(f"'{text}': write {written[1].lower()} for {written[1]}: units are in lower case")
    total_ms, seen = 0.0, set()
    at = 0
    words = words.strip()
    while at < len(words):
        part = _SPAN.match(words, at)
        if part is None or part[2] not in _UNIT_MS:
            raise TimeError(
                f"'{text}' is not a time; write a number of seconds, minutes, hours, days or weeks before 'ago' or "
                "after '-': '2 hours ago', -1h30m"
            )
        if _UNIT_MS[part[2]] in seen:
            raise TimeError(f"'{text}' has {part[2]} twice; write each unit once, such as 1h30m")
        seen.add(_UNIT_MS[part[2]])
        total_ms += float(part[1]) * _UNIT_MS[part[2]]
        at = part.end()
    if not words:
        raise _no_time(text)
    return round(total_ms)


def _is_span(words: str) -> bool:
    """Return whether this is a duration; 20240301T09Z is a time."""
    return bool(_SPANS.fullmatch(words)) and all(part[2] in _UNIT_MS for part in _SPAN.finditer(words))


def _bare_span_ms(text: str, words: str, now_ms: int) -> int:
    """Return the time that is a duration before now, if that is not rather something else."""
    found_ms = now_ms - _span_ms(text, words)
    if found_ms < _MEANT_FROM_MS:
        raise TimeError(f"'{text}' would be before 2000; write '{text} ago' if that is meant")
    return found_ms


def _bare_number_ms(text: str, number: str) -> int:
    """Read a number without @ as a time since the epoch, if it is not rather something else."""
    if len(number) == 8 and number[:2] in ("19", "20"):
        raise TimeError(
            f"'{text}' may be a date or epoch seconds; write 2024-03-01, or @{number} for seconds"
        )
    found_ms = _epoch_ms(text, number)
    if found_ms < _MEANT_FROM_MS:
        raise TimeError(
            f"'{text}' would be {show(found_ms, UTC)}; write 09:00 for a time of day, or @{number} if that is meant"
        )
    return found_ms


def _epoch_ms(text: str, number: str) -> int:
    whole, _, fraction = number.partition(".")
    value = int(whole)
    if value >= _FINER_FROM:
        raise TimeError(f"'{text}' is neither epoch seconds nor milliseconds: it is too large")
    if value >= _MILLISECONDS_FROM:
        return value
    return value * 1000 + int(fraction.ljust(3, "0"))


def _split_zone(text: str, words: str, zone: tzinfo | None) -> tuple[str, tzinfo | None]:
    """Split a zone off the end of a time, as in '21:06 UTC'; without one, return both unchanged."""
    rest, _, last = words.rpartition(" ")
    if not rest:
        return words, zone
    if _OFFSET.fullmatch(last):
        return rest + last, zone
    if last in _UTC:
        return rest, _only_zone(text, rest, UTC)
    name = text.split()[-1]
    if not _ZONE.fullmatch(name):
        return words, zone
    found = _zone(name)
    if found is not None:
        return rest, _only_zone(text, rest, found)
    if "/" in name or (name.isupper() and name.isalpha() and name not in ("AM", "PM")):
        raise _no_zone(text, name)
    return words, zone


def _only_zone(text: str, rest: str, zone: tzinfo) -> tzinfo:
    if _HAS_ZONE.search(rest):
        raise TimeError(f"'{text}' names two zones; write one of them")
    return zone


def _zone(name: str) -> tzinfo | None:
    """Return the zone of a name, in any case, from the system's time zone data."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    with suppress(ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo(name)
    for known in available_timezones():
        if known.casefold() == name.casefold():
            return ZoneInfo(known)
    return None


def _no_zone(text: str, name: str) -> TimeError:
    from zoneinfo import available_timezones

    if not available_timezones():
        return TimeError(
            f"'{text}': this machine has no time zone data: apt-get install tzdata, or write an offset such as +02:00"
        )
    return TimeError(
        f"'{text}': there is no time zone {name}; write one such as Europe/Berlin, UTC or +02:00"
    )


def _moment(text: str, words: str, now_ms: int, zone: tzinfo | None) -> datetime:
    """Read a time of day, a day in words with or without one, or an ISO date and time."""
    day, _, rest = words.partition(" ")
    try:
        if day in _DAYS:
            return _on_day(_DAYS[day], rest or "00:00", now_ms, zone)
        if _CLOCK.fullmatch(words):
            return _on_day(0, words, now_ms, zone)
        return _local(datetime.fromisoformat(_iso(words)), zone)
    except (ValueError, OverflowError):
        raise _no_time(text) from None


def _on_day(days: int, clock: str, now_ms: int, zone: tzinfo | None) -> datetime:
    padded = clock if clock[1:2] != ":" else f"0{clock}"
    at = time.fromisoformat(_iso(padded))
    today: date = (_EPOCH + timedelta(milliseconds=now_ms)).astimezone(at.tzinfo or zone).date()
    return _local(datetime.combine(today + timedelta(days=days), at), zone)


def _iso(words: str) -> str:
    """Return an ISO time with the T, Z and decimal point that Python's parser accepts."""
    return words.replace(",", ".").upper()


def _local(moment: datetime, zone: tzinfo | None) -> datetime:
    """Add the local zone to a moment without one; of an hour that occurs twice, take the first."""
    if moment.tzinfo is not None:
        return moment
    return moment.astimezone() if zone is None else moment.replace(tzinfo=zone)


def _to_ms(moment: datetime) -> int:
    return -((_EPOCH - moment) // _MILLISECOND)
