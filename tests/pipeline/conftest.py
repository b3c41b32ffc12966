"""One Spark session for all tests of a process: to start one takes seconds."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.java import needs_java


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(needs_java)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(180))  # the first waits for Spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of two threads, whose files are in a folder of its own."""
    from tidelog.pipeline.session import session

    folder = tmp_path_factory.mktemp("spark")
    made = session({"spark.master": "local[2]", "spark.sql.warehouse.dir": str(folder / "warehouse")})
    yield made
    made.stop()
    gc.collect()  # its sockets, here
