"""A second client of a broker, in a process of its own: it asks a little, again and again, and times each answer.

Owns: one connection and one thread a kind of question, the latencies, what was refused. Refuses to know: what else
goes on at the broker. Invariant: a question that is not answered in PATIENCE_S counts as long as that, and as a
fault; nothing is left out of the figures.
"""

import argparse
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.broker import Running
from tests.support.raw_client import PRODUCE, RawClient
from tests.support.workload import START_MS
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records.build import Record, build_batch

TOPIC = "neighbour"
PARTITIONS = 4
# How long it waits for an answer. A broker that needs longer has failed, by however much.
PATIENCE_S = 30.0

SMALL = ("produce", "metadata", "fetch", "versions")
# Pauses between questions, in seconds. Kinds not named here are asked every few milliseconds.
_PAUSES = {"create": 0.2, "large": 0.1, "durable": 0.02, "producer-id": 0.02}
_USUAL_PAUSE_S = 0.004

_ONE = build_batch([Record(0, START_MS, None, b"x" * 100)])
_LARGE = build_batch([Record(0, START_MS, None, b"x" * 1_000_000)])


class Answers(NamedTuple):
    """How long the answers of one kind took, in seconds, in the order they came."""

    latencies_s: list[float]

    @property
    def longest_s(self) -> float:
        return max(self.latencies_s)

    @property
    def p99_s(self) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]


@dataclass
class Findings:
    """What a neighbour saw: the answers of each kind, and what went wrong, in words."""

    kinds: dict[str, Answers] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def small(self) -> Answers:
        """Return the answers to small questions, those that nobody should ever wait for."""
        return Answers(
            [each for kind in SMALL if kind in self.kinds for each in self.kinds[kind].latencies_s]
        )


class Neighbour:
    """A second client, from `with` to its end; `findings` are there afterwards."""

    def __init__(self, broker: Running, *kinds: str, topic: str = TOPIC) -> None:
        self.findings = Findings()
        command = [sys.executable, "-m", "tests.support.neighbour", broker.host, str(broker.port), topic]
        self._command = [*command, *(kinds or SMALL)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == b"asking\n", f"the neighbour said {line!r}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            printed, _ = self._process.communicate(timeout=3 * PATIENCE_S)
        finally:
            self._process.kill()
        told = json.loads(printed)
        self.findings.kinds = {name: Answers(rows) for name, rows in told["kinds"].items() if rows}
        self.findings.faults = told["faults"]


def make_topic(broker: Running) -> None:
    """Create the topic that a neighbour works on, with one record to fetch."""
    with RawClient(broker) as client:
        assert client.create(TOPIC, PARTITIONS).error_code == 0
        assert client.produce(TOPIC, _ONE).error_code == 0


def questions(client: RawClient, topic: str) -> dict[str, Callable[[], bool]]:
    """Return the questions by kind; each is asked by a call, and tells whether the answer was right."""
    names = (f"neighbour-{number}" for number in itertools.count())
    durable = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=20_000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                partition_data=[
                    PartitionProduceData(index=index, records=memoryview(_ONE)) for index in range(PARTITIONS)
                ],
            )
        ],
    )

    def produced_everywhere() -> bool:
        (answer,) = client.ask(PRODUCE, 9, durable).responses
        return all(part.error_code == 0 for part in answer.partition_responses)

    return {
        "produce": lambda: client.produce(topic, _ONE, acks=1).error_code == 0,
        "metadata": lambda: client.metadata(TOPIC, create=False).topics[0].error_code == 0,
        "fetch": lambda: bool(client.fetch(TOPIC, 0, max_bytes=200).records),
        "versions": lambda: bool(client.api_versions()),
        "large": lambda: client.produce(TOPIC, _LARGE, acks=1).error_code == 0,
        "durable": produced_everywhere,
        "create": lambda: client.create(next(names)).error_code == 0,
        "producer-id": lambda: client.init_producer_id().error_code == 0,
    }


class _Asker(threading.Thread):
    """Asks one kind of question over one connection until it is told to stop."""

    def __init__(self, broker: Running, topic: str, kind: str, enough: threading.Event) -> None:
        super().__init__(name=kind)
        self.kind = kind
        self.latencies_s: list[float] = []
        self.faults: list[str] = []
        self.has_begun = threading.Event()
        self._enough = enough
        self._where = broker, topic
        self._pause_s = _PAUSES.get(kind, _USUAL_PAUSE_S)

    def run(self) -> None:
        broker, topic = self._where
        began_s = time.monotonic()
        try:
            with RawClient(broker, timeout_s=PATIENCE_S) as client:
                ask = questions(client, topic)[self.kind]
                for began_s in self._beats():
                    if not ask():
                        self._fault("was refused", began_s)
                    self._note(began_s)
        except (OSError, AssertionError) as error:
            self._fault(repr(error), began_s)
            self._note(began_s)
        self.has_begun.set()

    def _beats(self) -> Iterator[float]:
        while not self._enough.is_set():
            yield time.monotonic()
            self._enough.wait(self._pause_s)

    def _note(self, began_s: float) -> None:
        self.latencies_s.append(time.monotonic() - began_s)
        self.has_begun.set()

    def _fault(self, what: str, began_s: float) -> None:
        if len(self.faults) < 5:
            self.faults.append(f"{self.kind} {what} after {time.monotonic() - began_s:.2f} s")


@dataclass
class _At:
    """Where a broker listens."""

    host: str
    port: int
    pid: int = 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def main() -> None:
    """Ask until standard input ends; print what was found as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("kinds", nargs="+")
    given = parser.parse_args()
    enough = threading.Event()
    askers = [_Asker(_At(given.host, given.port), given.topic, kind, enough) for kind in given.kinds]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.has_begun.wait()
    print("asking", flush=True)
    sys.stdin.read()
    enough.set()
    for asker in askers:
        asker.join()
    faults = [fault for asker in askers for fault in asker.faults]
    print(json.dumps({"kinds": {asker.kind: asker.latencies_s for asker in askers}, "faults": faults}))


if __name__ == "__main__":
    main()
