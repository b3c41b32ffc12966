"""Verbs of `tidelog` against a running broker, each run to its end."""

import json
import subprocess
from typing import Any, NamedTuple

from click.testing import CliRunner

from tests.support.broker import COMMAND, Running, environment
from tidelog.cli.main import app


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def command(broker: Running, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line and its environment."""
    return [str(COMMAND), *arguments], {**environment(), "TIDELOG_BOOTSTRAP": broker.address}


def tidelog(broker: Running, *arguments: object, text: str = "") -> Done:
    """Run a verb in this process, which has loaded the client library already, unless the verb reads lines."""
    words = [str(argument) for argument in arguments]
    if words[0] == "produce":  # reads from a descriptor, and the runner's standard input has none
        line, variables = command(broker, *words)
        run = subprocess.run(line, input=text, capture_output=True, text=True, timeout=50, env=variables)
        return Done(run.returncode, run.stdout, run.stderr)
    result = CliRunner().invoke(app, words, input=text, env={"TIDELOG_BOOTSTRAP": broker.address})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def ok(done: Done) -> str:
    """Return the output of a verb that succeeded."""
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def rows(done: Done) -> list[dict[str, Any]]:
    """Return the JSON objects that a verb printed."""
    return [json.loads(line) for line in ok(done).splitlines()]
