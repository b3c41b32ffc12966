"""The entry point of the `tidelog` command.

Imports happen inside `run`, where Ctrl-C is caught; at the top of the module it would print a traceback.
"""

import os
import sys


def run() -> None:
    """Run the command. Ctrl-C ends it silently, also while it is still importing."""
    try:
        _open_what_is_closed()
        import gc

        # `cli.imports` enables it again.
        gc.disable()
        from tidelog.cli.main import app

        app()
    except KeyboardInterrupt:
        from tidelog.cli.exit_codes import INTERRUPTED

        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name != "cython":
            raise
        sys.exit(
            "tidelog: the loops over bytes are not compiled, and to run them interpreted needs Cython: "
            "apt-get install gcc python3-dev, then install Tidelog again; or pip install cython (slower)"
        )


def _open_what_is_closed() -> None:
    """Open closed standard streams (`>&-`) on the null device, so that no other file gets their descriptors."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)  # noqa: TID251  (not one of our files)
            assert fd == number
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, "r" if number == 0 else "w"))
