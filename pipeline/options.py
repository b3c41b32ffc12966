"""Parses the options of `spark.read.format("tidelog")`: their names, formats and defaults.

Spark passes text, and names in lower case. `now_ms` resolves times such as "2 hours ago".
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.config import times
from tidelog.config.nearest import nearest
from tidelog.config.times import TimeError
from tidelog.pipeline.errors import WrongOption

RECORD, APPEND = "record", "append"
FAIL, SKIP, QUARANTINE = "fail", "skip", "quarantine"
RECORDS_TABLE, BATCHES_TABLE, SEGMENTS_TABLE = "records", "batches", "segments"
# How much a task reads: some seconds of one core.
TASK_BYTES: Final = 64 << 20
# A time that is parsed so much later gives the same result only if it is absolute.
_LATER_MS: Final = 48 * 3600 * 1000

_NAMES: Final = (
    "source",
    "topic",
    "table",
    "clock",
    "from",
    "to",
    "bad",
    "partitions",
    "maxRecords",
    "taskBytes",
    "failOnDataLoss",
    "maxRecordsPerTrigger",
    "group",
)


class Options(NamedTuple):
    """The options of a read. Times are in ms since the epoch, the second one exclusive; None for no bound."""

    kind: str  # segments or broker
    place: str
    topic: str
    table: str = RECORDS_TABLE
    clock: str = RECORD
    from_ms: int | None = None
    to_ms: int | None = None
    bad: str = FAIL
    quarantine: str = ""
    partitions: frozenset[int] | None = None
    max_records: int | None = None
    task_bytes: int = TASK_BYTES
    fails_on_loss: bool = True  # if retention deletes records before they are read
    max_records_per_trigger: int | None = None
    group: str = ""  # a stream commits to it
    relative: frozenset[str] = frozenset()  # the fields with relative times, such as "2 hours ago"


def parse(options: Mapping[str, str], now_ms: int) -> Options:
    """Parse the options; WrongOption."""
    given = named(options, _NAMES)
    kind, place = _source(given.get("source"))
    if not given.get("topic"):
        raise WrongOption('option topic: it is missing; write .option("topic", "NAME")')
    bad, quarantine = _bad(given.get("bad", FAIL))
    from_ms, to_ms = _time(given, "from", now_ms), _time(given, "to", now_ms)
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise WrongOption(
            f"option from: {given['from']} ({times.show(from_ms)}) is after to, {given['to']} ({times.show(to_ms)})"
        )
    later = {
        "from_ms": _time(given, "from", now_ms + _LATER_MS),
        "to_ms": _time(given, "to", now_ms + _LATER_MS),
    }
    now = {"from_ms": from_ms, "to_ms": to_ms}
    return Options(
        kind,
        place,
        given["topic"],
        one_of(given, "table", (RECORDS_TABLE, BATCHES_TABLE, SEGMENTS_TABLE)),
        one_of(given, "clock", (RECORD, APPEND)),
        from_ms,
        to_ms,
        bad,
        quarantine,
        _partitions(given.get("partitions")),
        count(given, "maxRecords", 0),
        count(given, "taskBytes") or TASK_BYTES,
        one_of(given, "failOnDataLoss", ("true", "false")) == "true",
        count(given, "maxRecordsPerTrigger"),
        _group(given, kind),
        frozenset(name for name in now if now[name] != later[name]),
    )


def named(options: Mapping[str, str], names: Sequence[str], where: str = "") -> dict[str, str]:
    """Return options by their names in mixed case; WrongOption for an unknown one."""
    known = {name.lower(): name for name in names}
    for name in options:
        if name.lower() not in known:
            raise WrongOption(f"option {name}: there is none of this name{where}{nearest(name, names)}")
    return {known[name.lower()]: text for name, text in options.items()}


def one_of(given: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """Return the value of an option, by default the first of the known ones; WrongOption for an unknown one."""
    text = given.get(name, known[0])
    if text not in known:
        raise WrongOption(f"option {name}: {text!r} is none of {', '.join(known)}")
    return text


def count(given: Mapping[str, str], name: str, least: int = 1) -> int | None:
    """Return the value of an option as a number; None if it is not given. WrongOption."""
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise WrongOption(f"option {name}: {text!r} is no number from {least} on")
    return int(text)


def _source(text: str | None) -> tuple[str, str]:
    kind, _, place = (text or "").partition(":")
    if kind not in ("segments", "broker") or not place:
        raise WrongOption(
            f"option source: {text!r} is not valid; write segments:FOLDER, a broker's data folder, or broker:HOST:PORT"
        )
    return kind, _everywhere(place) if kind == "segments" else place


def _everywhere(folder: str) -> str:
    """Return an absolute path: executors have other working directories."""
    return folder if "://" in folder else str(Path(folder).absolute())


def _bad(text: str) -> tuple[str, str]:
    how, _, folder = text.partition(":")
    if how == QUARANTINE and folder:
        return how, _everywhere(folder)
    if text in (FAIL, SKIP):
        return text, ""
    raise WrongOption(f"option bad: {text!r} is none of {FAIL}, {SKIP} and {QUARANTINE}:FOLDER")


def _time(given: Mapping[str, str], name: str, now_ms: int) -> int | None:
    if name not in given:
        return None
    try:
        return times.parse(given[name], now_ms)
    except TimeError as error:
        raise WrongOption(f"option {name}: {error}") from None


def _group(given: Mapping[str, str], kind: str) -> str:
    group = given.get("group", "")
    if group and kind != "broker":
        raise WrongOption(
            "option group: only a broker keeps the offsets of groups; write source=broker:HOST:PORT"
        )
    return group


def _partitions(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise WrongOption(f"option partitions: {text!r} is no list of numbers; write 0,1,2")
    return frozenset(map(int, words))
