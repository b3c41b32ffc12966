"""Each option that can be changed while a broker runs, at the ends of what it accepts: the broker serves others."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tidelog.config import machine
from tidelog.config.inert import BROKER_INERT
from tidelog.config.kinds import BOOL
from tidelog.config.options import BROKER_OPTIONS
from tidelog.config.table import Option
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.records.build import Record, build_batch

pytestmark = pytest.mark.e2e

DYNAMIC = {name: row for name, row in {**BROKER_OPTIONS, **BROKER_INERT}.items() if row.is_dynamic}
INCREMENTAL_ALTER_CONFIGS, BROKER = 44, 4
SET, DELETE = 0, 1
BUFFER = "log.cleaner.dedupe.buffer.size"
ROUNDS = 10
# The broker has 8 threads with one cleaner.
MOST_THREADS = 8 + 16
MOST_RSS_BYTES = 256 << 20
MOST_LINES = 40
# A busy machine takes many times what a quiet one does.
ANSWERED_WITHIN_S = 5.0
BATCH = build_batch([Record(n, int(time.time() * 1000), b"%d" % (n % 7), b"v" * 100) for n in range(20)])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a log that is rolled and compacted all the time."""
    folder = tmp_path_factory.mktemp("extremes") / "data"
    _, largest = ends(DYNAMIC[BUFFER])[0]  # so that it is not what keeps the number of cleaners small
    options = {"log.segment.bytes": "10000", "log.cleaner.backoff.ms": "0", BUFFER: largest}
    with Broker(folder, options) as started:
        started.start()
        with RawClient(started) as client:
            client.create("compacted", 20, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
            client.create("others")
        yield started
        started.stop()


def change(client: RawClient, name: str, operation: int, value: str | None) -> tuple[int, str | None]:
    option = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[option])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return answer.error_code, answer.error_message


def ends(row: Option) -> tuple[list[str], list[str]]:
    """Return the values at the ends of what an option accepts, and those just beyond."""
    if row.choices:
        return list(row.choices), []
    if row.kind is BOOL:
        return ["true", "false"], []
    low = row.kind.lowest if row.at_least is None else row.at_least
    high = row.kind.highest if row.at_most is None else row.at_most
    if row.memory_share:
        high = machine.memory_bytes() // row.memory_share
    if row.kind.name == "double":
        return [str(low), str(high if high is not None else row.default)], []
    if low is None or high is None:
        return [], []
    return [str(low), str(high)], [str(low - 1), str(high + 1)]


def threads_of(broker: Broker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/task").iterdir()))


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_broker_serves_others_whatever_an_option_is_set_to(broker: Broker, name: str) -> None:
    before = len(broker.printed)
    accepted, refused = ends(DYNAMIC[name])
    with RawClient(broker) as admin, RawClient(broker) as busy, RawClient(broker) as other:
        for client in (busy, other):
            client.metadata("others")  # It is admitted before the bound on connections may be one.
        try:
            for value in accepted:
                code, message = change(admin, name, SET, value)
                # Some contradict another option at an end of theirs, and the answer says which.
                assert code in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST), (value, message)
                for number in range(ROUNDS):
                    busy.produce("compacted", BATCH, number % 20)
                    began_s = time.monotonic()
                    other.metadata("others")
                    other.produce("others", BATCH)
                    other.fetch("others", 0, max_bytes=1000)
                    assert time.monotonic() - began_s < ANSWERED_WITHIN_S, value
                assert threads_of(broker) <= MOST_THREADS, value
                assert broker.rss_bytes < MOST_RSS_BYTES, value
            for value in refused:
                code, message = change(admin, name, SET, value)
                assert code == ErrorCode.INVALID_REQUEST, value
                assert message is not None
                assert f"Invalid value {value} for configuration {name}: " in message
        finally:
            change(admin, name, DELETE, None)
    printed = broker.printed[before:]
    assert printed.count("\n") < MOST_LINES
    assert " ERROR " not in printed


def test_the_most_cleaners_there_may_be_are_there_after_a_restart_too(tmp_path: Path) -> None:
    with Broker(tmp_path / "data").start() as broker, RawClient(broker) as client:
        before = threads_of(broker)
        most = DYNAMIC["log.cleaner.threads"].at_most
        assert most is not None
        assert change(client, "log.cleaner.threads", SET, str(most)) == (0, None)
        code, message = change(client, "log.cleaner.threads", SET, "3000")
        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert f"Value must be no more than {most}" in message
        broker.restart()
        assert threads_of(broker) == before + most - 1
