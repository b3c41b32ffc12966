"""The error that ends a verb; `cli.main` prints it as one line on stderr."""

import click

from tidelog.cli.exit_codes import FAILED
from tidelog.cli.text import shown


class CommandError(click.ClickException):
    """An error that the user can do something about; the message says what."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        """Take a message, which may repeat arguments of any content, and the exit code."""
        super().__init__(shown(message))
        self.exit_code = exit_code  # type: ignore[misc] # a class variable in click
