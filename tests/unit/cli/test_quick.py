"""`python -m tidelog serve`: plain words mean what the command takes them for, and others are left to it."""

import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from tidelog.cli import quick, serve
from tidelog.cli.main import app

PLAIN = [
    "serve",
    "serve --port 0 --data-dir d --override a=b --override c=d=e --log-level warning",
    "serve --test-control --stop-at-eof --test-clock 2026-03-01T09:00Z --ready-file r --config c",
    "serve --port 65535 --port 1",
]


@pytest.mark.parametrize("line", PLAIN)
def test_plain_words_mean_what_they_mean_to_the_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    meant: list[tuple[Any, ...]] = []
    monkeypatch.setattr(serve, "run", lambda *arguments: meant.append(arguments) or 0)
    CliRunner().invoke(app, line.split(" "))
    found = quick.told(line.split(" "))
    assert found is not None
    assert meant == [tuple(found.values())]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "tail t",
        "serve --port=0",
        "serve --port 65536",
        "serve --port x",
        "serve --port -1",
        "serve --port",
        "serve --help",
        "serve --data-dir --port 1",
        "serve --overrid a=b",
        "serve now",
        "--version",
    ],
)
def test_other_words_are_left_to_the_command(line: str) -> None:
    assert quick.told(line.split(" ")) is None


def test_the_module_is_the_command() -> None:
    def said(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "tidelog", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    assert said("--version")[1].startswith("tidelog ")
    assert said("serve", "--port", "x")[0] == 2
    assert said("serve", "--override", "x")[0] == 2
