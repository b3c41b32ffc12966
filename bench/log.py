"""What a log costs beside its records, and what it takes to search it: `python -m bench.log [--only lookups ...]`.

Owns figures of Tidelog alone, a line each: what `.appendindex` and the other files beside a log add to it, and
`.appendindex` to an append; what a lookup reads and how long it takes, by each clock and in logs of several sizes and
orders, every answer by record time held against a scan; what a client of an older format is sent a second, and the
memory that this takes; and what a small client feels while others write at 60 % of what the disk takes, or while
another sends large batches at full speed.

`--gb 0.01 --seconds 1` does everything, smaller: to see that it works. Twenty gigabytes take some minutes a shape.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np

from bench import build, machine, table
from bench.__main__ import own_folder
from bench.fill import Filled, Shape, fill, scan
from bench.metrics import Measures
from bench.rows.produce import FAST
from bench.stage import Rig, Stage
from bench.wire import Wire
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import read_only, recovery
from tidelog.storage.log import Log
from tidelog.storage.search import by_time, explained
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.shared import Shared
from tidelog.storage.sources import PATIENT

BESIDE: Final = (".index", ".timeindex", ".appendindex", ".summary")
SHAPES: Final = {
    "in order": Shape(),
    "1 % late by up to an hour": Shape(late=0.01),
    "shuffled within an hour": Shape(late=1.0),
}
CLOCKS: Final = {"record": RECORD_TIME, "append": APPEND_TIME}
LOOKUPS: Final = 2_000
OLD_FETCH: Final = 3  # the last version that is answered in format v1
MESSAGE: Final = Struct(">qi")
SHARE, MOST_MB_S, HEAVY_BYTES, HEAVY_CONNECTIONS = 0.6, 500, 1_000_000, 4
SMALL_RATE: Final = 500


def sidecars(rig: Rig, arguments: argparse.Namespace) -> None:
    """Write logs of records of 100 B and of 1 KB, as one client does, and weigh their files."""
    for size in (100, 1_000):
        for records in (1, 100):
            with alone(rig) as stage:
                topic = stage.topic()
                stage.load("produce", topic, size=size, records=records, seconds=arguments.seconds)
                stage.broker.stop()
                sizes = {
                    suffix: weight(stage.broker.folder / f"{topic}-0", suffix) for suffix in (".log", *BESIDE)
                }
            what = f"{size} B, {records} a batch"
            for suffix in BESIDE:
                say(f"% of the log that {suffix} adds: {what}", sizes[suffix] / sizes[".log"] * 100)
    with a_log(rig.folder / "append") as log:
        rounds = [appended(log, number) for number in range(10)]
    with_entry_us, without_us = np.median(np.array(rounds), axis=0)
    say("us of an append without an entry in .appendindex", without_us)
    say(
        "us that an entry adds, 16 bytes a millisecond in which something is appended",
        with_entry_us - without_us,
    )


def weight(folder: Path, suffix: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"*{suffix}"))


@contextmanager
def a_log(folder: Path) -> Iterator[Log]:
    partition = folder / "bench-0"
    partition.mkdir(parents=True)
    known = recovery.Known(clean=True, ours=True)
    log = recovery.load(partition, "bench", 0, TopicConfig(), Shared(folder, 1 << 20), known, 0)
    try:
        yield log
    finally:
        log.close()
        shutil.rmtree(folder)


def appended(log: Log, number: int, count: int = 5_000) -> tuple[float, float]:
    """Append batches of a record, each a millisecond after the one before, then all in one; return us an append."""
    now_ms = number * count
    data = build_batch([Record(0, now_ms, None, bytes(100))])
    took: list[float] = []
    for step_ms in (1, 0):
        batches = [bytearray(data) for _ in range(count)]
        began = time.perf_counter()
        for place, batch in enumerate(batches):
            log.append(batch, now_ms + place * step_ms)
        took.append((time.perf_counter() - began) / count * 1e6)
        now_ms += count
    return took[0], took[1]


def lookups(rig: Rig, arguments: argparse.Namespace) -> None:
    """Write logs of several orders, and ask each for random times by either clock."""
    for gb in arguments.gb:
        for name, shape in SHAPES.items():
            rng = np.random.default_rng(7)
            with alone(rig) as stage:
                topic, began_ms = stage.topic(), int(time.time() * 1000)
                with Wire(stage.broker.port) as wire:
                    records = int(gb * 1e9 / shape.value_bytes)
                    filled = fill(wire, topic, shape, records, rng)
                ended_ms = int(time.time() * 1000)
                stage.broker.stop()
                folder = stage.broker.folder / f"{topic}-0"
                log = read_only.load(folder, topic, 0, TopicConfig(), 0, ended_ms)
                spans = {"record": (filled.start_ms, filled.end_ms), "append": (began_ms, ended_ms)}
                for clock, span in spans.items():
                    wanted = rng.integers(*span, LOOKUPS)
                    looked_up(log, clock, wanted, filled, f"{clock} time, {gb:g} GB {name}")
                log.close()


def looked_up(log: Log, clock: str, wanted: "np.typing.NDArray[np.int64]", filled: Filled, what: str) -> None:
    timeline = CLOCKS[clock]
    first, wanted = (
        wanted[: LOOKUPS // 10],
        wanted[LOOKUPS // 10 :],
    )  # what is found again is read from no file
    read = [
        sum(step.bytes_read for step in explained.first_at_or_after(log, when, timeline).steps)
        for when in first.tolist()
    ]
    took, found = [], []
    for when in wanted.tolist():
        began = time.perf_counter()
        answer = by_time.first_at_or_after(log, when, timeline, PATIENT)
        took.append((time.perf_counter() - began) * 1e6)
        found.append(-1 if answer is None else answer.offset)
    if clock == "record" and found != scan(filled.times, wanted):
        raise RuntimeError(f"{what}: not what a scan finds")
    for figure, values in (("us", took), ("bytes", read)):
        say(f"{figure} a lookup by {what}, median", np.median(values))
        say(f"{figure} a lookup by {what}, most", max(values))


def downward(rig: Rig, arguments: argparse.Namespace) -> None:
    """Have a log of a gigabyte, or the first size asked for, read by a client that knows format v1 only."""
    for codec, name in ((0, "plain"), (3, "lz4")):
        with alone(rig) as stage:
            topic, rng = stage.topic(), np.random.default_rng(7)
            with Wire(stage.broker.port) as wire:
                shape = Shape(codec=codec)
                filled = fill(wire, topic, shape, int(arguments.gb[0] * 1e9 / shape.value_bytes), rng)
                time.sleep(1)
                pid = stage.broker.pid
                before = machine.status(pid)["rss_bytes"]
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # the most that it has had counts from here
                sent, seconds = read_all(wire, topic, len(filled.times))
                most = machine.status(pid)["most_rss_bytes"]
            say(f"MB/s of v1 made of v2, {name}", sent / seconds / 1e6)
            say(f"MB of memory that it takes at most, {name}", (most - before) / 1e6)


def read_all(wire: Wire, topic: str, records: int) -> tuple[int, float]:
    """Read a partition from its start as an old client does; return the bytes, and the seconds of waiting for them."""
    offset, sent, seconds = 0, 0, 0.0
    while offset < records:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=50 << 20,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        began = time.perf_counter()
        answer = wire.ask(FETCH, OLD_FETCH, request)
        seconds += time.perf_counter() - began
        found = answer.responses[0].partitions[0]
        data, at = bytes(found.records or b""), 0
        while at + MESSAGE.size <= len(data):
            last, size = MESSAGE.unpack_from(data, at)
            at += MESSAGE.size + size
            if at <= len(data):
                offset = last + 1
        if not data:
            raise RuntimeError(f"{topic}: nothing at offset {offset}, error {found.error_code}")
        sent += len(data)
    return sent, seconds


def steady(rig: Rig, arguments: argparse.Namespace) -> None:
    """Write at 60 % of what the disk takes, and have a small client write beside it."""
    disk_mb_s = written_mb_s(rig.folder, int(4e9 * min(1.0, arguments.gb[0])))
    rate = min(SHARE * disk_mb_s, MOST_MB_S) * 1e6 / HEAVY_BYTES
    with alone(rig) as stage:
        heavy, small = stage.topic(), stage.topic()
        options = {
            "mode": "produce", "size": 1_000, "records": HEAVY_BYTES // 1_000, "connections": HEAVY_CONNECTIONS,
            "in_flight": 5, "rate": max(1, int(rate)), "seconds": arguments.seconds + 2,
        }  # fmt: skip
        command = stage.command([build.load()], heavy, options)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            felt = felt_by_a_small_client(stage, small, arguments)
            said = process.communicate(timeout=60)[0]
        took = json.loads(said)
    say("MB/s that the disk takes", disk_mb_s)
    say("MB/s that is written, acks=1", took["requests_s"] * HEAVY_BYTES / 1e6)
    say_percentiles("a record beside it", felt)


def large_batches(rig: Rig, arguments: argparse.Namespace) -> None:
    """Have one client send zstd batches of 1 MB as fast as it can, and a small client write beside it.

    The small client writes to the floor in C too, which shares only the processors with the other one.
    """
    with alone(rig) as stage, rig.private("floor in C") as floor:
        floor.start()
        heavy, small = stage.topic(), stage.topic()
        options = {"records": 1_000_000_000, "size": 1_000, "seconds": arguments.seconds + 60}
        settings = ("compression.codec=zstd", "batch.size=1000000", *FAST)
        command = stage.command([build.rdkafka(), "produce"], heavy, options, settings)
        for where, its_stage in (("", stage), (", the floor in C", Stage(rig, floor, {}))):
            say_percentiles(f"a record{where}", felt_by_a_small_client(its_stage, small, arguments))
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                try:
                    felt = felt_by_a_small_client(its_stage, small, arguments)
                finally:
                    process.kill()
            say_percentiles(f"a record beside zstd batches of 1 MB{where}", felt)


def felt_by_a_small_client(stage: Stage, topic: str, arguments: argparse.Namespace) -> Measures:
    return stage.load(
        "produce", topic, in_flight=100, rate=SMALL_RATE, seconds=arguments.seconds, warm_up_seconds=1
    )


def say_percentiles(what: str, felt: Measures) -> None:
    for name in ("p50_us", "p99_us", "p999_us", "max_us"):
        say(f"{name.removesuffix('_us')} us of {what}", felt[name])


def written_mb_s(folder: Path, size: int) -> float:
    """Return how fast a file is written that is on disk in the end."""
    path, chunk = folder / "written", bytes(4 << 20)
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(chunk)):
            file.write(chunk)
        os.fdatasync(file.fileno())
    took = time.perf_counter() - began
    path.unlink()
    return size / took / 1e6


@contextmanager
def alone(rig: Rig) -> Iterator[Stage]:
    """Give a stage with a broker that nobody else uses, running."""
    with Stage(rig, None, {}, "tidelog").alone({"log.retention.ms": "-1"}) as stage:
        stage.broker.start()
        yield stage


PARTS: Final[dict[str, Callable[[Rig, argparse.Namespace], None]]] = {
    "sidecars": sidecars,
    "lookups": lookups,
    "downward": downward,
    "steady": steady,
    "large_batches": large_batches,
}


def say(what: str, value: float) -> None:
    print(f"{what:<80} {table.number(float(value)):>10}", flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.log", description=__doc__)
    parser.add_argument(
        "--gb", type=float, nargs="+", default=[1.0, 20.0], help="sizes of the logs that are searched"
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long is written")
    parser.add_argument("--only", nargs="+", choices=PARTS)
    arguments = parser.parse_args(words)
    folder = own_folder()
    rig = Rig(folder, 1.0, warms=False)
    try:
        for name, part in PARTS.items():
            if name in (arguments.only or PARTS):
                part(rig, arguments)
    finally:
        rig.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
