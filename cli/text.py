"""Text that passes between a person and the rest: what may go to a broker, and what may be shown.

Owns both answers, the name of the command, numbers with their nouns, a question and the line on standard error.
Refuses to know what the text is about, and loads nothing, since `serve` is to start soon. Invariant: no control
character reaches a terminal or a log, and no text that is not UTF-8 reaches the client library, whose threads end by
it without a word.
"""

import os
import sys
from contextlib import suppress
from typing import Final, TextIO

CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


def is_utf8(text: str) -> bool:
    """Tell whether a word of the command line can be sent: what was no UTF-8 there is half a surrogate pair here."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str) -> str:
    r"""Return text as one line that is safe to look at: \n, \x1b and what was no UTF-8 are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode().translate(CONTROLS)


def shortened(text: str) -> str:
    """Return the start of a text that is too long to be repeated in a message."""
    return text if len(text) <= 60 else f"{text[:60]}..."


def counted(number: int, what: str) -> str:
    """Return how many there are of what has a plural in -s: 1 segment, 2 segments."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def called() -> str:
    """Return the command as it can be typed again: by its name where the shell finds it, else by its path."""
    import shlex
    import shutil

    path = sys.argv[0]
    found = shutil.which("tidelog")
    return "tidelog" if found == path or not path.endswith("tidelog") else shlex.quote(path)


def drop_output(stream: TextIO) -> None:
    """Let what is still buffered for a device that takes no more go nowhere, without a complaint at exit."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def note(message: str) -> None:
    """Tell something on standard error that is not a part of the answer."""
    with suppress(OSError):  # where that is full, the exit code has to do
        print(f"tidelog: {shown(message)}", file=sys.stderr)


def confirm(question: str) -> bool:
    """Ask a person; no answer is no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)  # Nobody has ended the line.
    return answer.strip().lower() in ("y", "yes")
