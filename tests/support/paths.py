"""Where the tests find what they read."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
# Logs that Apache Kafka wrote: a folder for each message format, codec and timestamp type.
KAFKA_WRITTEN = TESTS / "data" / "kafka-written"
