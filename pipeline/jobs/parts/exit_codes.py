"""Exit codes of jobs, the same as those of the command line."""

from typing import Final

OK: Final = 0
FAILED: Final = 1  # the job did not do all that was asked
USAGE: Final = 2
INTERRUPTED: Final = 130
