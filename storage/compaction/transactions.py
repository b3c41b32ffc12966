"""The outcome of transactions, from the markers in the log.

The marker of a transactional batch is the first one of its producer after it. Records of an aborted transaction are
never delivered, and replace nothing. A marker is removed when its transaction has no records left and its delete
horizon has passed: until then, readers may still have records before it (KIP-534). Only logs that Kafka has written
have transactions.
"""

from bisect import bisect_right
from struct import Struct

from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.build import read_records
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.compaction.reading import Entry
from tidelog.storage.summary import NONE, OFFSET_MAX

_MARKER = Struct(">hh")  # a control record's key: version and type
_ABORT, _COMMIT = 0, 1


class Transactions:
    """The markers of a log, and whether their transactions have records in it.

    All segments must be noted, in order. A segment that cannot be read is a hole: any transaction may have records in
    it, and if a hole lies between a batch and the next marker, the outcome of the batch is unknown.
    """

    __slots__ = ("_holes", "_markers", "_open", "_with_data")

    def __init__(self) -> None:
        """Begin without markers."""
        self._markers: dict[int, list[tuple[int, int]]] = {}  # by producer: offset and outcome
        self._open: dict[int, int] = {}  # by producer: the first offset of a transaction without a marker yet
        self._with_data: set[int] = set()  # the offsets of markers whose transactions have records
        self._holes: list[int] = []  # the base offsets of segments that cannot be read

    def note(self, entry: Entry) -> None:
        """Add a batch, in the order of the log."""
        header = entry.header
        if header.is_control:
            if self._open.pop(header.producer_id, None) is not None:
                self._with_data.add(header.base_offset)
            self._markers.setdefault(header.producer_id, []).append((header.base_offset, _outcome_in(entry)))
        elif header.is_transactional and header.record_count:
            self._open.setdefault(header.producer_id, header.base_offset)

    def note_hole(self, base_offset: int) -> None:
        """Add a segment that cannot be read, in the order of the log."""
        self._holes.append(base_offset)

    @property
    def first_open(self) -> int:
        """The first offset of the oldest open transaction; nothing from there on is decided."""
        return min(self._open.values(), default=OFFSET_MAX)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Tell whether a batch belongs to a transaction that was aborted."""
        return header.is_transactional and not header.is_control and self._outcome(header) == _ABORT

    def may_replace(self, header: BatchHeader) -> bool:
        """Tell whether a batch is committed, so that its records replace older ones."""
        return not header.is_transactional or self._outcome(header) == _COMMIT

    def _outcome(self, header: BatchHeader) -> int:
        markers, offset = self._markers.get(header.producer_id, []), header.base_offset
        number = bisect_right(markers, (offset, OFFSET_MAX))
        if number == len(markers):
            return NONE
        at, outcome = markers[number]
        hole = bisect_right(self._holes, offset)
        return NONE if hole < len(self._holes) and self._holes[hole] < at else outcome

    def has_data(self, header: BatchHeader) -> bool:
        """Tell whether the transaction of a marker had records when the pass began, or may have had."""
        return header.base_offset in self._with_data or bool(self._holes)


def _outcome_in(entry: Entry) -> int:
    try:
        key = next(record.key for record in read_records(entry.data))
    except (RecordsError, StopIteration):
        return NONE
    return int(_MARKER.unpack_from(key)[1]) if key is not None and len(key) >= _MARKER.size else NONE
