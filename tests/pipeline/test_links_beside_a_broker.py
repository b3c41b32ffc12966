"""The links of a read beside a broker that runs: it removes what a driver left, and counts what links alone keep."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.test_from_broker import delete_before
from tests.support.broker import Broker, wait_until
from tests.support.logs import NOW, batch
from tests.support.raw_client import RawClient
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.options import parse
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.storage import pins

pytestmark = pytest.mark.e2e
# Plans a read, says so, and waits for its end.
PLANNER = f"""
import sys
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.options import parse
chosen = parse({{"source": "segments:" + sys.argv[1], "topic": "t"}}, {NOW})
from_segments.plan(chosen, {NOW})
print("planned", flush=True)
sys.stdin.read()
"""


def filled(broker: Broker, **options: str) -> None:
    with RawClient(broker) as client:
        client.create("t", configs={"segment.bytes": "200", **options})
        for _ in range(4):
            client.produce("t", batch([NOW], b"x" * 100))


def size_of(broker: Broker) -> int:
    with RawClient(broker) as client:
        (found,) = client.ask(35, 4, DescribeLogDirsRequest(topics=None)).results
        return int(found.topics[0].partitions[0].partition_size)


def test_a_broker_removes_what_a_killed_driver_left_when_it_starts(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", {"log.retention.ms": "-1"}).start() as broker:
        filled(broker)
        planner = subprocess.Popen(
            [sys.executable, "-c", PLANNER, str(tmp_path / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert planner.stdout is not None
        assert planner.stdout.readline() == b"planned\n"
        left = tmp_path / "data" / "t-0" / pins.FOLDER
        assert len(list(left.glob("*/*/*.log"))) == 4
        broker.kill()  # first: it would remove the links while it runs, too
        planner.kill()
        planner.communicate()
        broker.start()
        wait_until(lambda: not left.exists())
        broker.stop()


def test_a_broker_counts_the_deleted_segments_that_links_keep(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", {"log.retention.ms": "-1"}).start() as broker:
        filled(broker, **{"file.delete.delay.ms": "0"})
        whole = size_of(broker)
        chosen = parse({"source": f"segments:{tmp_path}/data", "topic": "t"}, NOW)
        pieces = from_segments.plan(chosen, NOW)
        first = tmp_path / "data" / "t-0" / f"{0:020d}.log"
        with RawClient(broker) as client:
            delete_before(client, "t", 3)
        wait_until(lambda: not first.exists())
        wait_until(lambda: size_of(broker) == whole)
        assert (
            sum(rows.num_rows for piece in pieces for rows in from_segments.rows(piece, ("key",), chosen))
            == 4
        )
        assert size_of(broker) < whole / 2
        broker.stop()
