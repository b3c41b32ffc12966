"""Answers that members of groups wait for, and their way to them.

Event loop only.
"""

import asyncio
import logging
import time
from collections import deque
from typing import Any

from tidelog.broker.answers import Later

_log = logging.getLogger(__name__)

# How long a turn of the loop answers members of groups, serves what was loaded, or looks for what has expired.
TURN_S = 0.002
# What an answer weighs that waits for other members.
WAITING_BYTES = 1000


class Waiting(Later):
    """An answer that a group gives when it can; at once, if it does before `begun`."""

    __slots__ = ("_answers", "_has_begun")

    def __init__(self, answers: "Answers") -> None:
        super().__init__(WAITING_BYTES)
        self._answers = answers
        self._has_begun = False

    def answer(self, response: Any) -> None:
        """Take the answer."""
        if self._has_begun:
            self._answers.put(self, response)
        else:
            self.response = response

    def begun(self) -> Any:
        """Return the answer if it is there, or else what it will come by."""
        self._has_begun = True
        return self if self.response is None else self.response


class Answers:
    """Answers on their way to members: a group of a thousand is not answered in one turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: deque[tuple[Waiting, Any]] = deque()

    def put(self, waiting: Waiting, response: Any) -> None:
        """Hand over an answer in one of the next turns."""
        self._due.append((waiting, response))
        if len(self._due) == 1:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        ends_s = time.monotonic() + TURN_S
        while self._due:
            waiting, response = self._due[0]
            try:
                waiting.resolve(response)
            except Exception:
                _log.exception("a member of a group could not be answered")
            self._due.popleft()
            if self._due and time.monotonic() >= ends_s:
                self._loop.call_soon(self._turn)
                return
