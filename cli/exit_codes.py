"""The exit codes that the command may have. It loads nothing: also one that Ctrl-C ends while it loads has one."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
# What was to be looked at cannot be.
UNREADABLE: Final = 4
# What a shell says of a command that SIGINT ended.
INTERRUPTED: Final = 130
