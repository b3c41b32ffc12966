"""`tidelog produce`: lines from standard input, each a record.

Owns the splitting of lines and the count of what was acknowledged. Refuses to know batches. Invariants: what is counted
is on disk (acks=all), in the order of the lines, each once; after the first line that is rejected no more are read; no
wait is longer than STALLED_S without an acknowledgement, whatever has become of the broker.
"""

import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, Any, Final

from tidelog.cli import client
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, INTERRUPTED, OK, UNREACHABLE
from tidelog.cli.output import progress, to_json
from tidelog.cli.text import counted, note

# What may be on its way: enough for full batches, little enough to name a rejected line soon.
IN_FLIGHT_MAX: Final = 10_000
# A broker that acknowledges nothing for so long is gone, or has no room on its disk: more than a restart takes.
STALLED_S: Final = client.GIVE_UP_S
# After Ctrl-C: how long the answers that are under way are waited for.
GOODBYE_S: Final = 1
# While there are no lines to read, the answers are looked at this often.
LOOK_S: Final = 0.1
READ_BYTES: Final = 1 << 16


def run(topic: str, key_separator: str | None, as_json: bool, bootstrap: str) -> int:
    """Produce standard input and report how many lines were acknowledged; return the exit code."""
    with client.producer(bootstrap) as session, progress(f"produce {topic}") as advance:
        sending = Sending(session, topic, key_separator, advance)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, sending.interrupt)
        error = sending.all_lines(lines(sys.stdin.buffer, sending.settle))
    count = sending.acknowledged
    if as_json:
        print(to_json({"topic": topic, "acknowledged": count, "error": error and str(error)}))
    else:
        print(f"{counted(count, 'record')} acknowledged")
    if error is None:
        return OK
    note(str(error))
    return error.exit_code


def lines(stream: IO[bytes], idle: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines of a stream without their newline; while there is nothing to read, call `idle` now and then."""
    fd = stream.fileno()
    begun: list[bytes] = []  # the parts of a line whose end is still to come
    while True:
        while not select.select([fd], [], [], LOOK_S)[0]:
            idle()
        data = os.read(fd, READ_BYTES)
        if not data:
            break
        *ends, rest = data.split(b"\n")
        for end in ends:
            yield b"".join([*begun, end])
            begun.clear()
        if rest:
            begun.append(rest)
    if begun:
        yield b"".join(begun)


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
        # When the oldest line on its way became the oldest: since then nothing was acknowledged.
        self._since = 0.0
        self._is_interrupted = False

    def interrupt(self, _number: int, _frame: object) -> None:
        """Break off what is under way: the handler of Ctrl-C.

        It is remembered, since it may come amid what catches everything, and would be waited for in vain.
        """
        self._is_interrupted = True
        raise KeyboardInterrupt

    def all_lines(self, lines: Iterable[bytes]) -> CommandError | None:
        """Send every line and wait for the answers; return what ended it before the last line was acknowledged."""
        try:
            for number, line in enumerate(lines, 1):
                self._send(number, line)
                self.settle(IN_FLIGHT_MAX)
            # Not by flush(): kafka-python's fails where a batch that is too large was split.
            self.settle(0)
        except CommandError as error:
            # What was under way beside a rejected line may be acknowledged; beside one that stalled, is or is not.
            self._count_the_rest(0 if error.exit_code == UNREACHABLE else STALLED_S)
            return error
        except KeyboardInterrupt:
            self._count_the_rest(GOODBYE_S)
            return CommandError("stopped by Ctrl-C; no more lines were read", INTERRUPTED)
        return None

    def settle(self, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        """Take the answers that are there, and wait for those of all but the latest lines."""
        if self._is_interrupted:
            raise KeyboardInterrupt
        while self._in_flight:
            number, answer = self._in_flight[0]
            left_s = self._since + STALLED_S - time.monotonic()
            if not (answer.is_done or len(self._in_flight) > in_flight_max or left_s < 0):
                return
            try:
                answer.get(max(0, left_s))
            except client.timeout_error() as error:
                raise _stalled(number, client.batch_refusal(self._session)) from error
            except client.any_error() as error:
                raise _rejected(number, error) from error
            self._in_flight.popleft()
            self._since = time.monotonic()
            self.acknowledged += 1
            self._advance(1)

    def _send(self, number: int, line: bytes) -> None:
        try:
            key, value = split(line, self._separator)
            answer = self._session.send(self._topic, value, key)
        except client.timeout_error() as error:
            # Where nothing is on its way there was no wait for room, but for the topic's partitions.
            if self._in_flight:
                raise _stalled(number, client.batch_refusal(self._session)) from error
            raise _without_partitions(self._topic, client.refusal(self._session, self._topic)) from error
        except (ValueError, client.any_error()) as error:
            raise _rejected(number, error) from error
        if not self._in_flight:
            self._since = time.monotonic()
        self._in_flight.append((number, answer))

    def _count_the_rest(self, within_s: float) -> None:
        """Count the lines that are acknowledged beside the one that ended it; a second Ctrl-C waits for no more."""
        deadline = time.monotonic() + within_s
        with suppress(KeyboardInterrupt):
            for _, answer in self._in_flight:
                with suppress(client.any_error()):
                    answer.get(max(0, deadline - time.monotonic()))
                    self.acknowledged += 1


def _rejected(number: int, error: Exception) -> CommandError:
    message = f"line {number} was rejected, and no line was read after it: {client.reason(error)}"
    return CommandError(message, FAILED)


def _without_partitions(topic: str, refusal: str | None) -> CommandError:
    why = refusal or "it cannot be reached"
    message = f"the broker has named no partition of topic {topic} for {STALLED_S} s: {why}; no more lines were read"
    return CommandError(message, UNREACHABLE)


def _stalled(number: int, refusal: str | None) -> CommandError:
    message = (
        f"the broker has acknowledged nothing for {STALLED_S} s: {refusal or 'it cannot be reached'}; line {number} is "
        "the first that may not be on disk, and no more lines were read"
    )
    return CommandError(message, UNREACHABLE)
