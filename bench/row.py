"""What a row of the table is: who contends, with which work, and what counts as won. Rows are data; see `bench/rows`.

A workload is a frozen dataclass with `measure`, and `prepare` where something must be there first. What it measures
it names by `metrics.METRICS`, the same for every contender: a goal compares one metric of two of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.metrics import Measures
from bench.stage import Stage

OURS, THEIRS = "tidelog", "kafka"


class Workload:
    """What is done to one broker; measured again and again."""

    def prepare(self, _stage: Stage) -> Any:
        """Make what all measurements of this contender share; it is handed to each of them."""
        return None

    def measure(self, stage: Stage, prepared: Any) -> Measures:
        """Do it once."""
        raise NotImplementedError


@dataclass(frozen=True)
class Contender:
    """A broker, the settings of its topics, and its work."""

    broker: str
    workload: Workload
    topic: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Goal:
    """A ratio of medians, `of` / `than`; or, without `than`, the figure itself."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None
    than: str | None = THEIRS
    of: str = OURS

    def is_met(self, value: float) -> bool:
        return (self.at_most is None or value <= self.at_most) and (
            self.at_least is None or value >= self.at_least
        )

    @property
    def text(self) -> str:
        return f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"


@dataclass(frozen=True)
class Row:
    """One line of the issue: name for `ROW=`, title for people. `runs` overrides how often it is measured."""

    name: str
    title: str
    contenders: Mapping[str, Contender]
    goals: Sequence[Goal] = ()
    quick: bool = False
    runs: int | None = None
    shows: Sequence[str] = ()  # metrics to print beside those of the goals
    note: str = ""


def versus(
    workload: Workload,
    *,
    floor: Workload | None = None,
    on_disk: bool = False,
    flushed: Workload | None = None,
) -> dict[str, Contender]:
    """Contend with Kafka; `flushed`: also with one that syncs every message; `floor`: with the least there is."""
    contenders = {OURS: Contender("tidelog", workload), THEIRS: Contender("kafka", workload)}
    if flushed is not None:
        contenders[FLUSHED] = Contender("kafka", flushed, {"flush.messages": "1"})
    return contenders if floor is None else {**contenders, **floors(floor, on_disk)}


def floors(work: Workload, on_disk: bool = False) -> dict[str, Contender]:
    """Contend with what Python, and what C, must do at least."""
    suffix = " on disk" if on_disk else ""
    return {name: Contender(name + suffix, work) for name in ("floor", "floor in C")}


FLUSHED = "kafka, flush.messages=1"
