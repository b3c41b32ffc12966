"""Checks of options that are valid by themselves, but contradict each other, or the single node."""

from tidelog.config.errors import ConfigError
from tidelog.config.inert import ONE_NODE
from tidelog.config.topic_options import TopicConfig

TOLERABLE = (
    f"{ONE_NODE}; with tidelog.tolerate.replication.factor=true larger values are accepted, and mean 1"
)
# The least memory for keys of a cleaner: with less, a pass would cover too little.
LEAST_DEDUPE_BYTES = 1 << 20


def check_replicas(topic: TopicConfig, is_tolerated: bool) -> None:
    """Raise ConfigError if a topic would wait for more replicas than exist, unless that is tolerated."""
    if topic.min_insync_replicas > 1 and not is_tolerated:
        value = str(topic.min_insync_replicas)
        raise ConfigError("min.insync.replicas", f"must be 1: {TOLERABLE}", value=value)


def check_lags(topic: TopicConfig, prefix: str = "") -> None:
    """Raise ConfigError if the least compaction lag is above the largest; the options' names have this prefix."""
    if topic.min_compaction_lag_ms > topic.max_compaction_lag_ms:
        low, high = topic.min_compaction_lag_ms, topic.max_compaction_lag_ms
        problem = (
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high}): "
            f"{prefix}min.compaction.lag.ms must be at most {prefix}max.compaction.lag.ms"
        )
        raise ConfigError(f"{prefix}min.compaction.lag.ms", problem)


def check_buffer(threads: int, size_bytes: int, load_factor: float) -> None:
    """Raise ConfigError if the buffer is too small for the keys of all cleaners."""
    if size_bytes < max(threads, 1) * LEAST_DEDUPE_BYTES:
        problem = f"must be at least {LEAST_DEDUPE_BYTES} for each of log.cleaner.threads={threads}"
        raise ConfigError("log.cleaner.dedupe.buffer.size", problem, value=str(size_bytes))
    if not load_factor:
        raise ConfigError("log.cleaner.io.buffer.load.factor", "must be more than 0", value=str(load_factor))
