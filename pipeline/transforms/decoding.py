"""Decodes values as JSON with a schema, into a column `decoded`. It is null if a value is not valid."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql.types import StringType, StructField, StructType

from tidelog.pipeline.transforms.columns import DECODED

# Spark puts the text into this field if it does not match the schema.
_NOT_READ: Final = "__not_read"


def as_json(records: DataFrame, schema: StructType) -> DataFrame:
    """Add the value as a struct; null if it is not a JSON object of that schema.

    A field that the object lacks is null, and one that the schema lacks is left out. Spark ignores text after the
    object.
    """
    noting = StructType([*schema.fields, StructField(_NOT_READ, StringType())])
    text = F.try_validate_utf8(F.col("value").cast("string"))
    read = F.from_json(text, noting, {"columnNameOfCorruptRecord": _NOT_READ})
    is_read = F.col(DECODED)[_NOT_READ].isNull()
    return records.withColumn(DECODED, read).withColumn(
        DECODED, F.when(is_read, F.col(DECODED).dropFields(_NOT_READ))
    )
