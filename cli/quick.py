"""`tidelog serve` in its plainest words, without what reads every other command line: that takes a fifth of a start.

Owns which words are plain: each option by its whole name with its value in a word of its own. Whatever else there is,
and every mistake, is for `cli.main` to read and to explain.
"""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PORT_MAX = 65535
_TEXTS = {"--log-level": "log_level", "--test-clock": "test_clock"}
_PATHS = {"--data-dir": "data_dir", "--config": "config_file", "--ready-file": "ready_file"}
_FLAGS = {"--test-control": "test_control", "--stop-at-eof": "stop_at_eof"}


def told(words: Sequence[str]) -> dict[str, Any] | None:
    """Return what `cli.serve.run` is to be told, for the words after `tidelog`; None where they are not plain."""
    if not words or words[0] != "serve":
        return None
    found: dict[str, Any] = {
        "config_file": None, "overrides": [], "data_dir": None, "port": None, "ready_file": None, "log_level": "info",
        "test_control": False, "test_clock": None, "stop_at_eof": False,
    }  # fmt: skip
    rest = iter(words[1:])
    for word in rest:
        if word in _FLAGS:
            found[_FLAGS[word]] = True
            continue
        value = next(rest, "-")
        if value.startswith("-"):
            return None
        if word == "--override":
            found["overrides"].append(value)
        elif word in _TEXTS:
            found[_TEXTS[word]] = value
        elif word in _PATHS:
            found[_PATHS[word]] = Path(value)
        elif word == "--port" and value.isascii() and value.isdecimal() and int(value) <= PORT_MAX:
            found["port"] = int(value)
        else:
            return None
    return found


def serve(arguments: dict[str, Any]) -> int:
    """Run the broker; return the exit code."""
    # As where `cli.main` does it.
    gc.disable()
    from tidelog.cli.serve import run

    gc.enable()
    return run(**arguments)
