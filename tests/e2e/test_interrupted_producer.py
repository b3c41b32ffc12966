"""Ctrl-C at any line of the producer: its acknowledged records are counted, and none is appended twice."""

import inspect
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from tests.support.broker import Running
from tests.support.raw_client import RawClient
from tidelog.client import connection, interrupts, producer
from tidelog.client.address import parse
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer

pytestmark = pytest.mark.e2e

RECORDS = 2
FILES = {inspect.getfile(module) for module in (connection, interrupts, producer)}


@contextmanager
def ctrl_c_at(line: int) -> Iterator[list[int]]:
    """Raise SIGINT at the start of a line of the client, counted as they run; the list has how many ran."""
    ran = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            ran[0] += 1
            if ran[0] == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield ran
    finally:
        sys.settrace(before)


def produce(broker: Running, topic: str, line: int) -> tuple[int, int]:
    """Send records with a Ctrl-C at a line; return how many records were acknowledged, and how many lines ran."""
    acknowledged: list[int] = []
    with Cluster([parse(broker.address)], "interrupted") as cluster:
        to = Producer(cluster, 20, acknowledged.extend)
        to.partitions(topic)
        with ctrl_c_at(line) as ran, suppress(KeyboardInterrupt):
            for number in range(RECORDS):
                to.send(topic, b"%d" % number, 1000)
                to.poll(0)
            to.flush()
        assert to.settle(20) is None
    assert len(set(acknowledged)) == len(acknowledged)
    return len(acknowledged), ran[0]


def test_ctrl_c_at_any_line(shared_broker: Running, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "FIRST_PAUSE_S", 0.001)
    assert threading.current_thread() is threading.main_thread()
    with RawClient(shared_broker) as client:
        client.create(topic)
        count, lines = produce(shared_broker, topic, 0)
        assert count == RECORDS
        for line in range(1, lines + 1):
            got, _ = produce(shared_broker, topic, line)
            before, count = count, client.list_offsets(topic, -1).offset
            # The record at which it came may be appended and not counted.
            assert got <= count - before <= min(got + 1, RECORDS), line
