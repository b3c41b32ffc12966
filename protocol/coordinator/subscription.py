"""What a member of protocol type `consumer` says in its metadata, as far as a coordinator has to know it.

Kafka's definition is ConsumerProtocolSubscription; what follows the topics, in any of its versions, is up to members.
"""

from tidelog.protocol.coordinator.form import Form
from tidelog.protocol.wire.errors import WireError
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import STRING, Array

__all__ = ["CONSUMER", "Subscription", "subscribed_topics"]

CONSUMER = "consumer"  # the protocol type of consumers


@message
class Subscription:
    """The topics that a member wants to read."""

    topics: list[str] = field(Array(STRING))


_FORM = Form(Subscription, "0", flexible="")


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """Return the topics that a member names, None where its metadata are not those of a consumer."""
    try:
        subscription: Subscription = _FORM.read(metadata, as_version=0)
    except WireError:
        return None
    return subscription.topics
