"""A log line that would come thousands of times comes once, and then with a count."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.served import Client, Serve
from tidelog.broker import repeated_lines
from tidelog.broker.dispatch import MOST_REQUEST_BYTES
from tidelog.broker.repeated_lines import CAUSES_MAX, RepeatedLines
from tidelog.protocol.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest

_log = logging.getLogger("tidelog.test")


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines of the log, as they are written."""
    caplog.set_level(logging.INFO)
    lines: list[str] = []
    monkeypatch.setattr(caplog.handler, "emit", lambda record: lines.append(record.getMessage()))
    return lines


def say(lines: RepeatedLines, about: str, number: int) -> None:
    lines.log(_log, logging.INFO, about, "bad about=%s number=%d", about, number)


class Timers:
    """Stands for a loop's `call_later`: time passes when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, call: Callable[..., None], *values: Any) -> None:
        self.waiting.append((delay_s, partial(call, *values)))

    def interval_over(self) -> None:
        over, self.waiting = self.waiting, []
        for delay_s, call in over:
            assert delay_s == 60
            call()


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    """The timers of this test's loop."""
    timers = Timers()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", timers.call_later)
    return timers


async def test_the_first_is_told_at_once_and_the_others_as_a_count(
    written: list[str], timers: Timers
) -> None:
    lines = RepeatedLines()
    for number in range(8801):
        say(lines, "a", number)
    say(lines, "b", 1)
    assert written == ["bad about=a number=0", "bad about=b number=1"]
    timers.interval_over()
    assert written[2:] == ["bad about=a number=0 (and 8,800 more like it in 60 s)"]
    timers.interval_over()
    assert (len(lines), len(written), timers.waiting) == (0, 3, [])
    say(lines, "a", 5)
    assert written[3:] == ["bad about=a number=5"]


async def test_as_long_as_they_come_each_interval_has_its_line(written: list[str], timers: Timers) -> None:
    lines = RepeatedLines()
    for interval in range(1, 4):
        for number in range(interval * 10):
            say(lines, "a", number)
        timers.interval_over()
    say(lines, "a", 7)
    lines.flush()
    first = "bad about=a number=0"
    assert written == [first] + [f"{first} (and {count} more like it in 60 s)" for count in (9, 20, 30, 1)]
    timers.interval_over()
    assert (len(lines), len(written), timers.waiting) == (0, 5, [])


async def test_a_timer_of_a_line_that_was_told_at_a_stop_tells_no_other(
    written: list[str], timers: Timers
) -> None:
    lines = RepeatedLines()
    say(lines, "a", 1)
    lines.flush()
    for number in (2, 3):
        say(lines, "a", number)
    old = timers.waiting.pop(0)[1]
    old()
    assert written == ["bad about=a number=1", "bad about=a number=2"]
    timers.interval_over()
    assert written[2:] == ["bad about=a number=2 (and 1 more like it in 60 s)"]


async def test_templates_and_things_are_told_apart_and_levels_are_heeded(
    written: list[str], timers: Timers
) -> None:
    lines = RepeatedLines()
    for _ in range(3):
        lines.log(_log, logging.INFO, "a", "one %s", "x")
        lines.log(_log, logging.INFO, "a", "two %s", "x")
        lines.log(_log, logging.DEBUG, "a", "three %s", "x")
    assert written == ["one x", "two x"]
    assert len(lines) == 2
    lines.flush()


async def test_what_is_remembered_is_bounded_and_what_is_beyond_is_counted_together(
    written: list[str], timers: Timers
) -> None:
    lines = RepeatedLines(things_max=10)
    for number in range(1000):
        say(lines, f"{number}", number)
        lines.log(_log, logging.INFO, "x" * 100_000, "long %s", "y" * 100_000)
    assert len(lines) <= 12
    assert len(written) == len(lines)
    assert sum(len(seen.text) for seen in lines._seen.values()) < 2000
    lines.flush()
    counts = sorted(line.partition("(and ")[2] for line in written[-2:])
    assert counts == ["990 more like it in 60 s)", "999 more like it in 60 s)"]


async def test_causes_are_told_apart_and_one_thing_does_not_take_the_room_of_others(
    written: list[str], timers: Timers
) -> None:
    lines = RepeatedLines(things_max=2 * CAUSES_MAX)

    def say(about: str, cause: int) -> None:
        lines.log(_log, logging.INFO, about, "bad about=%s cause=%d", about, cause, cause=f"{cause}")

    for about in ("a", "b"):
        for cause in range(3):
            say(about, cause)
            say(about, cause)
    assert written == [f"bad about={about} cause={cause}" for about in ("a", "b") for cause in range(3)]
    for cause in range(3, 10 * CAUSES_MAX):
        say("a", cause)
    assert len(written) == len(lines) == CAUSES_MAX + 1 + 3  # one for all others of a
    say("c", 1)
    say("a", 1000)
    say("a", 2)
    assert written[-1] == "bad about=c cause=1"
    timers.interval_over()
    counts = [line.partition(" (and ")[::2] for line in written if "(and" in line]
    assert (f"bad about=a cause={CAUSES_MAX}", f"{9 * CAUSES_MAX} more like it in 60 s)") in counts
    assert ("bad about=a cause=2", "2 more like it in 60 s)") in counts


async def test_where_all_is_full_a_thing_that_has_many_causes_keeps_its_own_count(
    written: list[str], timers: Timers
) -> None:
    lines = RepeatedLines(things_max=CAUSES_MAX + 1)
    for about, causes in (("a", CAUSES_MAX + 2), ("b", 3)):
        for cause in range(causes):
            lines.log(_log, logging.INFO, about, "bad about=%s cause=%d", about, cause, cause=f"{cause}")
    assert written[CAUSES_MAX:] == [f"bad about=a cause={CAUSES_MAX}", "bad about=b cause=0"]
    timers.interval_over()
    assert len(written) == CAUSES_MAX + 4


def test_a_count_does_not_outlive_its_loop(written: list[str]) -> None:
    lines = RepeatedLines()

    async def some() -> None:
        for number in range(3):
            say(lines, "a", number)

    for _ in range(2):
        asyncio.run(some())
    first = "bad about=a number=0"
    assert written == [first, f"{first} (and 2 more like it in 60 s)", first]


async def test_a_client_that_asks_for_what_is_not_there_again_and_again(
    serve: Serve, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = RepeatedLines()
    monkeypatch.setattr(repeated_lines.lines, "_seen", lines._seen)
    served = await serve()
    for _ in range(5):
        client = await served.connect()
        client.writer.write((10).to_bytes(4, "big") + bytes.fromhex("7fff 0000 00000007 ffff"))
        assert await client.reader.read() == b""
    refused = [line for line in written if line.startswith("bad request")]
    assert len(refused) == 1
    assert "request='api key 32767 v0' error='api key 32767 is not served" in refused[0]
    client = await served.connect()
    for _ in range(5):
        await ask_for_transactions(client)
    assert len([line for line in written if line.startswith("transactions are not supported")]) == 1
    await served.stop()
    counts = [line for line in written if "(and 4 more like it" in line]
    assert sorted(line.partition(" ")[0] for line in counts) == ["bad", "transactions"]


async def test_a_bad_request_of_another_kind_from_the_same_address_is_told(
    serve: Serve, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_lines.lines, "_seen", {})
    served = await serve()
    header = " 00000007 ffff"
    requests = (
        "0000 000e" + header,
        "0001 0013" + header,
        "0001 0004" + header,
        "0001",
        "",
        "0003 000d 00000007 0009",
    )
    for request in requests * 2:
        client = await served.connect()
        frame = bytes.fromhex(request)
        client.writer.write(len(frame).to_bytes(4, "big") + frame)
        assert await client.reader.read() == b""
    # A large request is decoded on a reader thread.
    client = await served.connect()
    frame = bytes.fromhex("0003 0001" + header + "7fffffff") + bytes(MOST_REQUEST_BYTES)
    client.writer.write(len(frame).to_bytes(4, "big") + frame)
    assert await client.reader.read() == b""
    refused = [line for line in written if line.startswith("bad request")]
    names = ["Produce v14", "Fetch v19", "Fetch v4", "unknown", "Metadata v13", "Metadata v1"]
    assert [line.partition("request='")[2].partition("'")[0] for line in refused] == names
    assert "error='Fetch v19 is not served, only v0 to v18'" in refused[1]


async def ask_for_transactions(client: Client) -> None:
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    await client.ask(INIT_PRODUCER_ID, 4, request)
