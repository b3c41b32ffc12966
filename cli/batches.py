"""The batches of a range of offsets as they are stored, by Fetch, through the client library.

Owns what is asked of the leader of a partition, one answer ahead of what is looked at. Refuses to know what is in a
batch. What is deleted while it is read is left out; what cannot be read ends the reading with a CommandError.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tidelog.cli import client
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import UNREACHABLE
from tidelog.cli.text import called
from tidelog.protocol.records import entries
from tidelog.protocol.records.build import READ_LIMIT_BYTES
from tidelog.protocol.records.errors import CorruptBatch
from tidelog.storage.compaction.reading import Entry

MOST_BYTES: Final = 8 << 20
STALLED_S: Final = 30
_WAIT_MS: Final = 500
# Those of Fetch that tell of aborted transactions, and that name topics.
_VERSIONS: Final = {"min_version": 4, "max_version": 12}
_NO_SESSION: Final = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
_READ_COMMITTED: Final = 1
_OUT_OF_RANGE: Final = 1
_CORRUPT_MESSAGE: Final = 2
_EARLIEST: Final = -2


class Batches:
    """One partition, whose leader is a node; `most_bytes` is how much an answer may bring, but for a larger batch."""

    def __init__(self, session: client.Client, key: Any, node_id: int, most_bytes: int = MOST_BYTES) -> None:
        """Ask through an admin session."""
        self._session = session
        self._key = key
        self._node_id = node_id
        self._most_bytes = most_bytes

    def read(self, start: int, end: int) -> Iterator[list[Entry]]:
        """Yield the entries that have records from start on and before end, in order, as many as come at a time."""
        if start >= end:
            return
        with ThreadPoolExecutor(1, "fetch") as ahead:
            offset, last_news = start, time.monotonic()
            asked = ahead.submit(self._fetch, offset)
            while True:
                answer = asked.result()
                found = self._entries(answer, offset)
                if found:
                    offset, last_news = found[-1].header.last_offset + 1, time.monotonic()
                elif answer.error_code == _OUT_OF_RANGE:
                    offset = self._after_loss(offset)
                elif time.monotonic() - last_news > STALLED_S:
                    raise CommandError(f"the broker has sent nothing for {STALLED_S} s", UNREACHABLE)
                if offset < end:
                    asked = ahead.submit(self._fetch, offset)
                yield found
                if offset >= end:
                    return

    def _fetch(self, offset: int) -> Any:
        from kafka.protocol.consumer import FetchRequest

        topic = FetchRequest.FetchTopic
        wanted = topic.FetchPartition(
            partition=self._key.partition, fetch_offset=offset, partition_max_bytes=self._most_bytes
        )
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=self._most_bytes,
            isolation_level=_READ_COMMITTED,
            topics=[topic(topic=self._key.topic, partitions=[wanted])],
            **_NO_SESSION,
            **_VERSIONS,
        )
        manager = self._session._manager
        (answer,) = manager.run(manager.send, request, self._node_id).responses
        return answer.partitions[0]

    def _entries(self, answer: Any, offset: int) -> list[Entry]:
        """Return the entries that are whole; the last one may be cut off, as Kafka's protocol allows."""
        code = answer.error_code
        if code == _CORRUPT_MESSAGE:
            raise self._damaged(offset)
        if code != _OUT_OF_RANGE:
            client.check(f"partition {self._key.partition} of {self._key.topic}", {"error_code": code})
        data, at = memoryview(answer.records or b""), 0
        found: list[Entry] = []
        while len(data) - at >= entries.BYTES_MIN:
            try:
                header = entries.peek(data, at)
            except CorruptBatch:
                break  # not even its header is all there
            if not entries.BYTES_MIN <= header.size_bytes <= len(data) - at:
                break
            if not entries.check_crc(data, at, header):
                raise self._damaged(offset)
            if header.record_count == entries.UNKNOWN:
                header = entries.read(data, at, READ_LIMIT_BYTES)
            if header.last_offset >= offset:
                found.append(Entry(header, data[at : at + header.size_bytes]))
                offset = header.last_offset + 1
            at += header.size_bytes
        if len(data) and not at:
            raise self._damaged(offset)
        return found

    def _after_loss(self, offset: int) -> int:
        """Return where the partition begins now, which is behind an offset that was in it."""
        begins: int = self._session.list_partition_offsets({self._key: _EARLIEST})[self._key].offset
        if begins <= offset:
            raise CommandError(
                f"topic {self._key.topic} was made anew, or has lost records, while it was read: try again"
            )
        return begins

    def _damaged(self, offset: int) -> CommandError:
        return CommandError(
            f"partition {self._key.partition} of {self._key.topic} is damaged at offset {offset}: what is there says "
            f"{called()} fsck"
        )
