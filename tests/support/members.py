"""Members of consumer groups as processes, one program for each client library.

Builds the programs in tests/e2e/members, runs them, and reads their output; member.py describes the form of its lines.
A `Members` that is used as a context manager ends all its processes.
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
# Longer than a process has to wait on a busy machine.
SESSION_MS = 8000
PATIENCE_S = 40.0
# Its copy of six uses import hooks that Python 3.12 has removed.
needs_python_of_old = pytest.mark.skipif(sys.version_info >= (3, 12), reason="needs Python 3.11")


@cache
def go_program() -> Path:
    """Return the Go program; build it the first time."""
    return go_built("member", PROGRAMS / "go")


@cache
def node_program() -> Path:
    """Return the Node program, installed with its packages."""
    return npm_installed("member", PROGRAMS / "node") / "member.mjs"


@cache
def kafka_python_of_old() -> Path:
    """Return the folder of kafka-python 2.0.2; install it the first time."""
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


def command_of(client: str, options: dict[str, Any]) -> list[str]:
    """Return the command that runs a member with a client library."""
    words = [options["bootstrap"], options["group"], options["topic"], str(options["session_ms"])]
    match client:
        case "java":
            class_path = f"{classes()}:{jars()}/*"
            how = [options.get("protocol", "classic"), options.get("assignor", "range")]
            return ["java", *QUICK, "-cp", class_path, "Member", *words, *how]
        case "go":
            return [str(go_program()), *words]
        case "node":
            return ["node", str(node_program()), *words]
        case "kafka-python-2.0.2":
            options["path"] = str(kafka_python_of_old())
            client = "kafka-python"
    return [sys.executable, str(PROGRAMS / "member.py"), client, json.dumps(options)]


class Seen(NamedTuple):
    """A record that a member has received."""

    partition: int
    offset: int


class Member:
    """One process, and its output."""

    def __init__(self, name: str, client: str, options: dict[str, Any]) -> None:
        """Start it."""
        self.name = name
        self.assigned: tuple[int, ...] | None = None
        self.seen: list[Seen] = []
        self.committed: dict[int, int] = {}
        self.output: list[str] = []
        self.process = subprocess.Popen(
            command_of(client, options),
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
            self.output.append(line.rstrip())
            kind, *values = line.split() or [""]  # Clients may write lines of their own.
            if kind == "A":
                self.assigned = tuple(map(int, values))
            elif kind == "R":
                self.seen.append(Seen(int(values[0]), int(values[1])))
            elif kind == "C":
                self.committed[int(values[0])] = int(values[1])

    def kill(self) -> None:
        """Kill the process, and read its output to the end."""
        self.process.kill()
        self._end()

    def leave(self) -> None:
        """Let it leave its group and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._end()
        assert self.process.returncode == 0, self.last_output()

    def _end(self) -> None:
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.assigned = None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    def last_output(self) -> str:
        """Return its last lines, for a test that fails."""
        return f"{self.name}: " + " | ".join(self.output[-15:])


class Members:
    """The members of one group."""

    def __init__(self, bootstrap: str, topic: str, group: str, partitions: int, **options: Any) -> None:
        self._options = {
            "bootstrap": bootstrap,
            "topic": topic,
            "group": group,
            "session_ms": SESSION_MS,
            **options,
        }
        self._partitions = partitions
        self.everyone: list[Member] = []
        self.there: list[Member] = []

    def join(self, *clients: str, **options: Any) -> list[Member]:
        """Start a member with each of the client libraries."""
        new = [
            Member(f"{client}-{len(self.everyone) + index}", client, {**self._options, **options})
            for index, client in enumerate(clients)
        ]
        self.everyone += new
        self.there += new
        return new

    def kill(self, member: Member) -> None:
        """Kill a member."""
        self.there.remove(member)
        member.kill()

    def leave(self, *members: Member) -> None:
        """Let members leave the group, one after another."""
        for member in members:
            self.there.remove(member)
            member.leave()

    def wait_for_shares(self) -> None:
        """Wait until each partition has one member, and each member has its share."""
        fair = self._partitions // len(self.there)

        def is_shared() -> bool:
            having = [member.assigned for member in self.there]
            every = Counter(partition for has in having for partition in has or ())
            return every == dict.fromkeys(range(self._partitions), 1) and all(
                has is not None and len(has) >= fair for has in having
            )

        self._wait(is_shared, "not shared out")

    def wait_for(self, ends: dict[int, int]) -> None:
        """Wait until all records up to `ends` (partition -> offset) are received and committed."""

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
        """Return the records that were received more than once."""
        times = Counter(record for member in self.everyone for record in member.seen)
        return {record for record, count in times.items() if count > 1}

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, PATIENCE_S)
        except AssertionError:
            lines = "\n".join(member.last_output() for member in self.everyone)
            raise AssertionError(f"{what} in {PATIENCE_S} s:\n{lines}") from None
        dead = [member.last_output() for member in self.there if member.process.poll() is not None]
        assert not dead, dead

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.everyone:
            member.kill()


def uncommitted(members: Iterable[Member]) -> set[Seen]:
    """Return the records that members have received and not reported as committed."""
    return {
        record
        for member in members
        for record in member.seen
        if record.offset >= member.committed.get(record.partition, 0)
    }


__all__ = ["Member", "Members", "needs_go", "needs_java", "needs_node", "needs_python_of_old", "uncommitted"]
