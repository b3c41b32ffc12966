"""The source and the sink on a Spark standalone cluster: executors are other processes than the driver."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.pipeline import topics
from tests.pipeline.jobs import TIMES, a_topic
from tests.pipeline.workers import Workers
from tests.support.broker import Broker
from tests.support.java import needs_java
from tidelog.storage.pins import FOLDER

pytestmark = [needs_java, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.all
def test_executors_need_nothing_of_the_driver(target_broker: Broker, tmp_path: Path) -> None:
    """They read files that are gone since the read was planned, keep what is damaged, and write each row once."""
    data, bad = a_topic(tmp_path / "data"), tmp_path / "bad"
    for partition in range(2):
        torn = data / f"torn-{partition}"
        shutil.copytree(data / f"t-{partition}", torn)
        path = sorted(torn.glob("*.log"))[1]
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(content)
    name = topics.make(target_broker, "of-two-executors", 2)
    source = {"source": f"segments:{data}", "taskBytes": "3000"}
    asked = {
        "read": source | {"topic": "t"},
        "delete": list(map(str, data.glob("t-*/*.log"))),
        "copy": source | {"topic": "torn", "bad": f"quarantine:{bad}"},
        "to": {"target": f"broker:{target_broker.address}", "topic": name, "maxRecordsPerSecond": "5000"},
    }
    program = str(Path(__file__).with_name("on_workers.py"))
    with Workers(tmp_path / "cluster") as workers:
        printed = workers.run(sys.executable, program, json.dumps(workers.settings), json.dumps(asked))
    found = json.loads(printed.splitlines()[-1])
    count = sum(map(len, TIMES))
    expected = [(partition, offset, f"v{offset % 10}") for partition in range(2) for offset in range(count)]
    assert sorted(tuple(row[1:]) for row in found) == expected
    assert len({executor for executor, *_ in found}) == 2
    assert not list(data.glob(f"*/{FOLDER}/*"))
    notes = [json.loads(path.read_bytes()) for path in bad.glob("torn-*/*.json")]
    assert sorted(note["partition"] for note in notes) == [0, 1]
    written = [one.headers[-1][1].decode() for one in topics.read(target_broker, name)]
    assert len(written) == len(set(written)) == 2 * count - 2 * 10
    assert set(written) < {f"torn-{partition}@{offset}" for partition, offset, _ in expected}
