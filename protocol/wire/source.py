"""Source text of generated functions, and the functions made of it.

Owns indentation, the fusing of fixed-width fields and the names of locals; knows nothing of what the code is
for.
"""

import linecache
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from struct import calcsize
from typing import Any

__all__ = ["Source", "format_name", "snake_case"]

_LINE_LENGTH = 100


class Source:
    """Lines of one function under construction, with the globals that they use."""

    def __init__(self, scope: dict[str, Any], names: Iterable[str]) -> None:
        """Begin a function that uses these globals and has these names for its own."""
        self.scope = scope
        self._lines: list[str] = []
        self._depth = 0
        self._names = {*scope, *names}

    def add(self, line: str) -> None:
        """Append a line at the current indentation."""
        self._lines.append("    " * self._depth + line)

    def add_call(self, before: str, items: list[str], after: str) -> None:
        """Append `before item, item, after`, one item a line when it is too long for one."""
        line = before + ", ".join(items) + after
        if len(line) + 4 * self._depth <= _LINE_LENGTH:
            self.add(line)
            return
        self.add(before)
        for item in items:
            self.add(f"    {item},")
        self.add(after)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indent what is added inside, under the header."""
        self.add(header)
        self._depth += 1
        yield
        self._depth -= 1

    def unique(self, name: str) -> str:
        """Reserve a name for a local; a second use of it gets a number."""
        number, free = 1, name
        while free in self._names:
            number += 1
            free = f"{name}_{number}"
        self._names.add(free)
        return free

    def constant(self, name: str, value: object) -> str:
        """Make a value a global of the function; give the name, numbered if another value has it already."""
        number, free = 1, name
        while self.scope.setdefault(free, value) is not value:
            number += 1
            free = f"{name}_{number}"
        return free

    def text(self) -> str:
        """Give the source so far."""
        return "\n".join(self._lines) + "\n"

    def function(self, name: str, filename: str) -> Callable[..., Any]:
        """Compile the source and give the function of that name; tracebacks will show its lines."""
        text = self.text()
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)
        function: Callable[..., Any] = self.scope[name]
        return function


def snake_case(name: str) -> str:
    """Turn a class name into the name of a local."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def format_name(prefix: str, codes: list[str]) -> str:
    """Name the bound method of a fused `struct.Struct`; "?" is no letter, so it reads "t" for truth."""
    return f"{prefix}_{''.join(codes).replace('?', 't')}"


def width(codes: list[str]) -> int:
    """Give the bytes that a big-endian run of `struct` codes takes."""
    return calcsize(">" + "".join(codes))
