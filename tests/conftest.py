"""What holds for every test."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.faulty_disk import disk
from tests.support.served import broker, client, serve, served
from tests.support.sockets import close_by_themselves
from tidelog.storage import files

__all__ = ["broker", "client", "disk", "serve", "served"]  # fixtures

# Each of hundreds of processes would compile all that it imports where nobody may keep bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

MEMORY = Path("/dev/shm")
TOGETHER = ("tests/pipeline/", "tests/conformance/")
# A disk that others use too may stall a test for minutes. TMPDIR= names another place, a disk for example.
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# A shared machine may stall any single example; the test's own time limit is what catches a hang.
settings.register_profile("tidelog", deadline=None, print_blob=True)
settings.load_profile("tidelog")

close_by_themselves()


class _TogetherWhatIsStartedOnce(LoadScopeScheduling):
    """Gives each test to whoever is free, but those that share what takes long to start to one: Spark, Apache Kafka.

    What belongs together is given out before all else, as it takes longer than a fair share of the others.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget what is done: after each test the scheduler goes through all that a worker was given."""
        scope = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _TogetherWhatIsStartedOnce(config, log)


@pytest.fixture(autouse=True)
def _no_options_from_outside() -> Iterator[None]:
    """Keep the options of whoever runs the tests out of them."""
    # Not the test's own `monkeypatch`: what that has changed is put back before the test's folder is removed.
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("KAFKA_")]:
            patch.delenv(variable)
        yield


@pytest.fixture(scope="session", autouse=True)
def _signals_are_heard() -> None:
    """Have what tests start hear these: a shell's job in the background ignores one, under nohup the other too."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def telling_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the file system take note of writes that were lost, whatever the tests run on."""
    monkeypatch.setattr(files.FileSystem, "reports_errors", lambda _: True)


@pytest.fixture
def save_every(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets after how many appended bytes a flush saves what recovery starts from."""
    return partial(monkeypatch.setattr, "tidelog.storage.durability.SAVE_INTERVAL_BYTES")


@pytest.fixture
def blocks_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets how many bytes of a log share a digest."""
    return partial(monkeypatch.setattr, "tidelog.storage.blocks.BLOCK_BYTES")


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run on the loop that the broker runs on: transports differ in when they say that they are full."""
    return {"uvloop": uvloop.new_event_loop}
