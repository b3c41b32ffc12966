"""Where the `tidelog` command begins.

Loads nothing before `run` is on its way: what is loaded at the top would be loaded where Ctrl-C is a traceback.
"""

import os
import sys


def run() -> None:
    """Run the command; Ctrl-C ends it without a word while it is still being loaded, too."""
    try:
        _open_what_is_closed()
        import gc

        # What is imported stays: looking through it for garbage takes a twentieth of a start.
        gc.disable()
        from tidelog.cli.main import app

        gc.enable()
        app()
    except KeyboardInterrupt:
        from tidelog.cli.exit_codes import INTERRUPTED

        sys.exit(INTERRUPTED)


def _open_what_is_closed() -> None:
    """Have the three standard streams lead nowhere where they were closed (`>&-`): no file may get their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)  # noqa: TID251  (no file of ours: what the shell should have opened)
            assert fd == number
            setattr(sys, name, os.fdopen(fd, "r" if number == 0 else "w"))
