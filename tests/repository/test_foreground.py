"""`make run` ends with status 0 on Ctrl-C and SIGTERM, as the broker below it does."""

import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOREGROUND = ROOT / "scripts" / "foreground.py"

# Stands for the broker: ends with status 0 when asked to.
OBEDIENT = """
import signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    signal.pause()
"""

# Runs a command as a login would: its standard input is its terminal.
AT_A_TERMINAL = """
from tests.support.paths import ROOT
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def read_until(descriptor: int, word: bytes) -> None:
    seen = b""
    while word not in seen:
        part = os.read(descriptor, 1024)
        assert part, f"ended after {seen!r}"
        seen += part


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not here")
def test_ctrl_c_at_a_terminal_ends_make_with_status_0(tmp_path: Path) -> None:
    (tmp_path / "obedient.py").write_text(OBEDIENT)
    (tmp_path / "Makefile").write_text(
        f"run:\n\t@exec {sys.executable} {FOREGROUND} {sys.executable} obedient.py\n"
    )
    master, slave = pty.openpty()
    make = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, "make", "-C", str(tmp_path), "run"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    try:
        read_until(master, b"ready")
        os.write(master, b"\x03")
        assert make.wait(timeout=20) == 0
    finally:
        make.kill()
        make.wait()
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_the_status_comes_back(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, str(FOREGROUND), sys.executable, "-c", OBEDIENT], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"ready")
        process.send_signal(number)
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("program", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_status_is_that_of_the_command(program: str, status: int) -> None:
    command = [sys.executable, str(FOREGROUND), sys.executable, "-c", program]
    assert subprocess.run(command, check=False, timeout=20).returncode == status
