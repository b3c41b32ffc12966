"""The bytes that one connection has received and not processed: a small buffer, or a larger one that grows with its
frame.

Accounts for the memory in `FrameMemory`, and measures how fast a frame comes. Announcing 100 MB costs a client 14
bytes, and must not cost us more: a frame that does not fit gets larger buffers as its bytes come, each twice as large
as the last. Such a frame is received to its exact end, so nothing after it has to be moved. This module knows the size
of a frame and nothing else of it.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from tidelog.broker.net.frame_memory import FrameMemory

# Enough for most connections.
SMALL_BUFFER_BYTES: Final = 16 * 1024
# A frame that comes more slowly than this is cut off: over so many seconds always, over fewer if others wait.
SLOWEST_BYTES_PER_S: Final = 1024
SLOWEST_OVER_S: Final = 10.0
PRESSED_BYTES_PER_S: Final = 32 * 1024
PRESSED_OVER_S: Final = 2.0
_NOTHING: Final = memoryview(b"")
_SIZE: Final = Struct(">i").unpack_from


def _ignore() -> None:
    """Do nothing."""


class ReceiveBuffer:
    """The buffer of one connection, which reads `view`, `filled`, `frame_end`, and adds received bytes to `filled`."""

    __slots__ = (
        "_frame_memory",
        "_granted",
        "_holds_lent",
        "_is_lent",
        "_pace",
        "_wanted_bytes",
        "address",
        "filled",
        "frame_end",
        "view",
    )

    def __init__(self, frame_memory: FrameMemory, address: str, granted: Callable[[], None]) -> None:
        """Begin with a small buffer; `granted` is called when a frame that waited gets its memory."""
        self._frame_memory = frame_memory
        self._granted = granted
        self._is_lent = False  # the buffer, to a request that is served in several turns
        self._holds_lent = False  # memory is charged for a buffer that was lent
        self._wanted_bytes = 0  # the size of the buffer that is waited for
        self._pace: tuple[float, int] | None = None  # when how much of an unfinished frame was there
        self.address = address
        self.view = memoryview(bytearray(SMALL_BUFFER_BYTES))  # the whole buffer
        self.filled = 0  # received bytes in it
        self.frame_end = 0  # the end of a frame that needs more than a small buffer

    def keep(self, start: int, takes_more: bool) -> bool:
        """Move the bytes from `start` on to the front. With `takes_more`, make room for the frame that they begin.

        Return whether there is room, as `grow` does.
        """
        self._pace = None
        left = self.filled - start
        if self._is_lent:
            self._is_lent = False
            self._holds_lent = True
            self.view, self.filled = self.view[start : self.filled], left
            self._use(max(left, SMALL_BUFFER_BYTES))
        elif start:
            if left:
                self.view[:left] = self.view[start : self.filled]
            self.filled = left
        self.frame_end = 0
        if left >= 4 and takes_more:
            end = 4 + _SIZE(self.view, 0)[0]
            if end > SMALL_BUFFER_BYTES:
                self.frame_end = end
                return self.filled < len(self.view) or self.grow()
        elif len(self.view) > SMALL_BUFFER_BYTES and self._frame_memory.is_waited_for:
            self.shrink()
        return True

    def grow(self) -> bool:
        """Take a buffer twice as large for the frame; False if that must wait for others to return theirs."""
        size = min(self.frame_end, 2 * len(self.view))
        if self._frame_memory.take(self, size, self.frame_end):
            self._use(size)
            return True
        self._wanted_bytes = size
        return False

    def memory_granted(self) -> None:
        """Continue to receive the frame that had to wait."""
        self._use(self._wanted_bytes)
        self._wanted_bytes = 0
        self._pace = None
        self._granted()

    def can_become_whole(self, more_bytes: int) -> bool:
        """Tell whether a frame that waits for memory is complete with `more_bytes`."""
        return not self._wanted_bytes or self.filled + more_bytes >= self.frame_end

    def too_slow(self, now_s: float, others_wait: bool) -> tuple[int, float] | None:
        """Return how many bytes of a frame came in how many seconds, if too few. Call this now and then."""
        since_s, had_bytes = self._pace = self._pace or (now_s, self.filled)
        came_bytes, took_s = self.filled - had_bytes, now_s - since_s
        is_slow = took_s >= SLOWEST_OVER_S and came_bytes < took_s * SLOWEST_BYTES_PER_S
        is_in_the_way = others_wait and took_s >= PRESSED_OVER_S and came_bytes < took_s * PRESSED_BYTES_PER_S
        if is_slow or is_in_the_way:
            return came_bytes, took_s
        if took_s >= SLOWEST_OVER_S:
            self._pace = now_s, self.filled
        return None

    def forget_pace(self) -> None:
        """Forget the pace: the connection is not read from."""
        self._pace = None

    def shrink(self) -> None:
        """Return to a small buffer, which is enough between large frames."""
        if len(self.view) > SMALL_BUFFER_BYTES:
            self._use(max(SMALL_BUFFER_BYTES, self.filled))
            self._frame_memory.give_back(self)

    def lend(self) -> None:
        """Lend the buffer to the request that was dispatched last."""
        self._is_lent = True

    def take_back(self) -> None:
        """Release the memory of a buffer that was lent, if any."""
        if self._holds_lent:
            self._holds_lent = False
            self._frame_memory.give_back(self)

    def drop(self) -> None:
        """Release the buffer, wait for nothing, and forget the connection."""
        self._frame_memory.give_back(self)
        self.view = _NOTHING
        self._granted = _ignore

    def _use(self, size_bytes: int) -> None:
        kept = self.view[: self.filled]
        self.view = memoryview(bytearray(size_bytes))
        self.view[: self.filled] = kept
