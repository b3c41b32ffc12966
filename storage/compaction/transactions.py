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
from tidelog.storage.segment import OFFSET_MAX
from tidelog.storage.summary import NONE

_MARKER = Struct(">hh")  # of a control record's key: version, and what it says
_ABORT, _COMMIT = 0, 1


class Transactions:
    """The markers of a log, and what of their transactions a copy has met on its way from the oldest segment on."""

    __slots__ = ("_markers", "_met", "_open")

    def __init__(self) -> None:
        """Know of no marker."""
        self._markers: dict[int, list[tuple[int, int]]] = {}
        self._open: dict[int, int] = {}  # where a transaction begins of which no marker was met yet
        self._met: set[int] = set()  # producers of which the copy has met data, and no marker after it

    def note(self, entry: Entry) -> None:
        """Take note of a batch, in the order of the log."""
        header = entry.header
        if header.is_control:
            self._open.pop(header.producer_id, None)
            if (said := _said(entry)) in (_ABORT, _COMMIT):
                self._markers.setdefault(header.producer_id, []).append((header.base_offset, said))
        elif header.is_transactional and header.record_count:
            self._open.setdefault(header.producer_id, header.base_offset)

    @property
    def first_open(self) -> int:
        """Where the oldest transaction begins that nobody has ended; nothing from there on is decided."""
        return min(self._open.values(), default=OFFSET_MAX)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Tell whether a batch belongs to a transaction that was aborted."""
        return header.is_transactional and not header.is_control and self._outcome(header) == _ABORT

    def _outcome(self, header: BatchHeader) -> int:
        markers = self._markers.get(header.producer_id, [])
        number = bisect_right(markers, (header.base_offset, NONE))
        return markers[number][1] if number < len(markers) else NONE

    def has_data(self, header: BatchHeader) -> bool:
        """Take note of a transactional batch that is copied; of a marker tell whether its data is there still."""
        producer_id = header.producer_id
        if header.is_control:
            was_met = producer_id in self._met
            self._met.discard(producer_id)
            return was_met
        self._met.add(producer_id)
        return True


def _said(entry: Entry) -> int:
    try:
        key = next(record.key for record in read_records(entry.data))
    except (RecordsError, StopIteration):
        return NONE
    return int(_MARKER.unpack_from(key)[1]) if key is not None and len(key) >= _MARKER.size else NONE
