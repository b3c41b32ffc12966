"""What ends a verb early, and the exit codes that the command may have.

Owns the codes. Refuses to know how an error is shown: `cli.main` prints every one as a line on stderr.
"""

from typing import Final

import typer

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3


class CommandError(typer.TyperException):
    """An error that the person at the keyboard can mend; the message says how."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        """Hold a message without line breaks, and the code to exit with."""
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code
