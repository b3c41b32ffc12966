"""Admission: the table of connections, and its limits.

Knows nothing of what connections do. Event loop only.
"""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from tidelog.config.kinds import INT_MAX
from tidelog.config.options import BrokerConfig

C = TypeVar("C")


def _descriptors_for_connections() -> int:
    """Return how many of the process's descriptors are for connections; the others are for files."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if most == resource.RLIM_INFINITY else most * 3 // 4


class Admission(Generic[C]):
    """The admitted connections, of type `C`, that are still open."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        """Admit within the limits of the present options."""
        self._config = config
        self._per_address: Counter[str] = Counter()
        self._left = asyncio.Event()
        # Each connection with its number: 1 for the first since the start.
        self.connections: dict[C, int] = {}
        self.is_stopping = False  # refuse every connection
        # Counts since the start; `bad_requests` counts the invalid requests of all connections.
        self.admitted = self.refused = self.bad_requests = 0

    def admit(self, connection: C, address: str) -> str | None:
        """Admit a connection and return None, or return the reason of the refusal."""
        refusal = self._refusal(address)
        if refusal is None:
            self.admitted += 1
            self.connections[connection] = self.admitted
            self._per_address[address] += 1
        else:
            self.refused += 1
        return refusal

    @property
    def most(self) -> int:
        """The most connections at a time."""
        return min(self._config().max_connections, _descriptors_for_connections())

    def _refusal(self, address: str) -> str | None:
        if self.is_stopping:
            return "the broker is stopping"
        config = self._config()
        if len(self.connections) >= config.max_connections:
            return f"max.connections={config.max_connections} reached"
        if len(self.connections) >= (most := self.most):
            return f"{most} connections, three quarters of the files that the broker may open (ulimit -n)"
        if self._per_address[address] >= config.max_connections_per_ip:
            return f"max.connections.per.ip={config.max_connections_per_ip} reached"
        return None

    def forget(self, connection: C, address: str) -> None:
        """Remove a closed connection, if it was admitted."""
        self._left.set()
        if connection in self.connections:
            del self.connections[connection]
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

    async def all_left(self, timeout_s: float) -> bool:
        """Wait until all connections are closed; return whether they are."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.connections:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return False
        return True
