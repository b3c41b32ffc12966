"""F2: kill -9 a broker under load again and again, and see each time that what it said still holds: `make soak`.

I1 what was acknowledged is there, with acks=all and, as the system runs on, with acks=1; I2, I3, I4 at its offset, with
its bytes, and nothing else; I6 a lookup by the records' times is what a scan finds; S52 append times do not go back,
and none that was told before changes. Owns the rounds. Every few rounds it begins anew with other segments, so that a
round costs no more at the end than at the beginning. SIGKILL takes nothing that was written: power cuts are those of
`make fault`.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fault.test_kill_nine import EPISODES, SETTINGS, kill_while_starting, leftovers, under_load
from tests.support.broker import Broker, Running
from tests.support.ledger import PLAIN, Ledger, Producer
from tests.support.raw_client import RawClient
from tests.support.workload import START_MS
from tidelog.protocol.records.build import read_records

BY_RECORD, BY_APPEND = "records", "appends"
CLOCKS = {BY_RECORD: "record", BY_APPEND: "append"}
PARTITIONS = 2
ROUNDS_OF_AN_EPISODE = 20
LOOKUPS = 40
ALL, ONE = -1, 1
NOT_FOUND = (-1, -1)


@dataclass
class Told:
    """What was answered to lookups in one partition by append time: to each time asked for, a time and an offset."""

    name: str
    answers: dict[int, tuple[int, int]] = field(default_factory=dict)

    def ask(self, client: RawClient, topic: str, partition: int, rng: random.Random) -> None:
        """Ask again for what was asked before, and for times in between."""
        end = client.list_offsets(topic, -1, partition).offset
        before, self.answers = self.answers, {}
        known = [at for at, _ in before.values() if at > 0]
        first, last = min(known, default=0), max(known, default=int(time.time() * 1000))
        asked = {*rng.sample(sorted(before), min(LOOKUPS, len(before)))}
        asked |= {rng.randint(first - 5, last + 1000) for _ in range(LOOKUPS)}
        for at in sorted(asked):
            answer = client.list_offsets(topic, at, partition)
            self.answers[at] = answer.timestamp, answer.offset
        self.judge(before, end)

    def judge(self, before: dict[int, tuple[int, int]], end: int) -> None:
        """See that times and offsets rise together, and that what was told before is told again."""
        latest = NOT_FOUND
        for at, answer in sorted(self.answers.items()):
            told = before.get(at, NOT_FOUND)
            assert told in (NOT_FOUND, answer), f"{self.name}: at {at} was {told}, and is {answer}"
            if answer == NOT_FOUND:
                latest = (sys.maxsize, sys.maxsize)  # Nor is there anything after it.
                continue
            assert answer[0] >= at, f"{self.name}: at {at} is {answer}"
            assert answer >= latest, f"{self.name}: at {at} is {answer}, earlier than {latest}"
            assert answer[1] >= latest[1], f"{self.name}: at {at} is {answer}, before {latest}"
            assert answer[1] < end, f"{self.name}: at {at} is {answer}, behind the end, {end}"
            latest = answer


def judge_record_times(ledger: Ledger, broker: Running, rng: random.Random) -> None:
    """Look times up, and compare with a scan of what the ledger has just read."""
    with RawClient(broker) as client:
        for partition, found in ledger.history.items():
            rows = [(r.timestamp, r.offset) for _, data in found for r in read_records(data)]
            times = [rng.choice(rows)[0] + rng.randint(-1, 1) for _ in range(LOOKUPS)] if rows else []
            for at in [0, *times, sys.maxsize >> 1]:
                right = next((row for row in rows if row[0] >= at), NOT_FOUND)
                answer = client.list_offsets(ledger.topic, at, partition)
                got = answer.timestamp, answer.offset
                assert got == right, f"{ledger.topic}-{partition}: at {at} is {got}, a scan says {right}"


class Searcher(threading.Thread):
    """Look times up until the connection breaks; an answer is at or after what was asked for."""

    def __init__(self, ledger: Ledger, broker: Running, seed: str) -> None:
        super().__init__(daemon=True, name=f"searcher {seed}")
        self._ledger, self._broker, self._random = ledger, broker, random.Random(seed)

    def run(self) -> None:
        try:
            with RawClient(self._broker) as client:
                while not self._ledger.faults:
                    at = START_MS + self._random.randrange(-10, 100_000)
                    answer = client.list_offsets(self._ledger.topic, at, 0)
                    if answer.error_code or (answer.offset >= 0 and answer.timestamp < at):
                        self._ledger.faults.append(f"at {at} was found {answer}")
        except OSError:
            return
        except Exception as error:
            self._ledger.faults.append(f"{self.name}: {error!r}")


class Episode:
    """Some rounds on one data folder."""

    def __init__(self, folder: Path, settings: dict[str, str], seed: str) -> None:
        self.rng = random.Random(seed)
        self.broker = Broker(folder / "data", settings)
        self.ledgers = [Ledger(topic, PARTITIONS) for topic in CLOCKS]
        self.told = [Told(f"{BY_APPEND}-{partition}") for partition in range(PARTITIONS)]
        self.producers: list[Producer] = []
        self._seed = seed

    def begin(self) -> None:
        """Start, and make topics and producers: idempotent and plain, acks=all and acks=1, for each topic."""
        with RawClient(self.broker.start()) as client:
            for ledger in self.ledgers:
                made = client.create(ledger.topic, PARTITIONS, {"lookup.clock": CLOCKS[ledger.topic]})
                assert made.error_code == 0, made
                for number, acks in enumerate((ALL, ONE, ALL, ONE)):
                    ids = (PLAIN, PLAIN)
                    if number < 2:
                        answer = client.init_producer_id()
                        ids = answer.producer_id, answer.producer_epoch
                    name = f"{self._seed} {ledger.topic} {number}"
                    self.producers.append(Producer(ledger, number // 2, name, ids, acks))

    def round(self, number: int) -> None:
        """Load, kill, start again, look."""
        searcher = Searcher(self.ledgers[0], self.broker, f"{self._seed} {number}")
        searcher.start()
        under_load(self.broker, self.producers, self.rng, self.broker.kill)
        searcher.join(20)
        assert not searcher.is_alive(), "a lookup still waits for an answer"
        if self.rng.random() < 0.3:
            kill_while_starting(self.broker, self.rng)
        self.broker.start()
        for ledger in self.ledgers:
            ledger.judge(self.broker)
        judge_record_times(self.ledgers[0], self.broker, self.rng)
        with RawClient(self.broker) as client:
            for partition, told in enumerate(self.told):
                told.ask(client, BY_APPEND, partition, self.rng)
        assert not leftovers(self.broker.data_dir)
        self.producers = [producer.reborn() for producer in self.producers]

    @property
    def acknowledged(self) -> int:
        """How many batches the ledgers have as acknowledged."""
        return sum(len(ledger.acknowledged) for ledger in self.ledgers)


def soak(rounds: int, minutes: float, seed: str, folder: Path) -> int:
    """Do so many rounds, or as many as there is time for; return how many."""
    began_s, done, acknowledged = time.monotonic(), 0, 0
    while done < rounds:
        number = done // ROUNDS_OF_AN_EPISODE
        name = list(EPISODES)[number % len(EPISODES)]
        with tempfile.TemporaryDirectory(dir=folder) as place:
            episode = Episode(Path(place), {**SETTINGS, **EPISODES[name]}, f"{seed} {number}")
            with episode.broker:
                episode.begin()
                for _ in range(min(ROUNDS_OF_AN_EPISODE, rounds - done)):
                    if time.monotonic() - began_s > minutes * 60:
                        print(f"soak: {done} rounds, then the {minutes:g} minutes were over", flush=True)
                        return done
                    try:
                        episode.round(done)
                    except AssertionError:
                        print(
                            f"soak: round {done}, {name}: make soak SEED='{seed}'\n{episode.broker.printed}"
                        )
                        raise
                    done += 1
            acknowledged += episode.acknowledged
        took_s = time.monotonic() - began_s
        print(
            f"soak: {done} kills, {acknowledged} batches acknowledged, none lost; {took_s:.0f} s", flush=True
        )
    return done


def main() -> None:
    """Read the arguments, and go."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--folder", type=Path, help="where data folders are made (default: that for temporary files)"
    )
    given = parser.parse_args()
    soak(given.rounds, given.minutes, given.seed, given.folder)


if __name__ == "__main__":
    main()
