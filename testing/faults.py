"""What is to go wrong at a broker, as a test says it: faults on demand, and what was applied of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

from tidelog.broker.control_protocol import FaultOptions
from tidelog.testing.clock import Ask

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True


class Named(Protocol):
    """What has a name: a topic."""

    @property
    def name(self) -> str:
        """The name."""


# The name of an API, as in "produce", "ListOffsets" or "list_offsets", or several.
Apis = str | Sequence[str]
TopicLike = Named | str | None


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that was set, by its number in the broker."""

    number: int
    faults: "Faults"

    def seen(self) -> list[dict[str, Any]]:
        """Return an entry for each time that it was applied, as `Faults.seen` does."""
        return [each for each in self.faults.seen() if each["fault"] == self.number]

    def clear(self) -> None:
        """Take it back. An answer that it delays already comes when it was to come."""
        self.faults.take_back(self.number)


class Faults:
    """Sets faults, those of earlier first, and tells what has happened.

    What a fault does is said by `error` (a name of Kafka's, or its number), `delay_ms` (by the broker's clock),
    `drop` (the connection, "before" or "after" the request is carried out), `truncate` (half the answer, then the
    connection is closed), `throttle_ms` (what the answer says of throttling) and `unanswered`; which requests it is
    for by `topic`, `partition`, `client_id` and `group`. ControlError for an API, an error or a combination that there
    is not.
    """

    def __init__(self, ask: Ask) -> None:
        """Ask nothing yet."""
        self._ask = ask

    def next(
        self, api: Apis, *, topic: TopicLike = None, times: int = 1, **options: Unpack[FaultOptions]
    ) -> Fault:
        """Have the next request, or the next so many `times`, go wrong."""
        return self._set(api, topic, options, times=times)

    def always(self, api: Apis, *, topic: TopicLike = None, **options: Unpack[FaultOptions]) -> Fault:
        """Have every request go wrong, until the fault is cleared."""
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
        """Have requests go wrong by chance: above 0, up to 1. The same requests and seed give the same faults."""
        return self._set(api, topic, options, times=times, probability=probability, seed=seed)

    def _set(self, api: Apis, topic: TopicLike, options: FaultOptions, **when: Any) -> Fault:
        apis = api if isinstance(api, str) else list(api)
        answer = self._ask("fault", api=apis, topic=_name(topic), **when, **options)
        return Fault(answer["fault"], self)

    def move_coordinator(self, group: str | None = None) -> None:
        """Have each connected client that asks for a group, or that one, be told once to look for its coordinator."""
        self._ask("move_coordinator", group=group)

    def raise_leader_epoch(self, topic: Named | str, partition: int = 0) -> int:
        """Have a partition begin a new leader epoch, as after an election; return it."""
        epoch: int = self._ask("raise_leader_epoch", topic=_name(topic), partition=partition)["leader_epoch"]
        return epoch

    def fill_disk(self) -> None:
        """Have whatever is written be refused as on a full disk."""
        self._ask("fill_disk")

    def free_disk(self) -> None:
        """Have the disk take writes again."""
        self._ask("free_disk")

    def take_back(self, number: int) -> None:
        """Take one fault back, by its number."""
        self._ask("clear_faults", fault=number)

    def clear(self, *, seen: bool = False) -> None:
        """Take all faults back, a full disk too: what they hold up goes on. With `seen`, forget what was applied."""
        self._ask("clear_faults", seen=seen)

    def seen(self) -> list[dict[str, Any]]:
        """Return an entry for each fault that was applied, the latest 10,000, in order.

        Each has `fault` (its number), `api`, `version`, `client_id` and `at_ms`, and what it did: `error`, `topic` ...
        """
        answer: list[dict[str, Any]] = self._ask("faults_seen")["seen"]
        return answer


def _name(topic: TopicLike) -> str | None:
    return topic if topic is None or isinstance(topic, str) else topic.name
