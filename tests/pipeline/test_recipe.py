"""The recipe for Spark's structured streaming in docs/testing-recipes.md: a job that stood still, and retention."""

from contextlib import closing

import pytest
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException


def test_a_job_that_stood_still_for_too_long_says_so(spark, tidelog, tmp_path):
    orders = tidelog.topic(**{"retention.ms": 86_400_000})

    def send(value):
        with closing(KafkaProducer(bootstrap_servers=orders.bootstrap)) as producer:
            producer.send(orders.name, value).get(10)

    def run():
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", orders.bootstrap)
        frame = source.option("subscribe", orders.name).option("startingOffsets", "earliest").load()
        sink = frame.selectExpr("CAST(value AS STRING) AS value").writeStream.format("parquet")
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(60)

    send(b"tea")
    run()
    assert [row.value for row in spark.read.parquet(str(tmp_path / "out")).collect()] == ["tea"]

    send(b"coffee")
    tidelog.clock.advance(hours=49)  # before the job has read it
    with pytest.raises(StreamingQueryException, match="data"):
        run()
