"""The rules of compaction: which records of a batch stay.

Owns the decision and the resulting bytes. A record stays if no later one has its key, or if it has no key. A tombstone
stays until its delete horizon, which the first pass that sees it writes into its batch (KIP-534). A batch is rewritten
only if it loses records or gets a horizon; its offset, producer, codec and format stay. A batch that has lost all
records stays, empty, while its header is needed: the last one of a producer, to detect duplicates, and the last one of
a segment, so that the log has no gap.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.protocol.records import batch, compression, entries, message_set, record_times
from tidelog.protocol.records.batch import MAGIC, BatchHeader, Buffer
from tidelog.protocol.records.build import READ_LIMIT_BYTES, Message, signed
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError
from tidelog.protocol.records.steps import at_once
from tidelog.protocol.records.validate import ValidBatch
from tidelog.storage.compaction.key_map import KeyMap
from tidelog.storage.compaction.reading import UNREADABLE, Entry, messages, scanned
from tidelog.storage.compaction.transactions import Transactions
from tidelog.storage.minima import BEYOND
from tidelog.storage.summary import NONE

_INT64_MAX = (1 << 63) - 1


class Kept(NamedTuple):
    """An entry to store, and what the validation of an append would return for it."""

    data: Buffer
    valid: ValidBatch


class Place(NamedTuple):
    """What the rules need to know about an entry's place in the log."""

    is_last: bool  # of its segment
    safe_end: int  # before this offset, all records that a tombstone replaces are gone
    legacy_deletes_end: int  # before this offset, tombstones of the older formats are removed


class BatchFilter:
    """The rules for one pass, with counters of their results."""

    def __init__(
        self,
        keys: KeyMap,
        transactions: Transactions,
        producers: dict[int, int],
        epoch_at: Callable[[int], int],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """Use the latest offset of each key, and the last offset of each remembered producer."""
        self._epoch_at = epoch_at
        self._keys = keys
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, _INT64_MAX)
        self._columns = Columns()
        self.records = self.dropped = self.tombstones_dropped = 0
        self.changed = 0  # batches that were dropped or rewritten

    def keep(self, entry: Entry, place: Place) -> list[Kept]:
        """Return what stays of an entry."""
        kept = self._kept(entry, place)
        self.changed += kept is None or kept.data is not entry.data
        if kept is None:
            return []
        header, end = entry.header, kept.valid.header.last_offset + 1
        if not place.is_last or end > header.last_offset:
            return [kept]
        # A wrapper of the older formats has lost its last messages: an empty batch fills the gap.
        rest = header._replace(base_offset=end, last_offset_delta=header.last_offset - end)
        return [kept, self._emptied(self._of_no_message(rest))]

    def _kept(self, entry: Entry, place: Place) -> Kept | None:
        header = entry.header
        if header.magic != MAGIC:
            return self._keep_messages(entry, place)
        self.records += header.record_count
        if header.is_control:
            return self._keep_marker(entry, place)
        is_aborted = self._transactions.is_aborted(header)
        if is_aborted:
            self.dropped += header.record_count
        if is_aborted or not header.record_count:
            return self._emptied(header) if self._is_needed(header, place) else None
        return self._keep_records(entry, place)

    def is_long_ago(self, time_ms: int) -> bool:
        """Tell whether tombstones that a pass saw at this time may be removed now."""
        return NONE < time_ms <= self._now_ms - self._delete_retention_ms

    def _is_needed(self, header: BatchHeader, place: Place) -> bool:
        return place.is_last or self._producers.get(header.producer_id) == header.last_offset

    def _emptied(self, header: BatchHeader) -> Kept:
        """Return an empty batch as Kafka writes it; its timestamps are those of no record."""
        keeps = batch.LOG_APPEND_TIME | batch.TRANSACTIONAL | batch.CONTROL
        emptied = header._replace(
            attributes=header.attributes & keeps, base_timestamp=header.max_timestamp, record_count=0
        )
        data = signed(emptied, b"")
        return Kept(data, ValidBatch(batch.read_header(data), BEYOND, header.max_timestamp, NONE, len(data)))

    # Records.

    def _keep_records(self, entry: Entry, place: Place) -> Kept | None:
        header, columns = entry.header, self._columns
        try:
            data, (newest, first, oldest) = scanned(entry, columns)
        except UNREADABLE:
            # Its checksum is right, but its records cannot be decoded: keep it.
            return _as_it_is(entry)
        # Tombstones of a transaction without a known outcome replace nothing, so they get no horizon and stay.
        is_decided = self._transactions.may_replace(header)
        drops = is_decided and self._has_expired(header) and header.last_offset < place.safe_end
        chosen = self._keys.choose(data, columns, header.base_offset, drops)
        gone = header.record_count - chosen.kept
        self.dropped += gone
        if drops and gone:
            self.tombstones_dropped += self._tombstones(header.record_count) - chosen.tombstones
        if not chosen.kept:
            return self._emptied(header) if self._is_needed(header, place) else None
        is_new = is_decided and not header.has_delete_horizon and header.last_offset < self._keys.end
        gets_horizon = is_new and bool(chosen.tombstones)
        if not gone and not gets_horizon:
            # With LogAppendTime all records have the largest time, so the first one has it.
            newest_at = 0 if header.is_log_append_time else first
            return _verbatim(entry, columns.offset_delta[newest_at], newest, oldest)
        return self._rewritten(entry, data, chosen.kept, gets_horizon)

    def _has_expired(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._now_ms

    def _tombstones(self, count: int) -> int:
        lengths = zip(self._columns.key_length[:count], self._columns.value_length[:count], strict=True)
        return sum(key >= 0 > value for key, value in lengths)

    def _rewritten(self, entry: Entry, data: Buffer, kept: int, gets_horizon: bool) -> Kept:
        """Return the batch with its chosen records, and with a delete horizon if it gets one."""
        header, attributes, base_ms = entry.header, entry.header.attributes, entry.header.base_timestamp
        if gets_horizon:
            attributes, base_ms = attributes | batch.DELETE_HORIZON, self._horizon_ms
        try:
            shift = header.base_timestamp - base_ms
            records, written = self._keys.write(data, self._columns, kept, shift)
        except RecordError:
            # A record's time is too far from the horizon for a delta: leave the horizon out.
            attributes, base_ms = header.attributes, header.base_timestamp
            records, written = self._keys.write(data, self._columns, kept, 0)
        newest_ms, oldest_ms = base_ms + written.timestamp_delta_max, base_ms + written.timestamp_delta_min
        if header.is_log_append_time:
            newest_ms = oldest_ms = header.max_timestamp
        # With a horizon, base_timestamp is the horizon, and timestamp deltas count from it.
        changed = header._replace(
            attributes=attributes, base_timestamp=base_ms, max_timestamp=newest_ms, record_count=kept
        )
        made = signed(changed, compression.compress(header.codec, records))
        offset_delta = written.offset_delta_of_max
        if header.is_log_append_time:
            offset_delta = self._keys.first_kept(self._columns)
        return Kept(made, ValidBatch(batch.read_header(made), oldest_ms, newest_ms, offset_delta, len(made)))

    # Markers.

    def _keep_marker(self, entry: Entry, place: Place) -> Kept | None:
        """Keep a marker until its transaction has no records left and its horizon has passed."""
        header = entry.header
        if not header.record_count:
            return self._emptied(header) if self._is_needed(header, place) else None
        if self._transactions.has_data(header):
            return _as_it_is(entry)
        if self._has_expired(header):
            self.dropped += header.record_count
            return self._emptied(header) if self._is_needed(header, place) else None
        if header.has_delete_horizon:
            return _as_it_is(entry)
        try:
            data, _ = scanned(entry, self._columns)
        except UNREADABLE:
            return _as_it_is(entry)
        self._keys.choose(data, self._columns, self._keys.end, drops_tombstones=False)
        return self._rewritten(entry, data, header.record_count, gets_horizon=True)

    # Messages of the older formats.

    def _keep_messages(self, entry: Entry, place: Place) -> Kept | None:
        header = entry.header
        try:
            found = list(messages(entry))
        except UNREADABLE:
            self.records += 1
            return _as_it_is(entry)
        self.records += len(found)
        kept = [message for message in found if self._stays(message, place)]
        self.dropped += len(found) - len(kept)
        if len(kept) == len(found):
            return _as_it_is(entry)
        if not kept:
            return self._emptied(self._of_no_message(header)) if place.is_last else None
        stamps = header.is_log_append_time
        data = at_once(message_set.write(kept, header.magic, header.codec, log_append_time=stamps))
        oldest_ms, newest_ms = (choose(time for _, time, _, _ in kept) for choose in (min, max))
        newest = next(offset for offset, time, _, _ in kept if time == newest_ms)
        made = entries.read(data, 0, READ_LIMIT_BYTES)
        return Kept(
            data, ValidBatch(made, oldest_ms, made.max_timestamp, newest - made.base_offset, len(data))
        )

    def _of_no_message(self, header: BatchHeader) -> BatchHeader:
        """Return the header of a batch that replaces messages of an older format, which has no empty batches."""
        epoch = self._epoch_at(header.base_offset)
        return header._replace(
            leader_epoch=epoch,
            magic=MAGIC,
            producer_id=batch.NO_PRODUCER_ID,
            producer_epoch=-1,
            base_sequence=-1,
        )

    def _stays(self, message: Message, place: Place) -> bool:
        offset, _, key, value = message
        if key is None or offset >= self._keys.end:
            return True
        if value is None and offset < min(place.legacy_deletes_end, place.safe_end):
            self.tombstones_dropped += 1
            return False
        return not self._keys.has_later(key, offset)


def _as_it_is(entry: Entry) -> Kept:
    return Kept(entry.data, record_times.looked_up(entry.header, entry.data))


def _verbatim(entry: Entry, newest_offset_delta: int, newest: int, oldest: int) -> Kept:
    """Return an unchanged batch with its times; `newest_offset_delta` is of the first record with the largest."""
    header = entry.header
    newest_ms, oldest_ms = header.base_timestamp + newest, header.base_timestamp + oldest
    if header.is_log_append_time:
        newest_ms = oldest_ms = header.max_timestamp
    if newest_ms != header.max_timestamp:
        newest_offset_delta = NONE  # The header is wrong, but every reader of the log uses it.
    return Kept(
        entry.data,
        ValidBatch(header, oldest_ms, header.max_timestamp, newest_offset_delta, len(entry.data)),
    )
