"""A table that jobs write: the form that flags give it, the form that it has, and the stream that writes it.

A note in the table says which stream writes a topic to it: rows of the same topic by another stream would be there
twice.
"""

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts import delta, landing
from tidelog.pipeline.jobs.parts.flags import Table, one_of
from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.options import APPEND, Options
from tidelog.pipeline.transforms import windows
from tidelog.pipeline.transforms.windows import DATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


PARQUET, DELTA = FORMATS = ("parquet", "delta")
_STRING, _JSON = _DECODES = ("string", "json")
# Readers of a table skip what begins with an underscore.
_NOTES: Final = "_ingest"


class Form(NamedTuple):
    """What a table is like."""

    format_name: str = PARQUET
    decode: str = ""  # what values are decoded as; nothing for not at all
    schema: str = ""  # of JSON
    time: str = ""  # the column by whose date rows are put into folders; nothing for no folders

    @property
    def by(self) -> list[str]:
        """The columns by whose values rows lie in folders."""
        return [DATE] if self.time else []

    def demand_append_time(self, chosen: Options) -> None:
        """WrongOption if rows lie by append time, and the source does not tell it."""
        if self.time == "append_time" and chosen.kind == "broker":
            from_broker.demand_append_time(chosen)

    def shaped(self, records: "DataFrame") -> "DataFrame":
        """Return records with the columns that the table has in addition; WrongOption for a schema that is none."""
        from tidelog.pipeline.transforms import decoding

        if self.decode == _STRING:
            records = decoding.as_text(records)
        elif self.decode == _JSON:
            records = decoding.as_json(records, _struct(self.schema))
        return windows.with_date(records, self.time) if self.time else records


def _struct(schema: str) -> "StructType":
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    try:
        found = StructType.fromDDL(schema)
    except ParseException:
        found = None
    if not isinstance(found, StructType):
        raise WrongOption(f"--schema: {schema!r} is none; write 'id long, user string'")
    return found


def form(flags: Table, clock: str) -> Form:
    """Return the form that flags mean; WrongOption for what is none."""
    one_of("--format", flags.format_name, FORMATS)
    decode, schema = flags.decode, flags.schema
    if decode:
        one_of("--decode", decode, _DECODES)
    if decode == _JSON and not schema.strip():
        raise WrongOption(
            "--schema is missing; write what the JSON has, as in --schema 'id long, user string'"
        )
    if schema and decode != _JSON:
        raise WrongOption("--schema is of JSON; write --decode json, too")
    time = "append_time" if clock == APPEND else "create_time"
    return Form(flags.format_name, decode, schema, time if flags.by_date else "")


def demand_checkpoint(out: str, checkpoint: str) -> None:
    """WrongOption if a stream to an object store has no checkpoint of its own."""
    if remote.is_remote(out) and not checkpoint:
        raise WrongOption(
            "--checkpoint is missing; name a folder: Spark itself does not write to an object store here"
        )


def demand_form(place: Place, wanted: Form) -> None:
    """Raise PipelineError where the place has a table of another form."""
    is_delta = delta.is_table(place)
    if wanted.format_name == PARQUET and is_delta:
        raise PipelineError(f"{place.uri} is a table of Delta; write --format delta, or name another --out")
    if is_delta:
        parted: set[bool] = {delta.is_parted(place)}
    else:
        parted = {"/" in name for name in landing.files_of(place, "")}
        if wanted.format_name == DELTA and parted:
            raise PipelineError(
                f"{place.uri} has files of Parquet, and is no table of Delta; name another --out"
            )
    if parted - {bool(wanted.by)}:
        raise PipelineError(
            f"{place.uri} has rows in folders by date; write --by-date, too, or name another --out"
            if not wanted.by
            else f"{place.uri} has rows that are in no folders by date; leave out --by-date, or name another --out"
        )


def is_claimed(place: Place, topic: str) -> bool:
    """Return whether a stream writes a topic to a table."""
    return bool(place.files.get_file_info(place.under(_note_of(topic))).is_file)


def claim(place: Place, topic: str, stream: str, checkpoint: str) -> None:
    """Note that a stream writes a topic to a table; PipelineError where another one does."""
    if is_claimed(place, topic):
        with place.files.open_input_stream(place.under(_note_of(topic))) as note:
            noted = json.loads(note.read())
        if noted["stream"] != stream:
            raise PipelineError(
                f"{place.uri} has records of topic {topic} already, by the checkpoint {noted['checkpoint']}; with "
                f"the checkpoint {checkpoint} they would be there twice: go on with the former (--checkpoint), or "
                "name another --out"
            )
        return
    place.files.create_dir(place.under(_NOTES), recursive=True)
    place.write(_note_of(topic), [json.dumps({"stream": stream, "checkpoint": checkpoint}).encode()])


def _note_of(topic: str) -> str:
    return f"{_NOTES}/{topic}.json"
