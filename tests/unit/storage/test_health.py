"""Whether a log takes writes: what mends it, what does not, and what is no error of the disk."""

import errno
import os
from pathlib import Path

import pytest

from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import CorruptLog
from tidelog.storage.health import Health


@pytest.fixture
def health(tmp_path: Path) -> Health:
    return Health("t-0", DiskSpace(tmp_path))


def test_what_the_disk_refuses_is_tried_again_from_there_on(health: Health) -> None:
    done: list[int] = []
    is_full = True

    def second() -> None:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done.append(2)

    health.fail("a write failed", lambda: done.append(1), second)
    assert [health.mend() for _ in range(2)] == [False, False]
    is_full = False
    assert (health.mend(), health.failure, done) == (True, None, [1, 2])


def test_what_is_no_error_of_the_disk_is_not_taken_for_one_that_passes(health: Health) -> None:
    """A remedy that asks what is not there to be asked would be tried for ever, and nobody told."""

    def ask() -> None:
        raise CorruptLog("not of this log")

    health.fail("a write failed", ask)
    with pytest.raises(CorruptLog):
        health.mend()


def test_F8_P12_a_flush_that_failed_is_final_and_says_so(health: Health) -> None:
    health.fail("a write failed", lambda: None)
    offline = health.flush_failed(OSError(errno.EIO, "Input/output error"))
    assert str(offline) == (
        "t-0: takes no writes since a flush failed ([Errno 5] Input/output error); reads go on; "
        "repair the disk and restart"
    )
    assert (health.is_final, health.mend(), str(health.offline())) == (True, False, str(offline))
