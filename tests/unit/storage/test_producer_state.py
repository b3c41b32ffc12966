"""Idempotent producers: what is next, what is a repeat, what is neither; and the snapshot."""

import os
import struct
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from crc32c import crc32c

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, batch, crash, fill, new_shared, open_log, scan
from tidelog.protocol.records.batch import BatchHeader, read_header
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage import files, producer_snapshots, producer_state
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from tidelog.storage.log import Appended, Log
from tidelog.storage.producer_snapshots import ProducerSnapshots
from tidelog.storage.producer_state import (
    PRODUCER_BYTES,
    SEQUENCE_MAX,
    ProducerMemory,
    ProducerState,
    SentBatch,
    batches_of,
    encode,
)
from tidelog.storage.upkeep import enforce_retention

PRODUCER = 7


def send(log: Log, sequence: int, count: int = 1, epoch: int = 0, producer: int = PRODUCER) -> Appended:
    data = batch([NOW] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return log.append(data, NOW)


def snapshots(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.snapshot"))


def test_a_repeat_of_one_of_the_last_five_is_answered_with_its_first_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = [send(log, 2 * n, 2) for n in range(7)]
    for n in range(2, 7):
        assert send(log, 2 * n, 2) == sent[n]._replace(duplicate=True)
    assert log.log_end_offset == 14
    with pytest.raises(OutOfOrderSequence):
        send(log, 2, 2)
    assert send(log, 14).base_offset == 14


def test_a_gap_or_an_overlap_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 3)
    for sequence, count in ((4, 1), (2, 1), (1, 2), (0, 2), (0, 4)):
        with pytest.raises(OutOfOrderSequence, match="sequence"):
            send(log, sequence, count)
    assert (len(scan(log)), send(log, 3).base_offset) == (3, 3)


def test_an_unknown_producer_may_start_anywhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert send(log, 50).base_offset == 0
    assert send(log, 51).base_offset == 1


def test_an_older_epoch_is_refused_and_a_newer_one_starts_at_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, epoch=3)
    with pytest.raises(InvalidProducerEpoch, match="epoch 2 is over"):
        send(log, 1, epoch=2)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, epoch=4)
    assert send(log, 0, epoch=4).base_offset == 1
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, epoch=3)


def test_producers_do_not_mind_one_another(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(3):
        for producer in (1, 2, -1):
            send(log, sequence if producer > 0 else -1, producer=producer, epoch=0 if producer > 0 else -1)
    assert log.log_end_offset == 9


def test_after_the_largest_sequence_comes_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, SEQUENCE_MAX - 1)
    crossing = send(log, SEQUENCE_MAX, 3)
    assert send(log, SEQUENCE_MAX, 3) == crossing._replace(duplicate=True)
    assert send(log, 2).base_offset == 4


def test_a_refused_batch_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, max_message_bytes=200)
    send(log, 0)
    with pytest.raises(RecordsError):
        log.append(
            batch([NOW], b"x" * 300, producer_id=PRODUCER, producer_epoch=0, base_sequence=1),
            NOW,
        )
    assert send(log, 1).base_offset == 1


def test_with_log_append_time_a_repeat_is_told_the_time_of_the_first(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_type="LogAppendTime")
    data: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    assert log.append(batch([1], **data), NOW) == (0, 0, NOW, False)
    assert log.append(batch([1], **data), NOW + 99) == (0, 0, NOW, True)


def test_with_log_append_time_a_repeat_is_told_the_same_after_a_crash(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a", message_timestamp_type="LogAppendTime")

    def sent(sequence: int) -> bytearray:
        return batch([1], producer_id=1, producer_epoch=0, base_sequence=sequence)

    for n in range(2):
        assert log.append(sent(n), NOW + 99 * n) == (n, n, NOW + 99 * n, False)
    log = open_log(crash(log, tmp_path / "b"), message_timestamp_type="LogAppendTime")
    for n in range(2):
        assert log.append(sent(n), NOW + 1000) == (n, n, NOW + 99 * n, True)


@pytest.mark.parametrize(
    "how", ["close", "crash", "crash after a roll", "close without snapshots", "torn snapshot"]
)
def test_the_last_five_survive_a_restart(tmp_path: Path, how: str) -> None:
    log = open_log(tmp_path / "a")
    sent = []
    for n in range(8):
        if n == 6 and how == "crash after a roll":
            log.roll(NOW)
        sent.append(send(log, n))
        fill(log, [[NOW]])
    if how in ("close", "close without snapshots", "torn snapshot"):
        log.close()
    folder = crash(log, tmp_path / "b")
    for path in folder.glob("*.snapshot"):
        if how == "close without snapshots":
            path.unlink()
        elif how == "torn snapshot":
            path.write_bytes(path.read_bytes()[:-3])
    clean = how.startswith("close")
    again = open_log(folder, clean=clean, recovery_point=16 if clean else 0)
    for n in range(3, 8):
        assert send(again, n) == sent[n]._replace(duplicate=True)
    with pytest.raises(OutOfOrderSequence):
        send(again, 2)
    assert send(again, 8).base_offset == 16


@pytest.mark.parametrize("how", ["crash", "cut"])
def test_a_producer_is_known_though_all_its_records_were_deleted(tmp_path: Path, how: str) -> None:
    log = open_log(tmp_path / "t-0")
    sent = [send(log, 0, 2), send(log, 2)]
    log.advance_start(log.log_end_offset)
    if how == "crash":
        log = open_log(crash(log, tmp_path / "u-0"), clean=False, log_start_offset=3, recovery_point=0)
    else:
        log.append(batch([NOW]), NOW)
        log.truncate(3)
    assert log.log_start_offset == 3
    assert send(log, 2) == sent[1]._replace(duplicate=True)


def test_a_log_is_opened_though_batches_before_its_start_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    send(log, 1, producer=8)
    log.roll(NOW)
    log.advance_start(2)
    again = send(log, 2, producer=8)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    FaultyDisk(monkeypatch).fail("read", of=f"{0:020d}.log")
    log = open_log(tmp_path, clean=True, recovery_point=3, log_start_offset=2)
    assert [row.offset for row in scan(log)] == [2]
    assert send(log, 2, producer=8) == again._replace(duplicate=True)
    assert send(log, 5) == Appended(3, 3, -1, duplicate=False)


@pytest.mark.parametrize("follows", [False, True])
def test_a_producer_goes_on_though_its_batches_before_the_start_are_damaged(
    tmp_path: Path, follows: bool
) -> None:
    log = open_log(tmp_path / "a", segment_bytes=400)
    for n in range(12):
        send(log, n)
    log.advance_start(12)
    if follows:
        fill(log, [[NOW]] * 5)
    log.flush()
    end = log.log_end_offset
    folder = crash(log, tmp_path / "b")
    for path in folder.glob("*.snapshot"):
        path.unlink()
    for path in sorted(folder.glob("*.log"))[1:3]:
        data = path.read_bytes()
        path.write_bytes(
            bytes(len(data)) if path.name < f"{10:020d}" else data[:10] + bytes(130) + data[140:]
        )
    log = open_log(folder, recovery_point=end, log_start_offset=12, segment_bytes=400)
    assert send(log, 12) == Appended(end, end, -1, duplicate=False)


def test_a_snapshot_of_what_a_crash_took_is_not_believed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    size = log.size_bytes
    send(log, 1)
    log.close()
    assert snapshots(tmp_path) == [2]
    with open(tmp_path / f"{0:020d}.log", "r+b") as file:
        file.truncate(size + 5)
    (tmp_path / f"{0:020d}.summary").unlink()  # It says that the log was flushed.
    again = open_log(tmp_path)
    assert snapshots(tmp_path) == []
    assert send(again, 1) == (1, 1, -1, False)


def test_truncation_forgets_what_it_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(4):
        send(log, n)
    log.roll(NOW)
    send(log, 4)
    log.truncate(2)
    assert send(log, 2) == (2, 2, -1, False)


def test_a_cut_and_a_snapshot_that_is_being_written_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    held: list[bool] = []
    load = ProducerSnapshots.load

    def noted(of: ProducerSnapshots, *what: Any) -> int | None:
        held.append(of.lock.locked())
        return load(of, *what)

    monkeypatch.setattr(ProducerSnapshots, "load", noted)
    log.truncate(0)
    assert held == [True]


def test_only_the_newest_snapshots_are_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(5):
        send(log, n)
        log.roll(NOW)
    assert snapshots(tmp_path) == [4, 5]


class Lock:
    """A log's lock, with what another thread does just before it is taken, or once it is let go of."""

    def __init__(self, before: Callable[[], None] | None = None, after: Callable[[], None] | None = None):
        self.before, self.after, self.is_held = before, after, False

    def __enter__(self) -> None:
        if self.before is not None:
            self.before()
        self.is_held = True

    def __exit__(self, *_: object) -> None:
        self.is_held = False
        if self.after is not None:
            self.after()


def test_a_snapshot_is_written_without_the_lock_of_the_log_and_with_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Lock()
    waiting = ProducerSnapshots(tmp_path, "t-0", cast(Any, lock), DiskSpace(tmp_path))
    held: list[tuple[bool, bool]] = []
    write = files.write

    def noted(path: Path, data: bytes) -> None:
        held.append((lock.is_held, waiting.lock.locked()))
        write(path, data)

    monkeypatch.setattr(files, "write", noted)
    waiting.keep(5, {})
    waiting.write()
    assert held == [(False, True)]
    assert (snapshots(tmp_path), waiting.offsets) == ([5], [5])


def test_the_latest_snapshot_that_waits_is_written_and_none_that_a_cut_overtakes(tmp_path: Path) -> None:
    lock = Lock(before=lambda: waiting.keep(7, {}))
    waiting = ProducerSnapshots(tmp_path, "t-0", cast(Any, lock), DiskSpace(tmp_path))
    waiting.keep(5, {})
    waiting.write()
    assert (snapshots(tmp_path), waiting.offsets) == ([7], [7])
    lock.before, lock.after = None, waiting.cut
    waiting.keep(8, {})
    waiting.write()
    assert (snapshots(tmp_path), waiting.offsets) == ([7], [7])


def test_retention_takes_no_batch_before_a_snapshot_tells_of_its_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", segment_bytes=400, retention_bytes=0)
    send(log, 0)
    for n in range(10):
        send(log, n, producer=8)
    assert snapshots(tmp_path / "log") == []
    enforce_retention(log, NOW)
    assert len(log.segments) == 1
    again = open_log(crash(log, tmp_path / "again"))
    assert set(again.producers.producers) == {PRODUCER, 8}


def test_retention_after_a_crash_takes_no_batch_before_a_snapshot_tells_of_its_producer(
    tmp_path: Path,
) -> None:
    """No snapshot has been scheduled since the start that read the batches."""
    options: dict[str, Any] = {"segment_bytes": 400, "retention_bytes": 0}
    log = open_log(tmp_path / "log", **options)
    send(log, 0)
    fill(log, [[NOW]] * 10)
    log = open_log(crash(log, tmp_path / "first"), clean=False, recovery_point=0, **options)
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    enforce_retention(log, NOW)
    log = open_log(crash(log, tmp_path / "second"), clean=False, recovery_point=0, **options)
    assert log.log_start_offset > 1
    assert send(log, 0) == Appended(0, 0, -1, duplicate=True)


def power_cut(log: Log, disk: FaultyDisk, folder: Path) -> Log:
    """Open a copy of a log as the worst power cut leaves it: with nothing that was not flushed."""
    point, options = log.recovery_point, {"segment_bytes": 400, "retention_bytes": 500}
    crash(log, folder)
    for path in folder.glob("*.snapshot"):
        if log.directory / path.name not in disk.paths("sync"):
            path.write_bytes(b"")
    for segment in log.segments:
        if segment.base_offset >= point > log.segments[0].base_offset:
            for path in folder.glob(f"{segment.base_offset:020d}.*[!t]"):
                path.unlink()
    for segment, position, header in log.headers(point):
        if segment.base_offset < point == header.base_offset:
            (folder / f"{segment.base_offset:020d}.summary").unlink(missing_ok=True)
            os.truncate(folder / f"{segment.base_offset:020d}.log", position)
    return open_log(folder, recovery_point=point, **options)


@pytest.mark.parametrize("appended_later", [0, 3, 8, 20])
@pytest.mark.parametrize("is_written", [False, True])
def test_a_power_cut_takes_no_producer_of_segments_that_retention_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool, appended_later: int
) -> None:
    disk = FaultyDisk(monkeypatch)
    log = open_log(tmp_path / "log", segment_bytes=400, retention_bytes=500)
    fill(log, [[NOW]] * 2)
    log.roll(NOW)
    sent = send(log, 0)
    fill(log, [[NOW]] * 11)
    log.flush()
    fill(log, [[NOW]] * 8)
    if is_written:
        log.snapshots.write()
    enforce_retention(log, NOW)
    assert log.log_start_offset > sent.last_offset
    for _ in range(appended_later):
        fill(log, [[NOW]])
        log.snapshots.write()
    assert len(snapshots(log.directory)) <= 3
    log = power_cut(log, disk, tmp_path / "left")
    assert send(log, 0) == sent._replace(duplicate=True)


def test_a_snapshot_that_retention_needs_is_kept_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk(monkeypatch)
    options: dict[str, Any] = {"segment_bytes": 400, "retention_bytes": 500}
    log = open_log(tmp_path / "log", **options)
    fill(log, [[NOW]] * 2)
    log.roll(NOW)  # with a snapshot that does not know the producer
    sent = send(log, 0)
    fill(log, [[NOW]] * 15)
    enforce_retention(log, NOW)
    for _ in range(2):
        log = open_log(log.directory, recovery_point=log.recovery_point, **options)
        for _ in range(3):
            log.roll(NOW)
            fill(log, [[NOW]])
    assert log.log_start_offset > sent.last_offset
    log = power_cut(log, disk, tmp_path / "left")
    assert send(log, 0) == sent._replace(duplicate=True)


def test_a_full_disk_does_not_keep_retention_from_deleting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, segment_bytes=400, retention_bytes=500)
    send(log, 0)
    fill(log, [[NOW]] * 20)
    disk = FaultyDisk(monkeypatch)
    disk.fill()
    enforce_retention(log, NOW)
    assert log.log_start_offset > 0
    assert log.health.failure is None


def test_a_producer_is_forgotten_when_it_has_been_silent_for_long(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, producer=1)
    log.append(batch([5], producer_id=2, producer_epoch=0, base_sequence=0), NOW + 50)
    log.producers.expire(NOW + 50)
    assert list(log.producers.producers) == [2]
    assert send(log, 40, producer=1).base_offset == 2


def test_the_snapshot_is_in_kafkas_format(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 2, epoch=5)
    send(log, 2, 3, epoch=5)
    log.close()
    data = (tmp_path / f"{5:020d}.snapshot").read_bytes()
    version, crc, count = struct.unpack_from(">hIi", data)
    rows = [struct.unpack_from(">qhiqiqiq", data, 10 + 46 * n) for n in range(count)]
    assert (version, crc, len(data)) == (1, crc32c(data[6:]), 10 + 46 * 2)
    # Kafka keeps one batch a producer: the last row of each.
    assert rows[-1] == (PRODUCER, 5, 4, 4, 2, NOW, -1, -1)


def test_a_snapshot_that_kafka_wrote_is_read() -> None:
    rows = [(1, 3, 9, 20, 4, NOW, -1, -1), (2, 0, -1, -1, 0, NOW, -1, -1)]
    body = struct.pack(">i", 2) + b"".join(struct.pack(">qhiqiqiq", *row) for row in rows)
    state = ProducerState()
    assert state.restore(struct.pack(">hI", 1, crc32c(body)) + body)
    assert list(state.producers) == [1]
    assert list(batches_of(state.producers[1])) == [(5, 9, 16, 20, NOW)]


def test_a_snapshot_is_in_the_order_of_offsets_though_a_bound_of_append_times_is_not() -> None:
    """After a power cut: of a sealed segment only its file told, of the one after it its append index."""
    state = ProducerState()
    for sequence, append_ms in enumerate((NOW + 40, NOW + 40, NOW + 14)):
        header = read_header(
            build_batch([Record(sequence, NOW, None, b"x")], producer_id=1, base_sequence=sequence)
        )
        state.note(header, sequence, append_ms)
    again = ProducerState()
    assert again.restore(encode(state.copy()))
    assert again.producers == state.producers


@pytest.mark.parametrize("position", [0, 1, 3, 8, 20, -1])
def test_a_damaged_snapshot_is_seen(tmp_path: Path, position: int) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    data = bytearray(encode(log.producers.copy()))
    assert ProducerState().restore(bytes(data))
    data[position] ^= 1
    assert not ProducerState().restore(bytes(data))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("first", [SEQUENCE_MAX - 1, SEQUENCE_MAX])
def test_sequences_wrap_behind_their_maximum_and_nowhere_else(
    tmp_path: Path, first: int, restarts: bool
) -> None:
    """After 2^31 - 1 comes 0: the batch that ends there, the one that crosses it, and their repeats."""
    log = open_log(tmp_path)

    def sent(sequence: int, count: int) -> Appended:
        nonlocal log
        appended = send(log, sequence, count)
        if restarts:
            log.close()
            log = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
        return appended

    last = sent(first, SEQUENCE_MAX - first + 1)  # its last record has 2^31 - 1
    for wrong in (1, 2):
        with pytest.raises(OutOfOrderSequence, match=f"sequence {wrong} came where 0 is next"):
            send(log, wrong)
    assert sent(first, SEQUENCE_MAX - first + 1) == last._replace(duplicate=True)
    following = sent(0, 3)
    assert following.base_offset == last.last_offset + 1
    assert sent(0, 3) == following._replace(duplicate=True)
    assert sent(3, 1).base_offset == following.last_offset + 1


def new_header(producer: int) -> BatchHeader:
    return read_header(batch([NOW], producer_id=producer, producer_epoch=0, base_sequence=0))


def test_all_logs_together_remember_what_fits_and_forget_the_longest_silent_first() -> None:
    one = PRODUCER_BYTES + 2 + 24
    memory = ProducerMemory(1000 * one)
    states = [ProducerState(memory) for _ in range(3)]
    for number in range(1000):
        states[number % 3].note(new_header(number), number, NOW + number)
    assert [len(state.producers) for state in states] == [334, 333, 333]
    assert memory.held_bytes == 1000 * one
    states[1].note(new_header(5000), 1, NOW + 5000)
    left = {producer for state in states for producer in state.producers}
    assert memory.held_bytes == sum(PRODUCER_BYTES + len(p) for s in states for p in s.producers.values())
    assert 5000 in left
    assert max(set(range(1000)) - left) < 3 * 256 + 1
    assert len(left) <= 1000 - 1000 // 16
    for state in states:
        state.clear()
    assert (memory.held_bytes, memory.states) == (0, {})


def test_a_producer_that_goes_on_is_not_forgotten_for_those_that_are_invented() -> None:
    memory = ProducerMemory(500 * (PRODUCER_BYTES + 26))
    steady, flooded = ProducerState(memory), ProducerState(memory)
    for number in range(5000):
        flooded.note(new_header(1 + number), number, NOW + number)
        if number % 50 == 0:
            header = read_header(batch([NOW], producer_id=7, producer_epoch=0, base_sequence=number // 50))
            assert steady.check(header) is None
            steady.note(header, number, NOW + number)
            assert memory.held_bytes <= memory.limit_bytes
    assert [b.base_sequence for b in batches_of(steady.producers[7])] == [95, 96, 97, 98, 99]


def test_a_producer_that_was_forgotten_goes_on_with_the_sequence_it_has(tmp_path: Path) -> None:
    log = open_log(tmp_path, shared=new_shared(tmp_path, 3 * (PRODUCER_BYTES + 26)))
    send(log, 0, producer=1)
    send(log, 1, producer=1)
    for producer in range(2, 6):
        send(log, 0, producer=producer)
    assert 1 not in log.producers.producers
    assert send(log, 2, producer=1).duplicate is False


def test_a_producer_takes_as_little_memory_as_is_counted_for_it() -> None:
    state = ProducerState()
    headers = [new_header(1 << 40 | number) for number in range(20_000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number, header in enumerate(headers):
            state.note(header, number, NOW)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= 20_000 * 200
    assert taken <= state._memory.held_bytes


def test_expiry_goes_through_all_that_are_silent(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(1000):
        log.producers.note(new_header(number), number, NOW + number)
    log.producers.expire(NOW + 700)
    assert list(log.producers.producers) == list(range(700, 1000))


def test_a_roll_writes_no_snapshot_and_the_one_that_follows_is_of_the_offset_of_the_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    encoded = []
    monkeypatch.setattr(producer_state, "encode", lambda state: encoded.append(1) or encode(state))
    for n in range(3):
        send(log, n)
    base = log.active.base_offset
    assert base > 0
    assert not encoded, "a roll on the way of an append encodes nothing"
    assert snapshots(tmp_path) == []
    send(log, 3)
    log.snapshots.write()
    rows = producer_state.decode((tmp_path / f"{log.snapshots.offsets[-1]:020d}.snapshot").read_bytes())
    assert rows is not None
    assert [batch for _, _, batch in rows] == [
        SentBatch(n, n, n, n, NOW) for n in range(log.snapshots.offsets[-1])
    ]


def test_a_snapshot_of_what_was_cut_before_it_was_written_is_not_written(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for n in range(3):
        send(log, n)
    assert log.active.base_offset > 1
    log.truncate(1)
    log.snapshots.write()
    assert [offset for offset in snapshots(tmp_path) if offset > 1] == []


def test_a_flush_encodes_no_snapshot_while_appends_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_every: Callable[[int], None]
) -> None:
    save_every(1)
    log = open_log(tmp_path)
    send(log, 0)

    def encoded(state: Any) -> bytes:
        assert not log.lock.locked()
        return encode(state)

    monkeypatch.setattr(producer_state, "encode", encoded)
    log.flush()
    log.snapshots.write()
    assert snapshots(tmp_path) == [1]


def test_what_a_crash_took_of_a_snapshots_log_is_forgotten_durably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    log.close()
    (tmp_path / f"{7:020d}.snapshot").write_bytes(b"of what is gone")
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    open_log(tmp_path)
    assert snapshots(tmp_path) == [1]
    assert tmp_path in synced


def test_the_longest_silent_are_forgotten_across_logs_until_there_is_room() -> None:
    one = PRODUCER_BYTES + 2 + 24
    memory = ProducerMemory(10_000 * one)
    old, older, new = (ProducerState(memory) for _ in range(3))
    for number in range(600):
        new.note(new_header(number), number, NOW + 10_000 + number)
    for number in range(9000):
        old.note(new_header(number), number, NOW + number)
    for number in range(400):
        older.note(new_header(number), number, NOW - 1000 + number)
    new.note(new_header(600), 600, NOW + 20_000)
    assert (len(older.producers), len(new.producers)) == (0, 601), "all of the one, none of the other"
    left = sum(len(state.producers) for state in (old, older, new))
    assert 10_000 - 10_000 // 16 - 256 < left <= 10_000 - 10_000 // 16
    assert memory.held_bytes == left * one
    assert list(memory.states) == [new, old]
    assert list(old.producers) == list(range(9000 - len(old.producers), 9000))
    older.note(new_header(1), 1, NOW + 20_000)
    assert list(memory.states) == [new, old, older]


def test_there_is_room_for_exactly_as_much_as_there_may_be_and_then_for_a_sixteenth_less() -> None:
    one = PRODUCER_BYTES + 2 + 24
    memory = ProducerMemory(4096 * one)
    state = ProducerState(memory)
    for number in range(4096):
        state.note(new_header(number), number, NOW)
    assert len(state.producers) == 4096
    state.note(new_header(4096), 4096, NOW)
    assert 4096 in state.producers
    assert memory.held_bytes <= 4096 * one * 15 // 16


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_log_remembers_is_in_the_memory_that_it_shares(tmp_path: Path, restarts: bool) -> None:
    shared = new_shared(tmp_path, 1 << 20)
    memory = shared.producers
    log = open_log(tmp_path, shared=shared)
    for n in range(7):
        send(log, n, epoch=3)
    send(log, 0, producer=9)
    before = log.producers.copy()
    if restarts:
        log.close()
        log = open_log(tmp_path, clean=True, recovery_point=8, shared=shared)
    assert log.producers.copy() == before
    assert memory.held_bytes == sum(PRODUCER_BYTES + len(packed) for packed in before.values())
    assert list(memory.states) == [log.producers]
    log.close()
    assert (memory.held_bytes, memory.states) == (0, {})


def test_a_new_epoch_forgets_the_batches_of_the_old_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(3):
        send(log, n, epoch=1)
    sent = send(log, 0, epoch=2)
    assert [batch.base_sequence for batch in batches_of(log.producers.producers[PRODUCER])] == [0]
    assert send(log, 0, epoch=2) == sent._replace(duplicate=True)
    with pytest.raises(OutOfOrderSequence):
        send(log, 2, epoch=2)


def test_expiry_spares_who_sent_at_that_very_moment_and_those_behind(tmp_path: Path) -> None:
    state = ProducerState()
    for number in range(600):
        state.note(new_header(number), number, NOW + number // 2)
    state.expire(NOW)
    assert len(state.producers) == 600
    state.expire(NOW + 1)
    assert list(state.producers) == list(range(2, 600))
    state.expire(NOW + 10_000)
    assert state.producers == {}


def test_snapshots_that_are_of_no_use_are_removed_and_the_newest_good_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {}
    for offset in (10, 20, 30, 40):
        state = ProducerState()
        state.note(new_header(offset), offset - 1, NOW)
        states[offset] = state.copy()
        producer_snapshots.snapshot_path(tmp_path, offset).write_bytes(encode(state.copy()))
    producer_snapshots.snapshot_path(tmp_path, 30).write_bytes(b"torn")
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    state = ProducerState()
    assert producer_snapshots.load_latest(state, tmp_path, [10, 20, 30, 40], 39, lambda write: write()) == 20
    assert state.copy() == states[20]
    assert snapshots(tmp_path) == [10, 20]
    assert synced == [tmp_path]
    assert producer_snapshots.load_latest(state, tmp_path, [10, 20], 20, lambda write: write()) == 20
    assert synced == [tmp_path], "nothing was removed"
    assert producer_snapshots.load_latest(state, tmp_path, [10, 20], 9, lambda write: write()) is None
    assert (state.copy(), snapshots(tmp_path)) == ({}, [])


def test_all_snapshots_but_the_newest_are_removed(tmp_path: Path) -> None:
    written = ProducerSnapshots(tmp_path, "t-0", threading.Lock(), DiskSpace(tmp_path))
    for offset, left in [(10, [10]), (30, [10, 30]), (20, [20, 30]), (40, [30, 40])]:
        written.keep(offset, {})
        written.write()
        assert written.offsets == snapshots(tmp_path) == left


def test_a_snapshot_keeps_every_batch_in_order_and_gives_it_back(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(7):
        for producer in (3, 1):
            send(log, 2 * n, 2, producer=producer, epoch=producer)
    state = ProducerState()
    assert state.restore(encode(log.producers.copy()))
    assert state.copy() == log.producers.copy()
    assert sorted(state.producers) == [1, 3]
    assert encode({}) == struct.pack(">hIi", 1, crc32c(bytes(4)), 0)
    assert state.restore(encode({}))
    assert state.copy() == {}


def test_a_producer_whose_id_is_0_is_remembered_as_any_other(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = send(log, 0, producer=0)
    for clean in (False, True):
        assert send(log, 0, producer=0) == sent._replace(duplicate=True)
        with pytest.raises(OutOfOrderSequence):
            send(log, 2, producer=0)
        if clean:
            log.close()
        for path in tmp_path.glob("*.snapshot"):
            path.unlink()
        log = open_log(tmp_path, clean=clean, recovery_point=1 if clean else 0)
    assert send(log, 0, producer=0) == sent._replace(duplicate=True)


def test_a_snapshot_of_an_offset_that_has_one_pushes_no_other_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(3):
        send(log, n)
        log.roll(NOW)
    assert (snapshots(tmp_path), log.snapshots.offsets) == ([2, 3], [2, 3])
    log.close()
    assert (snapshots(tmp_path), log.snapshots.offsets) == ([2, 3], [2, 3])


def test_the_end_of_a_transaction_is_no_batch_of_its_producer(tmp_path: Path) -> None:
    """Kafka's control batches have no sequence."""
    log = open_log(tmp_path)
    send(log, 0, producer=3)
    control = build_batch(
        [Record(1, NOW, b"\0\0\0\1", b"\0" * 6)],
        producer_id=4,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    with open(log.active.path(".log"), "ab") as file:
        file.write(control)
    log = open_log(tmp_path)
    assert log.log_end_offset == 2
    assert list(log.producers.producers) == [3]
