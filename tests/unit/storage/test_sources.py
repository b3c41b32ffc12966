"""Sources of a log's bytes: what they cost while nobody reads."""

import subprocess
import sys
import threading
from pathlib import Path

from tidelog.storage import sources
from tidelog.storage.files import File

ALLOCATED = """
import tracemalloc
tracemalloc.start()
from tidelog.storage import sources
taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, sources.__file__)])
print(sum(trace.size for trace in taken.traces))
"""


def test_the_buffer_of_a_thread_that_has_read_nothing_takes_no_memory() -> None:
    done = subprocess.run([sys.executable, "-c", ALLOCATED], capture_output=True, text=True, check=True)
    assert int(done.stdout) < sources.SCRATCH_BYTES // 10


def test_each_thread_reads_into_a_buffer_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first" + b"other")
    file = File(path)
    first = sources.WARM.read(file, 5, 0)
    other: list[bytes] = []
    thread = threading.Thread(target=lambda: other.append(bytes(sources.WARM.read(file, 5, 5))))
    thread.start()
    thread.join()
    assert (bytes(first), other) == (b"first", [b"other"])
