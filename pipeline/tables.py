"""The schemas of the source's tables, for Arrow and for Spark."""

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidelog.config.nearest import nearest
from tidelog.pipeline.errors import WrongOption

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TIME: Final = pa.timestamp("us", "UTC")
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

RECORDS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("create_time", _TIME),
        ("append_time", _TIME),
        ("timestamp_type", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_HEADER)),
        ("producer_id", pa.int64()),
        ("batch_base", pa.int64()),
        ("leader_epoch", pa.int32()),
    ]
)
# A column of records that must be requested by name: whether the append time is only an upper bound.
IS_BOUND: Final = "is_append_bound"
READABLE: Final = RECORDS.append(pa.field(IS_BOUND, pa.bool_()))
BATCHES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("position", pa.int64()),
        ("file", pa.string()),
        ("bytes", pa.int64()),
        ("codec", pa.string()),
        ("magic", pa.int32()),
        ("records", pa.int32()),
        ("first_timestamp", _TIME),
        ("max_timestamp", _TIME),
        ("append_time", _TIME),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
        ("is_transactional", pa.bool_()),
        ("is_control", pa.bool_()),
        ("leader_epoch", pa.int32()),
        ("crc", pa.int64()),
    ]
)
_DAMAGE: Final = pa.struct([(name, pa.int64()) for name in ("start", "end", "next_offset")])
SEGMENTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("file", pa.string()),
        ("bytes", pa.int64()),
        ("min_timestamp", _TIME),
        ("max_timestamp", _TIME),
        ("first_append_time", _TIME),
        ("last_append_time", _TIME),
        ("records", pa.int64()),
        ("batches", pa.int64()),
        ("damage", pa.list_(_DAMAGE)),
        ("is_active", pa.bool_()),
    ]
)
_MAY_BE_NULL: Final = ("timestamp", "binary")
# By the value of option `table`: the default columns, and the columns that may be requested.
SCHEMAS: Final = {"records": RECORDS, "batches": BATCHES, "segments": SEGMENTS}
COLUMNS: Final = SCHEMAS | {"records": READABLE}


def ddl(schema: pa.Schema) -> str:
    """Return a schema in Spark's DDL."""
    return ", ".join(f"`{field.name}` {_spark(field.type)}" for field in schema)


def _spark(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_spark(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {_spark(field.type)}" for field in kind) + ">"
    return _NAMES[kind]


_NAMES: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    _TIME: "timestamp",
}


def checked(schema: "StructType", table: pa.Schema) -> tuple[str, ...]:
    """Return the names of the requested columns, in order; WrongOption if the table has no such column."""
    names = schema.fieldNames()
    for field in schema.fields:
        number = table.get_field_index(field.name)
        if number < 0:
            raise WrongOption(f"column {field.name}: there is none{nearest(field.name, table.names)}")
        kind = _spark(table.field(number).type)
        if field.dataType.simpleString() != kind.replace(": ", ":").replace(", ", ","):
            raise WrongOption(f"column {field.name}: it is {kind}, not {field.dataType.simpleString()}")
        if not field.nullable and kind in _MAY_BE_NULL:
            raise WrongOption(f"column {field.name}: it may be null; leave out `not null`")
        if names.count(field.name) > 1:
            raise WrongOption(f"column {field.name}: it is named twice")
    return tuple(names)
