"""Batches that may or may not be in a range of append times, because only an upper bound of their append time is known.

The last exact append time before such a batch is its lower bound. If both bounds are in the range, so is the batch. If
both are on the same side of it, the batch is not.
"""

from contextlib import suppress
from typing import Final

import numpy as np

from tidelog.pipeline.files.pieces import Undated, append_times
from tidelog.storage import append_index
from tidelog.storage.errors import Mismatch
from tidelog.storage.log import Log

_FIRST_MS: Final = 0  # the earliest possible append time


def undated(log: Log, number: int, wanted: range, times_ms: tuple[int, int]) -> tuple[Undated, ...]:
    """Return the batches of a segment, within `wanted` offsets, that may or may not be in a range of append times."""
    segment = log.segments[number]
    bounds_ms, offsets, is_bound = append_times(segment.append_index.data)
    if not is_bound.any():
        return ()
    not_before_ms = np.maximum.accumulate(np.where(is_bound, _FIRST_MS, bounds_ms))
    if is_bound[0]:
        not_before_ms = np.maximum(not_before_ms, _last_exact_ms(log, number))
    from_ms, to_ms = times_ms
    is_in = (not_before_ms >= from_ms) & (bounds_ms < to_ms)
    is_out = (bounds_ms < from_ms) | (not_before_ms >= to_ms)
    starts = segment.base_offset + offsets
    ends = np.append(starts[1:], segment.next_offset)
    is_met = (starts < wanted.stop) & (ends > wanted.start)
    found = np.flatnonzero(is_bound & ~is_in & ~is_out & is_met).tolist()
    start, size = append_index.HEADER_BYTES, append_index.ENTRY_BYTES
    return tuple(Undated(int(starts[n]), int(ends[n]), int(bounds_ms[n]), start + n * size) for n in found)


def _last_exact_ms(log: Log, number: int) -> int:
    """Return the last exact append time in the segments before one; `_FIRST_MS` if there is none.

    Segments that would have to be scanned are skipped: an earlier one gives a lower bound, which is still correct.
    """
    for segment in reversed(log.segments[:number]):
        if segment.is_known_by_index or not segment.size:
            continue
        with suppress(Mismatch):
            times_ms, _, is_bound = append_times(segment.append_index.data)
            if not is_bound.all():
                return int(times_ms[~is_bound][-1])
    return _FIRST_MS
