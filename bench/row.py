"""What a row of the table is: who contends, with which work, and what counts as won. Rows are data; see `bench/rows`.

A workload is a frozen dataclass with `measure`, and `prepare` where something must be there first. What it measures
it names by the metrics below, the same for every contender: a goal compares one metric of two of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from bench.stage import Stage

Measures = dict[str, float]

OURS, THEIRS = "tidelog", "kafka"


class Metric(NamedTuple):
    """How a figure is read and written; `digits` are significant ones."""

    unit: str
    digits: int = 3


METRICS = {
    "requests_s": Metric("requests/s"),
    "records_s": Metric("records/s"),
    "mb_s": Metric("MB/s"),
    "p50_us": Metric("us p50"),
    "p99_us": Metric("us p99"),
    "p999_us": Metric("us p99.9"),
    "cpu_us": Metric("us broker CPU a request"),
    "cpu_s_per_million": Metric("s broker CPU a million records"),
    "cpu_s_per_gb": Metric("s broker CPU a GB"),
    "cpu_percent": Metric("% of a core"),
    "client_cpu_us": Metric("us client CPU a request"),
    "client_cpu_s_per_million": Metric("s client CPU a million records"),
    "rss_mb": Metric("MB RSS"),
    "threads": Metric("threads"),
    "start_s": Metric("s to the first ack"),
    "create_s": Metric("s to create"),
    "restart_s": Metric("s clean restart to first ack"),
    "kill_s": Metric("s kill -9 to first ack"),
    "unreadable_s": Metric("s from expiry to unreadable"),
    "gone_s": Metric("s from expiry to files gone"),
}


class Workload:
    """What is done to one broker; measured again and again."""

    def prepare(self, _stage: "Stage") -> Any:
        """Make what all measurements of this contender share; it is handed to each of them."""
        return None

    def measure(self, stage: "Stage", prepared: Any) -> Measures:
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
