"""`make fault`: crash the broker's storage in at least so many ways, and say which promises did not hold.

    python -m tests.fault.crash.enumerate [--states N] [--seed N] [--scenario NAME] [--state NAME] [--jobs N]

`--state` meets one state again, and tells everything that led to it. Exit status 1 if a promise was broken.
"""

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter, defaultdict
from typing import NamedTuple

from tests.fault.crash.explore import Found, Tally, explore, repeat
from tests.fault.crash.scenarios import SCENARIOS

PARTS = 12
EACH_AT_LEAST = 2000
TOLD_OF_A_KIND = 3


class Report(NamedTuple):
    """What one part of a script came to; of a violation, what can be sent from one process to another."""

    scenario: str
    states: set[bytes]
    recoveries: int
    lives: int
    checked: int
    found: list[tuple[str, str, str]]  # name, invariant, words


def run(job: tuple[str, int, int]) -> Report:
    """Explore one part of one script."""
    name, seed, part = job
    tally: Tally = explore(SCENARIOS[name], seed, part=(part, PARTS))
    found = [(str(each.name), each.violation.what, str(each.violation)) for each in tally.found]
    return Report(name, tally.states, tally.recoveries, tally.lives, tally.checked, found)


class Progress:
    """How far each scenario is."""

    def __init__(self, names: list[str], states: int, seed: int) -> None:
        self.wanted = max(EACH_AT_LEAST, -(-states // len(names)))
        self.states: dict[str, set[bytes]] = {name: set() for name in names}
        self.recoveries: Counter[str] = Counter()
        self.checked: Counter[str] = Counter()
        self.found: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        self.told: Counter[tuple[str, str]] = Counter()
        self.next = dict.fromkeys(names, seed * PARTS)
        self.began = time.monotonic()

    def job(self) -> tuple[str, int, int] | None:
        """Return the next part of the scenario that is furthest behind; None once all have enough."""
        behind = [name for name, states in self.states.items() if len(states) < self.wanted]
        if not behind:
            return None
        name = min(behind, key=lambda name: (self.next[name], len(self.states[name])))
        seed, part = divmod(self.next[name], PARTS)
        self.next[name] += 1
        return name, seed, part

    def add(self, report: Report) -> None:
        """Take a report, and tell of what is new in it."""
        name = report.scenario
        self.states[name] |= report.states
        self.recoveries[name] += report.recoveries
        self.checked[name] += report.checked
        self.found[name] += report.found
        for state, what, words in report.found:
            self.told[name, what] += 1
            if self.told[name, what] <= TOLD_OF_A_KIND:
                print(f"\rBROKEN {words}\n       make fault STATE='{state}'", flush=True)
        done = sum(min(len(states), self.wanted) for states in self.states.values())
        broken = sum(map(len, self.found.values()))
        share = done / (self.wanted * len(self.states))
        print(
            f"\r{share:4.0%} {sum(map(len, self.states.values())):,} states, {broken} broken, "
            f"{time.monotonic() - self.began:.0f} s",
            end="\n" if not sys.stdout.isatty() else " ",
            flush=True,
        )

    def table(self) -> None:
        """Print what came of it."""
        print(f"\n{'scenario':20} {'states':>9} {'recoveries':>11} {'fsck':>9} {'broken':>7}  by invariant")
        for name, states in self.states.items():
            kinds = Counter(what for _, what, _ in self.found[name])
            text = ", ".join(f"{what} {count}" for what, count in kinds.most_common())
            figures = f"{len(states):9,} {self.recoveries[name]:11,} {self.checked[name]:9,}"
            print(f"{name:20} {figures} {len(self.found[name]):7,}  {text}")
        total = sum(map(len, self.states.values()))
        print(
            f"{'all':20} {total:9,} {sum(self.recoveries.values()):11,} {sum(self.checked.values()):9,}"
            f" {sum(map(len, self.found.values())):7,}  in {time.monotonic() - self.began:.0f} s"
        )


def enumerate_states(names: list[str], states: int, seed: int, jobs: int) -> bool:
    """Explore until every scenario has its share of the states; return whether all promises held."""
    progress = Progress(names, states, seed)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        waiting = []
        while True:
            while len(waiting) <= jobs and (job := progress.job()) is not None:
                waiting.append(pool.apply_async(run, (job,)))
            if not waiting:
                break
            waiting[0].wait(0.2)
            for each in [each for each in waiting if each.ready()]:
                waiting.remove(each)
                progress.add(each.get())
    progress.table()
    return not any(progress.found.values())


def tell(found: Found | None) -> bool:
    """Print the end of a state that was met again; return whether it kept its promises."""
    if found is None:
        print("every promise is kept")
        return True
    traceback.print_exception(found.violation)
    return False


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="make fault")
    parser.add_argument("--states", type=int, default=110_000, help="distinct states to look at, at least")
    parser.add_argument("--seed", type=int, default=0, help="the first of the scripts that are drawn")
    parser.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), help="only this one")
    parser.add_argument("--state", help="meet one state again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.state:
        kept = tell(repeat(options.state, print))
    else:
        kept = enumerate_states(
            options.scenario or list(SCENARIOS), options.states, options.seed, options.jobs
        )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
