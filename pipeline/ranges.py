"""The partitions, offsets and times of a topic to read."""

from typing import Final, NamedTuple

from tidelog.pipeline.decode import Window
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.options import APPEND, Options

# After every time that a record can have.
TIME_END_MS: Final = 1 << 63


class TopicOffsets(NamedTuple):
    """A topic at one moment: its id in hexadecimal digits (empty for none), and each partition's start and end."""

    topic_id: str
    spans: dict[int, tuple[int, int]]


def chosen_partitions(chosen: Options, there: list[int]) -> list[int]:
    """Return the partitions to read; PipelineError if one of option `partitions` does not exist."""
    if chosen.partitions is None:
        return there
    missing = sorted(chosen.partitions - set(there))
    if missing:
        raise PipelineError(
            f"option partitions: {chosen.topic} has no partition {missing[0]}; it has {there}"
        )
    return sorted(chosen.partitions)


def window_of(chosen: Options) -> Window:
    """Return the range of times to read. A record without a time is in no range of times."""
    if chosen.from_ms is None and chosen.to_ms is None:
        return Window()
    end_ms = TIME_END_MS if chosen.to_ms is None else chosen.to_ms
    times = (max(chosen.from_ms or 0, 0), end_ms)
    return Window(append=times) if chosen.clock == APPEND else Window(create=times)
