"""The exit codes of the command. Imports nothing, since `entry` needs them before the imports are done."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
# The files to check cannot be read.
UNREADABLE: Final = 4
# As shells report a command that SIGINT ended.
INTERRUPTED: Final = 130
