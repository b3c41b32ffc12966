"""A broker, a second client, and what the second client felt while a first one did something.

Owns: the figures of a scenario and their bounds: memory before, at its peak and after, the second client's latencies,
how long a stop takes. Refuses to know: what the first client does.

The longest turn of the event loop is estimated by the second client's longest ApiVersions: what takes no time itself.
"""

import resource
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.broker import Broker
from tests.support.neighbour import SMALL, Neighbour, make_topic
from tests.support.raw_client import RawClient
from tidelog.protocol.frame import encode_request
from tidelog.protocol.registry import APIS

MIB = 1 << 20
# A broker that takes more than that is stopped by the system, before it takes the machine from everybody.
MOST_ADDRESS_SPACE = 8 << 30
SETTLE_S = 12.0
STOP_S = 10.0
SMALL_DISK_BYTES = 16 * MIB


@dataclass(frozen=True)
class Bounds:
    """What a scenario may cost the others."""

    growth_mb: int = 300
    left_mb: int = 100
    small_s: float = 1.0  # any answer to a small question
    reader_s: float = 1.0  # a question that a reader thread answers
    slow_s: float = 3.0  # creating a topic, a producer id, a durable produce


@dataclass
class Row:
    """The figures of one scenario: memory in MB, times in seconds."""

    name: str
    before_mb: float = 0
    peak_mb: float = 0
    after_mb: float = 0
    p99_s: float = 0
    longest_s: float = 0
    turn_s: float = 0
    reader_s: float = 0
    slow_s: dict[str, float] = field(default_factory=dict)
    stop_s: float = 0
    faults: list[str] = field(default_factory=list)

    def misses(self, bounds: Bounds) -> list[str]:
        """Return the bounds that were not met, in words."""
        found = list(self.faults)
        checks = [
            ("memory grew by {:.0f} MB", self.peak_mb - self.before_mb, bounds.growth_mb),
            ("{:.0f} MB remain", self.after_mb - self.before_mb, bounds.left_mb),
            ("a small answer took {:.2f} s", self.longest_s, bounds.small_s),
            ("what needs a reader took {:.2f} s", self.reader_s, bounds.reader_s),
            ("SIGTERM took {:.1f} s", self.stop_s, STOP_S),
        ]
        checks += [(kind + " took {:.2f} s", took_s, bounds.slow_s) for kind, took_s in self.slow_s.items()]
        return found + [
            words.format(value) + f", bound {most}" for words, value, most in checks if value > most
        ]


class Stage:
    """A broker, the second client, and the figures."""

    def __init__(self, broker: Broker, row: Row) -> None:
        self.broker = broker
        self.row = row

    @contextmanager
    def watched(self, *kinds: str, topic: str = "neighbour", may_be_refused: bool = False) -> Iterator[None]:
        """Measure while this lasts; the small questions are asked in any case. Once a scenario."""
        row = self.row
        # What was built up before belongs to nobody's row.
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")
        row.before_mb = self.broker.rss_bytes / MIB
        neighbour = Neighbour(self.broker, *SMALL, *kinds, topic=topic)
        try:
            with neighbour:
                yield
        finally:
            found = neighbour.findings
            row.faults += [each for each in found.faults if not (may_be_refused and "refused" in each)]
            if self.broker.is_running:
                row.peak_mb = self.broker.peak_rss_bytes / MIB
            row.p99_s, row.longest_s = found.small.p99_s, found.small.longest_s
            row.turn_s = found.kinds["versions"].longest_s
            row.slow_s = {
                kind: answers.longest_s for kind, answers in found.kinds.items() if kind not in SMALL
            }

    def settle(self, left_mb: int) -> None:
        """Wait until what the clients held is given back, or for SETTLE_S."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.row.after_mb = self.broker.rss_bytes / MIB
            if self.row.after_mb - self.row.before_mb <= left_mb or time.monotonic() > deadline:
                return
            time.sleep(0.1)

    def connect(self, stack: ExitStack, timeout_s: float = 60) -> RawClient:
        return stack.enter_context(RawClient(self.broker, timeout_s))


@dataclass(frozen=True)
class Scenario:
    """Something that one client does, and what it may cost."""

    name: str
    run: Callable[[Stage], None]
    bounds: Bounds = Bounds()
    is_slow: bool = False
    overrides: tuple[tuple[str, str], ...] = ()
    is_on_small_disk: bool = False


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    bounds: Bounds = Bounds(), **how: Any
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Enter a function into the table by its name."""

    def enter(run: Callable[[Stage], None]) -> Callable[[Stage], None]:
        SCENARIOS[run.__name__] = Scenario(run.__name__, run, bounds, **how)
        return run

    return enter


def frame(key: int, version: int, request: object, correlation_id: int = 1) -> bytes:
    return encode_request(APIS[key], version, correlation_id, "greedy", request)


def stop(stage: Stage) -> None:
    began_s = time.monotonic()
    try:
        stage.broker.stop(timeout_s=60)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        stage.row.faults.append(f"did not stop in order: {str(error)[:200]}")
        stage.broker.kill()
    stage.row.stop_s = time.monotonic() - began_s


def measure(what: Scenario, folder: Path) -> Row:
    """Run a scenario on a broker of its own; its row holds whatever went wrong."""
    row = Row(what.name)
    with Broker(folder / "data", {"log.retention.ms": "-1", **dict(what.overrides)}) as broker:
        broker.start()
        resource.prlimit(broker.pid, resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, MOST_ADDRESS_SPACE))
        stage = Stage(broker, row)
        make_topic(broker)
        try:
            what.run(stage)
        except (OSError, AssertionError) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            row.faults.append(f"{type(error).__name__}: {error} (at {where.name})")
        if broker.is_running:
            stage.settle(what.bounds.left_mb)
            stop(stage)
        lines = [line for line in broker.printed.splitlines() if " ERROR " in line or "Error:" in line]
        row.faults += [f"logged: {line[:160]}" for line in dict.fromkeys(lines)][:5]
    return row


@contextmanager
def place_for(what: Scenario, folder: Path) -> Iterator[Path]:
    """Give a folder; on a small file system of its own where the scenario wants one. OSError if there is none."""
    if not what.is_on_small_disk:
        yield folder
        return
    folder.mkdir(parents=True, exist_ok=True)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tidelog-test", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        raise OSError("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
