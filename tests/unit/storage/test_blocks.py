"""Digests of blocks as a log grows, and which blocks are still to be verified."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs import NOW, batch, crash, fill, first_at, open_log, scan
from tidelog.storage import blocks, files
from tidelog.storage.blocks import BLOCK_BYTES, Digests, Unverified, count_of
from tidelog.storage.errors import NotInMemory, ReadFailed, StorageError
from tidelog.storage.log import Log
from tidelog.storage.search import by_time
from tidelog.storage.sources import PATIENT, WAITING, WARM, Source


def expected(data: bytes) -> bytes:
    """Return the digests of a log, from all of its bytes at once."""
    parts = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
    return b"".join(crc32c(part).to_bytes(4, "big") for part in parts)


_sizes = st.sampled_from(
    [1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES]
) | st.integers(1, 3 * BLOCK_BYTES)


@given(st.lists(_sizes, max_size=6), st.integers(0, 6))
def test_digests_do_not_depend_on_how_a_log_was_written(sizes: list[int], kept: int) -> None:
    data, digests = b"", Digests()
    for number, size in enumerate(sizes):
        if number == kept:
            digests = Digests(digests.encode(len(data)))
        digests.add(part := bytes([number + 1]) * size, len(data))
        data += part
    assert digests.encode(len(data)) == expected(data)
    assert len(expected(data)) == 4 * count_of(len(data))


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES // 2])
def test_digests_of_a_log_that_is_cut(tmp_path: Path, size: int) -> None:
    data = bytes(n % 251 for n in range(3 * BLOCK_BYTES))
    (tmp_path / "log").write_bytes(data)
    file = files.File(tmp_path / "log")
    digests = Digests()
    digests.add_from(file, 0, len(data))
    assert digests.encode(len(data)) == expected(data)
    digests.cut(file, size)
    assert digests.encode(size) == expected(data[:size])
    digests.add(data[size:], size)
    assert digests.encode(len(data)) == expected(data)


@pytest.mark.parametrize(
    "how", ["closed", "recovered", "saved and recovered", "cut", "reopened and appended to"]
)
def test_a_summary_has_the_digests_of_its_log(
    tmp_path: Path, save_every: Callable[[int], None], how: str
) -> None:
    save_every(100_000)
    log = open_log(tmp_path / "a")
    for size in (10, 70_000, 65_467, 300, 200_000, 1000):
        fill(log, [[NOW]], value=b"v" * size)
        if how == "saved and recovered":
            log.flush()
        if how == "reopened and appended to":
            log.close()
            log = open_log(tmp_path / "a", clean=True, recovery_point=log.log_end_offset)
    if how == "cut":
        path = crash(log, tmp_path / "b") / f"{0:020d}.log"
        path.write_bytes(path.read_bytes()[:-7])
        log = open_log(tmp_path / "b")
    elif "recovered" in how:
        log = open_log(crash(log, tmp_path / "b"))
    log.close()
    data = log.active.path(".log").read_bytes()
    assert log.active.summary.digests == expected(data)
    assert log.active.summary.log_bytes == len(data)
    log = open_log(log.directory, clean=True, recovery_point=log.log_end_offset)
    assert len(scan(log)) == (5 if how == "cut" else 6)


def unverified(path: Path, data: bytes) -> tuple[Unverified, files.File]:
    path.write_bytes(data)
    return Unverified(expected(data), len(data), 0), files.File(path)


def test_a_block_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(n % 251 for n in range(5 * BLOCK_BYTES // 2))
    known, file = unverified(tmp_path / "log", data)
    reads = []
    pread = files.File.pread
    monkeypatch.setattr(
        files.File, "pread", lambda file, count, at: (reads.append(at), pread(file, count, at))[1]
    )
    assert known.verify(file, BLOCK_BYTES - 1, BLOCK_BYTES, PATIENT)
    assert reads == [0]
    assert known.verify(file, BLOCK_BYTES - 1, BLOCK_BYTES + 1, PATIENT)
    assert reads == [0, BLOCK_BYTES]
    assert not known.is_done
    assert known.verify(file, 0, len(data) + 1000, PATIENT)  # what was appended since is not looked at
    assert reads == [0, BLOCK_BYTES, 2 * BLOCK_BYTES]
    assert known.is_done
    assert known.verify(file, 0, 1 << 40, PATIENT)
    assert known.verify(file, len(data) + 1, len(data) + 2, PATIENT)
    assert len(reads) == 3


def test_a_block_that_has_changed_or_gone_is_never_right(tmp_path: Path) -> None:
    data = bytes(n % 251 for n in range(5 * BLOCK_BYTES // 2))
    known, file = unverified(tmp_path / "log", data)
    file.write_at(b"?", BLOCK_BYTES + 17)
    file.truncate(len(data) - 1)
    for _ in range(2):
        assert known.verify(file, 0, BLOCK_BYTES, PATIENT)
        assert not known.verify(file, 0, BLOCK_BYTES + 1, PATIENT)
        assert not known.verify(file, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 1, PATIENT)
    assert known.mismatches(file) == {1, 2}


def test_the_event_loop_verifies_little_and_only_what_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = blocks.INLINE_BLOCKS
    known, file = unverified(tmp_path / "log", bytes((count + 1) * BLOCK_BYTES))
    with pytest.raises(NotInMemory):
        known.verify(file, 0, (count + 1) * BLOCK_BYTES, WARM)
    assert known.verify(file, 0, count * BLOCK_BYTES, WARM)
    assert known.verify(file, 0, (count + 1) * BLOCK_BYTES, WARM)  # of which one is left
    known, file = unverified(tmp_path / "log", bytes(BLOCK_BYTES))
    monkeypatch.setattr(files.File, "read_nowait", lambda *_: None)
    with pytest.raises(NotInMemory):
        known.verify(file, 0, 1, WARM)
    assert known.verify(file, 0, 1, PATIENT)


def reopened(folder: Path, **options: object) -> Log:
    log = open_log(folder)
    for n in range(30):
        fill(log, [[NOW + n, NOW + n + 1000]], value=b"v" * 4000, **options)
    log.close()
    return open_log(folder, clean=True, recovery_point=60)


class Watch:
    """Sees to it that every read of a log lies in blocks that were verified before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verified: set[int] = set()
        self.is_on = False
        self.is_verifying = False
        self.reads = 0
        self._is_right = Unverified._is_right
        watch = self
        monkeypatch.setattr(Unverified, "_is_right", lambda *args: watch.verify(*args))
        for name in ("pread", "fill_nowait"):
            real = getattr(files.File, name)
            monkeypatch.setattr(files.File, name, lambda *args, real=real: watch.read(real, *args))

    def verify(self, known: Unverified, file: files.File, number: int, source: Source) -> bool:
        self.is_verifying = True
        is_right = self._is_right(known, file, number, source)
        self.is_verifying = False
        self.verified.add(number)
        return is_right

    def read(self, real: Callable[..., Any], file: files.File, what: Any, position: int) -> object:
        if self.is_on and not self.is_verifying and file.path.suffix == ".log":
            end = min(position + (what if isinstance(what, int) else len(what)), file.size)
            assert set(range(position // blocks.BLOCK_BYTES, count_of(end))) <= self.verified
            self.reads += 1
        return real(file, what, position)


@pytest.mark.parametrize("source", [PATIENT, WAITING, WARM])
@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize(
    "ask",
    [
        lambda log, source: log.read(31, 5000, True, source).read(),
        lambda log, source: log.read(0, 15_000, True, source).read(),
        lambda log, source: log.read(11, 1, True, source).read_nowait(),
        lambda log, source: first_at(log, NOW + 1017, source),
        lambda log, source: first_at(log, NOW + 5, source),
        lambda log, source: list(log.headers(55)),
        lambda log, source: by_time._largest_from(log, log.active, PATIENT, 40),
    ],
)
def test_P27_no_byte_that_was_there_at_the_start_is_read_before_it_was_verified(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocks_of: Callable[[int], None],
    codec: int,
    source: Source,
    ask: Callable[[Log, Source], object],
) -> None:
    blocks_of(4096)
    monkeypatch.setattr(
        "tidelog.storage.log.SNAPSHOT_FROM_BYTES", 0
    )  # A start reads no batch for its producers.
    log = reopened(tmp_path, codec=codec)
    watch = Watch(monkeypatch)
    watch.is_on = True
    ask(log, source)
    assert watch.reads


def test_V10_damage_far_behind_the_first_batch_of_a_fetch_ends_it_there(tmp_path: Path) -> None:
    log = reopened(tmp_path)
    starts = [position for _, position, _ in log.headers(0)]
    with open(log.active.path(".log"), "r+b") as file:
        file.seek(starts[20] + 3000)
        file.write(b"?")
    log = open_log(tmp_path, clean=True, recovery_point=60)
    piece = log.read(0, 1 << 20, True, PATIENT)
    assert (piece.position, piece.length) == (0, starts[20])
    assert log.read(42, 1 << 20, True, PATIENT).length == log.size_bytes - starts[21]


@pytest.mark.parametrize("source", [PATIENT, WAITING, WARM])
def test_a_read_that_the_disk_refuses_is_an_error_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    log = reopened(tmp_path)
    piece = log.read(0, 30_000, True, PATIENT)
    open_log(tmp_path, clean=True, recovery_point=60)

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    for name in ("pread", "fill_nowait"):
        monkeypatch.setattr(files.File, name, fails)
    for again in (log, open_log(tmp_path, clean=True, recovery_point=60)):
        with pytest.raises(ReadFailed, match=r"offset 40 cannot be read: .*Input/output error"):
            again.read(40, 1000, True, source)
        with pytest.raises(ReadFailed, match="Input/output error"):
            first_at(again, NOW + 10, source)
    with pytest.raises(ReadFailed, match=r"log@0: .*Input/output error"):
        piece.read() if source.waiting else piece.read_nowait()
    assert issubclass(ReadFailed, StorageError)
    monkeypatch.undo()
    assert len(log.read(40, 1000, True, PATIENT).read()) > 1000
    assert log.append(batch([NOW]), NOW).base_offset == 60
