"""`tidelog produce`: send the lines of standard input as records.

Acknowledged records are on disk (acks=all), in the order of the lines, each once. After a rejected line, no more lines
are read. It gives up if nothing is acknowledged for STALLED_S.
"""

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

import click

from tidelog.cli.arguments import bootstrap_option, json_option, topic_argument, utf8
from tidelog.cli.connect import connected
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, INTERRUPTED, OK, UNREACHABLE
from tidelog.cli.output import progress, to_json
from tidelog.cli.text import counted, note
from tidelog.cli.time_options import now_ms

if TYPE_CHECKING:
    from tidelog.client.producer import Producer

# Longer than a broker takes to restart.
STALLED_S: Final = 20
# How long to wait for answers after Ctrl-C.
GOODBYE_S: Final = 1
# How long to wait for answers to other requests than Produce.
ANSWER_S: Final = 5
# While there are no lines to read, answers are handled at this interval.
LOOK_S: Final = 0.1
READ_BYTES: Final = 1 << 16


def _separator(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("it is empty; leave it out if lines have no keys")
    utf8(context, parameter, value)
    return value


@click.command("produce")
@topic_argument
@click.option(
    "--key-separator",
    metavar="TEXT",
    callback=_separator,
    help="The text between key and value; without it, lines have no keys.",
)
@json_option
@bootstrap_option
def produce(topic: str, key_separator: str | None, as_json: bool, bootstrap: str) -> int:
    """Send each line of standard input as a record. Wait until all are on disk."""
    with connected(bootstrap, ANSWER_S) as cluster, progress(f"produce {topic}") as advance:
        from tidelog.client.producer import Producer

        acknowledged = 0

        def count(numbers: Sequence[int]) -> None:
            nonlocal acknowledged
            acknowledged += len(numbers)
            advance(len(numbers))

        producer = Producer(cluster, STALLED_S, count, creates_topics=True)
        separator = None if key_separator is None else key_separator.encode()
        error = send_lines(producer, topic, lines(sys.stdin.buffer, lambda: producer.poll(0)), separator)
    if as_json:
        print(to_json({"topic": topic, "acknowledged": acknowledged, "error": error and str(error)}))
    else:
        print(f"{counted(acknowledged, 'record')} acknowledged")
    if error is None:
        return OK
    note(str(error))
    return error.exit_code


def lines(stream: IO[bytes], idle: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines of a stream without their newline; call `idle` while there is nothing to read."""
    fd = stream.fileno()
    begun: list[bytes] = []  # the parts of a line that has not ended yet
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
    """Return key and value of a line without its line end; ValueError if it has no separator."""
    text = line.removesuffix(b"\n").removesuffix(b"\r")
    if key_separator is None:
        return None, text
    key, found, value = text.partition(key_separator)
    if not found:
        raise ValueError(f"it has no {key_separator.decode()!r} between key and value")
    return key, value


def send_lines(
    producer: "Producer", topic: str, lines: Iterable[bytes], key_separator: bytes | None
) -> CommandError | None:
    """Send all lines, and wait until they are acknowledged; return the error that ended it early."""
    from tidelog.client.errors import ClientError, Unreachable
    from tidelog.client.producer import Rejected, Stalled

    try:
        for number, line in enumerate(lines, 1):
            if number == 1:
                producer.partitions(topic)
            try:
                key, value = split(line, key_separator)
            except ValueError as error:
                producer.settle(STALLED_S)
                return _rejected(number, str(error))
            producer.send(topic, value, now_ms(), key)
        producer.flush()
    except Rejected as error:
        # Other records in flight may still be acknowledged.
        producer.settle(STALLED_S)
        return _rejected(error.number, str(error))
    except Stalled as error:
        message = (
            f"the broker has acknowledged nothing for {STALLED_S} s: {error}; line {error.number} is the first that "
            "may not be on disk, and no more lines were read"
        )
        return CommandError(message, UNREACHABLE)
    except ClientError as error:
        message = f"{error}; no more lines were read"
        return CommandError(message, UNREACHABLE if isinstance(error, Unreachable) else FAILED)
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):  # a second Ctrl-C ends the wait
            producer.settle(GOODBYE_S)
        return CommandError("stopped by Ctrl-C; no more lines were read", INTERRUPTED)
    return None


def _rejected(number: int, why: str) -> CommandError:
    return CommandError(f"line {number} was rejected, and no line was read after it: {why}", FAILED)
