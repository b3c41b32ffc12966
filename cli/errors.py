"""What ends a verb early.

Refuses to know how an error is shown: `cli.main` prints every one as a line on stderr.
"""

from collections.abc import Sequence
from typing import Any

import typer

from tidelog.cli.exit_codes import FAILED
from tidelog.cli.text import shown


class CommandError(typer.TyperException):
    """An error that the person at the keyboard can mend; the message says how."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        """Hold a message in one line, as what was typed may have others in it, and the code to exit with."""
        super().__init__(shown(message))
        self.exit_code = exit_code


class PartitionsRefused(CommandError):
    """The broker cannot use the logs of these partitions; `keys` names them."""

    def __init__(self, keys: Sequence[Any], why: str) -> None:
        """Name the first partition, and say how many others there are."""
        more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
        super().__init__(f"partition {keys[0].partition} of {keys[0].topic}{more}: {why}")
        self.keys = frozenset(keys)
