"""How an option is told: its value, where that came from, and what would hold without it.

Owns the words of a description. Knows no option.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from tidelog.config.kinds import Kind


class Source(IntEnum):
    """Where a value came from, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2  # set for this broker while it ran
    DYNAMIC_DEFAULT = 3  # set for all brokers while they ran
    BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A setting that would apply if those before it were not there."""

    name: str
    text: str | None  # None: no value
    source: Source


class Described(NamedTuple):
    """One option of one configuration, as DescribeConfigs tells it; the first synonym is in force."""

    name: str
    text: str | None
    kind: Kind[Any]
    doc: str
    source: Source
    synonyms: tuple[Synonym, ...]
    is_read_only: bool = False  # only a restart can change it
