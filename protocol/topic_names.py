"""The topics that belong to brokers and controllers themselves."""

from typing import Final

# Where Kafka's controllers keep their metadata: a log, but of no topic.
CLUSTER_METADATA: Final = "__cluster_metadata"
# What groups have committed.
OFFSETS_TOPIC: Final = "__consumer_offsets"
# Kafka's `Topic.isInternal`: clients read these topics, and write to them through other requests.
INTERNAL: Final = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})


def is_internal(topic: str) -> bool:
    """Tell whether a topic is one of the brokers' own, by its name."""
    return topic in INTERNAL
