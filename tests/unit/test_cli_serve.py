"""What `tidelog serve` says when it is there."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.cli import serve
from tidelog.protocol.records import kernel


def greet(*addresses: tuple[str, int]) -> None:
    broker: Any = SimpleNamespace(logs=SimpleNamespace(directory=Path("/data")))
    serve._greet(broker, list(addresses))


@pytest.mark.parametrize("is_compiled", [True, False])
def test_which_kernel_runs_is_said_and_what_to_do_about_a_slow_one(
    is_compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """pip shows nothing of what a build says: here is where a person sees it, and the log keeps it."""
    monkeypatch.setattr(kernel, "COMPILED", is_compiled)
    with caplog.at_level(logging.WARNING):
        greet(("127.0.0.1", 9092))
    said = capsys.readouterr().out.splitlines()[0]
    assert ("kernel compiled" in said) == is_compiled
    for text in (said, caplog.text):
        assert ("interpreted, slower: apt-get install gcc python3-dev" in text) != is_compiled


def test_every_address_is_named_and_one_that_can_be_reached_is_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    greet(("0.0.0.0", 9092), ("::1", 9093))
    first, second = capsys.readouterr().out.splitlines()
    assert "listens on 0.0.0.0:9092, [::1]:9093; data in /data" in first
    assert second.endswith("produce greetings --bootstrap 127.0.0.1:9092")
    greet(("::", 9092))
    assert capsys.readouterr().out.endswith("produce greetings --bootstrap [::1]:9092\n")
