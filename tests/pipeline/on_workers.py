"""The driver of jobs on a cluster, as a program: SETTINGS ACTS, both JSON; what came of each act it prints as JSON.

An act has a `name`, what to `read`, and perhaps where to `write` it; or files to `delete` once the read is planned, and
a folder where each task is to say that it has begun (`hold`), and to wait for a file `go`.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tidelog.pipeline.session import session
from tidelog.pipeline.writing.sink import rewritten


def done(spark: Any, act: dict[str, Any]) -> Any:
    """Do it; return the rows that were read, or what was wrong."""
    spark.sparkContext.setJobDescription(act["name"])
    try:
        frame = spark.read.format("tidelog").options(**act["read"]).load()
        if "write" in act:
            rows = rewritten(frame, keep_partition=True)
            return rows.write.format("tidelog").options(**act["write"]).mode("append").save()
        rows = frame.select("partition", "offset", "value").rdd
        if "hold" in act:
            rows = rows.mapPartitions(held(act["hold"]))
        tasks = rows.getNumPartitions()  # which plans the read
        for path in act.get("delete", ()):
            Path(path).unlink()
        return {
            "tasks": tasks,
            "rows": sorted((row.partition, row.offset, bytes(row.value).decode()) for row in rows.collect()),
        }
    except Exception as error:
        return {"error": str(error)}


def held(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what lets rows through, once there is a file `go`."""

    def through(rows: Iterator[Any]) -> Iterator[Any]:
        yield from islice(rows, 1)
        Path(folder, f"begun-{os.getpid()}").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.01)
        yield from rows

    return through


if __name__ == "__main__":
    settings, wanted = map(json.loads, sys.argv[1:])
    spark = session(settings)
    told = {act["name"]: done(spark, act) for act in wanted}
    spark.stop()
    print(json.dumps(told))
