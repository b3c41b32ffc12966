"""Options of log compaction that cannot hold together: each is fine by itself.

Owns these rules. Knows values, not where they come from.
"""

from tidelog.config.errors import ConfigError

# Of keys, for a cleaner: with less a pass would come to its end too soon.
LEAST_DEDUPE_BYTES = 1 << 20


def check_lags(least_ms: int, most_ms: int, prefix: str = "") -> None:
    """Raise ConfigError where a record may not be compacted yet when it must be; names have this prefix."""
    if least_ms > most_ms:
        problem = f"must be at most {prefix}max.compaction.lag.ms={most_ms}"
        raise ConfigError(f"{prefix}min.compaction.lag.ms", problem, value=str(least_ms))


def check_buffer(threads: int, size_bytes: int, load_factor: float) -> None:
    """Raise ConfigError where there is no room for the keys of so many cleaners."""
    if size_bytes < max(threads, 1) * LEAST_DEDUPE_BYTES:
        problem = f"at least {LEAST_DEDUPE_BYTES} for each of log.cleaner.threads={threads}"
        raise ConfigError("log.cleaner.dedupe.buffer.size", problem, value=str(size_bytes))
    if not load_factor:
        raise ConfigError("log.cleaner.io.buffer.load.factor", "must be more than 0", value=str(load_factor))
