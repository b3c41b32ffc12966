"""What `tidelog serve` says when it is there."""

import errno
import json
import logging
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.net.server import CannotListen
from tidelog.broker.serve import ready_file_problem, write_ready_file
from tidelog.cli import serve
from tidelog.config.kinds import Listener
from tidelog.config.options import BrokerConfig
from tidelog.protocol import compiled


def greet(*addresses: tuple[str, int], folder: str = "/data") -> None:
    broker: Any = SimpleNamespace(logs=SimpleNamespace(directory=Path(folder)))
    serve._greet(broker, list(addresses))


@pytest.mark.parametrize("is_compiled", [True, False])
def test_which_kernel_runs_is_said_and_what_to_do_about_a_slow_one(
    is_compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """pip shows nothing of what a build says: here is where a person sees it, and the log keeps it."""
    monkeypatch.setattr(compiled, "COMPILED", is_compiled)
    with caplog.at_level(logging.WARNING):
        greet(("127.0.0.1", 9092))
    said = capsys.readouterr().out.splitlines()[0]
    assert ("loops over bytes compiled" in said) == is_compiled
    for text in (said, caplog.text):
        assert ("interpreted, slower: apt-get install gcc python3-dev" in text) != is_compiled


def test_the_greeting_is_two_lines_whatever_the_folder_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    greet(("::1", 9092), folder="/da\nta\udcff")
    first, _ = capsys.readouterr().out.splitlines()
    assert "data in /da\\nta\\udcff;" in first


def log_events(config: BrokerConfig) -> None:
    """Log an event and a fault as a broker with these options does."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        root.handlers = []
        serve._start_logging(config)
        logging.getLogger("tidelog.test").info("stopped data=%s", "/da\nta\x1b")
        try:
            raise ValueError("a fault")
        except ValueError:
            logging.getLogger("tidelog.test").exception("failed")
    finally:
        root.handlers = before
        root.setLevel(level)


def test_an_event_is_one_line_whatever_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    log_events(BrokerConfig())
    first, second, traceback, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith("INFO tidelog.test stopped data=/da\\nta\\x1b")
    assert second.endswith("ERROR tidelog.test failed")
    assert traceback.startswith("Traceback")


def test_an_event_is_one_object_in_a_log_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    log_events(BrokerConfig(log_format="json"))
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {"level": "INFO", "logger": "tidelog.test", "message": "stopped data=/da\nta\x1b"}
    assert (second["level"], second["message"]) == ("ERROR", "failed")
    assert second["traceback"].endswith("ValueError: a fault")


def test_a_log_has_the_least_level_that_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    log_events(BrokerConfig(log_level="error"))
    assert "INFO" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".", "is no regular file"),
        ("folder", "is no regular file"),
        ("fifo", "fifo is no regular file"),
        ("dangling", "dangling is no regular file"),
        ("link", "link is no regular file"),
        ("beside", "beside.tmp is no regular file"),
        ("none/ready", "there is no folder"),
        ("file/ready", "Not a directory"),
        ("a" * 300, "File name too long"),
        ("a" * 253, "File name too long"),
        ("/", "is no regular file"),
        ("file", None),
        ("new", None),
        ("data/ready", None),  # made with the data folder
    ],
)
def test_a_ready_file_replaces_a_regular_file_or_nothing(
    tmp_path: Path, name: str, words: str | None
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    os.mkfifo(tmp_path / "beside.tmp")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "link").symlink_to("file")
    problem = ready_file_problem(tmp_path / name, tmp_path / "data")
    assert (problem is None) == (words is None)
    assert (words or "") in (problem or "")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_ready_file_needs_a_folder_that_can_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert f"no file can be made in {tmp_path}" in (ready_file_problem(tmp_path / "ready", tmp_path) or "")


@pytest.mark.parametrize("process_id", [1, 2])
def test_signals_end_a_start_as_the_first_process_of_a_container_too(
    process_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system spares that one what it has no handler for; SIGHUP it may have been told to outlive."""
    handlers: dict[int, Any] = {}
    ended: list[int] = []
    monkeypatch.setattr(serve.os, "getpid", lambda: process_id)
    monkeypatch.setattr(serve.os, "_exit", ended.append)
    ignored = {signal.SIGHUP: signal.SIG_IGN}
    monkeypatch.setattr(serve.signal, "getsignal", lambda number: ignored.get(number, signal.SIG_DFL))
    monkeypatch.setattr(serve.signal, "signal", handlers.__setitem__)
    serve._end_by_signals()
    for number, handler in handlers.items():
        handler(number, None)
    assert ended == ([128 + signal.SIGTERM, 128 + signal.SIGINT] if process_id == 1 else [])


def test_the_ready_file_holds_an_address_as_clients_take_it(tmp_path: Path) -> None:
    for address, text in ((("::1", 9092), "[::1]:9092\n"), (("127.0.0.1", 1), "127.0.0.1:1\n")):
        write_ready_file(tmp_path / "ready", address)
        assert (tmp_path / "ready").read_text() == text


def test_a_port_that_is_taken_is_told_with_the_option_that_names_another() -> None:
    first, second = Listener("A", "::1", 9092), Listener("B", "", 9093)
    config = replace(BrokerConfig(), listeners=(first, second), http_port=9094)
    for listener, option in (
        (first, "choose another with --port;"),
        (second, "choose another with --config listeners=...;"),
        (Listener("HTTP", "::1", 9094), "choose another with --config http.port=N;"),
    ):
        taken = CannotListen(listener, OSError(errno.EADDRINUSE, "in use"))
        assert option in serve._address_taken(taken, config)


def test_every_address_is_named_and_one_that_can_be_reached_is_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    greet(("0.0.0.0", 9092), ("::1", 9093))
    first, second = capsys.readouterr().out.splitlines()
    assert "listens on 0.0.0.0:9092, [::1]:9093; data in /data" in first
    assert second.endswith("produce greetings --bootstrap 127.0.0.1:9092")
    greet(("::", 9092))
    assert capsys.readouterr().out.endswith("produce greetings --bootstrap [::1]:9092\n")
