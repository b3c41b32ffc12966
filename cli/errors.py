"""What ends a verb early.

Refuses to know how an error is shown: `cli.main` prints every one as a line on stderr.
"""

import click

from tidelog.cli.exit_codes import FAILED
from tidelog.cli.text import shown


class CommandError(click.ClickException):
    """An error that the person at the keyboard can mend; the message says how."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        """Hold a message in one line, as what was typed may have others in it, and the code to exit with."""
        super().__init__(shown(message))
        self.exit_code = exit_code  # type: ignore[misc] # to click it is the class's
