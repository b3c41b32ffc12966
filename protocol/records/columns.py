"""Where the parts of many records lie, for those who want to look at them all: filled by a scan.

Owns the room for them. Refuses to know what a record is. Invariant: the views are of the block, which stays in place.
"""


class Columns:
    """Where the parts of each record lie, as columns of int64 that are reused from one batch to the next.

    Each column is a view of one block: slice it, or hand it to numpy, without a copy. A scan that needs more
    room calls `grow`, which replaces the views; `count` says how many rows the last scan filled.
    """

    __slots__ = (
        "block",
        "capacity",
        "count",
        "headers_count",
        "headers_position",
        "key_length",
        "key_position",
        "offset_delta",
        "start",
        "timestamp_delta",
        "value_length",
        "value_position",
    )

    def __init__(self, capacity: int = 0) -> None:
        """Make room for capacity records."""
        self.count = 0
        self.capacity = 0
        self.grow(capacity)

    def grow(self, capacity: int) -> None:
        """Make room for at least capacity records; what the columns hold is lost."""
        capacity = max(capacity, 2 * self.capacity)
        self.capacity = capacity
        self.count = 0
        view = self.block = memoryview(bytearray(9 * 8 * capacity)).cast("q")
        self.start = view[:capacity]
        self.offset_delta = view[capacity : 2 * capacity]
        self.timestamp_delta = view[2 * capacity : 3 * capacity]
        self.key_position = view[3 * capacity : 4 * capacity]
        self.key_length = view[4 * capacity : 5 * capacity]
        self.value_position = view[5 * capacity : 6 * capacity]
        self.value_length = view[6 * capacity : 7 * capacity]
        self.headers_position = view[7 * capacity : 8 * capacity]
        self.headers_count = view[8 * capacity :]

    def check(self, marks: int | None = None) -> None:
        """Raise ValueError where rows that are filled have no room, or more of them are than there are marks."""
        if self.block.format != "q" or not 0 <= self.count <= self.capacity <= len(self.block) // 9:
            raise ValueError(f"{self.count} rows of {self.capacity} in a block of {len(self.block)}")
        if marks is not None and marks < self.count:
            raise ValueError(f"{marks} marks for {self.count} rows")
