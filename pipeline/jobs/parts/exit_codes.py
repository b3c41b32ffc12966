"""How a job ends, in the codes that all of the command has. It loads nothing."""

from typing import Final

OK: Final = 0
FAILED: Final = 1  # it did less than it was asked
USAGE: Final = 2
INTERRUPTED: Final = 130
