"""Who asks: what a handler is handed of the connection that a request came by.

Owns what is known of a client for as long as it is connected. Knows nothing of sockets and of requests. What a client
holds is charged to its session, and on other threads sessions take turns.
"""

from tidelog.broker.broker import Broker
from tidelog.protocol.frame import decode_client_id

# The client id of a client that may write to internal topics, and delete them (Kafka's AdminUtils).
ADMIN_CLIENT = "__admin_client"


class Session:
    """A client, from accept to close. What of it changes belongs to the event loop."""

    __slots__ = ("address", "advertised", "broker", "client_id", "peer", "raw_client_id")

    def __init__(
        self, broker: Broker, listener_name: str, peer: tuple[str, int], reached: tuple[str, int]
    ) -> None:
        """Begin with a client at `peer`, which has reached us at `reached`: host and port of both."""
        self.broker = broker
        self.address = peer[0]
        self.peer = f"{peer[0]}:{peer[1]}"  # for lines in the log
        # Where clients of this listener are told that the broker is.
        self.advertised = broker.config.advertised(listener_name, *reached)
        # What the client called itself in its last request, in bytes and as text: None for one that has sent none, or
        # null.
        self.raw_client_id: bytes | None = None
        self.client_id: str | None = None

    def rename(self, raw_client_id: bytes | None) -> None:
        """Take note that the client calls itself otherwise now."""
        self.raw_client_id = raw_client_id
        self.client_id = decode_client_id(raw_client_id)
