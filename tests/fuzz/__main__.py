"""Fuzzing of frames against a broker process: `make fuzz` until Ctrl-C, `python -m tests.fuzz --replay FILE`.

Rounds of cases follow from the seed alone, so a seed and a round number repeat one. What is found is made small and
written to build/fuzz/, a file each, with the frames in hexadecimal.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.fuzz.frames import Case, cases, read_cases, seeds
from tests.fuzz.play import Slow, Stand, Trouble
from tests.support.paths import ROOT

FOUND = ROOT / "build" / "fuzz"
CASES_A_ROUND, ROUNDS_A_LIFE, LIVES_A_FOLDER = 40, 25, 4
# What may be spent on making a finding small.
MOST_TRIALS, MOST_TRIAL_S = 60, 60.0


def say(words: str, *, end: str = "\n") -> None:
    print(words, end=end, flush=True)


@contextmanager
def stand() -> Iterator[Stand]:
    """Give a new broker on a new folder."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        with Stand(folder) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def round_of(seed: int, number: int, topic_id: bytes) -> list[Case]:
    return cases(random.Random(f"{seed} {number}"), CASES_A_ROUND, seeds(topic_id))


class Fuzz:
    """A run: its rounds, what it found, its progress."""

    def __init__(self, seed: int, first_round: int, seconds: float) -> None:
        self.seed = seed
        self.number = first_round
        self.ends_s = time.monotonic() + seconds
        self.found: dict[str, Path] = {}
        self._began_s = time.monotonic()
        self.played: list[list[Case]] = []  # the rounds since the folder was new
        self._connections = 0
        self._slow_once = 0

    def run(self) -> None:
        """Go on until the time is up; what is found is kept once by its words."""
        while not self._is_over():
            with stand() as place:
                try:
                    self._live(place)
                except Trouble as trouble:
                    self._keep(trouble, place.topic_id)

    def _is_over(self) -> bool:
        return time.monotonic() > self.ends_s

    def _live(self, place: Stand) -> None:
        self.played.clear()
        for life in range(LIVES_A_FOLDER):
            for _ in range(ROUNDS_A_LIFE):
                self.played.append(round_of(self.seed, self.number, place.topic_id))
                self.number += 1
                for case in self.played[-1]:
                    place.play(case)
                self._connections += CASES_A_ROUND
                self._check(place)
                self._show(place)
                if self._is_over():
                    break
            place.rest()
            place.check_process()
            place.restart(signal.SIGTERM if life % 2 else signal.SIGKILL)
            if self._is_over():
                return

    def _check(self, place: Stand) -> None:
        """Look for trouble; a slow answer is one if the round is slow again, and not the machine for a moment."""
        try:
            place.check(random.Random(self.number))
        except Slow:
            self._slow_once += 1
            for case in self.played[-1]:
                place.play(case)
            place.check(random.Random(self.number))

    def _show(self, place: Stand) -> None:
        if sys.stdout.isatty() or self.number % 50 == 0:
            rate = self._connections / (time.monotonic() - self._began_s)
            rss = place.broker.rss_bytes >> 20
            end = "\r" if sys.stdout.isatty() else "\n"
            words = f"seed {self.seed} round {self.number}: {self._connections} connections, {rate:.0f}/s, RSS {rss} MB"
            say(f"{words}, slow once {self._slow_once}, found {len(self.found)} ", end=end)

    def _keep(self, trouble: Trouble, topic_id: bytes) -> None:
        what = str(trouble)
        if what in self.found:
            return
        path = FOUND / f"{self.seed}-{self.number - 1}.txt"
        self.found[what] = path
        say(f"\nfound in round {self.number - 1} of seed {self.seed}: {what}")
        some = self.played[-1]
        small = minimized(what, some, topic_id)
        if not small and len(self.played) > 1:  # What came before has to do with it.
            small = minimized(what, [case for each in self.played for case in each], topic_id)
        FOUND.mkdir(parents=True, exist_ok=True)
        words = "repeats" if small else "did not repeat with these alone"
        lines = [
            f"what {what}",
            f"how seed {self.seed} round {self.number - 1}; {words}",
            f"topic-id {topic_id.hex()}",
            *(case.text() for case in small or some),
            *(f"log {line}" for line in trouble.log.splitlines()[:80]),
        ]
        path.write_text("\n".join(lines) + "\n")
        say(f"  {words}: python -m tests.fuzz --replay {os.path.relpath(path)}")


def trouble_of(some: list[Case], topic_id: bytes) -> str | None:
    """Play cases to a new broker; return what was wrong then."""
    with stand() as place:
        try:
            for case in some:
                place.play(renamed(case, topic_id, place.topic_id))
            time.sleep(0.3)
            place.check(random.Random(1))
        except Trouble as trouble:
            return str(trouble)
    return None


def renamed(case: Case, old_id: bytes, new_id: bytes) -> Case:
    """Name the new broker's topic."""
    return replace(case, frames=tuple(frame.replace(old_id, new_id) for frame in case.frames))


def minimized(what: str, some: list[Case], topic_id: bytes) -> list[Case]:
    """Return fewer cases and frames that still do it; none if even all of them do not."""
    trials, ends_s = 0, time.monotonic() + MOST_TRIAL_S

    def does_it(fewer: list[Case]) -> bool:
        nonlocal trials
        trials += 1
        return trials <= MOST_TRIALS and time.monotonic() < ends_s and trouble_of(fewer, topic_id) == what

    if not does_it(some):
        return []
    size = len(some)
    while size > 1:  # halves, quarters ... that can be left out
        size //= 2
        at = 0
        while at < len(some) > 1:
            fewer = some[:at] + some[at + size :]
            if fewer and does_it(fewer):
                some = fewer
            else:
                at += size
    for index in range(len(some)):
        for frame in some[index].frames:
            frames = tuple(each for each in some[index].frames if each is not frame)
            fewer = [*some[:index], replace(some[index], frames=frames, cuts=0), *some[index + 1 :]]
            if frames and does_it(fewer):
                some = fewer
    return some


def replay(path: Path) -> int:
    """Play what a file holds; say what is wrong."""
    text = path.read_text()
    topic_id = next(
        (bytes.fromhex(line[9:]) for line in text.splitlines() if line.startswith("topic-id ")), b"\0"
    )
    what = trouble_of(read_cases(text), topic_id)
    say(what or "nothing is wrong")
    return 1 if what else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1 << 30)))
    parser.add_argument("--round", type=int, default=0, help="the first round")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--replay", type=Path)
    given = parser.parse_args()
    if given.replay:
        return replay(given.replay)
    fuzz = Fuzz(given.seed, given.round, given.seconds)
    say(f"seed {given.seed}; Ctrl-C ends it")
    try:
        fuzz.run()
    except KeyboardInterrupt:
        say("")
    say(f"{len(fuzz.found)} found" + "".join(f"\n  {what}: {path}" for what, path in fuzz.found.items()))
    return 1 if fuzz.found else 0


if __name__ == "__main__":
    sys.exit(main())
