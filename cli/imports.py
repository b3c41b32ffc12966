"""Imports without looks for garbage: they leave little, and the looks would take a tenth of a start."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector off while the block imports, and from what it has imported.

    Only in a process that `cli.entry` has started, which has disabled the collector.
    """
    if gc.get_freeze_count():
        gc.disable()
    yield
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
