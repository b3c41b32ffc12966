"""The examples of the documents: found in their pages, run as a reader would, compared with what a page shows.

Owns: what counts as an example, how a command is run in a folder, and which figures differ from run to run.
Refuses to know: what an example needs to exist, and which ones cannot be run.
"""

import os
import re
import subprocess
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.broker import COMMAND, environment
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# An indented block that begins with one of these is a script without output.
PROGRAMS = ("tidelog ", ".venv/bin/tidelog ", "docker/", "echo ", "export ", "make ", "pip ")
FENCE = re.compile(r" *(```+)(\w*)")
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)?"
# What else differs from run to run, wherever it is shown.
DIFFERS = (
    (r"\b1\d{12}\b", "MS"),
    (r'(?<="cluster_id": ")[\w-]+', "ID"),
    (r'(?<="behind_ms": )\d+', "AGE"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
    (r"(kafka-python-[\d.]+)-[0-9a-f-]+", r"\1-ID"),
    (r"(?<![\w.])\d+(?:\.\d+)?(?: ?m?s|[mhd])\b", "AGE"),
    (r"AGE(?: AGE)+", "AGE"),
    (r"(?<=^tidelog-cli 127\.0\.0\.1).*", " RATES"),
    (r"[ \t]+", " "),
    (r" ?$", ""),
)


class Example(NamedTuple):
    """A block of a page that is not prose."""

    page: str
    line: int
    language: str  # of a fence; `console`, `shell`, `prompt` (of Python) or `plain` of what is indented
    text: str
    lead: str  # the last line of prose before it

    @property
    def first(self) -> str:
        """Its first line, by which tests name it: pages move, and lines too."""
        return self.text.split("\n", 1)[0]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command, with the output that a console shows below it."""
        if self.language != "console":
            for command in re.findall(r"(?:.*\\\n)*.+\n", self.text):
                yield command.strip(), ""
            return
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            found = re.match(r"(?:.*\\\n)*.*\n", part)
            assert found
            yield found[0].strip(), part[found.end() :]


def examples(page: Path) -> Iterator[Example]:
    """Find the fenced and the indented blocks of a page."""
    lines = page.read_text().split("\n")
    name = str(page.relative_to(ROOT))
    number, before, lead = 0, "", ""
    while number < len(lines):
        begin, line = number, lines[number]
        number += 1
        if fence := FENCE.fullmatch(line):
            while lines[number].strip() != fence[1]:
                number += 1
            yield Example(name, begin + 1, fence[2], _dedented(lines[begin + 1 : number]), lead)
            number += 1
        elif line.startswith("    ") and not before.strip():
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number].strip()):
                if lines[number].startswith("    $ ") and not line.startswith("    $ "):
                    break  # a console begins after a blank line
                number += 1
            text = _dedented(lines[begin:number])
            yield Example(name, begin + 1, _language(text), text, lead)
        elif line.strip():
            lead = line
        before = lines[number - 1]


def _dedented(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).rstrip() + "\n"


def _language(text: str) -> str:
    if text.startswith("$ "):
        return "console"
    if text.startswith(">>> "):
        return "prompt"
    return "shell" if text.startswith(PROGRAMS) else "plain"


EXAMPLES = [example for page in PAGES for example in examples(page)]


def steady(text: str, *, figures: bool = True, days: Iterable[str] = ()) -> str:
    """Return an output without what differs from run to run: times too, unless they are of one of these days.

    Without `figures`, it is without any number or repeated line.
    """
    kept = "".join(f"(?!{day})" for day in days)
    for pattern, name in ((kept + TIME, "TIME"), *DIFFERS):
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    if not figures:
        text = re.sub(r"\d+(?:[.,]\d+)*(?: [KMGT]i?B| B\b)?", "0", text)
        text = re.sub(r"\b0 (record|row|segment|task|window)\b", r"0 \1s", text)
        text = re.sub(r"^(.*\n)\1+", r"\1", text, flags=re.MULTILINE)
    return text.strip()


def is_as_shown(shown: str, printed: str, *, figures: bool = True, days: Iterable[str] = ()) -> bool:
    """Tell whether a page shows what was printed; `...` stands for anything."""
    shown, printed = (steady(text, figures=figures, days=days) for text in (shown, printed))
    return re.fullmatch(re.escape(shown).replace(r"\.\.\.", ".*"), printed, re.DOTALL) is not None


def run(
    commands: Iterable[str], folder: Path, environ: Mapping[str, str], timeout_s: float = 120
) -> list[tuple[int, str]]:
    """Run the commands of an example in one shell; return the status and the output of each, both streams together."""
    script = "".join(
        f"{command}\nstatus=$?; printf '\\x1e%d\\x1f' $status; (exit $status)\n" for command in commands
    )
    path = f"{folder}/bin:{COMMAND.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**environment(), "PATH": path, "HOME": str(folder), "TZ": "Europe/Berlin", **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    ends = [part.rpartition("\x1e") for part in done.stdout.split("\x1f")[:-1]]
    return [(int(status), output) for output, _, status in ends]
