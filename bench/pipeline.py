"""The pipeline's sources beside Spark's own connector, in one run: `python -m bench.pipeline [--records N] [--runs N]`.

Every contender in turn, again and again, and of each the best run: what drifts on the machine drifts for all. All read
what one broker of ours has written, the connector and the source over a broker through that same broker. Prints a table
as it goes. `--records 100000` does everything, smaller: to see that it works.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import build
from bench.__main__ import own_folder
from bench.brokers import Tidelog
from bench.fill import Filled, Shape, fill
from bench.wire import Wire
from tidelog.pipeline.session import session

CONNECTOR = build.ROOT / "tests" / "pipeline" / "connector" / "pom.xml"
CODECS = {"none": 0, "lz4": 3, "zstd": 4}
# Columns, as ours are named and as the connector names them.
COLUMNS = {
    "six": (
        "offset long, partition int, create_time timestamp, key binary, value binary, timestamp_type string",
        ["offset", "partition", "timestamp", "key", "value", "timestampType"],
    ),
    "three": ("offset long, create_time timestamp, key binary", ["offset", "timestamp", "key"]),
}
RANGE_MS, DISORDER_MS = 10_000, 30_000
KEPT = {"log.retention.ms": "-1", "log.segment.bytes": str(256 << 20)}


class Topic(NamedTuple):
    """What there is to read."""

    name: str
    broker: str
    folder: Path
    records: int

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob(f"{self.name}-*/*.log"))


class Read(NamedTuple):
    """One way to read a topic."""

    name: str
    frame: Callable[[Any, Topic, str], Any]  # of a session, a topic, and which columns


def ours(kind: str) -> Callable[[Any, Topic, str], Any]:
    def frame(spark: Any, topic: Topic, columns: str) -> Any:
        return ours_of(spark, topic, kind).schema(COLUMNS[columns][0]).load()

    return frame


def ours_of(spark: Any, topic: Topic, kind: str) -> Any:
    place = {"segments": f"segments:{topic.folder}", "broker": f"broker:{topic.broker}"}[kind]
    return spark.read.format("tidelog").option("source", place).option("topic", topic.name)


def theirs(spark: Any, topic: Topic, columns: str) -> Any:
    return connector(spark, topic).load().select(*COLUMNS[columns][1])


def connector(spark: Any, topic: Topic) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", topic.broker)
    return reader.option("subscribe", topic.name).option("minPartitions", "8")


READS = (Read("segments", ours("segments")), Read("broker", ours("broker")), Read("connector", theirs))


def took_s(frame: Any) -> float:
    """Return how long a frame takes that is read to its end and thrown away."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def whole(spark: Any, topic: Topic, codec: str, runs: int) -> None:
    """Read all of a topic."""
    size_mb = topic.bytes / 1e6
    for columns in COLUMNS:
        best = dict.fromkeys((read.name for read in READS), float("inf"))
        for run in range(runs):
            for read in READS if run % 2 == 0 else reversed(READS):
                best[read.name] = min(best[read.name], took_s(read.frame(spark, topic, columns)))
        for name, seconds in best.items():
            times = best["connector"] / seconds
            say(codec, columns, name, f"{topic.records / seconds / 1e6:.2f} M rows/s",
                f"{size_mb / seconds:.0f} MB/s", f"{times:.1f} times the connector")  # fmt: skip


def in_range(spark: Any, topic: Topic, filled: Filled, runs: int) -> None:
    """Read ten seconds out of all, of records that are up to half a minute late."""
    begin_ms = int(filled.start_ms + (filled.end_ms - filled.start_ms) // 2)
    true = set(np.nonzero((filled.times >= begin_ms) & (filled.times < begin_ms + RANGE_MS))[0].tolist())
    reads: dict[str, Callable[[], Any]] = {}
    for kind in ("segments", "broker"):
        reads[kind] = lambda kind=kind: (
            ours_of(spark, topic, kind)
            .option("from", str(begin_ms))
            .option("to", str(begin_ms + RANGE_MS))
            .schema("offset long")
            .load()
        )
    reads["connector"] = lambda: (
        connector(spark, topic)
        .option("startingTimestamp", str(begin_ms))
        .option("endingTimestamp", str(begin_ms + RANGE_MS))
        .load()
        .select("offset")
    )
    best = dict.fromkeys(reads, float("inf"))
    found: dict[str, set[int]] = {}
    for _ in range(runs):
        for name, read in reads.items():
            began = time.perf_counter()
            rows = read().toArrow()
            best[name] = min(best[name], time.perf_counter() - began)
            found[name] = set(rows["offset"].to_pylist())
    for name, seconds in best.items():
        say("range", f"{len(true):,} true", name, f"{seconds:.2f} s",
            f"{len(true - found[name]):,} missed", f"{len(found[name] - true):,} wrong")  # fmt: skip
    done = subprocess.run(
        [str(Path(sys.executable).with_name("tidelog")), "pipeline", "backfill", "--dry-run",
         "--source", f"segments:{topic.folder}", "--topic", topic.name,
         "--from", str(begin_ms), "--to", str(begin_ms + RANGE_MS), "--out", str(topic.folder / "none")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    say("range", "plan", "segments", done.stdout.strip(), f"of {topic.bytes:,} bytes")


def to_parquet(spark: Any, topic: Topic, folder: Path) -> None:
    """Stream a topic to Parquet, in batches of a million records."""
    for kind in ("segments", "broker"):
        place = {"segments": f"segments:{topic.folder}", "broker": f"broker:{topic.broker}"}[kind]
        out = folder / f"stream-{kind}"
        began = time.perf_counter()
        query = (
            spark.readStream.format("tidelog").option("source", place).option("topic", topic.name).load()
            .writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
            .trigger(availableNow=True).start(str(out / "rows"))
        )  # fmt: skip
        query.awaitTermination()
        seconds = time.perf_counter() - began
        rows = spark.read.parquet(str(out / "rows")).count()
        say("stream", "to Parquet", kind, f"{rows / seconds / 1e6:.2f} M rows/s", f"{rows:,} rows")
        shutil.rmtree(out)


def say(*cells: str) -> None:
    print("  ".join(cell.ljust(10) for cell in cells).rstrip(), flush=True)


def connector_jars(folder: Path) -> str:
    """Return the connector's jars, from Maven."""
    jars = folder / "jars"
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    subprocess.run(["mvn", "-q", "-B", "-f", str(CONNECTOR), *goal], check=True)
    return ",".join(map(str, sorted(jars.glob("*.jar"))))


@contextmanager
def broker(folder: Path) -> Iterator[Tidelog]:
    served = Tidelog(folder, KEPT)
    served.start()
    try:
        yield served
    finally:
        served.stop()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.pipeline", description=__doc__)
    parser.add_argument("--records", type=int, default=16_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    folder, rng = own_folder(), np.random.default_rng(1)
    try:
        spark = session(
            {"spark.master": "local[2]", "spark.driver.memory": "4g", "spark.jars": connector_jars(folder)}
        )
        with broker(folder / "data") as served, Wire(served.port) as wire:
            where = f"127.0.0.1:{served.port}"
            for codec, number in CODECS.items():
                wire.create_topics([codec])
                fill(wire, codec, Shape(codec=number), arguments.records, rng)
                topic = Topic(codec, where, served.folder, arguments.records)
                whole(spark, topic, codec, arguments.runs)
                if codec == "none":
                    to_parquet(spark, topic, folder)
                wire.delete_topics([codec])
            late = Shape(late=1.0, late_max_ms=DISORDER_MS)
            wire.create_topics(["late"])
            filled = fill(wire, "late", late, arguments.records // 4, rng)
            in_range(
                spark, Topic("late", where, served.folder, arguments.records // 4), filled, arguments.runs
            )
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
