"""What both ends of a Unix socket in the data folder share: its name, the length of a line, the options of a fault.

`broker.admin` answers the commands of DATA/.admin, which every broker has. `broker.control` answers those of
DATA/.control, which only a broker under test has; `testing` and `tidelog test-control` send them. The options of a
fault are declared once, here: the Python API and the command line accept them, and the broker checks them. This module
imports nothing else of the broker, so tests and commands start quickly.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict, get_args, get_type_hints

from tidelog.config.kinds import INT_MAX

CONTROL: Final = ".control"
ADMIN: Final = ".admin"
# The longest command or answer.
LINE_BYTES_MAX: Final = 1 << 20
# The longest path of a socket that the system accepts.
_PATH_MAX: Final = 107


@dataclass(frozen=True, slots=True)
class Param:
    """What the command line shows of an option, and its least and largest number."""

    help: str
    metavar: str | None = None
    at_least: int | None = None
    at_most: int | None = None
    short: str = ""

    def allows(self, value: Any) -> bool:
        """Return whether a number is within the bounds; always true for an option without bounds."""
        return self.at_least is None or self.at_most is None or self.at_least <= value <= self.at_most


class FaultOptions(TypedDict, total=False):
    """Which requests to an API are affected, and how they fail.

    The topic is not among these: Python code may pass it as an object.
    """

    partition: Annotated[int | None, Param("Only for this partition of the topic.", None, 0, INT_MAX, "-p")]
    client_id: Annotated[str | None, Param("Only for this client.")]
    group: Annotated[str | None, Param("Only for this group.", short="-g")]
    error: Annotated[str | int | None, Param("Answer with this error, by Kafka's name.", "ERROR")]
    delay_ms: Annotated[int, Param("Delay the request by this time.", "MS", 0, INT_MAX)]
    drop: Annotated[
        Literal["", "before", "after"],
        Param("Close the connection: before or after the request is carried out.", "WHEN"),
    ]
    truncate: Annotated[bool, Param("Send half the answer, and close the connection.")]
    # Responses have 32 bits for it.
    throttle_ms: Annotated[int, Param("Answer that the client is throttled.", "MS", 0, INT_MAX)]
    unanswered: Annotated[bool, Param("Send no answer.")]


# The type and the `Param` of each option.
FAULT_OPTIONS: dict[str, tuple[Any, Param]] = {
    name: get_args(hint) for name, hint in get_type_hints(FaultOptions, include_extras=True).items()
}


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path of a socket that is short enough, however long its real path is."""
    if len(os.fsencode(path)) <= _PATH_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)  # noqa: TID251  (to name it, not to read it)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
