"""The `tidelog` command.

Loads nothing before `run` is on its way: what is loaded at the top would be loaded where Ctrl-C is a traceback.
"""

import sys

# What a shell says of a command that SIGINT ended.
INTERRUPTED = 130


def run() -> None:
    """Run the command; Ctrl-C ends it without a word while it is still being loaded, too."""
    try:
        from tidelog.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def called() -> str:
    """Return the command as it can be typed again: by its name where the shell finds it, else by its path."""
    import shlex
    import shutil

    path = sys.argv[0]
    found = shutil.which("tidelog")
    return "tidelog" if found == path or not path.endswith("tidelog") else shlex.quote(path)
