"""The sink as Spark runs it: a frame, a stream, what Spark makes of our errors, and a job that is killed."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline import topics
from tests.support.broker import Broker, wait_until
from tests.support.workload import unique_topic
from tidelog.pipeline.writing.sink import rewritten

SCHEMA = "value string, key binary, headers array<struct<key string, value binary>>, partition int, timestamp timestamp"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return unique_topic(request.node.originalname)


def to(broker: Broker, topic: str, **options: str) -> dict[str, str]:
    return {"target": f"broker:{broker.address}", "topic": topic, **options}


def numbered(spark: Any, count: int, tasks: int) -> Any:
    return spark.range(0, count, 1, tasks).selectExpr(
        "cast(id as string) as value", "binary(cast(id as string)) as key", "concat('range-0@', id) as source"
    )


def test_a_frame_with_every_column(spark: Any, target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic, 2)
    frame = spark.sql(
        "select 'v' as value, binary('k') as key, array(named_struct('key', 'a', 'value', binary('1'))) as headers, "
        "1 as partition, timestamp '2020-01-02 03:04:05.006789' as timestamp "
        "union all select null, null, null, 0, timestamp '1999-12-31 23:59:59.999'"
    )
    frame.write.format("tidelog").options(**to(target_broker, topic)).mode("append").save()
    assert topics.read(target_broker, topic) == [
        topics.Read(0, 0, 946_684_799_999, None, None, []),
        topics.Read(1, 0, 1_577_934_245_006, b"k", b"v", [("a", b"1")]),
    ]


def test_what_the_source_reads_is_rewritten_with_where_it_came_from(
    spark: Any, target_broker: Broker, topic: str
) -> None:
    origin, copy = topics.make(target_broker, topic, 2), topics.make(target_broker, topic + "-copy", 2)
    frame = numbered(spark, 20, 2).selectExpr(
        "value", "key", "timestamp_millis(1000000000000 + bigint(value)) as timestamp"
    )
    frame.write.format("tidelog").options(**to(target_broker, origin)).mode("append").save()
    source = {"source": f"segments:{target_broker.data_dir}", "topic": origin}
    records = spark.read.format("tidelog").options(**source).load()
    for _ in range(2):
        rewritten(records, keep_partition=True).write.format("tidelog").options(
            **to(target_broker, copy, resume="true", job=topic)
        ).mode("append").save()
    assert topics.read(target_broker, copy) == [
        one._replace(headers=[("tidelog.source", f"{origin}-{one.partition}@{one.offset}".encode())])
        for one in topics.read(target_broker, origin)
    ]
    assert "partition" not in rewritten(records).columns


def test_what_is_wrong_is_said_before_a_task_runs(spark: Any, target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic)
    writer = spark.range(1).selectExpr("'v' as value").write.format("tidelog")
    with pytest.raises(Exception, match="mode overwrite: a log is only appended to"):
        writer.options(**to(target_broker, topic)).mode("overwrite").save()
    with pytest.raises(Exception, match="column id: it cannot be written"):
        spark.range(1).write.format("tidelog").options(**to(target_broker, topic)).mode("append").save()
    assert topics.values(target_broker, topic) == []


def test_a_row_that_is_refused_fails_the_job_and_is_named(
    spark: Any, target_broker: Broker, topic: str
) -> None:
    topics.make(target_broker, topic, cleanup_policy="compact")
    frame = spark.range(0, 10, 1, 2).selectExpr("'v' as value", "if(id = 7, null, binary('k')) as key")
    with pytest.raises(Exception, match=rf"row 2 of task 1: not written to {topic} at .*: .*INVALID_RECORD"):
        frame.write.format("tidelog").options(**to(target_broker, topic)).mode("append").save()


def test_a_stream_goes_on_behind_its_checkpoint(
    spark: Any, target_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Twice to the end of what there is: what came between is all that the second run writes, each row once."""
    topics.make(target_broker, topic, 2)
    options = to(
        target_broker, topic, checkpointLocation=str(tmp_path / "checkpoint"), resume="true", job=topic
    )
    for run in range(2):
        numbered(spark, 1000, 2).where(f"int(value) % 2 = {run}").write.mode("append").parquet(
            str(tmp_path / "in")
        )
        files = spark.readStream.schema("value string, key binary, source string")
        rows = files.option("maxFilesPerTrigger", "1").parquet(str(tmp_path / "in"))
        query = rows.writeStream.format("tidelog").options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.exception() is None
        assert [one.numInputRows for one in query.recentProgress] == [250, 250]
        written = sorted(int(value or b"") for value in topics.values(target_broker, topic))
        assert written == (list(range(0, 1000, 2)) if run == 0 else list(range(1000)))


_KILLED = """
import sys
from tidelog.pipeline.session import session
address, topic = sys.argv[1:]
spark = session({"spark.master": "local[2]"})
frame = spark.range(0, 6000, 1, 3).selectExpr(
    "cast(id as string) as value", "binary(cast(id as string)) as key", "concat('range-0@', id) as source"
)
options = {"target": f"broker:{address}", "topic": topic, "job": topic, "maxRecordsPerSecond": "1000"}
frame.write.format("tidelog").options(**options).mode("append").save()
"""


def are_gone(mark: str) -> bool:
    """Return whether no process is left that was started with this mark, as workers that Spark started are."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in environ.read_bytes():
                return False
        except OSError:
            continue  # ended, or another's
    return True


@pytest.mark.all
def test_a_job_that_is_killed_and_resumed_has_written_every_row_once(
    spark: Any, target_broker: Broker, topic: str
) -> None:
    topics.make(target_broker, topic, 2)
    mark = f"TIDELOG_TEST={topic}"
    killed = subprocess.Popen(
        [sys.executable, "-c", _KILLED, target_broker.address, topic],
        env={**os.environ, "TIDELOG_TEST": topic},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: killed.poll() is not None or len(topics.read(target_broker, topic)) > 500, 90)
        assert killed.poll() is None
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    wait_until(lambda: are_gone(mark))
    before = len(topics.read(target_broker, topic))
    assert 500 < before < 6000
    numbered(spark, 6000, 3).write.format("tidelog").options(
        **to(target_broker, topic, job=topic, resume="true")
    ).mode("append").save()
    found = Counter(int(value or b"") for value in topics.values(target_broker, topic))
    assert found == Counter(range(6000))
