"""Whether what is too hot for an interpreter is compiled: all of it, or the broker counts as interpreted."""

from typing import Final

from tidelog.protocol.records import batch, kept, kernel, key_hashes, keys, search, tally, validate
from tidelog.protocol.wire import layout, reader, writer

__all__ = ["COMPILED"]

COMPILED: Final = not any(
    str(module.__file__).endswith(".py")
    for module in (
        batch,
        kept,
        kernel,
        key_hashes,
        keys,
        search,
        tally,
        validate,
        layout,
        reader,
        writer,
    )
)
