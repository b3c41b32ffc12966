"""The enumeration of crashes would notice: with a promise broken on purpose, it finds a state that shows it.

Without these cases "no state broke a promise" would mean nothing. The breaks are made in `files` and in what few names
the other modules of storage have in common, so that they stay what they are when those modules change.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.fault.crash.explore import explore
from tests.fault.crash.scenarios import SCENARIOS
from tidelog.protocol.records import entries
from tidelog.storage import append_index, files, log_manager, retention
from tidelog.storage.append_index import AppendIndex
from tidelog.storage.durability import Durability, Flushable
from tidelog.storage.segment import Segment

# Seconds of one processor; a busy machine may take many times that.
pytestmark = pytest.mark.timeout(300)


def nothing(*_: Any) -> None:
    """Do not do it, and say that it was done."""


def no_flush(_durability: Durability, log: Flushable) -> int:
    return log.log_end_offset


def promise_too_much(path: Any, offsets: Any, save: Callable[..., None] = log_manager.save_offsets) -> None:
    save(path, {key: offset + 3 for key, offset in offsets.items()})


def all_that_is_there(data: bytes, last: Any, end: int, *_: Any) -> list[Any]:
    entries = append_index.sound_entries(data, last)
    return [entry for entry in entries if entry is not None and entry.relative_offset < end]


BROKEN = {
    "a flush that syncs no file": ("roll", files.File, "sync", nothing),
    "a flush that does nothing": ("clean stop", Durability, "flush", no_flush),
    "sealed segments that are not synced": ("roll", Segment, "sync", nothing),
    "folders that are not synced": ("roll", files, "sync_folder", nothing),
    "a commit of many logs that syncs nothing": ("many logs", files.FileSystem, "sync", nothing),
    "torn batches that pass for whole": ("saves", entries, "check_crc", lambda *_: True),
    "a torn tail that stays": ("saves", files.File, "truncate", nothing),
    "a checkpoint ahead of the disk": ("roll", log_manager, "save_offsets", promise_too_much),
    "retention that takes what is young": (
        "retention by time",
        retention,
        "next_due_ms",
        lambda segment, config: 0 if segment.size else None,
    ),
    "deleted files that stay": ("topics", files, "rename", nothing),
    "append times that nobody writes down": ("roll", AppendIndex, "append_if_later", nothing),
    "append times of lost batches that stay": ("saves", AppendIndex, "replace_file", nothing),
    "append times that are taken on trust": ("saves", append_index, "rest_of", all_that_is_there),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, owner, attribute, broken = BROKEN[name]
    monkeypatch.setattr(owner, attribute, broken)
    tally = explore(SCENARIOS[scenario], 2, first_only=True)
    assert tally.found, f"{len(tally.states)} states, and none shows it"
    # What is found is a broken promise, not a scenario that cannot run.
    assert not re.search(r"\b(Type|Attribute|Name)Error\b", repr(tally.found[0].violation))
