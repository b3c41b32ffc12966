"""The options and columns of `df.write.format("tidelog")`: their names, formats and defaults."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql.types import StructType

from tidelog.config.nearest import nearest
from tidelog.pipeline.brokers.connected import addresses
from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.options import count, named

# The column with the origin of a record, as NAME@NUMBER.
ORIGIN: Final = "source"

COLUMNS: Final = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "topic": ("string",),
    ORIGIN: ("string",),
}
_NAMES: Final = ("target", "topic", "maxRecordsPerSecond", "resume", "job", "report")
# Options that Spark adds for a stream.
_OF_SPARK: Final = ("checkpointlocation", "queryname")


class WriteOptions(NamedTuple):
    """The options of a write."""

    address: str  # HOST:PORT
    topic: str | None = None  # None: each row names it
    records_per_second: int | None = None  # on one machine
    resume: bool = False
    job: str = "sink"
    report: str = ""  # a file for the counts of a write of a frame


def parse(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options; WrongOption."""
    ours = {name: text for name, text in options.items() if name.lower() not in _OF_SPARK}
    given = named(ours, _NAMES, " in writing")
    resume = given.get("resume", "false").lower()
    if resume not in ("true", "false"):
        raise WrongOption(f"option resume: {given['resume']!r} is neither true nor false")
    return WriteOptions(
        _address(given.get("target")),
        given.get("topic") or None,
        count(given, "maxRecordsPerSecond"),
        resume == "true",
        given.get("job") or "sink",
        given.get("report", ""),
    )


def checked(schema: StructType, options: WriteOptions) -> None:
    """Raise WrongOption, which names the column, if a frame cannot be written."""
    names = schema.fieldNames()
    for field in schema.fields:
        kinds = COLUMNS.get(field.name)
        if kinds is None:
            raise WrongOption(
                f"column {field.name}: it cannot be written; drop it, or rename it to one of {', '.join(COLUMNS)}"
                f"{nearest(field.name, COLUMNS)}"
            )
        if field.dataType.simpleString() not in kinds:
            raise WrongOption(
                f"column {field.name}: it must be {' or '.join(kinds)}, not {field.dataType.simpleString()}"
            )
    if "value" not in names:
        raise WrongOption(f"column value: it is missing; the columns are {', '.join(names) or 'none'}")
    if "topic" not in names and options.topic is None:
        raise WrongOption(
            'option topic: it is missing, and there is no column topic; write .option("topic", "NAME")'
        )
    if options.resume and ORIGIN not in names:
        raise WrongOption(
            f"column {ORIGIN}: it is missing; without it resume cannot tell which records are there already: "
            "tidelog.pipeline.writing.sink.rewritten(records) adds it to records of the source"
        )
    if ORIGIN in names and options.topic is None:
        raise WrongOption(
            f"option topic: with column {ORIGIN} all rows go to one topic, which this option names"
        )
    if ORIGIN in names and "topic" in names:
        raise WrongOption(
            f"column topic: with column {ORIGIN} all rows go to one topic, that of option topic; drop it"
        )


def _address(target: str | None) -> str:
    kind, _, address = (target or "").partition(":")
    if kind != "broker" or not address:
        raise WrongOption(
            f"option target: {target!r} is not valid; write broker:HOST:PORT, only a broker appends"
        )
    addresses(address)
    return address
