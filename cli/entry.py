"""Where the `tidelog` command begins.

Loads nothing before `run` is on its way: what is loaded at the top would be loaded where Ctrl-C is a traceback.
"""

import sys
from collections.abc import Callable


def run(main: Callable[[], None] | None = None) -> None:
    """Run the command, or `main` in its place; Ctrl-C ends it without a word while it is still being loaded, too."""
    try:
        if main is None:
            from tidelog.cli.main import main as command

            command()
        else:
            main()
    except KeyboardInterrupt:
        from tidelog.cli.exit_codes import INTERRUPTED

        sys.exit(INTERRUPTED)
