"""A stream from a topic to Parquet, as a program that a test can kill: SOURCE TOPIC FOLDER GROUP BATCH [now]."""

import sys
from pathlib import Path

from tidelog.pipeline.session import session

if __name__ == "__main__":
    source, topic, folder, group, batch, *rest = sys.argv[1:]
    spark = session({"spark.master": "local[2]", "spark.sql.warehouse.dir": str(Path(folder, "warehouse"))})
    table = spark.readStream.format("tidelog").option("source", source).option("topic", topic)
    table = table.option("maxRecordsPerTrigger", batch)
    if group:
        table = table.option("group", group)
    writer = (
        table.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(Path(folder, "checkpoint")))
    )
    query = (writer.trigger(availableNow=True) if rest else writer).start(str(Path(folder, "out")))
    query.awaitTermination()
