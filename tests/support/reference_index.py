"""What the index files of a sealed or closed segment must hold, worked out from its log alone.

Owns: the rule, written a second time and for clarity only, so that storage has something to be wrong against.
Refuses to know: storage. Invariant I5: the files equal what this gives, byte for byte.
"""

import struct
from pathlib import Path

from tidelog.protocol.records import entries


def rebuilt(log: bytes, base_offset: int, interval_bytes: int) -> tuple[bytes, bytes]:
    """Return the bytes of `.index` and `.timeindex` for the bytes of a `.log`."""
    offsets, times = bytearray(), bytearray()
    largest, largest_at, last_in_times = -1, -1, -1
    position = last_indexed = 0

    def index_time() -> None:
        nonlocal last_in_times
        if largest > last_in_times:
            times.extend(struct.pack(">qi", largest, largest_at - base_offset))
            last_in_times = largest

    while position < len(log):
        header = entries.peek(log, position)
        # One that compaction has left without records has a time that no record has.
        if header.max_timestamp > largest and header.record_count:
            largest, largest_at = header.max_timestamp, header.last_offset
        if position - last_indexed > interval_bytes:
            offsets.extend(struct.pack(">ii", header.last_offset - base_offset, position))
            index_time()
            last_indexed = position
        position += header.size_bytes
    index_time()
    return bytes(offsets), bytes(times)


def differences(partition: Path, interval_bytes: int) -> list[str]:
    """Return how the index files of a partition differ from a rebuild; its broker must have been stopped."""
    found = []
    for log in sorted(partition.glob("*.log")):
        wanted = rebuilt(log.read_bytes(), int(log.stem), interval_bytes)
        for suffix, data in zip((".index", ".timeindex"), wanted, strict=True):
            path = log.with_suffix(suffix)
            if path.read_bytes() != data:
                found.append(f"{path}: {path.stat().st_size} bytes, a rebuild gives {len(data)} others")
    return found
