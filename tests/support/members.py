"""Members of consumer groups as processes, of each client: started, asked to leave, killed; and what they have said.

Owns: the programs in tests/e2e/members and how they are built, the processes, and their lines, of which member.py tells
the form.
Refuses to know: which broker it is, and what the group should do.
Invariant: a `Members` used as a context manager leaves no process behind.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest

from tests.support.broker import wait_until
from tests.support.builds import go_built, needs_go, needs_node, npm_installed
from tests.support.java import BUILD, QUICK, _exclusive, _run, classes, jars, needs_java
from tests.support.paths import TESTS

PROGRAMS = TESTS / "e2e" / "members"
# As long as a busy machine may keep a process waiting.
SESSION_MS = 8000
PATIENCE_S = 40.0
# It takes its copy of six apart in a way that Python has not had since 3.12.
needs_python_of_old = pytest.mark.skipif(sys.version_info >= (3, 12), reason="needs Python 3.11")


@cache
def go_program() -> Path:
    """Return the program in Go, built the first time."""
    return go_built("member", PROGRAMS / "go")


@cache
def node_program() -> Path:
    """Return the program for Node, with what it needs beside it."""
    return npm_installed("member", PROGRAMS / "node") / "member.mjs"


@cache
def kafka_python_of_old() -> Path:
    """Return the folder of kafka-python 2.0.2."""
    pinned = PROGRAMS / "kafka-python-2.0.2.txt"
    folder = BUILD.with_name("kafka-python-2.0.2")
    with _exclusive():
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            pip = [
                sys.executable,
                "-m",
                "pip",
                "--quiet",
                "--disable-pip-version-check",
                "install",
                "--no-deps",
            ]
            _run([*pip, "--require-hashes", "--target", str(partial), "-r", str(pinned)])
            partial.rename(folder)
    return folder


def command_of(client: str, told: dict[str, Any]) -> list[str]:
    """Return the command that is a member by a client."""
    words = [told["bootstrap"], told["group"], told["topic"], str(told["session_ms"])]
    match client:
        case "java":
            class_path = f"{classes()}:{jars()}/*"
            how = [told.get("protocol", "classic"), told.get("assignor", "range")]
            return ["java", *QUICK, "-cp", class_path, "Member", *words, *how]
        case "go":
            return [str(go_program()), *words]
        case "node":
            return ["node", str(node_program()), *words]
        case "kafka-python-2.0.2":
            told["path"] = str(kafka_python_of_old())
            client = "kafka-python"
    return [sys.executable, str(PROGRAMS / "member.py"), client, json.dumps(told)]


class Seen(NamedTuple):
    """A record that a member was given."""

    partition: int
    offset: int


class Member:
    """One process, and what it has said."""

    def __init__(self, name: str, client: str, told: dict[str, Any]) -> None:
        """Start it."""
        self.name = name
        self.assigned: tuple[int, ...] | None = None
        self.seen: list[Seen] = []
        self.committed: dict[int, int] = {}
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command_of(client, told),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            kind, *values = line.split() or [""]  # whatever a client says by itself
            if kind == "A":
                self.assigned = tuple(map(int, values))
            elif kind == "R":
                self.seen.append(Seen(int(values[0]), int(values[1])))
            elif kind == "C":
                self.committed[int(values[0])] = int(values[1])

    def kill(self) -> None:
        """End it as a crash would; all that it had said by then is read."""
        self.process.kill()
        self._end()

    def leave(self) -> None:
        """Have it leave its group in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._end()
        assert self.process.returncode == 0, self.told()

    def _end(self) -> None:
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.assigned = None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    def told(self) -> str:
        """Return the end of what it has said, for a test that fails."""
        return f"{self.name}: " + " | ".join(self.said[-15:])


class Members:
    """The members of one group, and what all of them were given."""

    def __init__(self, bootstrap: str, topic: str, group: str, partitions: int, **told: Any) -> None:
        self._told = {
            "bootstrap": bootstrap,
            "topic": topic,
            "group": group,
            "session_ms": SESSION_MS,
            **told,
        }
        self._partitions = partitions
        self.everyone: list[Member] = []
        self.there: list[Member] = []

    def join(self, *clients: str, **told: Any) -> list[Member]:
        """Start a member by each of the clients."""
        new = [
            Member(f"{client}-{len(self.everyone) + index}", client, {**self._told, **told})
            for index, client in enumerate(clients)
        ]
        self.everyone += new
        self.there += new
        return new

    def kill(self, member: Member) -> None:
        """End a member as a crash would."""
        self.there.remove(member)
        member.kill()

    def leave(self, *members: Member) -> None:
        """Have members leave in order."""
        for member in members:
            self.there.remove(member)
            member.leave()

    def wait_for_shares(self) -> None:
        """Wait until each partition is one member's, and each member has its share."""
        fair = self._partitions // len(self.there)

        def is_shared() -> bool:
            having = [member.assigned for member in self.there]
            every = Counter(partition for has in having for partition in has or ())
            return every == dict.fromkeys(range(self._partitions), 1) and all(
                has is not None and len(has) >= fair for has in having
            )

        self._wait(is_shared, "not shared out")

    def wait_for(self, ends: dict[int, int]) -> None:
        """Wait until all up to `ends` (partition -> offset) was given to somebody, and committed by those who live."""

        def is_given() -> bool:
            committed = {
                partition: max((each.committed.get(partition, 0) for each in self.everyone), default=0)
                for partition in ends
            }
            return committed == ends

        self._wait(is_given, f"not given and committed up to {ends}")
        seen = {record for member in self.everyone for record in member.seen}
        missing = {Seen(p, o) for p, end in ends.items() for o in range(end)} - seen
        assert not missing, f"skipped: {sorted(missing)[:10]}"

    def twice(self) -> set[Seen]:
        """Return the records that were given more than once."""
        times = Counter(record for member in self.everyone for record in member.seen)
        return {record for record, count in times.items() if count > 1}

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, PATIENCE_S)
        except AssertionError:
            lines = "\n".join(member.told() for member in self.everyone)
            raise AssertionError(f"{what} in {PATIENCE_S} s:\n{lines}") from None
        dead = [member.told() for member in self.there if member.process.poll() is not None]
        assert not dead, dead

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.everyone:
            member.kill()


def uncommitted(members: Iterable[Member]) -> set[Seen]:
    """Return what members were given and have not said to have committed."""
    return {
        record
        for member in members
        for record in member.seen
        if record.offset >= member.committed.get(record.partition, 0)
    }


__all__ = ["Member", "Members", "needs_go", "needs_java", "needs_node", "needs_python_of_old", "uncommitted"]
