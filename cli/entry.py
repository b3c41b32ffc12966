"""Where the `tidelog` command begins.

Loads nothing before `run` is on its way: what is loaded at the top would be loaded where Ctrl-C is a traceback.
"""

import sys


def run() -> None:
    """Run the command; Ctrl-C ends it without a word while it is still being loaded, too."""
    try:
        from tidelog.cli.main import main

        main()
    except KeyboardInterrupt:
        from tidelog.cli.exit_codes import INTERRUPTED

        sys.exit(INTERRUPTED)
