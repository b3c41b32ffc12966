"""One Spark session for all tests of a process: to start one takes seconds."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from tests.pipeline.jobs import Here
from tests.support.broker import Broker
from tests.support.java import jars, needs_java
from tests.support.raw_client import RawClient
from tidelog.pipeline.jobs.parts.flags import JobFlags

CONNECTOR = Path(__file__).with_name(
    "connector"
)  # Spark's own, which a session knows from its start, or never


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(needs_java)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of two threads, whose files are in a folder of its own."""
    from tidelog.pipeline.session import session

    folder = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.master": "local[2]",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars": ",".join(map(str, sorted(jars(CONNECTOR).glob("*.jar")))),
        # What runs for minutes pays for no code that is compiled to run for hours: half of the processor's time.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    }
    made = session(conf)
    yield made
    made.stop()
    gc.collect()  # its sockets, here


@pytest.fixture(params=["local", pytest.param("spark", marks=[needs_java, pytest.mark.slow])])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine of a job."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


@pytest.fixture(scope="session")
def target_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all that write: tests keep apart by their topics. It keeps records of years ago."""
    overrides = {"log.retention.ms": "-1", "auto.create.topics.enable": "false"}
    with Broker(tmp_path_factory.mktemp("target") / "data", overrides) as broker:
        yield broker.start()
        broker.stop()


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """What follows a bucket's name in its URI, in an object store of this process."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"?endpoint_override={host}:{port}&scheme=http&allow_bucket_creation=true&region=us-east-1"
    server.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the tests of a module. It keeps records of years ago."""
    with Broker(tmp_path_factory.mktemp("broker") / "data", {"log.retention.ms": "-1"}) as broker:
        yield broker.start()


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test has."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Run jobs without Spark."""
    made = Here()
    monkeypatch.setattr(JobFlags, "session", lambda _: made)
    return made
