"""Walks through the states that crashes leave: of a scenario, of the recovery from its crash, and of what follows.

Owns: which crashes are tried, how a state is named so that it can be met again, and the account of one that breaks a
promise. Refuses to know: what a scenario does, and what a promise is.

A state's name is `scenario/seed/fault/crash/crash...`: the fault is `kind:nth:error:calls` or `-`, a crash is
`place.choice`, its place in the journal of that life and which loss is drawn there. With `!fault` behind it the start
after that crash meets a fault. All chance comes from the name.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fault.crash.ledger import Ledger, Violation, cut, maybe_cut
from tests.fault.crash.memory import memory
from tests.fault.crash.scenarios import SCENARIOS, Scenario
from tests.fault.crash.world import START_MS, World
from tests.support.disk.image import Image, Op, Tree, loss_of, replay
from tests.support.disk.system import FAILURES, Disk, Fault, System
from tidelog.storage.layout import BOOT


class Crash(NamedTuple):
    """Where a life ends, what is lost, and what fails in the next."""

    place: int
    choice: int
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"{self.place}.{self.choice}" + (f"!{_fault_text(self.fault)}" if self.fault else "")


class Name(NamedTuple):
    """What a state is met again by."""

    scenario: str
    seed: int
    fault: Fault | None = None
    crashes: tuple[Crash, ...] = ()

    def __str__(self) -> str:
        parts = [
            self.scenario.replace(" ", "-"),
            str(self.seed),
            _fault_text(self.fault),
            *map(str, self.crashes),
        ]
        return "/".join(parts)

    def after(self, crash: Crash) -> "Name":
        """Name the state that one more crash leaves."""
        return self._replace(crashes=(*self.crashes, crash))

    @classmethod
    def parse(cls, text: str) -> "Name":
        """Read a name; ValueError for what is none."""
        scenario, seed, fault, *rest = text.split("/")
        crashes = []
        for part in rest:
            place, _, failing = part.partition("!")
            at, _, choice = place.partition(".")
            crashes.append(Crash(int(at), int(choice), _read_fault(failing)))
        return cls(scenario.replace("-", " "), int(seed), _read_fault(fault), tuple(crashes))


def _fault_text(fault: Fault | None) -> str:
    return ":".join(map(str, fault)) if fault else "-"


def _read_fault(text: str) -> Fault | None:
    if text in ("", "-"):
        return None
    kind, nth, error, calls = text.split(":")
    return Fault(kind, int(nth), error, int(calls))


class Found(NamedTuple):
    """A broken promise."""

    name: Name
    violation: Violation
    steps: tuple[str, ...]


@dataclass
class Tally:
    """What was looked at."""

    states: set[bytes] = field(default_factory=set)
    recoveries: int = 0
    lives: int = 0
    checked: int = 0  # what crashes left, as `fsck` found it
    found: list[Found] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Count in another one."""
        self.states |= other.states
        self.recoveries += other.recoveries
        self.lives += other.lives
        self.checked += other.checked
        self.found += other.found


class Life(NamedTuple):
    """A life that was lived, and can end at any place of its journal."""

    name: Name
    start: Image
    journal: list[Op]
    world: World
    violation: Violation | None


class Enough(Exception):
    """A broken promise was found, and one is all that was asked for."""


class Explorer:
    """Explores one scenario with one seed. `tally` grows."""

    def __init__(
        self, system: System, scenario: Scenario, seed: int, first_only: bool = False, checked: float = 1.0
    ) -> None:
        self.system, self.scenario, self.seed, self.first_only = system, scenario, seed, first_only
        self.checked = checked  # the share of lives that `fsck` looks at
        self.tally = Tally()
        self._known: set[tuple[bytes, int]] = set()

    # Lives.

    def first_life(self, fault: Fault | None = None) -> Life:
        """Run the scenario on an empty disk."""
        name = Name(self.scenario.name, self.seed, fault)
        rng = random.Random(f"{self.scenario.name}/{self.seed}")
        return self._live(name, Image(Tree()), {}, START_MS, rng, "kill", fault, self.scenario.run)

    def next_life(self, name: Name, image: Image, ledger: Ledger, before: Life) -> Life:
        """Start on what a crash has left of a life, and go on from that now and then."""
        crash, now_ms = name.crashes[-1], before.world.now_ms
        places = before.world.as_kafka_places
        is_left_by_us = before.world.is_left_by_us and not any(a <= crash.place <= b for a, b in places)
        rng = random.Random(str(name._replace(crashes=(*name.crashes[:-1], crash._replace(fault=None)))))
        level = "kill" if crash.choice == 0 else "cut"
        if level == "cut":
            ledger = cut(ledger)
        elif image.has_given_up:
            level, ledger = "lost" if BOOT in image.tree().files() else "cut", cut(ledger)
        elif name.fault or any(each.fault for each in name.crashes):
            ledger = maybe_cut(ledger)

        def run(world: World) -> None:
            world.start()
            if world.has_holes:
                return
            if rng.random() < 0.15:
                world.start_twice()
            if rng.random() < self.scenario.goes_on:
                self.scenario.go_on_after_crash(world)
                if rng.random() < 0.5:
                    world.stop()

        return self._live(name, image, ledger, now_ms, rng, level, crash.fault, run, is_left_by_us)

    def _live(
        self,
        name: Name,
        image: Image,
        ledger: Ledger,
        now_ms: int,
        rng: random.Random,
        level: str,
        fault: Fault | None,
        run: Callable[[World], None],
        is_left_by_us: bool = True,
    ) -> Life:
        self.system.boot = sum(crash.choice != 0 for crash in name.crashes)
        world = self.scenario.world(
            self.system, image, ledger, now_ms, rng, life=len(name.crashes), level=level, fault=fault
        )
        self.tally.lives += 1
        world.is_checked = random.Random(f"{name} checked").random() < self.checked
        world.is_left_by_us = is_left_by_us
        world.was_cut = any(crash.choice for crash in name.crashes)
        world.was_refused = any(each is not None for each in (name.fault, *(c.fault for c in name.crashes)))
        violation = None
        try:
            run(world)
            if world.disk.failed:
                world.stop()
            if world.is_checked and name.crashes and is_left_by_us and not world.has_holes:
                self.tally.checked += 1
                left = Disk(image, lambda: now_ms)
                used, self.system.disk = self.system.disk, left
                try:
                    world.check_soundness(left, "left by the crash")
                finally:
                    self.system.disk = used
        except Violation as error:
            violation = error
        except Exception as error:
            violation = Violation("error", f"{error!r}")
            violation.__cause__ = error
        if violation is not None:
            self.tally.found.append(Found(name, violation, tuple(world.steps)))
            if self.first_only:
                raise Enough
        return Life(name, world.disk.start, world.disk.journal, world, violation)

    # Crashes.

    def states(self, life: Life, wanted: dict[int, list[int]]) -> Iterator[tuple[Crash, Image, Ledger]]:
        """Yield what crashes at some places, place -> choices, leave of a life."""
        last = max(wanted, default=-1)
        for place, image in replay(life.start, life.journal):
            for choice in wanted.get(place, ()):
                crash = Crash(place, choice)
                if choice == 0:
                    left = image.clone()
                    digest = image.tree().digest()
                else:
                    rng = random.Random(str(life.name.after(crash)))
                    tree = image.tree(loss_of(choice, rng))
                    digest = tree.digest()
                    left = Image(tree)
                ledger = life.world.promised(place)
                self.tally.states.add(digest)
                key = (digest, hash((choice == 0, tuple(ledger.items().__iter__()).__repr__())))
                if key not in self._known:
                    self._known.add(key)
                    yield crash, left, ledger
            if place >= last:
                return

    def crash_and_go_on(self, life: Life, wanted: dict[int, list[int]], depth: int, width: int) -> None:
        """Crash a life in many ways, live on from each, and crash some of those lives as well."""
        found = list(self.states(life, wanted))
        for crash, image, ledger in found:
            name = life.name.after(crash)
            after = self.next_life(name, image, ledger, life)
            self.tally.recoveries += 1
            if depth > 1 and after.violation is None:
                rng = random.Random(f"{name} deeper")
                # A recovery alone is short, and much like others; one that went on has more to lose.
                count = width if after.world.steps[-1] != "start" else int(rng.random() < 0.5)
                places = Counter(rng.randint(0, len(after.journal)) for _ in range(count))
                deeper = {at: [rng.randrange(0, 40) for _ in range(n)] for at, n in places.items()}
                self.crash_and_go_on(after, deeper, depth - 1, width)
                if rng.random() < 0.1:
                    self._with_fault(name, image, ledger, life, after, rng)

    def _with_fault(
        self, name: Name, image: Image, ledger: Ledger, before: Life, life: Life, rng: random.Random
    ) -> None:
        """Live a life, which comes after another, again with a failure in it."""
        kind = rng.choice([kind for kind in FAILURES if life.world.disk.calls[kind]])
        fault = Fault(
            kind,
            rng.randint(1, life.world.disk.calls[kind]),
            rng.choice(FAILURES[kind]),
            rng.choice((1, 1, 3, 1000)),
        )
        crash = name.crashes[-1]._replace(fault=fault)
        again = self.next_life(name._replace(crashes=(*name.crashes[:-1], crash)), image, ledger, before)
        if again.violation is None:
            places = [rng.randint(0, len(again.journal)) for _ in range(2)]
            self.crash_and_go_on(again, {at: [0, rng.randrange(1, 40)] for at in places}, 1, 0)


def faults(life: Life) -> Iterator[Fault]:
    """Yield every failure that a life can meet, once, thrice, and until it is mended."""
    for kind, errors in FAILURES.items():
        for nth in range(1, life.world.disk.calls[kind] + 1):
            for error in errors:
                yield Fault(kind, nth, error, (1, 3, 1000)[(nth + len(error)) % 3])


def explore(
    scenario: Scenario,
    seed: int,
    *,
    choices: int = 10,
    depth: int = 2,
    width: int = 5,
    share: float = 1.0,
    part: tuple[int, int] = (0, 1),
    first_only: bool = False,
    checked: float = 1.0,
) -> Tally:
    """Explore one script: part n of m, and of that a share, of the places where it may end and of what may fail.

    `fsck` looks at the share `checked` of it.

    With `first_only` stop at the first broken promise.
    """
    with memory(scenario.save_bytes) as system:
        explorer = Explorer(system, scenario, seed, first_only, checked)
        with contextlib.suppress(Enough):
            _explore(explorer, choices, depth, width, share, part)
        return explorer.tally


def _explore(
    explorer: Explorer, choices: int, depth: int, width: int, share: float, part: tuple[int, int]
) -> None:
    number, parts = part
    rng = random.Random(f"explore {explorer.scenario.name} {explorer.seed}")
    life = explorer.first_life()
    # What came to a broken promise is known only up to the step before.
    end = len(life.journal) if life.violation is None else life.world.marks[-1][0]
    for place in range(end + 1):
        if rng.random() < share and place % parts == number:
            # Before a sync there is most to lose.
            is_before_sync = place < len(life.journal) and life.journal[place].what.startswith("sync")
            count = 3 * choices if is_before_sync else choices
            explorer.crash_and_go_on(life, {place: list(range(count))}, depth, width)
    for count, fault in enumerate(faults(life)):
        if rng.random() >= share or count % parts != number:
            continue
        failing = explorer.first_life(fault)
        if failing.violation is None and failing.journal:
            places = [len(failing.journal), *(rng.randint(0, len(failing.journal)) for _ in range(2))]
            explorer.crash_and_go_on(failing, {place: [0, rng.randrange(1, 40)] for place in places}, 1, 0)


def repeat(text: str, tell: Callable[[str], None]) -> Found | None:
    """Meet a state again, and tell what led to it."""
    name = Name.parse(text)
    scenario = SCENARIOS[name.scenario]
    with memory(scenario.save_bytes) as system:
        explorer = Explorer(system, scenario, name.seed)
        life = explorer.first_life(name.fault)
        _tell_life(life, tell)
        for crash in name.crashes:
            image = next(image for place, image in replay(life.start, life.journal) if place == crash.place)
            tell(f"crash {crash}: " + ("the process is killed" if crash.choice == 0 else "the power is cut"))
            next_name = life.name.after(crash)
            if crash.choice == 0:
                left = image.clone()
            else:
                drawn = life.name.after(crash._replace(fault=None))
                left = Image(
                    image.tree(
                        loss_of(crash.choice, random.Random(str(drawn)), lambda words: tell(f"  {words}"))
                    )
                )
            ledger = life.world.promised(crash.place)
            _tell_state(left, ledger, tell)
            life = explorer.next_life(next_name, left, ledger, life)
            _tell_life(life, tell)
        return explorer.tally.found[-1] if explorer.tally.found else None


def _tell_state(left: Image, ledger: Ledger, tell: Callable[[str], None]) -> None:
    for path, data in left.tree().files().items():
        tell(f"  left: {path} {len(data)} bytes")
    for topic, state in ledger.items():
        for index, log in enumerate(state.logs):
            written, durable = (
                log.sent[count - 1].last + 1 if count else 0 for count in (log.written, log.durable)
            )
            tell(
                f"  promised: {topic}-{index}{', maybe' if state.maybe else ''}: start {log.start}, "
                f"written to {written}, durable to {durable}"
            )


def _tell_life(life: Life, tell: Callable[[str], None]) -> None:
    tell(f"life {len(life.name.crashes)}: {'; '.join(life.world.steps)}")
    if life.violation is not None:
        tell(f"  broken: {life.violation}")
    for number, op in enumerate(life.journal, 1):
        tell(f"  {number:4} {op.what} {op.number} {op.name} {op.other if op.what != 'catalogue' else ''}")
