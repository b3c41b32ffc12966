"""What folders and files of a log are called.

Owns the names, Kafka's all of them. Knows nothing of what is in them.
"""

import re
from pathlib import Path
from typing import Final

from tidelog.storage import files

DELETE_SUFFIX: Final = "-delete"
# Where Kafka's controllers keep what they know: a log, but of no topic.
CLUSTER_METADATA: Final = "__cluster_metadata"
OFFSETS_TOPIC: Final = "__consumer_offsets"  # what groups have committed
# Topics of brokers themselves (Kafka's `Topic.isInternal`): clients read them, and write them through other requests.
INTERNAL: Final = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})
NAME_BYTES_MAX: Final = 255  # of a file or folder, on every file system of Linux
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,9})")
_LOG = re.compile(r"(\d{20})\.log")


def partition_of(name: str) -> tuple[str, int] | None:
    """Return the topic and the number that a partition's folder is named for; None for another folder."""
    match = _PARTITION.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match and match["topic"] != CLUSTER_METADATA else None


def is_internal(topic: str) -> bool:
    """Tell whether a topic is one of the brokers' own, by its name."""
    return topic in INTERNAL


def bases_in(folder: Path) -> list[int]:
    """Return the base offsets of the segments in a partition's folder, in order."""
    entries = files.list_folder(folder)
    return [int(match[1]) for name, is_folder in entries if not is_folder and (match := _LOG.fullmatch(name))]
