"""The same request gets the same answer, whichever way it takes through the broker.

There are two ways where one would be too slow: readers, writers and constructors are compiled, and a request for one
partition passes by what takes many. Two brokers are asked the same: one as installed, and one that is interpreted and
takes every request as one of many (`tests.support.judge`).
"""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import judge
from tests.support.judge import Answer, Side
from tests.support.requests import NOTHING, TOPICS, Asked, Requests, Seen
from tests.support.served import until
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS
from tidelog.protocol.messages.produce import PRODUCE

# All seeds together ask for 100,000.
REQUESTS = int(os.environ.get("BOTH_WAYS_REQUESTS") or 10_000)
SEEDS = range(1, 10)
GIVEN = 0  # that of SEED=, or another with each run
OPTIONS = {
    "log.segment.bytes": "40000",
    "log.index.interval.bytes": "500",
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
}
MOST_OWED = 24
PATIENCE_S = 20.0
# What a request may come to but for an answer: its connection is closed.
CLOSING = ("WireError", "TooManyElements", "ClosesConnection", "BadRequest")


class Pair(NamedTuple):
    """A request, and what became of it on both sides."""

    number: int
    asked: Asked
    ours: Answer
    judged: Answer


class Differ:
    """Asks both sides the same, and compares what they say."""

    def __init__(self, ours: Side, judged: Side, seed: int) -> None:
        self.sides = ours, judged
        self._rng = random.Random(seed)
        self._requests = Requests(self._rng, self._see, self._topic_id)
        self._owed: list[Pair] = []
        self._heard = asyncio.Event()
        self._seed = seed
        self._number = 0

    async def run(self, count: int) -> None:
        """Make the topics, and ask."""
        await self._ask(self._requests.beginning())
        for self._number in range(1, count + 1):
            await self._ask(self._requests.next())
            kind = self._rng.random()
            if kind < 0.01:
                self._move()
            if kind > 0.96:
                await self._settle(is_patient=kind < 0.99)
        await self._settle(is_patient=False)

    def _see(self, topic: str, index: int) -> Seen:
        log = self.sides[0].log(topic, index)
        return Seen(log.log_start_offset, log.log_end_offset, log.leader_epoch) if log else NOTHING

    def _topic_id(self, name: str) -> bytes:
        topic = self.sides[0].broker.topics.by_name.get(name)
        return topic.id if topic else bytes(16)

    def _move(self) -> None:
        """Move what no request moves: the clock, the start of a log, a leader epoch."""
        rng = self._rng
        name, index, kind = rng.choice(list(TOPICS)), rng.randrange(3), rng.random()
        span_ms, share = rng.choice((1, 50, 1000)), rng.random()
        for side in self.sides:
            log = side.log(name, index)
            if kind < 0.5:
                side.clock.advance(milliseconds=span_ms)
            elif log is not None and kind < 0.85:
                start, end = log.log_start_offset, log.log_end_offset
                log.advance_start(start + int((end - start) * share**2))
            elif log is not None and log.leader_epoch < 3:
                log.leader_epoch += 1
                with log.lock:
                    log.epochs.begin(log.leader_epoch, log.log_end_offset)

    async def _ask(self, asked: Asked) -> None:
        """Ask both; wait where a client could have no other request answered before."""
        client = self._rng.randrange(judge.CLIENTS)
        if asked.frame[4:6] == DELETE_TOPICS.key.to_bytes(2, "big"):
            await self._end_produces()
        ours, judged = (side.ask(client, asked.frame, self._hear) for side in self.sides)
        pair = Pair(self._number, asked, ours, judged)
        if ours.is_deferred or judged.is_deferred:
            assert ours.waits_for == judged.waits_for, self._words(pair)
            await self._until(lambda: not (ours.holds_up or judged.holds_up), pair)
            self._owed.append(pair)
        else:
            self._compare(pair)

    async def _end_produces(self) -> None:
        """Have the disk take what it is to take: which comes first, that or a deletion, is chance on either side."""
        produces = [pair for pair in self._owed if pair.asked.frame[4:6] == PRODUCE.key.to_bytes(2, "big")]
        self._owed = [pair for pair in self._owed if pair not in produces]
        for pair in produces:
            await self._bring_to_an_end(pair)

    def _hear(self, *_: Any) -> None:
        self._heard.set()

    async def _until(self, condition: Callable[[], bool], pair: Pair) -> None:
        """Give both sides time until a condition holds."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError(f"not answered by both: {self._words(pair)}") from None

    async def _settle(self, *, is_patient: bool) -> None:
        """Compare the answers that have come; have fetches that wait be answered, where that is not `is_patient`."""
        await until(lambda: not any(side.is_waking for side in self.sides))
        owed, self._owed = self._owed, []
        for pair in owed:
            ours, judged = pair.ours, pair.judged
            if ours.waits_long:
                assert ours.is_owed == judged.is_owed, f"one was answered, one waits: {self._words(pair)}"
                if ours.is_owed and is_patient and len(self._owed) < MOST_OWED:
                    self._owed.append(pair)
                    continue
            await self._bring_to_an_end(pair)

    async def _bring_to_an_end(self, pair: Pair) -> None:
        """Wait for both answers, and compare them."""
        ours, judged = pair.ours, pair.judged
        for each in (ours, judged):
            each.hurry()
        while ours.is_deferred or judged.is_deferred:
            await self._until(lambda: not (ours.is_owed or judged.is_owed), pair)
            ours.encode()
            judged.encode()
        self._compare(pair)

    def _compare(self, pair: Pair) -> None:
        ours, judged = pair.ours.form, pair.judged.form
        assert ours == judged, self._words(pair)
        assert ours is None or ours[0] in ("at once", "streamed", *CLOSING), self._words(pair)

    def _words(self, pair: Pair) -> str:
        """Say which request it is, and how to meet it again."""
        again = (
            f"SEED={self._seed} .venv/bin/python -m pytest -n 0 tests/property/{Path(__file__).name} -k '[0]'"
        )
        what = f"request {pair.number} of seed {self._seed}, {pair.asked.name}"
        waits = f"waits for {pair.ours.waits_for}, {pair.judged.waits_for}"
        return f"{what} ({waits}): {pair.asked.frame[:1000].hex()}; again: {again}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.all) for seed in (GIVEN, *SEEDS[1:]))]
)
async def test_both_ways_lead_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    if seed == GIVEN:
        seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(30))
    print(f"SEED={seed}")
    sides = [
        Side(code, tmp_path / name, seed, OPTIONS, monkeypatch)
        for name, code in (("ours", judge.installed()), ("them", judge.judge()))
    ]
    files: list[dict[str, bytes]] = []
    try:
        await Differ(sides[0], sides[1], seed).run(REQUESTS)
    finally:
        files += [side.stop() for side in sides]
    assert list(files[0]) == list(files[1])
    assert [name for name in files[0] if files[0][name] != files[1][name]] == []
