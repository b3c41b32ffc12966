"""Compaction beside Apache Kafka's: `python -m bench.compaction [--records N] [--keys K] [--codec none|zstd]`.

One thread each, the same records, one broker after the other: how fast a pass is, as each broker says of itself, and
what CPU it takes; once with nothing else to do, and once beside produces: what it does to them, and they to it.
`--schedules` measures how much is copied by each schedule instead, in logs of a hundred segments. Prints a table as it
goes. `--records 100000` does everything, smaller: to see that it works.
"""

import argparse
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench import machine
from bench.__main__ import own_folder
from bench.brokers import Kafka, Server, Tidelog
from bench.kafka import free_port
from bench.wire import Wire
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records import kernel
from tidelog.protocol.records.batch import HEADER_BYTES, read_header
from tidelog.protocol.records.build import Record, build_batch, signed
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.compression import compress
from tidelog.protocol.records.steps import at_once
from tidelog.storage import recovery
from tidelog.storage.compaction import passes, plan
from tidelog.storage.shared import Shared

BATCH: Final = 150
CODECS: Final = {"none": 0, "zstd": 4}
KEY, DIGITS = b"key-00000000", 8
SEGMENT_BYTES: Final = 100 << 20
BESIDE: Final = 8  # connections that produce meanwhile
# What each broker says of its passes: in its log the time of that over the topic that is filled; among its figures the
# time of all.
KAFKA_SAYS: Final = re.compile(r"cleaned log bench-0.*?MB of log processed in ([\d,.]+) seconds", re.DOTALL)
OURS_SAYS: Final = re.compile(r'tidelog_compaction_seconds_total{outcome="done"} (\d[\d.e-]*)')
Seconds = Callable[[], float | None]


class Batches:
    """Batches of records of one size, whose keys are drawn from a distribution."""

    def __init__(self, codec: int, value_bytes: int = 76) -> None:
        rng = np.random.default_rng(1)
        records = [Record(n, 0, KEY, rng.bytes(value_bytes // 2).hex().encode()) for n in range(BATCH)]
        self._batch = bytearray(build_batch(records))
        columns = Columns()
        kernel.scan(self._batch, HEADER_BYTES, len(self._batch), BATCH, columns)
        starts = np.array(columns.key_position[:BATCH]) + len(KEY) - DIGITS
        self._digits = starts[:, None] + np.arange(DIGITS)
        self._codec = codec

    def of(self, keys: NDArray[np.int64], time_ms: int) -> bytearray:
        data = np.frombuffer(bytes(self._batch), np.uint8).copy()
        data[self._digits] = keys[:, None] // 10 ** np.arange(DIGITS - 1, -1, -1) % 10 + 48
        header = read_header(self._batch)._replace(
            base_timestamp=time_ms, max_timestamp=time_ms, attributes=self._codec
        )
        return signed(header, compress(self._codec, data[HEADER_BYTES:].tobytes()))


def draws(kind: str, keys: int, size: int) -> Iterator[NDArray[np.int64]]:
    """Yield the keys of so many records, again and again."""
    rng = np.random.default_rng(2)
    weights = np.cumsum(1 / np.arange(1, keys + 1))
    names, base = rng.permutation(keys), 0
    while True:
        if kind == "zipf":
            yield names[np.searchsorted(weights, rng.random(size) * weights[-1])]
        elif kind == "drifting":
            hot = (base + rng.integers(0, keys // 50, size)) % keys
            yield np.where(rng.random(size) < 0.9, hot, rng.integers(0, keys, size))
            base += keys // 500
        else:
            yield rng.integers(0, keys, size)


def settings(arguments: argparse.Namespace) -> dict[str, str]:
    return {
        "log.cleaner.threads": "1",
        "log.cleaner.backoff.ms": "500",
        "log.segment.bytes": str(min(SEGMENT_BYTES, max(arguments.records * 10, 1 << 20))),
        "log.retention.ms": "-1",
    }


def kafka_says(log: Path) -> float | None:
    """Return the seconds of the pass that its log tells of, if there was one."""
    found = KAFKA_SAYS.search(log.read_text(errors="replace"))
    return float(found[1].replace(",", "")) if found else None


def ours_says(port: int) -> float | None:
    """Return the seconds of passes that are done, if there was one."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        found = OURS_SAYS.search(answer.read().decode())
    return float(found[1]) or None if found else None


def pass_of(server: Server, seconds_of: Seconds, arguments: argparse.Namespace, *, is_beside: bool) -> None:
    """Fill a topic, have it compacted, alone or beside produces, and say what that took."""
    server.start()
    try:
        with ExitStack() as stack:
            wire, *others = [stack.enter_context(Wire(server.port)) for _ in range(1 + BESIDE)]
            wire.create_topics(
                ["bench"], settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
            )
            wire.create_topics(["beside"])
            fill(wire, arguments)
            time.sleep(2)
            quiet = latencies_us(others, 5) if is_beside else []
            size_mb = sum(path.stat().st_size for path in server.folder.glob("**/bench-0/*.log")) / 1e6
            cpu_s = all_cpu_s(server.pid)
            alter(server.port, "bench", {"min.cleanable.dirty.ratio": "0.01"})
            beside: list[float] = []
            rss_mb = 0.0
            deadline = time.monotonic() + 600
            while (seconds := seconds_of()) is None:
                if is_beside:
                    beside += latencies_us(others, 0.5)
                else:
                    time.sleep(0.5)
                rss_mb = max(rss_mb, all_rss_mb(server.pid))
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{server.kind} has compacted nothing in ten minutes")
            cpu_s = all_cpu_s(server.pid) - cpu_s
        p99s = (f"{np.percentile(times, 99):.0f}" for times in (quiet, beside) if times)
        say(server.kind, f"{size_mb / seconds:.0f} MB/s", f"{arguments.records / seconds / 1e6:.2f} M records/s",
            f"{cpu_s:.1f} CPU s", f"RSS {rss_mb:.0f} MB",
            f"produce p99 {' -> '.join(p99s)} us" if is_beside else "alone")  # fmt: skip
    finally:
        server.stop()


def all_cpu_s(pid: int) -> float:
    """Return the CPU time of a broker, with that of the passes that its processes have made."""
    return machine.cpu_s(pid) + machine.ended_children_cpu_s(pid)


def all_rss_mb(pid: int) -> float:
    """Return the memory of a broker and of the process that makes a pass for it."""
    total = 0
    for each in (pid, *machine.children(pid)):
        with suppress(FileNotFoundError, KeyError):  # It has just ended.
            total += machine.status(each)["rss_bytes"]
    return total / 1e6


def fill(wire: Wire, arguments: argparse.Namespace) -> None:
    batches, keys = Batches(CODECS[arguments.codec]), draws("uniform", arguments.keys, BATCH)
    start_ms, in_flight = int(time.time() * 1000) - arguments.records, 0
    for number in range(arguments.records // BATCH):
        wire.send_batch("bench", batches.of(next(keys), start_ms + number * BATCH))
        in_flight += 1
        if in_flight == 50:
            wire.receive_ack()
            in_flight -= 1
    for _ in range(in_flight):
        wire.receive_ack()


def latencies_us(wires: Sequence[Wire], seconds: float) -> list[float]:
    """Produce a record by each connection, acks=1, all at once and again a millisecond later; return the times."""
    data, found = bytearray(build_batch([Record(0, int(time.time() * 1000), b"k", b"v" * 80)])), []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        for wire in wires:
            wire.send_batch("beside", data)
        for wire in wires:
            wire.receive_ack()
            found.append((time.perf_counter() - began) * 1e6)
        time.sleep(0.001)
    return found


def alter(port: int, topic: str, options: dict[str, str]) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=options)])
    admin.close()


def schedules(arguments: argparse.Namespace) -> None:
    """Write three times a hundred segments, and compact whenever that is due, by each schedule."""
    segment_records = BATCH * 40
    for kind in ("uniform", "zipf", "drifting"):
        for by_yield in (False, True):
            copied, written, space = one_log(kind, by_yield, segment_records, arguments.keys // 10)
            say(kind, "by yield" if by_yield else "kafka", f"copied {copied / written:.2f} of what was written",
                f"space {np.mean(space):.2f} on average, {max(space):.2f} at most")  # fmt: skip


def one_log(kind: str, by_yield: bool, segment_records: int, keys: int) -> tuple[int, int, list[float]]:
    folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        batches = Batches(0)
        size = len(batches.of(np.zeros(BATCH, np.int64), 0))
        config = TopicConfig(
            cleanup_policy=("compact",), retention_ms=-1, segment_bytes=size * segment_records // BATCH
        )
        partition = folder / "bench-0"
        partition.mkdir()
        log = recovery.load(
            partition, "bench", 0, config, Shared(folder, 1 << 20), recovery.Known(clean=True, ours=True), 0
        )
        copied, written, space, met = 0, 0, [], np.zeros(keys, bool)
        source = draws(kind, keys, BATCH)
        now_ms = 1_700_000_000_000
        for number in range(300 * segment_records // BATCH):
            drawn = next(source)
            met[drawn] = True
            sealed = len(log.segments)
            log.append(batches.of(drawn, now_ms + number), now_ms + number)
            written += size
            if len(log.segments) > sealed:
                log.flush()
                due = plan.due(log, now_ms + number, by_yield=by_yield)
                if due is not None:
                    steps = passes.clean(
                        log,
                        due,
                        buffer_bytes=64 << 20,
                        load_factor=0.9,
                        structural=lambda step: step(),
                    )
                    copied += at_once(steps).written_bytes
                if number > 100 * segment_records // BATCH:
                    space.append(log.size_bytes / (met.sum() * size / BATCH))
        log.close()
        return copied, written, space
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say(*cells: str) -> None:
    print("  ".join(cell.ljust(16) for cell in cells).rstrip(), flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.compaction", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--codec", choices=CODECS, default="none")
    parser.add_argument("--only", choices=("tidelog", "kafka"))
    parser.add_argument("--schedules", action="store_true")
    arguments = parser.parse_args()
    if arguments.schedules:
        schedules(arguments)
        return 0
    folder = own_folder()
    try:
        for is_beside in (False, True):
            if arguments.only != "tidelog":
                kafka = Kafka(folder / f"kafka-{is_beside}", settings(arguments))
                said = kafka.folder.with_name(kafka.folder.name + ".kafka") / "server.log"
                pass_of(kafka, partial(kafka_says, said), arguments, is_beside=is_beside)
            if arguments.only != "kafka":
                port = free_port()
                ours = Tidelog(folder / f"ours-{is_beside}", {**settings(arguments), "http.port": str(port)})
                pass_of(ours, partial(ours_says, port), arguments, is_beside=is_beside)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
