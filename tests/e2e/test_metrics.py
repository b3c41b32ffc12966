"""Metrics and health of a broker that runs as a process, while a client uses it."""

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families

import tidelog
from bench.kafka import free_port
from tests.support.broker import Broker, run_to_end, wait_until

pytestmark = pytest.mark.e2e


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def test_a_scraper_and_a_probe_and_an_orderly_stop(tmp_path: Path) -> None:
    """uvicorn does not take the signals: SIGTERM ends the broker as without it, with status 0."""
    port = free_port()
    with Broker(tmp_path / "data", {"http.port": str(port)}) as broker:
        broker.start()
        assert f"listening name=HTTP address=127.0.0.1:{port}" in broker.printed
        producer = KafkaProducer(bootstrap_servers=broker.address, acks="all")
        for _ in range(10):
            producer.send("t", b"x").get(20)
        producer.close()
        found = {
            (sample.name, sample.labels.get("api"), sample.labels.get("topic")): sample.value
            for family in text_string_to_metric_families(get(port, "/metrics"))
            for sample in family.samples
        }
        assert found["tidelog_topic_records_total", None, "t"] == 10
        assert found["tidelog_requests_total", "Produce", None] == 10
        assert found["tidelog_commit_seconds_count", None, None] == 10
        assert found["process_resident_memory_bytes", None, None] > 10 << 20
        assert json.loads(get(port, "/health"))["status"] == "ok"
        broker.stop(signal.SIGTERM)
        assert "uvicorn" not in broker.printed.lower()
        with pytest.raises(urllib.error.URLError):
            get(port, "/health")


def test_S102_people_are_told_of_a_log_whose_compaction_fails(tmp_path: Path) -> None:
    port = free_port()
    with Broker(tmp_path / "data", {"http.port": str(port), "log.cleaner.backoff.ms": "200"}) as broker:
        broker.start()

        def told(*options: str) -> tuple[int, str]:
            ended = run_to_end("health", "--http", f"127.0.0.1:{port}", *options)
            return ended.returncode, ended.stdout + ended.stderr

        assert told() == (0, f"ok: broker 1, Tidelog {tidelog.__version__}, 0 topics, 0 partitions\n")
        admin = KafkaAdminClient(bootstrap_servers=broker.address)
        options = {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "0"}
        admin.create_topics([NewTopic("t", 1, 1, topic_configs=options)])
        admin.close()
        (tmp_path / "data" / "t-0" / f"{0:020d}.log.cleaned").mkdir()
        producer = KafkaProducer(bootstrap_servers=broker.address, acks="all")
        for _ in range(4):
            producer.send("t", b"x" * 100, b"k").get(20)
        producer.close()
        wait_until(lambda: "compaction fails" in broker.printed)
        code, lines = told()
        assert code == 0
        assert "t-0: compaction fails, and is tried again: " in lines
        assert json.loads(told("--json")[1])["compaction_failing"] == 1
        broker.stop(signal.SIGTERM)
        code, lines = told()
        assert (code, "http.port" in lines, lines.count("\n")) == (3, True, 1)


def test_a_start_after_a_kill_tells_what_it_read_and_cut(tmp_path: Path) -> None:
    port = free_port()
    with Broker(tmp_path / "data", {"http.port": str(port)}) as broker:
        broker.start()
        producer = KafkaProducer(bootstrap_servers=broker.address, acks="all")
        producer.send("t", b"x" * 1000).get(20)
        producer.close()
        broker.stop(signal.SIGINT)
        broker.start()
        assert "\ntidelog_recovery_read_bytes 0\n" in get(port, "/metrics")
        producer = KafkaProducer(bootstrap_servers=broker.address, acks=1)
        producer.send("t", b"y" * 1000).get(20)
        producer.close()
        broker.kill()
        (log,) = (tmp_path / "data" / "t-0").glob("*.log")
        with log.open("ab") as file:
            file.write(b"torn")
        broker.start()
        values = dict(line.rsplit(" ", 1) for line in get(port, "/metrics").splitlines() if line[0] != "#")
        assert values["tidelog_recovery_cut_bytes"] == "4"
        assert 1000 < int(values["tidelog_recovery_read_bytes"]) < 5000
        assert float(values["tidelog_recovery_seconds"]) > 0
