"""Warns about written records that are older than their topic's retention: the broker will soon delete them."""

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.client.admin import topic_options
from tidelog.config.times import show, show_duration
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.now import now_ms

_UNLIMITED: Final = -1


def warnings(address: str, oldest_ms: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each topic whose retention is shorter than the age of the oldest record written to it.

    The records have been written already, so if the broker does not answer there is no warning and no error.
    """
    if not oldest_ms:
        return
    try:
        with connected(address) as cluster:
            settings = {topic: topic_options(cluster, topic) for topic in sorted(oldest_ms)}
    except PipelineError:
        return
    now = now_ms()
    for topic, options in settings.items():
        length_ms = _retention_ms(options)
        if length_ms != _UNLIMITED and now - oldest_ms[topic] > length_ms:
            yield (
                f"topic {topic} at {address}: the oldest record written has the time {show(oldest_ms[topic])}, and the "
                f"topic has retention.ms={length_ms} ({show_duration(length_ms)}): the broker soon deletes records "
                "that are older than that; to keep them, raise retention.ms of the topic (-1: no limit), or set its "
                "retention.clock=append"
            )


def _retention_ms(options: Mapping[str, str]) -> int:
    """Return how long a topic keeps a record after the record's own time; -1 if that time does not limit it."""
    deletes = "delete" in options.get("cleanup.policy", "").split(",")
    by_append = (
        options.get("retention.clock") == "append" or options.get("message.timestamp.type") == "LogAppendTime"
    )
    return int(options.get("retention.ms", _UNLIMITED)) if deletes and not by_append else _UNLIMITED
