"""Check the prose of the pages and of each `--help`: proselint's rules, and our list of words to avoid.

Code is blanked out, and lines keep their numbers.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from proselint import checks as rules
from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, Padding, types
from proselint.tools import LintFile

from tidelog.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
# Regular expressions of RE2. CONTRIBUTING.md has what to write in their place.
AVOID = (
    "whoever",
    "of which",
    "(?:is|are|was|were) (?:said|handed|told|owed)",
    "anew",
    "owed",
    "errand",
    "in all(?: [^a-z]|[.,;])",
    r"there (?:is|are)\b[^.;:|\n]*\bthat (?:is|are|was|were|has|have)",
    "mend(?:s|ed)?",
)
OURS = Check(
    check_type=types.Existence(items=AVOID, padding=Padding.WORDS_IN_TEXT),
    path="ours",
    message="Our style guide (CONTRIBUTING.md) avoids '{}'.",
)
# Rules for typesetters, and rules that take a time, a column or Kafka's spelling (`compactable`) for a mistake.
LEFT_OUT = ("typography", "dates_times", "lexical_illusions", "spelling")
NOT_PROSE = re.compile(
    r"^```.*?^```"
    r"|^ {4}.*?$"
    r"|``.+?``|`[^`]+`"
    r"|\]\([^)\n]*\)"
    r"|^\| not \| but \|\n(?:\|.*\n)+|^Words to avoid:.*?\n\n",  # the style guide's own examples
    re.MULTILINE | re.DOTALL,
)


def without_code(text: str) -> str:
    """Return the text with a dot for each letter of code."""
    return NOT_PROSE.sub(lambda found: re.sub(r"[^\n]", ".", found[0]), text)


def help_texts(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each verb, with its help and that of its options."""
    options = [parameter.help or "" for parameter in command.params if isinstance(parameter, click.Option)]
    yield f"{name} --help", "\n\n".join((command.help or "", *options))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            found = command.resolve_command(context, [verb])[1]
            if found:
                yield from help_texts(found, f"{name} {verb}")


def everything() -> Iterator[tuple[str, str]]:
    """Yield the name and text of each page and each help text."""
    for page in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        yield str(page.relative_to(ROOT)), page.read_text()
    yield from help_texts(app, "tidelog")


def main() -> int:
    """Print each sentence that a rule flags, in all texts or in the files that are named; return 1 if one did."""
    registry = CheckRegistry()
    registry.register_many((*rules.__register__, OURS))
    checks = DEFAULT["checks"] | {"ours": True} | dict.fromkeys(LEFT_OUT, False)
    config = Config(max_errors=1000, checks=checks)
    flagged = 0
    for name, text in [(name, Path(name).read_text()) for name in sys.argv[1:]] or everything():
        for result in LintFile(name, without_code(text)).lint(config):
            print(f"{name}:{result.pos[0]}: {result.check_result.check_path}: {result.check_result.message}")
            flagged += 1
    return min(flagged, 1)


if __name__ == "__main__":
    sys.exit(main())
