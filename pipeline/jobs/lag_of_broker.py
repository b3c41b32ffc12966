"""What the job `lag` asks a broker, by the client library: Tidelog or Apache Kafka.

Owns the questions. The time of a record is the one that it carries: of a topic with LogAppendTime that of its append.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.jobs.parts.committed import Reads, row_of
from tidelog.pipeline.options import APPEND

_POLL_MS: Final = 10_000
_TIMEOUT_MS: Final = 20_000
_CONNECT_MS: Final = 10_000


def committed(address: str, group: str) -> dict[Reads, int]:
    """Return what all groups, or one, have committed; PipelineError where no broker answers."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        with closing(KafkaAdminClient(**_settings(address))) as admin:
            names = [group] if group else [_name_of(each) for each in admin.list_groups()]
            found = {name: admin.list_group_offsets({name: None})[name] for name in sorted(names)}
    except KafkaError as error:
        raise _no_answer(address, error) from None
    return {
        Reads(name, key.topic, key.partition): each.offset
        for name, offsets in found.items()
        for key, each in offsets.items()
        if each.offset >= 0
    }


def rows(address: str, wanted: Mapping[Reads, int], clock: str, now_ms: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each offset. WrongOption for the clock of appends, which the protocol does not tell."""
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import KafkaError

    if clock == APPEND:
        raise WrongOption(
            "--clock append: a broker does not tell when records were appended; read --source segments:FOLDER"
        )
    try:
        with closing(KafkaConsumer(**_settings(address), enable_auto_commit=False)) as consumer:
            # To ask for a topic that is gone must not make it: kafka-python 3.0.12 does not hand its option on.
            consumer._manager.cluster.config["allow_auto_create_topics"] = False
            for reads, offset in wanted.items():
                key = TopicPartition(reads.topic, reads.partition)
                row = row_of(reads, offset)
                if reads.partition in (consumer.partitions_for_topic(reads.topic) or ()):
                    start, end = consumer.beginning_offsets([key])[key], consumer.end_offsets([key])[key]
                    position = max(offset, start)
                    row = row_of(reads, offset, position, end)
                    if position < end:
                        row["lag_s"] = _waits_s(consumer, key, position, now_ms)
                yield row
    except KafkaError as error:
        raise _no_answer(address, error) from None


def _settings(address: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "request_timeout_ms": _TIMEOUT_MS,
        "bootstrap_timeout_ms": _CONNECT_MS,
    }


def _waits_s(consumer: Any, key: Any, position: int, now_ms: int) -> float | None:
    """Return how long ago the first record at or after a position was made; None where that is not known."""
    consumer.assign([key])
    consumer.seek(key, position)
    found = consumer.poll(timeout_ms=_POLL_MS, max_records=1).get(key)
    if not found:
        return 0.0 if consumer.position(key) > position else None
    at_ms = found[0].timestamp
    return None if at_ms < 0 else max(0, now_ms - at_ms) / 1000


def _name_of(listed: Any) -> str:
    return str(listed["group_id"] if isinstance(listed, dict) else getattr(listed, "group_id", listed[0]))


def _no_answer(address: str, error: Exception) -> PipelineError:
    return PipelineError(
        f"the broker at {address} did not answer: {type(error).__name__} {error}; is it running?"
    )
