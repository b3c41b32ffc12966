"""Where the partitions of a topic begin and end at one moment: what a stream goes by."""

from typing import NamedTuple


class Heads(NamedTuple):
    """The id of the topic in hexadecimal digits, empty if it has none; log start and log end of each partition."""

    topic_id: str
    spans: dict[int, tuple[int, int]]
