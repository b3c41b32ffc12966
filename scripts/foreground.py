"""Run a command as the terminal's foreground job: Ctrl-C reaches it, and not the `make` above it.

A `make` that is interrupted exits with 130 whatever its recipe does, so a broker that was stopped in good
order would look like a failure. A signal sent to this process is passed on; the command's status is ours.
"""

import os
import signal
import subprocess
import sys
from types import FrameType

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _let_come() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)


def main(command: list[str]) -> int:
    """Run `command` and return its status."""
    # There is no shell to wake it again from a Ctrl-Z; and taking back the terminal must not stop us.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    # One that comes before it can be passed on waits until then.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    child = subprocess.Popen(command, process_group=0, preexec_fn=_let_come)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    _let_come()
    terminal = sys.stdin.isatty() and os.tcgetpgrp(0) == os.getpgrp()
    if terminal:
        os.tcsetpgrp(0, child.pid)
    try:
        status = child.wait()
    finally:
        if terminal:
            os.tcsetpgrp(0, os.getpgrp())
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
