"""`tidelog produce`: lines from standard input, each a record.

Owns the splitting of lines and the count of what was acknowledged. Refuses to know batches. Invariant: what is counted
is on disk (acks=all), in the order of the lines, each once; after the first line that is rejected no more are read.
"""

import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any, Final

from tidelog.cli import client
from tidelog.cli.errors import FAILED, OK, CommandError
from tidelog.cli.output import note, progress, to_json

# What may be on its way: enough for full batches, little enough to name a rejected line soon.
IN_FLIGHT_MAX: Final = 10_000


def run(topic: str, key_separator: str | None, as_json: bool, bootstrap: str) -> int:
    """Produce standard input and report how many lines were acknowledged; return the exit code."""
    with client.producer(bootstrap) as session, progress(f"produce {topic}") as advance:
        sending = Sending(session, topic, key_separator, advance)
        error = sending.all_lines(sys.stdin.buffer)
    count = sending.acknowledged
    if as_json:
        print(to_json({"topic": topic, "acknowledged": count, "error": error}))
    else:
        print(f"{count} record{'' if count == 1 else 's'} acknowledged")
    if error is not None:
        note(error)
    return OK if error is None else FAILED


def split(line: bytes, key_separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Return key and value of a line without its line end; ValueError where it has no separator."""
    text = line.removesuffix(b"\n").removesuffix(b"\r")
    if key_separator is None:
        return None, text
    key, found, value = text.partition(key_separator)
    if not found:
        raise ValueError(f"it has no {key_separator.decode()!r} between key and value")
    return key, value


class Sending:
    """The lines on their way to one topic, oldest first."""

    def __init__(self, session: client.Client, topic: str, key_separator: str | None, advance: Any) -> None:
        """Send nothing yet."""
        self.acknowledged = 0
        self._session = session
        self._topic = topic
        self._separator = None if key_separator is None else key_separator.encode()
        self._advance = advance
        self._in_flight: deque[tuple[int, Any]] = deque()

    def all_lines(self, lines: Iterable[bytes] | IO[bytes]) -> str | None:
        """Send every line and wait for the answers; return what was wrong with the first that was rejected."""
        try:
            for number, line in enumerate(lines, 1):
                self._send(number, line)
                self._settle(IN_FLIGHT_MAX)
            # Not by flush(): kafka-python's fails where a batch that is too large was split.
            self._settle(0)
        except CommandError as error:
            self._count_the_rest()
            return str(error)
        except KeyboardInterrupt:
            self._count_the_rest()
            return "stopped by Ctrl-C; no more lines were read"
        return None

    def _send(self, number: int, line: bytes) -> None:
        try:
            key, value = split(line, self._separator)
            self._in_flight.append((number, self._session.send(self._topic, value, key)))
        except (ValueError, client.any_error()) as error:
            raise _rejected(number, error) from error

    def _settle(self, in_flight_max: int) -> None:
        """Take the answers that are there, and wait for those of all but the latest lines."""
        while self._in_flight and (len(self._in_flight) > in_flight_max or self._in_flight[0][1].is_done):
            number, answer = self._in_flight.popleft()
            try:
                answer.get()
            except client.any_error() as error:
                raise _rejected(number, error) from error
            self.acknowledged += 1
            self._advance(1)

    def _count_the_rest(self) -> None:
        """Wait for the lines that were under way beside a rejected one; they may have been acknowledged."""
        for _, answer in self._in_flight:
            with suppress(client.any_error()):
                answer.get()
                self.acknowledged += 1


def _rejected(number: int, error: Exception) -> CommandError:
    return CommandError(f"line {number} was rejected, and no line was read after it: {client.reason(error)}")
