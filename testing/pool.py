"""The brokers that the tests of a process share, by their options, and their part in the report of a failed test.

Between two tests, a broker that has died is replaced, one that was stopped or killed is started again, its clock is
released, and its faults are removed.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tidelog.testing.broker import Broker, Option
from tidelog.testing.clock import Moment, to_ms
from tidelog.testing.process import BrokerDied, BrokerError

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True

Key = tuple[frozenset[tuple[str, str]], int | None]


class Pool:
    """Brokers by their options; each is started on first use."""

    def __init__(self, config: Mapping[str, Option], start_timeout_s: float) -> None:
        """Start nothing yet; `config` has the options of all brokers."""
        self._config = dict(config)
        self._start_timeout_s = start_timeout_s
        self._brokers: dict[Key, Broker] = {}

    def broker(self, config: Mapping[str, Option], clock: Moment | None) -> Broker:
        """Return a running broker with these options; `clock` is where its clock is held, None if it runs."""
        at_ms = None if clock is None else to_ms(clock)
        made = Broker(at_ms, {**self._config, **config}, start_timeout_s=self._start_timeout_s)
        key = frozenset(made.config.items()), at_ms
        broker = self._brokers.setdefault(key, made)
        try:
            broker.check()
        except BrokerDied:  # between two tests, or in one that used `tidelog_session`
            self._drop(broker)
            broker = self._brokers[key] = made
        except BrokerError:
            pass  # stopped, killed, or not started yet
        if not broker.is_running:
            broker.start()
        if broker.clock.held_ms != at_ms:
            if at_ms is None:
                broker.clock.release()
            else:
                broker.clock.set(at_ms)
        return broker

    def put_back(self, broker: Broker) -> None:
        """Undo what a test did to a shared broker. BrokerDied if it has died; the next test gets a new one."""
        try:
            broker.check()
        except BrokerDied:
            self._drop(broker)
            raise
        except BrokerError:
            return  # the test has stopped or killed it; the next test starts it
        # Always, since another process may have used the control channel.
        broker.faults.clear(seen=True)
        broker.clock.release()

    def close(self) -> None:
        """Stop all brokers. BrokerError for the last one that fails to stop in order."""
        failure: str | None = None
        for broker in self._brokers.values():
            try:
                broker.stop()
            except BrokerError as why:
                failure = str(why)
        self._brokers.clear()
        if failure is not None:
            raise BrokerError(failure)

    def _drop(self, broker: Broker) -> None:
        self._brokers = {key: each for key, each in self._brokers.items() if each is not broker}
        with suppress(BrokerError):  # its death is already known
            broker.stop()


class Use:
    """The use of a broker by a test, for its report."""

    def __init__(self, broker: Broker) -> None:
        """Start at the current end of its log."""
        self.has_reported_death = False
        self._broker = broker
        self._log = broker.log_file
        self._start = self._log.stat().st_size

    def report(self, *, keep: bool) -> list[tuple[str, str]]:
        """Return sections for the report of a failed test; with `keep`, keep the broker's folder."""
        if not self._log.exists():  # the broker has ended, which was reported
            return []
        lines = []
        try:
            self._broker.check()
        except BrokerDied as why:
            lines.append(str(why).partition(";")[0])
            self.has_reported_death = True
        except BrokerError as why:
            lines.append(str(why))
        if keep:
            self._broker.keep = True
            lines.append(f"kept: the data in {self._broker.data_dir}, the log in {self._log}")
        lines.append(_read_from(self._log, self._start).rstrip() or "(nothing new in its log)")
        return [("tidelog", "\n".join(lines))]


def _read_from(path: Path, position: int) -> str:
    with path.open("rb") as file:
        file.seek(position)
        return file.read().decode("utf-8", "replace")
