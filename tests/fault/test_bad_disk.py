"""F9: A disk that is full, fails a write or fails a flush."""

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, batch, fetch_all, fill, open_log, retain, scan
from tests.support.paths import ROOT
from tests.support.reference_index import differences
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.steps import at_once
from tidelog.storage import files
from tidelog.storage.errors import LogOffline
from tidelog.storage.group_sync import GroupSync
from tidelog.storage.log_manager import LogManager


@pytest.mark.parametrize("free_bytes", [0, 1, 11, 60, 69])
def test_P12_a_full_disk_refuses_the_batch_whole_and_heals(
    tmp_path: Path, disk: FaultyDisk, free_bytes: int
) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW], [NOW + 1]])
    rows, size = scan(log), log.size_bytes
    for _ in range(3):
        disk.fill(room=free_bytes)
        with pytest.raises(LogOffline, match=r"topic-0: the batch was not stored: .*No space left"):
            log.append(batch([NOW + 2]), NOW)
        assert log.active.path(".log").stat().st_size == size
        assert fetch_all(log) == rows
    disk.heal()
    assert log.append(batch([NOW + 2]), NOW).base_offset == 2
    log.close()
    assert differences(tmp_path, 0) == []


# Has every other call end as one that a signal interrupts, once it is told to.
INTERRUPTING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/types.h>
#include <sys/uio.h>

static volatile int on;
static __thread unsigned calls;
static unsigned long interrupted;
unsigned long interrupt(int is_on) { on = is_on; return interrupted; }

#define CALL(result, name, parameters, arguments)                                   \
    result name parameters {                                                        \
        static result (*real) parameters;                                           \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                  \
        if (on && calls++ % 2 == 0) {                                               \
            __sync_fetch_and_add(&interrupted, 1);                                  \
            errno = EINTR;                                                          \
            return -1;                                                              \
        }                                                                           \
        return real arguments;                                                      \
    }

CALL(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode))
CALL(int, open64, (const char *path, int flags, mode_t mode), (path, flags, mode))
CALL(ssize_t, read, (int fd, void *data, size_t count), (fd, data, count))
CALL(ssize_t, write, (int fd, const void *data, size_t count), (fd, data, count))
CALL(ssize_t, pread64, (int fd, void *data, size_t count, off_t at), (fd, data, count, at))
CALL(ssize_t, pwrite64, (int fd, const void *data, size_t count, off_t at), (fd, data, count, at))
CALL(ssize_t, preadv64v2, (int fd, const struct iovec *to, int count, off_t at, int how), (fd, to, count, at, how))
CALL(int, ftruncate64, (int fd, off_t size), (fd, size))
CALL(int, fsync, (int fd), (fd))
CALL(int, fdatasync, (int fd), (fd))
CALL(int, syncfs, (int fd), (fd))
"""


def write_and_read_while_interrupted(folder: Path) -> None:
    """Make logs, append, roll, flush one and all, cut, stop, start, read; nothing of it may fail."""
    libc = ctypes.CDLL(None)
    libc.interrupt(1)
    files.FileSystem.reports_errors = lambda _: True  # type: ignore[method-assign]
    for start in range(2):
        manager = LogManager(folder, BrokerConfig(), lambda: NOW)
        manager.open()
        for partition in range(4 - 4 * start):
            manager.create("t", partition, bytes(16), TopicConfig(segment_bytes=300, index_interval_bytes=0))
        logs = list(manager.logs.values())
        for log in logs:
            fill(log, [[NOW + n] for n in range(10)])
        assert GroupSync(folder, manager.trust).flush(logs) == {}
        assert logs[0].flush() == 10 * (start + 1)
        at_once(manager.look_after())
        retain(manager)
        manager.truncate("t", 3, 5)
        assert [len(scan(log)) for log in logs] == [10 * (start + 1)] * 3 + [5]
        assert (manager.disk.is_trusted, manager.trust.is_lost) == (True, False)
        assert manager.close()
    assert libc.interrupt(0) > 100


def test_F9_calls_that_a_signal_interrupts_are_made_again(tmp_path: Path) -> None:
    """As a disk behind FUSE or a network may have them end."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, which makes what interrupts")
    library = tmp_path / "interrupting.so"
    (tmp_path / "interrupting.c").write_text(INTERRUPTING)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "interrupting.c", "-ldl"], check=True
    )
    code = (
        "from pathlib import Path; from tests.fault.test_bad_disk import write_and_read_while_interrupted as run; "
        f"run(Path({str(tmp_path / 'data')!r}))"
    )
    root = str(ROOT)
    environ = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=root, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_short_writes_are_finished(tmp_path: Path, disk: FaultyDisk) -> None:
    disk.write_max = 7
    log = open_log(tmp_path)
    fill(log, [[NOW, NOW], [NOW + 1]])
    assert [row.offset for row in fetch_all(log)] == [0, 1, 2]


@pytest.mark.parametrize("free_bytes", [0, 3, 20])
def test_a_disk_that_is_full_while_rolling(tmp_path: Path, disk: FaultyDisk, free_bytes: int) -> None:
    log = open_log(tmp_path, index_interval_bytes=0, segment_bytes=150)
    fill(log, [[NOW], [NOW + 1]])
    disk.fill(room=free_bytes)
    with pytest.raises(LogOffline):
        log.append(batch([NOW + 2]), NOW)
    assert [row.offset for row in fetch_all(log)] == [0, 1]
    disk.heal()
    fill(log, [[NOW + 2], [NOW + 3]])
    assert [row.offset for row in fetch_all(log)] == [0, 1, 2, 3]
    log.close()
    assert differences(tmp_path, 0) == []


def test_too_many_open_files_while_rolling_leaves_the_log_as_it_was(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path, segment_bytes=150, index_interval_bytes=0)
    fill(log, [[NOW], [NOW]])
    with disk.failing("open", error=errno.EMFILE), pytest.raises(LogOffline):
        log.append(batch([NOW]), NOW)
    # It may go on growing, and then its indexes must not tell that it was nearly sealed.
    log.update_config(log.config.override({"segment.bytes": "300"}))
    fill(log, [[NOW + 7], [NOW + 7], [NOW + 9]])
    assert ([row.offset for row in fetch_all(log)], len(log.segments)) == ([0, 1, 2, 3, 4], 2)
    log.close()
    assert differences(tmp_path, 0) == []


def test_I5_a_segment_that_was_saved_between_two_tries_to_seal_it_is_sealed(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path, index_interval_bytes=1000)
    fill(log, [[NOW], [NOW + 1]])
    with disk.failing("make", error=errno.ENOSPC), pytest.raises(LogOffline):
        log.roll(NOW)
    log.active.save()
    log.roll(NOW)
    assert differences(tmp_path, 1000) == []
    log.close()


def test_P12_a_failed_flush_is_final_for_writes_and_reads_go_on(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    assert log.flush() == 1
    fill(log, [[NOW]])
    with disk.failing("sync"), pytest.raises(LogOffline, match="flush failed"):
        log.flush()
    with pytest.raises(LogOffline, match="restart"):
        log.flush()
    with pytest.raises(LogOffline):
        log.append(batch([NOW]), NOW)
    assert log.recovery_point == 1
    assert [row.offset for row in fetch_all(log)] == [0, 1]
    assert not log.close()


def test_P12_a_torn_batch_that_cannot_be_taken_back_is_before_the_next_is_written(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    with disk.failing("truncate"):
        disk.fill(room=5)
        with pytest.raises(LogOffline):
            log.append(batch([NOW]), NOW)
        disk.empty()
        with pytest.raises(LogOffline, match="could not be undone"):
            log.append(batch([NOW]), NOW)
    assert [row.offset for row in open_log(tmp_path).headers(0) and scan(open_log(tmp_path))] == [0]
    fill(log, [[NOW + 1]])
    log.flush()
    for started in (log, open_log(tmp_path)):
        assert [(row.offset, row.timestamp) for row in scan(started)] == [(0, NOW), (1, NOW + 1)]


def test_a_flush_that_failed_is_not_mended_by_taking_a_torn_batch_back(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    flushed = log.durability.flush_mark(log)
    assert flushed is not None
    disk.fill(room=5)
    with disk.failing("truncate"), pytest.raises(LogOffline):
        log.append(batch([NOW]), NOW)
    disk.heal()
    log.health.distrust("a flush failed")  # that was under way
    with pytest.raises(LogOffline, match="restart"):
        log.append(batch([NOW]), NOW)
    assert not log.durability.flushed(log, flushed)
    assert not log.close()


def test_P11_a_new_segment_is_in_its_folder_on_disk_before_flush_returns(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    folder = tmp_path / "topic-0"
    log = open_log(folder, segment_bytes=150)
    disk.calls.clear()
    fill(log, [[NOW]])
    log.flush()
    assert disk.paths("sync")[0] == folder / f"{0:020d}.log"
    assert disk.paths("sync")[-2:] == [folder, tmp_path]
    disk.calls.clear()
    fill(log, [[NOW]])
    log.flush()
    assert disk.paths("sync") == [folder / f"{0:020d}.log"]
    fill(log, [[NOW], [NOW]])
    disk.calls.clear()
    log.flush()
    assert {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= {
        p.name for p in disk.paths("sync")
    }
    assert folder / f"{2:020d}.log" in disk.paths("sync")
    assert folder in disk.paths("sync")
    disk.calls.clear()
    assert log.flush() == 4
    assert disk.paths("sync") == []
