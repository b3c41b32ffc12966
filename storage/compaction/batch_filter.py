"""What of a batch stays: the rules of compaction, one batch at a time.

Owns the decision and the bytes that come of it. A record stays if no later one has its key, and if it has none; a
tombstone until its delete horizon, which the first pass that sees it writes into its batch (KIP-534). A batch is
rewritten only where it loses records or gets a horizon: its offset, its producer, its codec and its format stay. One
that has lost all of them stays empty where its header is still needed: as the last of its producer, so that what is
sent again is known for that, or as the last of its segment, so that the log has no gap there.
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
    """An entry as it is to be stored, and what an append would know of it."""

    data: Buffer
    valid: ValidBatch


class Last(NamedTuple):
    """Why an entry may have to stay though nothing is in it, and since when tombstones of older formats are seen."""

    is_last: bool  # of its segment
    safe_end: int  # what is older than a tombstone before this offset, and has its key, is gone
    legacy_deletes_end: int  # tombstones without a horizon go before this offset


class BatchFilter:
    """The rules for one pass; its counters say what came of it."""

    def __init__(
        self,
        keys: KeyMap,
        transactions: Transactions,
        producers: dict[int, int],
        epoch_at: Callable[[int], int],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """Go by the latest offsets of keys, and by the last offset of each producer that is remembered."""
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

    def keep(self, entry: Entry, last: Last) -> list[Kept]:
        """Return what stays of an entry."""
        kept = self._kept(entry, last)
        self.changed += kept is None or kept.data is not entry.data
        if kept is None:
            return []
        header, end = entry.header, kept.valid.header.last_offset + 1
        if not last.is_last or end > header.last_offset:
            return [kept]
        # What is left of a wrapper of the older formats ends with its last message, and the log is to have no gap.
        rest = header._replace(base_offset=end, last_offset_delta=header.last_offset - end)
        return [kept, self._emptied(self._of_no_message(rest))]

    def _kept(self, entry: Entry, last: Last) -> Kept | None:
        header = entry.header
        if header.magic != MAGIC:
            return self._keep_messages(entry, last)
        self.records += header.record_count
        if header.is_control:
            return self._keep_marker(entry, last)
        is_aborted = self._transactions.is_aborted(header)
        if is_aborted:
            self.dropped += header.record_count
        if is_aborted or not header.record_count:
            return self._emptied(header) if self._is_needed(header, last) else None
        return self._keep_records(entry, last)

    def is_long_ago(self, time_ms: int) -> bool:
        """Tell whether tombstones that were seen at a time may go now."""
        return NONE < time_ms <= self._now_ms - self._delete_retention_ms

    def _is_needed(self, header: BatchHeader, last: Last) -> bool:
        return last.is_last or self._producers.get(header.producer_id) == header.last_offset

    def _emptied(self, header: BatchHeader) -> Kept:
        """Return a batch of which only the header is left, as Kafka writes it; it has no time that a record has."""
        keeps = batch.LOG_APPEND_TIME | batch.TRANSACTIONAL | batch.CONTROL
        emptied = header._replace(
            attributes=header.attributes & keeps, base_timestamp=header.max_timestamp, record_count=0
        )
        data = signed(emptied, b"")
        return Kept(data, ValidBatch(batch.read_header(data), BEYOND, header.max_timestamp, NONE, len(data)))

    # Records.

    def _keep_records(self, entry: Entry, last: Last) -> Kept | None:
        header, columns = entry.header, self._columns
        try:
            data, (newest, first, oldest) = scanned(entry, columns)
        except UNREADABLE:
            # Its checksum is right, and nobody can read it: it is not for us to lose it.
            return _as_it_is(entry)
        # What became of a transaction may be unknown: its tombstones replace nothing, so they have nothing to outlive.
        is_decided = self._transactions.may_replace(header)
        drops = is_decided and self._has_expired(header) and header.last_offset < last.safe_end
        chosen = self._keys.choose(data, columns, header.base_offset, drops)
        gone = header.record_count - chosen.kept
        self.dropped += gone
        if not chosen.kept:
            self.tombstones_dropped += drops and self._tombstones(header.record_count)
            return self._emptied(header) if self._is_needed(header, last) else None
        is_new = is_decided and not header.has_delete_horizon and header.last_offset < self._keys.end
        gets_horizon = is_new and bool(chosen.tombstones)
        if not gone and not gets_horizon:
            # Where the broker's clock stamps, all have the largest time: the first of them is the first that is left.
            newest_at = 0 if header.is_log_append_time else first
            return _verbatim(entry, columns.offset_delta[newest_at], newest, oldest)
        return self._rewritten(entry, data, chosen.kept, gets_horizon)

    def _has_expired(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._now_ms

    def _tombstones(self, count: int) -> int:
        return sum(length < 0 for length in self._columns.value_length[:count])

    def _rewritten(self, entry: Entry, data: Buffer, kept: int, gets_horizon: bool) -> Kept:
        """Return the batch with those of its records that were chosen, and with a delete horizon if it gets one."""
        header, attributes, base_ms = entry.header, entry.header.attributes, entry.header.base_timestamp
        if gets_horizon:
            attributes, base_ms = attributes | batch.DELETE_HORIZON, self._horizon_ms
        try:
            shift = header.base_timestamp - base_ms
            records, written = self._keys.write(data, self._columns, kept, shift)
        except RecordError:
            # A record's time is so far from the horizon that no delta can say it: then there is none.
            attributes, base_ms = header.attributes, header.base_timestamp
            records, written = self._keys.write(data, self._columns, kept, 0)
        newest_ms, oldest_ms = base_ms + written.timestamp_delta_max, base_ms + written.timestamp_delta_min
        if header.is_log_append_time:
            newest_ms = oldest_ms = header.max_timestamp
        # Of a batch that gets a horizon base_timestamp is that, and what timestamps count from.
        changed = header._replace(
            attributes=attributes, base_timestamp=base_ms, max_timestamp=newest_ms, record_count=kept
        )
        made = signed(changed, compression.compress(header.codec, records))
        offset_delta = written.offset_delta_of_max
        if header.is_log_append_time:
            offset_delta = self._keys.first_kept(self._columns)
        return Kept(made, ValidBatch(batch.read_header(made), oldest_ms, newest_ms, offset_delta, len(made)))

    # Markers.

    def _keep_marker(self, entry: Entry, last: Last) -> Kept | None:
        """Return a marker, until nothing of its transaction is left and its horizon has passed."""
        header = entry.header
        if not header.record_count:
            return self._emptied(header) if self._is_needed(header, last) else None
        if self._transactions.has_data(header):
            return _as_it_is(entry)
        if self._has_expired(header):
            self.dropped += header.record_count
            return self._emptied(header) if self._is_needed(header, last) else None
        if header.has_delete_horizon:
            return _as_it_is(entry)
        try:
            data, _ = scanned(entry, self._columns)
        except UNREADABLE:
            return _as_it_is(entry)
        self._keys.choose(data, self._columns, self._keys.end, drops_tombstones=False)
        return self._rewritten(entry, data, header.record_count, gets_horizon=True)

    # Messages of the older formats.

    def _keep_messages(self, entry: Entry, last: Last) -> Kept | None:
        header = entry.header
        try:
            found = list(messages(entry))
        except UNREADABLE:
            self.records += 1
            return _as_it_is(entry)
        self.records += len(found)
        kept = [message for message in found if self._stays(message, last)]
        self.dropped += len(found) - len(kept)
        if len(kept) == len(found):
            return _as_it_is(entry)
        if not kept:
            return self._emptied(self._of_no_message(header)) if last.is_last else None
        stamps = header.is_log_append_time
        data = at_once(message_set.write(kept, header.magic, header.codec, log_append_time=stamps))
        oldest_ms, newest_ms = (choose(time for _, time, _, _ in kept) for choose in (min, max))
        newest = next(offset for offset, time, _, _ in kept if time == newest_ms)
        made = entries.read(data, 0, READ_LIMIT_BYTES)
        return Kept(
            data, ValidBatch(made, oldest_ms, made.max_timestamp, newest - made.base_offset, len(data))
        )

    def _of_no_message(self, header: BatchHeader) -> BatchHeader:
        """Return the header of a batch in the place of messages of an older format, which cannot be empty."""
        epoch = self._epoch_at(header.base_offset)
        return header._replace(
            leader_epoch=epoch,
            magic=MAGIC,
            producer_id=batch.NO_PRODUCER_ID,
            producer_epoch=-1,
            base_sequence=-1,
        )

    def _stays(self, message: Message, last: Last) -> bool:
        offset, _, key, value = message
        if key is None or offset >= self._keys.end:
            return True
        if value is None and offset < min(last.legacy_deletes_end, last.safe_end):
            self.tombstones_dropped += 1
            return False
        return not self._keys.has_later(key, offset)


def _as_it_is(entry: Entry) -> Kept:
    return Kept(entry.data, record_times.looked_up(entry.header, entry.data))


def _verbatim(entry: Entry, newest_offset_delta: int, newest: int, oldest: int) -> Kept:
    """Return a batch whose records were looked at; the offset delta is that of the first with the largest time."""
    header = entry.header
    newest_ms, oldest_ms = header.base_timestamp + newest, header.base_timestamp + oldest
    if header.is_log_append_time:
        newest_ms = oldest_ms = header.max_timestamp
    if newest_ms != header.max_timestamp:
        newest_offset_delta = NONE  # What the header says is what every reader of the log goes by.
    return Kept(
        entry.data,
        ValidBatch(header, oldest_ms, header.max_timestamp, newest_offset_delta, len(entry.data)),
    )
