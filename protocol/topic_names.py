"""The names of internal topics."""

from typing import Final

# The metadata log of Kafka's controllers, which is not a topic.
CLUSTER_METADATA: Final = "__cluster_metadata"
# Consumer groups, and their committed offsets.
OFFSETS_TOPIC: Final = "__consumer_offsets"
# As Kafka's `Topic.isInternal`: clients can read these topics, but not produce to them.
INTERNAL: Final = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})


def is_internal(topic: str) -> bool:
    """Return whether a topic is internal, by its name."""
    return topic in INTERNAL
