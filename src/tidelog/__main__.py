"""`python -m tidelog`: the command, run by a Python that is named; as which it serves a little sooner."""

import sys

from tidelog.cli import quick
from tidelog.cli.entry import run


def _main() -> None:
    # `cli.main` opens what is closed.
    is_open = None not in (sys.stdin, sys.stdout, sys.stderr)
    arguments = quick.told(sys.argv[1:]) if is_open else None
    if arguments is None:
        run()
    else:
        told = arguments
        run(lambda: sys.exit(quick.serve(told)))


if __name__ == "__main__":
    _main()
