"""What the broker is doing when it crashes.

Owns: the scenarios, each a list of topics and a script of steps, drawn again with each seed. Refuses to know: crashes.
After a crash the steps are drawn from the same weights, so that a second crash finds the same work going on.
"""

import random
from dataclasses import dataclass

from tests.fault.crash.compacted import CompactedWorld
from tests.fault.crash.groups import GroupsWorld
from tests.fault.crash.world import START_MS, World
from tidelog.protocol.topic_names import OFFSETS_TOPIC

SMALL = {"segment.bytes": "1500", "index.interval.bytes": "300", "retention.ms": "-1"}
LARGE = SMALL | {"segment.bytes": "20000"}
OLDER = {"message.format.version": "1"}
OLDEST = {"message.format.version": "0"}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "30",
    "segment.bytes": "700",
    "index.interval.bytes": "200",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
STAMPED = SMALL | {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class Scenario:
    """Topics, as name -> (partitions, options); how often each step is taken; what comes first."""

    name: str
    topics: dict[str, tuple[int, dict[str, str]]]
    weights: dict[str, int]
    first: tuple[str, ...] = ()
    steps: int = 25
    save_bytes: int = 1 << 20
    producers: tuple[int | None, ...] = (None,)
    sizes: tuple[int, ...] = (20, 60, 150, 600)
    after: tuple[str, ...] = ("burst", "flush", "checkpoint")  # what often comes first after a crash
    goes_on: float = 0.35  # how often something does
    world: type[World] = World

    def run(self, world: World) -> None:
        """Run the script."""
        world.start()
        for name, (partitions, options) in self.topics.items():
            world.create(name, partitions, options)
        for step in self.first:
            self.step(world, step)
        self.go_on(world, self.steps)

    def go_on_after_crash(self, world: World) -> None:
        """Take some steps after a crash."""
        for step in self.after if world.rng.random() < 0.5 else ():
            self.step(world, step)
        self.go_on(world, world.rng.randrange(2, 7))

    def go_on(self, world: World, steps: int) -> None:
        """Take some steps by chance."""
        for step in world.rng.choices(list(self.weights), list(self.weights.values()), k=steps):
            self.step(world, step)

    def step(self, world: World, step: str) -> None:
        """Take one step; a word behind it names the topic."""
        rng = world.rng
        step, _, topic = step.partition(" ")
        world.now_ms += rng.randrange(4)
        keys = [key for key in world.served() if not topic or key[0] == topic]
        act = getattr(self, f"_{step}", None)
        if act is None:
            getattr(world, step)()
        elif keys or step == "create":
            act(world, rng, *(rng.choice(keys) if keys else (topic, 0)))

    def _append(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        world.append(
            topic,
            index,
            size=rng.choice(self.sizes),
            count=rng.choice((1, 1, 1, 3)),
            producer=rng.choice(self.producers),
        )

    def _burst(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        for _ in range(rng.randrange(2, 6)):
            if (topic, index) in world.served():
                self._append(world, rng, topic, index)

    def _each(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        for key in world.served():
            self._append(world, rng, *key)

    def _resend(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        world.resend(topic, index)

    def _flush(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        world.flush(topic, index)

    def _roll(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        world.roll(topic, index)

    def _compact(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        assert isinstance(world, CompactedWorld)
        world.compact(topic, index)

    def _race(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        """Flush while the log goes on."""
        step = rng.choice(
            [
                name
                for name in ("append", "burst", "retain", "roll")
                if name != "retain" or "retain" in self.weights
            ]
        )
        meanwhile = world.retain if step == "retain" else lambda: self.step(world, f"{step} {topic}")
        if rng.random() < 0.5:
            world.flush(topic, index, meanwhile)
        else:
            world.flush_all(meanwhile)

    def _tick(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        world.now_ms += rng.choice((10, 40, 100))

    def _back(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        world.now_ms -= rng.choice((5, 50, 500))
        world.now_ms = max(world.now_ms, START_MS)

    def _delete(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        world.delete(topic)

    def _create(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        for name, (partitions, options) in self.topics.items():
            if name not in world.topics.by_name and name not in world.ledger:
                world.create(name, partitions, options)

    def _recreate(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        """Delete a topic, often with a checkpoint just before, and make it again."""
        if rng.random() < 0.5:
            world.checkpoint()
        world.delete(topic)
        if rng.random() < 0.3:
            world.checkpoint()
        self._create(world, rng, topic, index)

    def _truncate(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        state = world.state(topic, index)
        world.truncate(topic, index, rng.randint(min(state.start, state.end), state.end))

    def _advance(self, world: World, rng: random.Random, topic: str, index: int) -> None:
        state = world.state(topic, index)
        world.advance_start(topic, index, rng.randint(min(state.start, state.end), state.end))


EVERYDAY = {"append": 8, "burst": 3, "flush": 5, "flush_all": 2, "checkpoint": 2, "race": 1}

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("roll", {"a": (1, SMALL)}, EVERYDAY | {"roll": 1}, ("burst", "flush")),
        Scenario(
            "saves",
            {"a": (1, LARGE)},
            {"append": 8, "burst": 3, "flush": 6, "write_back": 2, "checkpoint": 3, "kill": 1, "stop": 1},
            ("burst", "flush", "burst", "burst", "flush"),
            save_bytes=1800,
            sizes=(20, 60, 150, 300, 600),
            goes_on=0.7,
        ),
        Scenario(
            "stale saves",  # what a save says of bytes that a crash took, when others have come in their place
            {"a": (1, LARGE)},
            {"append": 8, "flush": 4, "checkpoint": 2, "kill": 2},
            ("burst", "burst", "burst", "flush", "burst", "burst", "flush"),
            steps=8,
            save_bytes=1200,
            sizes=(20, 60, 150, 300, 600),
            after=("append", "flush", "checkpoint", "kill") * 3,
            goes_on=0.7,
        ),
        Scenario(
            "retention by time",
            {"a": (1, SMALL | {"retention.ms": "120", "file.delete.delay.ms": "30"}), "b": (1, SMALL)},
            EVERYDAY | {"retain": 4, "tick": 4, "stop": 1},
            ("burst a", "burst a", "flush a"),
        ),
        Scenario(
            "retention by size",
            {"a": (1, SMALL | {"retention.bytes": "2500", "file.delete.delay.ms": "0"})},
            EVERYDAY | {"retain": 4, "tick": 1},
            ("burst", "burst", "flush"),
        ),
        Scenario(
            "append times",
            {"a": (1, STAMPED | {"retention.ms": "60", "file.delete.delay.ms": "0"})},
            {
                "append": 8,
                "burst": 2,
                "flush": 4,
                "checkpoint": 1,
                "retain": 4,
                "tick": 3,
                "back": 2,
                "stop": 2,
                "kill": 1,
            },
            ("burst", "flush", "tick", "tick", "retain", "stop", "back"),
        ),
        Scenario(
            "topics",
            {
                "a": (2, SMALL | {"retention.bytes": "1600", "file.delete.delay.ms": "0"}),
                "b": (1, SMALL),
            },
            EVERYDAY | {"recreate": 2, "delete": 1, "create": 2, "retain": 2},
            (
                "burst a",
                "burst a",
                "burst a",
                "flush_all",
                "retain",
                "checkpoint",
                "recreate a",
                "append a",
                "flush a",
            ),
        ),
        Scenario(
            "truncation",
            {"a": (1, SMALL)},
            EVERYDAY | {"truncate": 3, "advance": 1, "retain": 1},
            ("burst", "flush", "truncate", "append"),
            save_bytes=1200,
        ),
        Scenario(
            "older formats",
            {"a": (1, SMALL | OLDER), "b": (1, LARGE | OLDEST), "c": (1, STAMPED | OLDER)},
            EVERYDAY | {"kill": 1, "stop": 1, "truncate": 1, "roll": 1},
            ("burst a", "burst b", "burst c", "flush a", "flush b", "kill"),
            save_bytes=1000,
        ),
        Scenario(
            "from Kafka",
            {"a": (1, SMALL), "b": (1, LARGE | OLDEST), "c": (1, STAMPED)},
            EVERYDAY | {"as_kafka": 2, "kill": 1, "stop": 1, "truncate": 1, "roll": 1},
            ("burst a", "burst a", "flush a", "burst b", "burst c", "as_kafka", "append a", "flush a"),
            save_bytes=1000,
        ),
        Scenario(
            "leader epochs",
            {"a": (1, SMALL), "b": (1, LARGE)},
            EVERYDAY | {"kill": 3, "stop": 1},
            ("append a", "flush a", "kill", "append a", "kill"),
        ),
        Scenario(
            "producers",
            {"a": (1, SMALL)},
            EVERYDAY | {"resend": 3, "stop": 1},
            ("burst", "flush"),
            save_bytes=1000,
            producers=(None, 1, 1, 2, 3),
            sizes=(20, 60, 300),
        ),
        Scenario(
            "many logs",
            {"a": (4, SMALL), "b": (2, LARGE)},
            {"append": 6, "each": 4, "flush_all": 5, "race": 3, "checkpoint": 2},
            ("each", "flush_all", "each", "flush_all"),
            sizes=(20, 150, 600),
            save_bytes=2000,
        ),
        Scenario(
            "clean stop",
            {"a": (1, SMALL), "b": (1, LARGE)},
            {"append": 6, "burst": 2, "flush": 3, "checkpoint": 1, "stop": 4},
            ("burst a", "append b", "stop"),
            steps=15,
        ),
        Scenario(
            "compaction",
            {"a": (1, COMPACTED), "b": (1, COMPACTED | OLDER)},
            {
                "append": 6,
                "burst": 6,
                "flush": 2,
                "roll": 2,
                "compact": 8,
                "tick": 2,
                "checkpoint": 1,
                "advance": 1,
                "retain": 1,
                "resend": 1,
                "kill": 1,
                "stop": 1,
            },
            ("burst a", "burst a", "burst a", "burst b", "burst b", "roll a", "compact a"),
            steps=9,
            producers=(None, 1, 2),
            sizes=(10, 40, 120),
            after=("compact a", "burst a", "roll a", "compact a"),
            goes_on=0.6,
            world=CompactedWorld,
        ),
        Scenario(
            "groups",
            {"t": (2, SMALL), OFFSETS_TOPIC: (1, SMALL)},
            {
                "commit_offset": 6,
                "delete_offset": 2,
                "delete_group": 2,
                "classic": 3,
                "beat": 6,
                "leave": 2,
                "expire": 1,
                "make_anew": 1,
                "sync_groups": 8,
                "checkpoint": 1,
                "kill": 1,
                "stop": 1,
            },
            ("commit_offset", "classic", "sync_groups", "beat", "sync_groups"),
            steps=16,
            after=("beat", "commit_offset", "sync_groups"),
            world=GroupsWorld,
        ),
    )
}
