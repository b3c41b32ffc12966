"""Text for people: safe to print, with counted nouns, as questions, and as lines on standard error.

No control character may reach a terminal or a log, and only UTF-8 may be sent to a broker. Imports little, so that
`serve` starts fast.
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
    """Tell whether an argument is UTF-8; Python turns other bytes into surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str) -> str:
    r"""Return text as one line that is safe to print: \n, \x1b and bytes that are not UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace").decode().translate(CONTROLS)


def shortened(text: str) -> str:
    """Return a text, or the start of a long one, to quote it in a message."""
    return text if len(text) <= 60 else f"{text[:60]}..."


def counted(number: int, what: str) -> str:
    """Return a number with its noun: 1 segment, 2 segments."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def examples(*lines: str) -> str:
    """Return the epilog of a verb: examples of its use, each a command line that works as it is."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def called() -> str:
    """Return the command as the user can type it: its name if the shell finds it, else its path."""
    import shlex

    path = sys.argv[0]
    # The module of shutil.which loads four compressors, which would stay in the memory of `serve`.
    paths = (os.path.join(folder, "tidelog") for folder in os.get_exec_path())
    found = next((each for each in paths if os.path.isfile(each) and os.access(each, os.X_OK)), None)
    return "tidelog" if found == path or not path.endswith("tidelog") else shlex.quote(path)


def drop_output(stream: TextIO) -> None:
    """Discard what is buffered for a stream that can no longer be written, so that Python does not fail at exit."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def note(message: str) -> None:
    """Print a message on standard error."""
    with suppress(OSError):  # then there is still the exit code
        print(f"tidelog: {shown(message)}", file=sys.stderr)


def confirm(question: str) -> bool:
    """Ask the user; no answer means no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)  # end the line of the question
    return answer.strip().lower() in ("y", "yes")
