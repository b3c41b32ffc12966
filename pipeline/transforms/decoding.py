"""Values as text, or as JSON by a schema, in a column `decoded` beside them.

`decoded` is null for a value that is neither; the value itself stays as it is.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)
from pyspark.sql.types import StringType, StructField, StructType

DECODED: Final = "decoded"
# Spark notes there a text that it could not read by the schema, whole.
_NOT_READ: Final = "__not_read"


def as_text(records: DataFrame) -> DataFrame:
    """Return the records with their value as a string too; null where it is not UTF-8."""
    return records.withColumn(DECODED, _text())


def as_json(records: DataFrame, schema: StructType) -> DataFrame:
    """Return the records with their value as a struct too; null where it is not a JSON object of that schema.

    A field that an object lacks is null, and one that the schema lacks is left out. Spark does not look at what stands
    behind the object.
    """
    noting = StructType([*schema.fields, StructField(_NOT_READ, StringType())])
    read = F.from_json(_text(), noting, {"columnNameOfCorruptRecord": _NOT_READ})
    is_read = F.col(DECODED)[_NOT_READ].isNull()
    return records.withColumn(DECODED, read).withColumn(
        DECODED, F.when(is_read, F.col(DECODED).dropFields(_NOT_READ))
    )


def _text() -> Column:
    return F.try_validate_utf8(F.col("value").cast("string"))
