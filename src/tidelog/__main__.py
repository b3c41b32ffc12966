"""`python -m tidelog`: the command, run by a Python that is named."""

from tidelog.cli.entry import run

if __name__ == "__main__":
    run()
