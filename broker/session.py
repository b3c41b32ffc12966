"""A session: what a handler knows of the connection that a request came by.

It lasts as long as the client is connected, and knows nothing of sockets and of requests. The memory that a client uses
is charged to its session, and sessions take turns on the other threads.
"""

from typing import Final

from tidelog.broker.broker import Broker
from tidelog.protocol.frame import decode_client_id

# Clients with this client id may write to internal topics and delete them (Kafka's AdminUtils).
ADMIN_CLIENT: Final = "__admin_client"


class Session:
    """A client, from accept to close. What changes belongs to the event loop."""

    __slots__ = ("address", "advertised", "broker", "client_id", "peer", "raw_client_id")

    def __init__(
        self, broker: Broker, listener_name: str, peer: tuple[str, int], reached: tuple[str, int]
    ) -> None:
        """Begin with a client at `peer`, which has connected to `reached`: host and port of both."""
        self.broker = broker
        self.address = peer[0]
        self.peer = f"{peer[0]}:{peer[1]}"  # for the log
        # The address of the broker for clients of this listener.
        self.advertised = broker.config.advertised(listener_name, *reached)
        # The client id of the last request, as bytes and as text; None before the first request, or for null.
        self.raw_client_id: bytes | None = None
        self.client_id: str | None = None

    def rename(self, raw_client_id: bytes | None) -> None:
        """Note another client id."""
        self.raw_client_id = raw_client_id
        self.client_id = decode_client_id(raw_client_id)
