"""The positions of the parts of many records, filled by a scan."""


class Columns:
    """The positions of the parts of records, as columns of int64, which are reused for many batches.

    Each column is a view of one block, so slices and numpy arrays of it need no copy. A scan that needs more room calls
    `reserve`, which replaces the views. `count` is the number of rows of the last scan.
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

    block: "memoryview[int]"

    def __init__(self, capacity: int = 0) -> None:
        """Allocate columns for capacity records."""
        self.count = 0
        self.capacity = 0
        self._grow(capacity, 0)

    def reserve(self, capacity: int, kept: int = 0) -> None:
        """Make room for capacity records, of which the first kept rows stay."""
        if capacity > self.capacity:
            self._grow(capacity, kept)
        self.count = kept

    def _grow(self, capacity: int, kept: int) -> None:
        capacity = max(capacity, 2 * self.capacity)
        view = memoryview(bytearray(9 * 8 * capacity)).cast("q")
        if kept:
            for column in range(9):
                old, new = column * self.capacity, column * capacity
                view[new : new + kept] = self.block[old : old + kept]
        self.capacity, self.block = capacity, view
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
        """Raise ValueError if count is larger than the block, or than the number of marks."""
        if self.block.format != "q" or not 0 <= self.count <= self.capacity <= len(self.block) // 9:
            raise ValueError(f"{self.count} rows of {self.capacity} in a block of {len(self.block)}")
        if marks is not None and marks < self.count:
            raise ValueError(f"{marks} marks for {self.count} rows")
