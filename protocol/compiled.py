"""Whether what is too hot for an interpreter is compiled: all of it, or the broker counts as interpreted."""

from typing import Final

from tidelog.protocol.records import kernel, search
from tidelog.protocol.wire import maker, reader, writer

__all__ = ["COMPILED"]

COMPILED: Final = all(module.COMPILED for module in (kernel, search, maker, reader, writer))
