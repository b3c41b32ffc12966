"""A broker of `tidelog.testing` in the hands of the clients that the other tests use.

Owns how they find it. Refuses to know what is asked.
"""

from types import SimpleNamespace
from typing import Any

from tests.support.group_member import GroupMember
from tests.support.raw_client import RawClient
from tests.support.workload import one_batch
from tidelog.protocol.wire.api import Api
from tidelog.testing import Broker


def raw(broker: Broker, timeout_s: float = 60) -> RawClient:
    """Connect to a broker; to be closed."""
    there: Any = SimpleNamespace(host="127.0.0.1", port=broker.port)
    return RawClient(there, timeout_s)


class _Client:
    """What a `GroupMember` asks by, one request at a time."""

    def __init__(self, client: RawClient) -> None:
        self._client = client

    async def ask(self, api: Api, version: int, request: object) -> Any:
        return self._client.ask(api.key, version, request)


def member(client: RawClient, group: str) -> GroupMember:
    """Return a member of a group that asks over a connection."""
    asks: Any = _Client(client)
    return GroupMember(asks, group)


def values(records: Any) -> list[bytes]:
    """Return the values of records."""
    return [record.value for record in records]


def batch_at(at_ms: int, count: int = 1, **how: Any) -> bytes:
    """Return a batch whose first record is of that time."""
    return one_batch(count, first_timestamp=at_ms, **how)
