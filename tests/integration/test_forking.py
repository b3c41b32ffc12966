"""A fork whose source changes while it is made, in one process with its broker."""

import threading
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.builders import records
from tests.support.served import Client, Served, until
from tidelog.broker import forking
from tidelog.broker.commands import future_of
from tidelog.storage import forking as storage_forking


async def test_a_fork_whose_source_is_deleted_meanwhile_says_so_and_leaves_nothing(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, fork, begun = served.broker, storage_forking.fork, threading.Event()
    source = await client.make_topic("tides", 2)
    for partition in range(2):
        assert (await client.produce("tides", records(b"high"), partition)).error_code == 0

    appended_ms = broker.clock.now_ms()
    await until(lambda: broker.clock.now_ms() > appended_ms)

    def after_the_deletion(*arguments: Any) -> Generator[None, None, storage_forking.Forked]:
        begun.set()
        while broker.topics.find(None, source) is not None:
            yield
        return (yield from fork(*arguments))

    monkeypatch.setattr(storage_forking, "fork", after_the_deletion)
    job = forking.fork(broker, "tides", broker.clock.now_ms(), "then", "append", {})
    made = future_of(broker.maintenance.submit(job, "test"))
    await until(begun.is_set)
    assert await client.delete("tides") == 0
    with pytest.raises(forking.CannotFork, match="topic tides was deleted meanwhile; then was not made"):
        await made
    assert "then" not in await client.topics()
    assert not list(broker.logs.directory.glob("then*"))
    await client.make_topic("then")
