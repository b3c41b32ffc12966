"""What is freed goes back to the system once it is much, and not again and again."""

import ctypes
import errno
import gc
import os
from types import SimpleNamespace

import pytest

from tidelog.broker.net import freed_memory
from tidelog.broker.net.freed_memory import MUCH_BYTES, FreedMemory, Memory, meter

MIB = 1 << 20


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often memory is given back."""
    times: list[int] = []
    monkeypatch.setattr(freed_memory, "give_back", lambda: times.append(1))
    return times


def looks(given: list[int], *measured: tuple[int, int] | None) -> list[int]:
    """Look once for each of what is measured one after the other, in MiB; return how often memory was given back by."""
    memory = iter([each and Memory(each[0] * MIB, each[1] * MIB) for each in measured])
    freed = FreedMemory(lambda: next(memory))
    counts = []
    for _ in measured[1:]:
        try:
            freed.look()
        except StopIteration:
            break
        counts.append(len(given))
    return counts


def test_memory_that_was_freed_is_given_back_once(given: list[int]) -> None:
    assert MUCH_BYTES == 32 * MIB
    # What is measured next is how it is once it was given back.
    measured = (500, 5), (500, 36), (500, 37), (468, 37), (468, 37), (468, 68)
    assert looks(given, *measured) == [0, 1, 1, 1]
    given.clear()
    assert looks(given, (500, 0), (500, 31), (500, 32), (468, 32)) == [0, 1]


def test_memory_that_was_taken_again_and_freed_again_between_two_looks_is_given_back(
    given: list[int],
) -> None:
    assert looks(given, (50, 5), (300, 200), (105, 200), (136, 200), (137, 200), (105, 200), (137, 31)) == [
        1,
        1,
        2,
        2,
    ]


def test_what_is_in_use_is_not_taken_for_freed(given: list[int]) -> None:
    assert looks(given, (50, 5), (500, 5), (900, 30), (1800, 31)) == [0, 0, 0]


def test_it_is_much_beside_the_least_that_was_free(given: list[int]) -> None:
    assert looks(given, (500, 300), (500, 100), (500, 131), (500, 132), (400, 132)) == [0, 0, 1]


def test_an_allocator_that_cannot_be_asked_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_libc", object())
    assert meter()() is None
    FreedMemory(meter()).look()
    freed_memory.keep_some()
    freed_memory.give_back()


def test_no_descriptor_is_needed_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = meter()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse_to_open)
        assert (measure() is None) is (not hasattr(ctypes.CDLL(None), "mallinfo2"))
        assert meter()() is None


def refuse_to_open(path: object, *_: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))


def test_what_is_freed_is_kept_up_to_twice_sixteen_mebibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[int, int]] = []
    monkeypatch.setattr(freed_memory, "_libc", SimpleNamespace(mallopt=lambda *what: said.append(what)))
    freed_memory.keep_some()
    assert said == [(-3, 16 * MIB), (-1, 32 * MIB)]  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of malloc.h
    monkeypatch.setattr(freed_memory, "_libc", SimpleNamespace())
    freed_memory.keep_some()


def test_the_system_is_asked_what_is_resident_and_the_allocator_what_is_free() -> None:
    """Blocks of 20 KB, each with a small one that keeps it from being joined to the next, or to what is behind."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("needs glibc 2.33")
    measure = meter()
    gc.collect()
    blocks = [(bytearray(b"x" * 20_000), bytearray(600)) for _ in range(5000)]
    used = measure()
    kept = [small for _, small in blocks]
    del blocks
    freed = measure()
    freed_memory.give_back()
    given_back = measure()
    assert used is not None
    assert freed is not None
    assert given_back is not None
    assert freed.free_bytes - used.free_bytes > 60 * MIB
    assert given_back.free_bytes > 60 * MIB
    assert freed.resident_bytes - given_back.resident_bytes > 50 * MIB
    assert len(kept) == 5000
