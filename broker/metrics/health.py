"""Whether the broker is well: what `/health` answers.

It is not while it stops, or where a log takes no writes. A log whose compaction fails is named beside: that is tried
again, and takes nothing but space meanwhile. Event loop, in steps: it must answer when the reader threads do not come
to it.
"""

from collections.abc import Generator
from typing import Any

import tidelog
from tidelog.broker.broker import Broker

# Of logs, a quarter of a microsecond each.
STEP_LOGS = 2_000
# That are named in an answer, with the reason.
MOST_NAMED = 100
OK, UNAVAILABLE = 200, 503


def health(broker: Broker, is_stopping: bool) -> Generator[None, None, tuple[int, dict[str, Any]]]:
    """Return the HTTP status and the body of the answer; yield between steps."""
    topics = broker.topics.all()
    disk, count, refused = broker.logs.disk, 0, 0
    named: list[dict[str, Any]] = []
    for topic in topics:
        for partition in topic.partitions:
            count += 1
            if not partition.log.takes_writes:
                refused += 1
                if len(named) < MOST_NAMED:
                    reason = partition.log.health.failure or f"the disk of {disk.folder} is full"
                    is_read = partition.log.unopened is None
                    named.append({"log": str(partition.log), "reason": reason, "is_read": is_read})
            if count % STEP_LOGS == 0:
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
        "compaction_failing": len(failing),
        "not_compacted": [{"log": str(log), "reason": why} for log, why in failing[:MOST_NAMED]],
    }
    return OK if answer["status"] == "ok" else UNAVAILABLE, answer
