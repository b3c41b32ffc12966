"""A driver on a cluster, as a program: SETTINGS ASKED, both JSON; it prints what it has read as JSON.

It reads `read` after deleting the files `delete`, which it does once the read is planned; then it writes what it reads
of `copy` to `to`.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog.pipeline.session import session
from tidelog.pipeline.writing.sink import rewritten


def with_executor(rows: Iterator[Any]) -> Iterator[Any]:
    """Yield rows with the process that has forked this worker: each executor has one."""
    for row in rows:
        yield os.getppid(), row.partition, row.offset, bytes(row.value).decode()


if __name__ == "__main__":
    settings, asked = map(json.loads, sys.argv[1:])
    spark = session(settings)
    source = spark.read.format("tidelog")
    rows = source.options(**asked["read"]).load().rdd.mapPartitions(with_executor)
    rows.getNumPartitions()  # plans the read
    for path in asked["delete"]:
        Path(path).unlink()
    found = rows.collect()
    copied = spark.read.format("tidelog").options(**asked["copy"]).load()
    rewritten(copied, keep_partition=True).write.format("tidelog").options(**asked["to"]).mode(
        "append"
    ).save()
    spark.stop()
    print(json.dumps(found))
