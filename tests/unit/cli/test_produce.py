"""`tidelog produce` beside a session that answers when the test says so: reading, counting, giving up."""

import io
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from tidelog.cli import client, kafka_python, produce
from tidelog.cli.exit_codes import FAILED, INTERRUPTED, UNREACHABLE


class Answer:
    """What came of one line: None for no answer yet."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.is_done = outcome is not None

    def get(self, timeout: float) -> Any:
        if self.outcome is None:
            raise KafkaTimeoutError("waited")
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Metadata:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def update_metadata(self, answer: Any) -> None:
        self.answers.append(answer)


class Sender:
    def __init__(self) -> None:
        self.completed: list[Any] = []

    def _complete_batch(self, batch: Any, answer: Any) -> None:
        self.completed.append((batch, answer))


class Session:
    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[Answer] = []
        self._metadata = Metadata()
        kafka_python.hear_refusals(self._metadata)
        self._sender = Sender()
        kafka_python.hear_refused_batches(self._sender)

    def send(self, topic: str, value: bytes, key: bytes | None) -> Answer:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, type):
            raise outcome("at once")
        self.sent.append(Answer(outcome))
        return self.sent[-1]


def sending(*outcomes: Any) -> produce.Sending:
    return produce.Sending(Session(*outcomes), "t", None, lambda count: None)


@pytest.fixture(autouse=True)
def _stalls_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "STALLED_S", 0.05)
    monkeypatch.setattr(produce, "GOODBYE_S", 0.05)


def test_all_acknowledged() -> None:
    to = sending(1, 2, 3)
    assert to.all_lines([b"a", b"b", b"c"]) is None
    assert to.acknowledged == 3


def test_a_line_without_an_answer_ends_it_and_what_is_acknowledged_beside_it_counts() -> None:
    to = sending(1, None, 3)
    error = to.all_lines([b"a", b"b", b"c"])
    assert error is not None
    assert error.exit_code == UNREACHABLE
    assert "line 2 is the first that may not be on disk" in str(error)
    assert to.acknowledged == 2


def test_an_answer_that_expired_is_no_rejection() -> None:
    error = sending(KafkaTimeoutError("expired after 30000 ms")).all_lines([b"a"])
    assert error is not None
    assert error.exit_code == UNREACHABLE


def test_no_room_for_more_and_no_topic_are_told_apart() -> None:
    error = sending(None, KafkaTimeoutError).all_lines([b"a", b"b"])
    assert error is not None
    assert "acknowledged nothing" in str(error)
    error = sending(KafkaTimeoutError).all_lines([b"a"])
    assert error is not None
    assert "has named no partition of topic t for 0.05 s: it cannot be reached;" in str(error)
    assert error.exit_code == UNREACHABLE


@pytest.mark.parametrize(("code", "words"), [(56, "the broker cannot use its files"), (3, "no such topic")])
def test_what_the_broker_said_of_the_topic_is_told(code: int, words: str) -> None:
    answer = SimpleNamespace(topics=[SimpleNamespace(name="t", error_code=code)])
    to = sending(KafkaTimeoutError)
    session: Any = to._session
    session._metadata.update_metadata(answer)
    assert session._metadata.answers == [answer]
    error = to.all_lines([b"a"])
    assert error is not None
    assert words in str(error)
    answer.topics[0].error_code = 0
    session._metadata.update_metadata(answer)
    assert client.refusal(session, "t") is None


def test_what_the_broker_said_of_a_batch_that_is_sent_again_is_told() -> None:
    to = sending(None)
    sender: Any = to._session._sender
    refused = SimpleNamespace(error_code=56, error_message="t-0: could not be opened")
    sender._complete_batch("batch", refused)
    assert sender.completed == [("batch", refused)]
    error = to.all_lines([b"a"])
    assert error is not None
    assert "acknowledged nothing for 0.05 s: t-0: could not be opened; line 1 is" in str(error)
    refused.error_message = None
    assert "the broker cannot use its files" in (client.batch_refusal(to._session) or "")
    sender._complete_batch("batch", SimpleNamespace(error_code=0))
    assert client.batch_refusal(to._session) is None


def test_a_rejected_line_waits_for_those_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    to = sending(1, MessageSizeTooLargeError("large"), 3)
    monkeypatch.setattr(Answer, "is_done", False, raising=False)  # until it is waited for
    monkeypatch.setattr(Answer, "__init__", lambda self, outcome: setattr(self, "outcome", outcome))
    error = to.all_lines([b"a", b"b", b"c"])
    assert error is not None
    assert (error.exit_code, to.acknowledged) == (FAILED, 2)
    assert str(error).startswith("line 2 was rejected")


def test_ctrl_c_while_a_line_is_waited_for_counts_it_if_its_answer_comes() -> None:
    to = sending(1, KeyboardInterrupt(), 3)
    error = to.all_lines([b"a", b"b", b"c"])
    assert error is not None
    assert error.exit_code == INTERRUPTED
    session: Any = to._session
    assert to.acknowledged == 1  # and a second Ctrl-C, as here, ends the wait for the rest
    to = sending(1, 2)

    def lines() -> Iterator[bytes]:
        yield b"a"
        yield b"b"
        session.outcomes.clear()
        raise KeyboardInterrupt

    error = to.all_lines(lines())
    assert error is not None
    assert (error.exit_code, to.acknowledged) == (INTERRUPTED, 2)


def test_ctrl_c_amid_what_catches_it_ends_it_before_the_next_line() -> None:
    """As a callback does, whose exceptions go nowhere."""
    session = sending("ok", "ok", None)
    real_send = session._session.send

    def send(*arguments: Any) -> Answer:
        with suppress(KeyboardInterrupt):
            session.interrupt(signal.SIGINT, None)
        answer: Answer = real_send(*arguments)
        return answer

    session._session.send = send
    error = session.all_lines([b"a\n", b"b\n", b"c\n"])
    assert error is not None
    assert (error.exit_code, session.acknowledged, len(session._session.sent)) == (INTERRUPTED, 1, 1)


def test_lines_come_whole_and_silence_is_noticed() -> None:
    ours, theirs = os.pipe()
    idle = threading.Event()

    def write() -> None:
        with open(theirs, "wb", buffering=0) as to:
            to.write(b"one\n\ntwo parts")
            assert idle.wait(20)
            to.write(b", one line\r\nno end")

    writer = threading.Thread(target=write)
    writer.start()
    with open(ours, "rb") as stream:
        assert list(produce.lines(stream, idle.set)) == [b"one", b"", b"two parts, one line\r", b"no end"]
    writer.join()


def test_a_long_line_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "READ_BYTES", 3)
    with io.FileIO(os.memfd_create("lines"), "r+") as stream:
        stream.write(b"x" * 100 + b"\n" + b"y" * 10)
        stream.seek(0)
        assert list(produce.lines(stream, lambda: None)) == [b"x" * 100, b"y" * 10]  # type: ignore[arg-type]
