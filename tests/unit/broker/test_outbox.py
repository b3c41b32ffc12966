"""Small answers leave together at the end of a turn, in order."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from tidelog.broker.net.outbox import MOST_HELD, Outbox


class Transport:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: list[bytes]) -> None:
        self.written += b"".join(parts)


class Broken(Transport):
    """Cannot be written to."""

    is_aborted = False

    def write(self, data: bytes) -> None:
        raise RuntimeError("closed")

    def abort(self) -> None:
        self.is_aborted = True


class Turns:
    """A loop whose turns end by hand."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.call_soon = self.ready.append
        self.outbox = Outbox(cast(Any, self))

    def send(self, to: Transport, *answers: bytes) -> None:
        self.outbox.send(cast(Any, to), list(answers))

    def end(self) -> None:
        due, self.ready[:] = self.ready[:], []
        for call in due:
            call()


def test_a_client_that_asks_alone_is_answered_at_once() -> None:
    turns, client, other = Turns(), Transport(), Transport()
    turns.send(client, b"a")
    turns.end()
    for number in range(2, 20):
        turns.send(client, b"a")
        assert len(client.written) == number
    turns.send(other, b"b")
    turns.send(client, b"c")
    assert (other.written, client.written[-1:]) == (b"", b"a")
    turns.end()
    assert (other.written, client.written[-1:]) == (b"b", b"c")


def test_the_answers_of_a_turn_leave_together_when_it_ends() -> None:
    turns, clients = Turns(), [Transport() for _ in range(3)]
    for _ in range(5):
        before = [client.written for client in clients]
        for client in clients:
            turns.send(client, b"a", b"b")
        assert [client.written for client in clients] == before
        turns.end()
        assert [client.written for client in clients] == [written + b"ab" for written in before]


def test_answers_of_a_connection_stay_in_order_and_closing_loses_none() -> None:
    turns, client = Turns(), Transport()
    for number in range(3):
        turns.send(client, b"%d " % number)
    turns.outbox.flush()
    assert client.written == b"0 1 2 "
    turns.end()
    turns.send(client, b"later")
    turns.end()
    assert client.written == b"0 1 2 later"


def test_what_is_held_is_bounded() -> None:
    turns, client = Turns(), Transport()
    for _ in range(MOST_HELD - 1):
        turns.send(client, b"a")
    assert not client.written
    turns.send(client, b"a")
    assert len(client.written) == MOST_HELD


def test_a_connection_that_cannot_be_written_to_is_closed_and_the_others_get_their_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns, broken, client = Turns(), Broken(), Transport()
    turns.send(broken, b"a")
    turns.send(client, b"b")
    turns.end()
    assert client.written == b"b"
    assert broken.is_aborted
    assert "closed" in caplog.text


def test_what_was_held_for_a_connection_that_has_closed_is_dropped_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns, gone, client = Turns(), Broken(), Transport()
    turns.send(gone, b"a")
    turns.send(client, b"b")
    gone.is_closed = True
    turns.end()
    assert client.written == b"b"
    assert (gone.is_aborted, caplog.text) == (False, "")
