"""Whether the modules of the inner loops are compiled: all of them, or they count as interpreted."""

from typing import Final

from tidelog.protocol.records import (
    batch,
    encode,
    kept,
    kernel,
    key_hashes,
    keys,
    lines,
    search,
    tally,
    validate,
)
from tidelog.protocol.wire import layout, reader, writer

COMPILED: Final = not any(
    str(module.__file__).endswith(".py")
    for module in (
        batch,
        encode,
        kept,
        kernel,
        key_hashes,
        keys,
        lines,
        search,
        tally,
        validate,
        layout,
        reader,
        writer,
    )
)
