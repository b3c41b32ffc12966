"""Fixtures of the end-to-end tests: one broker for all that only need one, and one for each test that stops it.

E2E_BROKER=kafka runs them against Apache Kafka instead, those that ask only what Kafka promises too: that is how
they are known to ask what Kafka does, and not merely what we do.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.kafka import QUICK_JVM, ApacheKafka
from tests.support.broker import Broker, Running
from tests.support.java import jars
from tests.support.small_disk import small_disk
from tests.support.workload import unique_topic


class KafkaInstead(ApacheKafka):
    """Apache Kafka in the clothes of `Broker`."""

    def __init__(self, data_dir: Path, overrides: dict[str, str] | None = None) -> None:
        super().__init__(jars(), QUICK_JVM)
        self._how = (data_dir, overrides)

    def start(self) -> "KafkaInstead":  # type: ignore[override]
        return super().start(self.port, *self._how)

    def restart(self) -> "KafkaInstead":
        self.stop()
        return self.start()


__all__ = ["small_disk"]  # a fixture

KIND = KafkaInstead if os.environ.get("E2E_BROKER") == "kafka" else Broker


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One broker for the whole session; tests keep apart by their topics."""
    # Tests write records of years ago, which must not expire under them.
    with KIND(tmp_path_factory.mktemp("shared") / "data", {"log.retention.ms": "-1"}) as broker:
        yield broker.start()
        broker.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    return unique_topic(request.node.originalname)


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Make brokers that this test may stop, kill and start again; all are gone when it ends."""
    with ExitStack() as stack:

        def make(
            overrides: dict[str, str] | None = None, *, name: str = "data", start: bool = True
        ) -> Broker:
            broker = stack.enter_context(KIND(tmp_path / name, overrides))
            return broker.start() if start else broker

        yield make
