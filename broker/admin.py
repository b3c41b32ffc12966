"""The commands of DATA/.admin, for the `tidelog` command on the same machine.

They make files in the data folder beside the running broker, or show what no request of Kafka's protocol does. Each
command names the cluster that its sender has seen. Long work runs on the maintenance thread, in steps. Event loop only.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.broker import backup
from tidelog.broker.broker import Broker
from tidelog.broker.commands import Answer, Commands, future_of
from tidelog.broker.topic_rules import BrokerStops, TopicExists, TopicNamesCollide
from tidelog.broker.work import Coro
from tidelog.config.errors import ConfigError


class Admin(Commands):
    """The commands of one broker."""

    def __init__(self, broker: Broker, clients: Callable[[int], list[dict[str, Any]]]) -> None:
        """Serve a broker; `clients` returns the figures of the next connections after a number."""
        self._broker = broker
        self._clients = clients

    example = '{"do": "ping", "cluster_id": "..."}'
    refusals = (*Commands.refusals, ConfigError, TopicExists, TopicNamesCollide, BrokerStops)

    async def do(self, command: Any) -> Answer:
        """Run a command that names this cluster in `cluster_id`; return an error in the answer if it is refused."""
        own = self._broker.logs.cluster_id
        if isinstance(command, dict) and command.pop("cluster_id", None) != own:
            folder = self._broker.logs.directory
            error = f"{folder} is the data folder of another cluster here, {own}; run this on the broker's machine"
            return {"ok": False, "error": error}
        return await super().do(command)

    async def _do_ping(self) -> Answer:
        return {}

    async def _do_clients(self, after: int) -> Answer:
        """Return some connections with a number above `after`, in order; none after the last one."""
        return {"clients": self._clients(after)}

    async def _do_fork(
        self,
        topic: str,
        at_ms: int,
        name: str,
        clock: str = "append",
        config: Mapping[str, Any] | None = None,
    ) -> Answer:
        from tidelog.broker import forking  # most brokers never need it

        options = {option: str(value) for option, value in (config or {}).items()}
        made: Answer = await self._maintained(forking.fork(self._broker, topic, at_ms, name, clock, options))
        return made

    async def _do_backup(self, process: str) -> Answer:
        answer: Answer = await self._maintained(backup.make(self._broker, process))
        return answer

    async def _maintained(self, job: Coro[Any]) -> Any:
        """Return the result of a job on the maintenance thread, or raise its exception."""
        return await future_of(self._broker.maintenance.submit(job, owner=self))
