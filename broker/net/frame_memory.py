"""The memory of incomplete requests: what all connections together may hold in large buffers.

Grants memory, and queues connections that must wait for it. Knows sizes, and nothing of what is in the buffers. Event
loop only.
"""

from collections import Counter
from typing import Final, Protocol

MIB: Final = 1 << 20
# Buffers up to this size never wait; max.connections bounds how many there are.
FREE_BUFFER_BYTES: Final = 64 * 1024
# Frames up to this size have a share of their own: they never wait behind larger ones.
SMALL_FRAME_BYTES: Final = MIB
NO_LIMIT: Final = 1 << 62


class Holder(Protocol):
    """A connection, for the purpose of this module."""

    address: str

    def memory_granted(self) -> None:
        """Continue: the memory is granted now."""


class Share:
    """Memory that connections take and return; a connection waits if there is no room.

    Addresses are served in turn, and the connections of one address in their order. Invariant: some connection can
    always continue. If all holders wait for more, one of them gets it beyond the limit.
    """

    def __init__(self, limit_bytes: int, address_limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._address_limit_bytes = address_limit_bytes
        self._by_address: Counter[str] = Counter()
        self.held: dict[Holder, int] = {}
        self.total_bytes = 0
        # Holders by address, in turn, with the bytes that each is to hold.
        self.waiting: dict[str, dict[Holder, int]] = {}

    def take(self, holder: Holder, size_bytes: int) -> bool:
        """Let a connection hold `size_bytes` in all; False means that it waits for its turn."""
        if not self.waiting and self._fits(holder, size_bytes):
            self._grant(holder, size_bytes)
            return True
        self.waiting.setdefault(holder.address, {})[holder] = size_bytes
        return holder in self._serve(holder)

    def give_back(self, holder: Holder) -> None:
        """Release what a connection holds and waits for, and grant it to others."""
        held = self.held.pop(holder, 0)
        self.total_bytes -= held
        self._by_address[holder.address] -= held
        if not self._by_address[holder.address]:
            del self._by_address[holder.address]
        self._leave_queue(holder)
        for other in self._serve():
            other.memory_granted()

    def _serve(self, asking: Holder | None = None) -> list[Holder]:
        """Grant what fits, addresses in turn; return the served holders that waited before `asking`."""
        served: list[Holder] = []
        is_over = False
        while not is_over:
            is_over = True
            for address in list(self.waiting):
                holder, size = next(iter(self.waiting[address].items()))
                if self._fits(holder, size):
                    self._leave_queue(holder)
                    if address in self.waiting:  # the others of this address go behind all other addresses
                        self.waiting[address] = self.waiting.pop(address)
                    self._grant(holder, size)
                    served.append(holder)
                    is_over = False
        if asking is not None:
            for other in served:
                if other is not asking:
                    other.memory_granted()
        return served

    def _leave_queue(self, holder: Holder) -> None:
        queue = self.waiting.get(holder.address, {})
        queue.pop(holder, None)
        if not queue:
            self.waiting.pop(holder.address, None)

    def _fits(self, holder: Holder, size_bytes: int) -> bool:
        more = size_bytes - self.held.get(holder, 0)
        here = self._by_address[holder.address] + more
        return (more <= self._limit_bytes - self.total_bytes or self._all_wait(holder, None)) and (
            here <= self._address_limit_bytes or self._all_wait(holder, holder.address)
        )

    def _all_wait(self, asking: Holder, address: str | None) -> bool:
        """Tell whether all other holders, or those of an address, wait for more."""
        return all(
            holder is asking or holder in self.waiting.get(holder.address, ())
            for holder in self.held
            if address is None or holder.address == address
        )

    def _grant(self, holder: Holder, size_bytes: int) -> None:
        more = size_bytes - self.held.get(holder, 0)
        self.held[holder] = size_bytes
        self.total_bytes += more
        self._by_address[holder.address] += more


class FrameMemory:
    """The buffers of incomplete frames: one half for small frames, one for large ones."""

    def __init__(self, limit_bytes: int) -> None:
        """Allow `limit_bytes` for buffers, or any number of bytes if negative."""
        self.limit_bytes = limit_bytes
        half = (limit_bytes if limit_bytes >= 0 else NO_LIMIT) // 2
        self.small = Share(half, NO_LIMIT)
        # One address leaves half of it to the others.
        self.large = Share(half, half // 2)

    @property
    def is_waited_for(self) -> bool:
        """Tell whether any connection waits for memory."""
        return bool(self.small.waiting or self.large.waiting)

    @property
    def total_bytes(self) -> int:
        """Return the bytes that all connections hold."""
        return self.small.total_bytes + self.large.total_bytes

    def take(self, holder: Holder, size_bytes: int, frame_bytes: int) -> bool:
        """Let a connection have a buffer of `size_bytes` for a frame with an announced size of `frame_bytes`.

        False means that its `memory_granted` is called later.
        """
        if size_bytes <= FREE_BUFFER_BYTES:
            return True
        own, other = self.small, self.large
        if frame_bytes > SMALL_FRAME_BYTES:
            own, other = other, own
        if holder in other.held:  # for an earlier frame, of which nothing is left
            other.give_back(holder)
        return own.take(holder, size_bytes)

    def give_back(self, holder: Holder) -> None:
        """Release what a connection holds and waits for."""
        self.small.give_back(holder)
        self.large.give_back(holder)
