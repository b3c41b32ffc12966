"""Faults of a broker, which a test sets, and those that were applied."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

from tidelog.broker.control_protocol import FaultOptions
from tidelog.testing.clock import Ask

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True


class Named(Protocol):
    """An object with a name, such as a topic."""

    @property
    def name(self) -> str:
        """The name."""


# The name of an API, such as "produce", "ListOffsets" or "list_offsets", or several.
Apis = str | Sequence[str]
TopicLike = Named | str | None


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that was set; `number` is the broker's."""

    number: int
    faults: "Faults"

    def seen(self) -> list[dict[str, Any]]:
        """Return an entry for each time that it was applied; see `Faults.seen`."""
        return [each for each in self.faults.seen() if each["fault"] == self.number]

    def clear(self) -> None:
        """Remove it. An answer that it has already delayed stays delayed."""
        self.faults.remove(self.number)


class Faults:
    """Sets faults, and returns those that were applied. If several match a request, the earliest is applied.

    These options say what a fault does: `error` (one of Kafka's, by name or number), `delay_ms` (by the broker's
    clock), `drop` (close the connection "before" or "after" the request is carried out), `truncate` (send half the
    answer, and close the connection), `throttle_ms` (the throttle time in the answer), and `unanswered`. These say for
    which requests: `topic`, `partition`, `client_id` and `group`. ControlError for an unknown API or error, and for a
    combination that is not possible.
    """

    def __init__(self, ask: Ask) -> None:
        """Ask nothing yet."""
        self._ask = ask

    def next(
        self, api: Apis, *, topic: TopicLike = None, times: int = 1, **options: Unpack[FaultOptions]
    ) -> Fault:
        """Make the next request fail, or the next `times` requests."""
        return self._set(api, topic, options, times=times)

    def always(self, api: Apis, *, topic: TopicLike = None, **options: Unpack[FaultOptions]) -> Fault:
        """Make every request fail until the fault is cleared."""
        return self._set(api, topic, options, times=None)

    def chance(
        self,
        api: Apis,
        probability: float,
        seed: int = 0,
        *,
        topic: TopicLike = None,
        times: int | None = None,
        **options: Unpack[FaultOptions],
    ) -> Fault:
        """Make requests fail with a probability above 0 and up to 1. With the same seed, the same requests fail."""
        return self._set(api, topic, options, times=times, probability=probability, seed=seed)

    def _set(self, api: Apis, topic: TopicLike, options: FaultOptions, **when: Any) -> Fault:
        apis = api if isinstance(api, str) else list(api)
        answer = self._ask("fault", api=apis, topic=_name(topic), **when, **options)
        return Fault(answer["fault"], self)

    def move_coordinator(self, group: str | None = None) -> None:
        """Answer each connected client once with NOT_COORDINATOR, for any group or only for one."""
        self._ask("move_coordinator", group=group)

    def raise_leader_epoch(self, topic: Named | str, partition: int = 0) -> int:
        """Start a new leader epoch of a partition, as after an election; return it."""
        epoch: int = self._ask("raise_leader_epoch", topic=_name(topic), partition=partition)["leader_epoch"]
        return epoch

    def fill_disk(self) -> None:
        """Refuse all writes, as on a full disk."""
        self._ask("fill_disk")

    def free_disk(self) -> None:
        """Accept writes again after `fill_disk`."""
        self._ask("free_disk")

    def remove(self, number: int) -> None:
        """Remove a fault, by its number."""
        self._ask("clear_faults", fault=number)

    def clear(self, *, seen: bool = False) -> None:
        """Remove all faults, and a full disk; what they hold up continues. With `seen`, forget applied faults too."""
        self._ask("clear_faults", seen=seen)

    def seen(self) -> list[dict[str, Any]]:
        """Return an entry for each time that a fault was applied, in order, the latest 10,000.

        Each has `fault` (its number), `api`, `version`, `client_id` and `at_ms`, and what it did: `error`, `topic` ...
        """
        answer: list[dict[str, Any]] = self._ask("faults_seen")["seen"]
        return answer


def _name(topic: TopicLike) -> str | None:
    return topic if topic is None or isinstance(topic, str) else topic.name
