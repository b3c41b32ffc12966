"""`python -m tidelog`: the command, run by a Python that is named; as which it serves a little sooner."""

import sys

from tidelog.cli.entry import command, run


def _main() -> None:
    from tidelog.cli import quick

    # `command` opens what is closed.
    is_open = None not in (sys.stdin, sys.stdout, sys.stderr)
    arguments = quick.told(sys.argv[1:]) if is_open else None
    if arguments is not None:
        sys.exit(quick.serve(arguments))
    command()


if __name__ == "__main__":
    run(_main)
