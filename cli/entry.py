"""Where the `tidelog` command begins.

Loads nothing before `run` is on its way: what is loaded at the top would be loaded where Ctrl-C is a traceback.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# The modules of the verbs that are loaded alone; anything else, such as `--help`, has `cli.main` load all.
_MODULES = {
    "produce": "produce",
    "tail": "tail",
    "offsets": "offsets",
    "delete-records": "delete_records",
    "log-dirs": "log_dirs",
    "health": "health",
    "pipeline": "pipeline",
    "topics": "topics",
    "configs": "configs",
    "groups": "group_reset",
    "test-control": "control",
}


def run(main: "Callable[[], None] | None" = None) -> None:
    """Run the command, or `main` in its place; Ctrl-C ends it without a word while it is still being loaded, too."""
    try:
        (main or command)()
    except KeyboardInterrupt:
        from tidelog.cli.exit_codes import INTERRUPTED

        sys.exit(INTERRUPTED)


def command() -> None:
    """Run the verb that the command line names."""
    _open_what_is_closed()
    module = _MODULES.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if module is None:
        from tidelog.cli.main import app
    else:
        from importlib import import_module

        from tidelog.cli.command import new_app

        app = new_app()
        app.add_typer(import_module(f"tidelog.cli.{module}").app)
    app()


def _open_what_is_closed() -> None:
    """Have the three standard streams lead nowhere where they were closed (`>&-`): no file may get their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)  # noqa: TID251  (no file of ours: what the shell should have opened)
            assert fd == number
            setattr(sys, name, os.fdopen(fd, "r" if number == 0 else "w"))
