"""The table that a job writes: the form that flags ask for, the form that it has, and the stream that writes it.

A note in the table names the stream that writes a topic to it, because another stream would write the same rows again.
"""

import json
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts import delta, landing
from tidelog.pipeline.jobs.parts.flags import Table, one_of
from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.options import APPEND, Options
from tidelog.pipeline.transforms import columns
from tidelog.pipeline.transforms.columns import DATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


PARQUET, DELTA = FORMATS = ("parquet", "delta")
_STRING, JSON = _DECODES = ("string", "json")
# Readers of a table skip names that start with an underscore.
_NOTES: Final = "_ingest"


class Form(NamedTuple):
    """The form of a table."""

    format_name: str = PARQUET
    decode: str = ""  # the format of values; empty for no decoding
    schema: str = ""  # of JSON
    time: str = ""  # the column whose date is the partition of a row; empty for no partitions

    @property
    def by(self) -> list[str]:
        """The columns that partition the table."""
        return [DATE] if self.time else []

    @property
    def folders(self) -> str:
        """The column by whose values files lie in folders; empty for none. A Delta table makes its own."""
        return "".join(self.by) if self.format_name == PARQUET else ""

    def demand_append_time(self, chosen: Options) -> None:
        """Raise WrongOption if the table is partitioned by append time, and the source has none."""
        if self.time == "append_time" and chosen.kind == "broker":
            from_broker.demand_append_time(chosen)

    def decoded(self, records: "DataFrame") -> "DataFrame":
        """Return records with their values as JSON, if the form has it; WrongOption for an invalid schema."""
        from tidelog.pipeline.transforms import decoding

        return decoding.as_json(records, _struct(self.schema)) if self.decode == JSON else records

    def completed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the other additional columns of the table."""
        if self.decode == _STRING:
            rows = columns.with_text(rows)
        return columns.with_date(rows, self.time) if self.time else rows


def _struct(schema: str) -> "StructType":
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    try:
        found = StructType.fromDDL(schema)
    except ParseException:
        found = None
    if not isinstance(found, StructType):
        raise WrongOption(f"--schema: {schema!r} is no schema; write 'id long, user string'")
    return found


def form(flags: Table, clock: str) -> Form:
    """Return the form that flags ask for; WrongOption."""
    one_of("--format", flags.format_name, FORMATS)
    decode, schema = flags.decode, flags.schema
    if decode:
        one_of("--decode", decode, _DECODES)
    if decode == JSON and not schema.strip():
        raise WrongOption(
            "--schema is missing; name the fields of the JSON, such as --schema 'id long, user string'"
        )
    if schema and decode != JSON:
        raise WrongOption("--schema is only for JSON; write --decode json too")
    time = "append_time" if clock == APPEND else "create_time"
    return Form(flags.format_name, decode, schema, time if flags.by_date else "")


def demand_checkpoint(out: str, checkpoint: str) -> None:
    """Raise WrongOption if a stream to an object store has no checkpoint folder."""
    if remote.is_remote(out) and not checkpoint:
        raise WrongOption(
            "--checkpoint is missing; name a folder: Spark cannot keep its checkpoint in the object store"
        )


def demand_form(place: Place, wanted: Form) -> None:
    """Raise PipelineError if the place has a table of another form."""
    is_delta = delta.is_table(place)
    if wanted.format_name == PARQUET and is_delta:
        raise PipelineError(f"{place.uri} is a Delta table; write --format delta, or name another --out")
    if is_delta:
        parted: set[bool] = {delta.is_parted(place)}
    else:
        parted = {"/" in name for name in landing.files_of(place, "")}
        if wanted.format_name == DELTA and parted:
            raise PipelineError(f"{place.uri} has Parquet files, and is no Delta table; name another --out")
    if parted - {bool(wanted.by)}:
        raise PipelineError(
            f"{place.uri} has folders by date; write --by-date too, or name another --out"
            if not wanted.by
            else f"{place.uri} has no folders by date; leave out --by-date, or name another --out"
        )


def is_claimed(place: Place, topic: str) -> bool:
    """Return whether a stream writes a topic to a table."""
    return bool(place.files.get_file_info(place.under(_note_of(topic))).is_file)


def claim(place: Place, topic: str, stream: str, checkpoint: str) -> None:
    """Note that a stream writes a topic to a table; PipelineError if another one does."""
    if is_claimed(place, topic):
        with place.files.open_input_stream(place.under(_note_of(topic))) as note:
            noted = json.loads(note.read())
        if noted["stream"] != stream:
            raise PipelineError(
                f"{place.uri} has records of topic {topic} already, by the checkpoint {noted['checkpoint']}; with "
                f"the checkpoint {checkpoint} they would be there twice: continue with the old one (--checkpoint), or "
                "name another --out"
            )
        return
    place.files.create_dir(place.under(_NOTES), recursive=True)
    place.write(_note_of(topic), [json.dumps({"stream": stream, "checkpoint": checkpoint}).encode()])


def _note_of(topic: str) -> str:
    return f"{_NOTES}/{topic}.json"
