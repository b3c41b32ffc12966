"""`tidelog produce`: send the lines of files or of standard input as records.

Acknowledged records are on disk (acks=all), in the order of the lines, each once. After a rejected line, no more lines
are read. It gives up if nothing is acknowledged for STALLED_S.
"""

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, TYPE_CHECKING, Final

import click

from tidelog.cli.arguments import TIME_HELP, Integer, bootstrap_option, topic_argument, utf8
from tidelog.cli.connect import connected, no_partition
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE
from tidelog.cli.lines import Header, Outgoing, Reader, Values, json_reader, text_reader
from tidelog.cli.output import progress, to_json
from tidelog.cli.text import counted, examples, note
from tidelog.cli.time_options import clock, now_ms, time_ms

if TYPE_CHECKING:
    from tidelog.client.producer import Producer, Rejected

# Longer than a broker takes to restart.
STALLED_S: Final = 20
# How long to wait for answers after Ctrl-C.
GOODBYE_S: Final = 1
# How long to wait for answers to other requests than Produce.
ANSWER_S: Final = 5
# While there are no lines to read, answers are handled at this interval.
LOOK_S: Final = 0.1
# With --rate, how much lost time is made up for.
CATCH_UP_S: Final = 1.0
READ_BYTES: Final = 1 << 16
# Enough for the largest record that the producer sends, in base64.
LINE_BYTES_MAX: Final = 150 << 20
STDIN: Final = "-"
# In the order of their numbers in a batch.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def _unescaped(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("it is empty; leave it out if lines have no keys")
    utf8(context, parameter, value)
    return None if value is None else value.replace("\\t", "\t")


def _rate(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        raise click.BadParameter(f"{value:g} is not a number of records above 0")
    return value


def _headers(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[Header, ...]:
    utf8(context, parameter, values)
    pairs = [value.partition("=") for value in values]
    for (name, equals, _), value in zip(pairs, values, strict=True):
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
    return tuple((name, text.encode()) for name, _, text in pairs)


@click.command(
    "produce",
    epilog=examples(
        "tidelog produce orders < orders.txt",
        "echo 'a:1' | tidelog produce orders --key-separator :",
        "tidelog tail orders --json | tidelog produce copy --json",
        "tidelog produce orders --rate 0.5 < orders.txt",
    ),
)
@topic_argument
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE]...",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    help="Default: standard input, which is also -.",
)
@click.option(
    "--key-separator",
    metavar="CHARS",
    callback=_unescaped,
    help="The text between key and value (\\t is a tab); without it, lines have no keys.",
)
@click.option("--key", metavar="KEY", callback=utf8, help="The key of all records.")
@click.option("--null-value", is_flag=True, help="An empty value is null: a tombstone in a compacted topic.")
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_headers,
    help="A header of all records; may be repeated.",
)
@click.option(
    "--partition",
    "-p",
    type=Integer(0),
    metavar="N",
    help="Default: chosen by the key, as Kafka's clients do.",
)
@click.option("--timestamp", metavar="TIME", help=f"The time of all records: {TIME_HELP}. Default: now.")
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    help="The codec of the batches.",
)
@click.option(
    "--rate",
    metavar="N",
    type=float,
    callback=_rate,
    help="Send at most N records a second, such as 500 or 0.5. Default: no limit.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the result as JSON. Without --key-separator, lines are JSON as `tail --json` prints it.",
)
@bootstrap_option
def produce(
    topic: str,
    files: Sequence[str],
    key_separator: str | None,
    key: str | None,
    null_value: bool,
    headers: tuple[Header, ...],
    partition: int | None,
    timestamp: str | None,
    compression: str,
    rate: float | None,
    as_json: bool,
    bootstrap: str,
) -> int:
    """Send each line as a record. Wait until all are on disk."""
    if key_separator is not None and key is not None:
        raise CommandError("--key-separator and --key cannot be combined", USAGE)
    reads_json = as_json and key_separator is None
    if reads_json and null_value:
        raise CommandError("--null-value and --json cannot be combined: a JSON value can be null", USAGE)
    at_ms = None if timestamp is None else time_ms("--timestamp", timestamp, now_ms())
    defaults = Outgoing(None, None if key is None else key.encode(), headers, partition, at_ms)
    separator = None if key_separator is None else key_separator.encode()
    read: Reader | Values
    if reads_json:
        read = json_reader(defaults)
    elif separator is None:
        read = Values(defaults, null_value)
    else:
        read = text_reader(defaults, separator, null_value)
    sources = files or [STDIN]
    with (
        connected(bootstrap, ANSWER_S) as cluster,
        progress(f"produce {topic}", beside_input=STDIN in sources) as advance,
    ):
        from tidelog.client.producer import Producer

        acknowledged = 0

        def count(numbers: Sequence[int]) -> None:
            nonlocal acknowledged
            acknowledged += len(numbers)
            advance(len(numbers))

        producer = Producer(cluster, STALLED_S, count, creates_topics=True, codec=CODECS.index(compression))
        given = Lines(sources, lambda: producer.poll(0))
        blocks = given if rate is None else paced(given, rate, partial(_idle, producer))
        error = send_lines(producer, topic, blocks, read, given.place)
    if as_json:
        print(to_json({"topic": topic, "acknowledged": acknowledged, "error": error and str(error)}))
    else:
        print(f"{counted(acknowledged, 'record')} acknowledged")
    if error is None:
        if not acknowledged:
            note("the input has no lines, so nothing was sent")
        return OK
    note(str(error))
    return error.exit_code


class Lines:
    """The lines of files without their newline, one file after the other; calls `idle` while there is nothing to read.

    A file that cannot be read is a CommandError. A line longer than LINE_BYTES_MAX is cut, and still longer than that.
    """

    def __init__(self, files: Sequence[str], idle: Callable[[], None]) -> None:
        self._files = files
        self._idle = idle
        self._count = 0
        self._begins: list[tuple[int, str]] = []  # how many lines precede each file

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield the lines as they are read, some at a time. They are numbered from 1 across all files."""
        for name in self._files:
            self._begins.append((self._count, name))
            for block in self._of(name):
                self._count += len(block)
                yield block

    def place(self, number: int) -> str:
        """Return the words for a line that was read: its number in its file."""
        before, name = [begin for begin in self._begins if begin[0] < number][-1]
        return f"line {number - before}" + ("" if name == STDIN else f" of {name}")

    def _of(self, name: str) -> Iterator[list[bytes]]:
        try:
            with click.open_file(name, "rb") as stream:
                yield from lines(stream, self._idle)
        except OSError as error:
            shown_name = "standard input" if name == STDIN else name
            raise CommandError(f"{shown_name}: {error.strerror or error}; no more lines were read") from error


def lines(stream: IO[bytes], idle: Callable[[], None]) -> Iterator[list[bytes]]:
    """Yield the lines of a stream without their newline, those of each read together.

    Call `idle` while there is nothing to read.
    """
    fd = stream.fileno()
    begun: list[bytes] = []  # the parts of a line that has not ended yet
    size = 0
    while True:
        while not select.select([fd], [], [], LOOK_S)[0]:
            idle()
        data = os.read(fd, READ_BYTES)
        if not data:
            break
        *ends, rest = data.split(b"\n")
        if ends:
            ends[0] = b"".join([*begun, ends[0]])
            begun.clear()
            size = 0
            yield ends
        if rest:
            begun.append(rest)
            size += len(rest)
        if size > LINE_BYTES_MAX:
            break
    if begun:
        yield [b"".join(begun)]


def paced(
    blocks: Iterable[Sequence[bytes]], rate: float, wait: Callable[[float], None]
) -> Iterator[Sequence[bytes]]:
    """Yield lines at a rate per second, some at a time. `wait` waits for a time.

    If the lines or the broker are slow, at most CATCH_UP_S of that is made up for.
    """
    most = max(1, int(rate * LOOK_S))
    due = time.monotonic()
    for block in blocks:
        for at in range(0, len(block), most):
            while (left_s := due - time.monotonic()) > 0:
                wait(min(left_s, LOOK_S))
            piece = block[at : at + most]
            due = max(due, time.monotonic() - CATCH_UP_S) + len(piece) / rate
            yield piece


def _idle(producer: "Producer", length_s: float) -> None:
    """Send waiting records and handle answers for a time."""
    until = time.monotonic() + length_s
    producer.poll(length_s)
    time.sleep(max(0.0, until - time.monotonic()))


def send_lines(
    producer: "Producer",
    topic: str,
    blocks: Iterable[Sequence[bytes]],
    read: Reader | Values,
    place: Callable[[int], str] = "line {}".format,
) -> CommandError | None:
    """Send all lines, and wait until they are acknowledged; return the error that ended it early.

    `place` returns the words for the line with a number.
    """
    from tidelog.client.errors import ClientError, Unreachable
    from tidelog.client.producer import Rejected, Stalled

    number = 0
    now = clock()
    read_line = read.line if isinstance(read, Values) else read
    try:
        for block in blocks:
            if number == 0:
                partitions = frozenset(producer.partitions(topic))
            if isinstance(read, Values) and max(map(len, block)) <= LINE_BYTES_MAX:
                _, key, headers, partition, timestamp = read.defaults
                if partition is None or partition in partitions:
                    number += len(block)
                    timestamp_ms = now() if timestamp is None else timestamp
                    producer.send_values(topic, read.all(block), timestamp_ms, key, headers, partition)
                    continue
            for line in block:
                number += 1
                try:
                    if len(line) > LINE_BYTES_MAX:
                        raise ValueError(f"it has more than {LINE_BYTES_MAX:,} bytes")
                    record = read_line(line)
                    if record.partition is not None and record.partition not in partitions:
                        raise ValueError(no_partition(topic, record.partition, partitions))
                except ValueError as error:
                    return _bad_line(producer, place, number, str(error))
                timestamp_ms = now() if record.timestamp is None else record.timestamp
                producer.send(topic, record.value, timestamp_ms, record.key, record.headers, record.partition)
        producer.flush()
    except Rejected as error:
        return _rejected(producer, place, error)
    except Stalled as error:
        message = (
            f"the broker has acknowledged nothing for {STALLED_S} s: {error}; {place(error.number)} is the "
            "first that may not be on disk, and no more lines were read"
        )
        return CommandError(message, UNREACHABLE)
    except CommandError as error:
        producer.settle(STALLED_S)
        return error
    except ClientError as error:
        message = f"{error}; no more lines were read"
        return CommandError(message, UNREACHABLE if isinstance(error, Unreachable) else FAILED)
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):  # a second Ctrl-C ends the wait
            producer.settle(GOODBYE_S)
        return CommandError("stopped by Ctrl-C; no more lines were read", INTERRUPTED)
    return None


def _bad_line(producer: "Producer", place: Callable[[int], str], number: int, why: str) -> CommandError:
    """Wait for the records in flight; return the error of a line that was not sent, unless one before was rejected."""
    found = producer.settle(STALLED_S)
    if found is not None:
        return _rejected(producer, place, found)
    return CommandError(f"{place(number)} was rejected, and no line was read after it: {why}", FAILED)


def _rejected(producer: "Producer", place: Callable[[int], str], error: "Rejected") -> CommandError:
    """Wait for the records in flight; return the error of the first line that the broker has rejected."""
    found = producer.settle(STALLED_S)
    first = error if found is None or error.number < found.number else found
    words = "was rejected, no more lines were read, and some after it may be on disk"
    return CommandError(f"{place(first.number)} {words}: {first}", FAILED)
