"""What became of transactions, as their markers in the log tell it.

Owns the way from a transactional batch to its marker: the first of its producer after it. What an aborted transaction
has written is never delivered, and replaces nothing. A marker goes when nothing of its transaction is left and its
delete horizon has passed, as readers may have what came before it (KIP-534). Transactions are in logs that Kafka has
written; here nobody begins one.
"""

from bisect import bisect_right
from struct import Struct

from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.build import read_records
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.compaction.reading import Entry
from tidelog.storage.summary import NONE, OFFSET_MAX

_MARKER = Struct(">hh")  # of a control record's key: version, and what it says
_ABORT, _COMMIT = 0, 1


class Transactions:
    """The markers of a log, and whether it has anything of their transactions: all of its segments are to be told of.

    Where one cannot be read, every marker may have something in it, and what became of a transaction whose next marker
    is behind it nobody knows: it is taken neither for aborted nor for committed.
    """

    __slots__ = ("_holes", "_markers", "_open", "_with_data")

    def __init__(self) -> None:
        """Know of no marker."""
        self._markers: dict[int, list[tuple[int, int]]] = {}
        self._open: dict[int, int] = {}  # where a transaction begins of which no marker was met yet
        self._with_data: set[int] = set()  # offsets of markers
        self._holes: list[int] = []  # where segments begin that cannot be read

    def note(self, entry: Entry) -> None:
        """Take note of a batch, in the order of the log."""
        header = entry.header
        if header.is_control:
            if self._open.pop(header.producer_id, None) is not None:
                self._with_data.add(header.base_offset)
            self._markers.setdefault(header.producer_id, []).append((header.base_offset, _said(entry)))
        elif header.is_transactional and header.record_count:
            self._open.setdefault(header.producer_id, header.base_offset)

    def note_hole(self, base_offset: int) -> None:
        """Take note of a segment that cannot be read, in the order of the log."""
        self._holes.append(base_offset)

    @property
    def first_open(self) -> int:
        """Where the oldest transaction begins that nobody has ended; nothing from there on is decided."""
        return min(self._open.values(), default=OFFSET_MAX)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Tell whether a batch belongs to a transaction that was aborted."""
        return header.is_transactional and not header.is_control and self._outcome(header) == _ABORT

    def may_replace(self, header: BatchHeader) -> bool:
        """Tell whether a batch is known to be delivered, so that what it replaces may go."""
        return not header.is_transactional or self._outcome(header) == _COMMIT

    def _outcome(self, header: BatchHeader) -> int:
        markers, offset = self._markers.get(header.producer_id, []), header.base_offset
        number = bisect_right(markers, (offset, OFFSET_MAX))
        if number == len(markers):
            return NONE
        at, said = markers[number]
        hole = bisect_right(self._holes, offset)
        return NONE if hole < len(self._holes) and self._holes[hole] < at else said

    def has_data(self, header: BatchHeader) -> bool:
        """Tell of a marker whether data of its transaction is there, or was when the pass began."""
        return header.base_offset in self._with_data or bool(self._holes)


def _said(entry: Entry) -> int:
    try:
        key = next(record.key for record in read_records(entry.data))
    except (RecordsError, StopIteration):
        return NONE
    return int(_MARKER.unpack_from(key)[1]) if key is not None and len(key) >= _MARKER.size else NONE
