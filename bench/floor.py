"""The floor: what uvloop and Python need to answer Kafka's requests at all, with no broker around them.

Produce 7 (framed, its CRC checked, written, answered), ListOffsets 1 and Fetch 4 (answered with a constant),
ApiVersions 0. One log for everything, nothing validated, no bounds, no order between answers that wait for the disk
and others: the least that must be done, measured beside the broker in the same run. Not a broker.

    python -m bench.floor FOLDER READY_FILE [--sync]     (--sync: a produce is answered after its fdatasync)
"""

import asyncio
import gc
import os
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import uvloop
from crc32c import crc32c

INT, SHORT = struct.Struct(">i").unpack_from, struct.Struct(">h").unpack_from
HEADER = struct.Struct(">ihhih").unpack_from  # size, api key, version, correlation id, length of client id
CRC, COUNT = struct.Struct(">I").unpack_from, struct.Struct(">i").unpack_from
SET_OFFSET = struct.Struct(">qi").pack_into
PRODUCED, FOUND, VERSIONS = struct.Struct(">iihqqq"), struct.Struct(">iihqq"), struct.Struct(">iihi")
FETCHED = struct.Struct(">iihqqii")

MOST_BYTES = 4 << 30  # it begins anew there, so that a long run does not fill the disk

Handler = Callable[["Client", bytearray, int, int, int], bytes | None]


class Log:
    """One file, appended to, and the answers that wait for its fdatasync."""

    def __init__(self, folder: Path, sync: bool) -> None:
        self.file = os.open(folder / "floor.log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.position = self.offset = 0
        self.sync = sync
        self.waiting: list[tuple[Client, bytes]] = []
        self.wake = os.eventfd(0)

    def append(self, records: memoryview, count: int) -> int:
        base, self.offset = self.offset, self.offset + count
        SET_OFFSET(records, 0, base, records.nbytes - 12)
        self.position = (self.position + os.pwrite(self.file, records, self.position)) % MOST_BYTES
        return base

    def flush_forever(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            os.eventfd_read(self.wake)
            waiting = self.waiting[:]
            del self.waiting[: len(waiting)]
            os.fdatasync(self.file)
            loop.call_soon_threadsafe(answer_all, waiting)


def answer_all(waiting: "list[tuple[Client, bytes]]") -> None:
    by_client: dict[Client, list[bytes]] = {}
    for client, answer in waiting:
        by_client.setdefault(client, []).append(answer)
    for client, answers in by_client.items():
        client.transport.write(b"".join(answers))


class Client(asyncio.BufferedProtocol):
    """Frames in, answers out; whatever came in one read is answered in one write."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.buffer = bytearray(1 << 21)
        self.view = memoryview(self.buffer)
        self.filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def get_buffer(self, _hint: int) -> memoryview:
        return self.view[self.filled :]

    def buffer_updated(self, size: int) -> None:
        buffer, filled, start = self.buffer, self.filled + size, 0
        answers = []
        while filled - start >= 4:
            (size, key, _, correlation_id, client_id) = HEADER(buffer, start)
            end = start + 4 + size
            if end > filled:
                break
            answer = HANDLERS[key](self, buffer, start + 14 + max(client_id, 0), end, correlation_id)
            if answer is not None:
                answers.append(answer)
            start = end
        if start and filled > start:
            buffer[: filled - start] = buffer[start:filled]
        self.filled = filled - start
        if answers:
            self.transport.write(b"".join(answers))


def framed(correlation_id: int, name: bytes, body: bytes, head: bytes = b"") -> bytes:
    answer = head + b"\0\0\0\1" + name + body
    return struct.pack(">ii", 4 + len(answer), correlation_id) + answer


def produce(client: Client, buffer: bytearray, at: int, end: int, correlation_id: int) -> bytes | None:
    at += 2 + max(SHORT(buffer, at)[0], 0) + 6  # transactional id, acks, timeout
    name_end = at + 6 + SHORT(buffer, at + 4)[0]
    name = bytes(client.view[at + 4 : name_end])
    (partition,) = INT(buffer, name_end + 4)
    records = client.view[name_end + 12 : end]
    if crc32c(records[21:]) != CRC(records, 17)[0]:
        raise ValueError("CRC")
    log = client.log
    base = log.append(records, COUNT(records, 57)[0])
    body = PRODUCED.pack(1, partition, 0, base, -1, 0) + b"\0\0\0\0"
    answer = framed(correlation_id, name, body)
    if not log.sync:
        return answer
    log.waiting.append((client, answer))
    os.eventfd_write(log.wake, 1)
    return None


def list_offsets(client: Client, buffer: bytearray, at: int, _end: int, correlation_id: int) -> bytes:
    name = bytes(client.view[at + 8 : at + 10 + SHORT(buffer, at + 8)[0]])
    return framed(correlation_id, name, FOUND.pack(1, 0, 0, 5, 5))


RECORDS = bytes(8) + struct.pack(">i", 149) + bytes(4) + b"\2" + bytes(144)


def fetch(client: Client, buffer: bytearray, at: int, _end: int, correlation_id: int) -> bytes:
    name = bytes(client.view[at + 21 : at + 23 + SHORT(buffer, at + 21)[0]])
    return framed(
        correlation_id, name, FETCHED.pack(1, 0, 0, 5, 5, -1, len(RECORDS)) + RECORDS, head=bytes(4)
    )


def api_versions(_client: Client, _buffer: bytearray, _at: int, _end: int, correlation_id: int) -> bytes:
    return VERSIONS.pack(10, correlation_id, 0, 0)


HANDLERS: dict[int, Handler] = {0: produce, 1: fetch, 2: list_offsets, 18: api_versions}


async def main(folder: Path, ready_file: Path, sync: bool) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    log = Log(folder, sync)
    if sync:
        threading.Thread(target=log.flush_forever, args=(loop,), daemon=True).start()
    server = await loop.create_server(lambda: Client(log), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    partial = ready_file.with_suffix(".partial")
    partial.write_text(f"{host}:{port}\n")
    partial.rename(ready_file)
    gc.freeze()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), Path(sys.argv[2]), "--sync" in sys.argv[3:]))
