"""The health of the broker: the answer of `/health`.

The broker is unhealthy while it stops, or if a log takes no writes. Logs whose compaction fails are listed, too, but
compaction is tried again and costs only space meanwhile. Damaged ranges are listed; all other records are served. Runs
on the event loop, in steps, because it must answer even if the reader threads are busy.
"""

from collections.abc import Generator
from typing import Any

import tidelog
from tidelog.broker.broker import Broker

# Logs and segments per step: a quarter of a microsecond each.
STEP_LOGS = 2_000
# The most logs that an answer names, with the reasons, and the most damaged ranges.
MOST_NAMED = 100
OK, UNAVAILABLE = 200, 503


def health(broker: Broker, is_stopping: bool) -> Generator[None, None, tuple[int, dict[str, Any]]]:
    """Return the HTTP status and the body of the answer; yield between steps."""
    topics = broker.topics.all()
    disk, count, refused, ranges, seen = broker.logs.disk, 0, 0, 0, 0
    named: list[dict[str, Any]] = []
    damaged: list[dict[str, Any]] = []
    for topic in topics:
        for partition in topic.partitions:
            count += 1
            if not partition.log.takes_writes:
                refused += 1
                if len(named) < MOST_NAMED:
                    reason = partition.log.health.failure or f"the disk of {disk.folder} is full"
                    is_read = partition.log.unopened is None
                    named.append({"log": str(partition.log), "reason": reason, "is_read": is_read})
            for place, readable in partition.log.damage():
                ranges += 1
                if len(damaged) < MOST_NAMED:
                    damaged.append({"log": str(partition.log), "range": place, "next_offset": readable})
            seen += 1 + len(partition.log.segments)
            if seen >= STEP_LOGS:
                seen = 0
                yield
    failing = broker.cleaners.failing()
    answer: dict[str, Any] = {
        "status": "stopping" if is_stopping else "refusing writes" if refused or disk.is_full else "ok",
        "version": tidelog.__version__,
        "cluster_id": broker.cluster_id,
        "node_id": broker.node_id,
        "topics": len(topics),
        "partitions": count,
        "refusing_writes": refused,
        "refused": named,
        "damaged_ranges": ranges,
        "damaged": damaged,
        "compaction_failing": len(failing),
        "not_compacted": [{"log": str(log), "reason": why} for log, why in failing[:MOST_NAMED]],
    }
    return OK if answer["status"] == "ok" else UNAVAILABLE, answer
