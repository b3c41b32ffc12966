"""`tidelog health`: the health that a broker reports at its HTTP port, in words."""

from contextlib import closing
from typing import Any

import click

from tidelog.cli.arguments import json_option
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREACHABLE
from tidelog.cli.output import alarming, to_json
from tidelog.cli.text import counted, examples, shown

# Enough for a broker with a hundred thousand partitions.
TIMEOUT_S = 30.0


@click.command(
    "health",
    epilog=examples("tidelog health --http 127.0.0.1:9464", "tidelog health --http 127.0.0.1:9464 --json"),
)
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    required=True,
    help="Where the broker answers HTTP (http.port).",
)
@json_option
def health(address: str, as_json: bool) -> int:
    """Show whether a broker is healthy. If not, show which logs refuse writes or cannot be compacted, and why."""
    answer = _ask(address)
    if as_json:
        print(to_json(answer))
    else:
        first, *reasons = map(shown, _in_words(answer))
        print(first if answer["status"] == "ok" else alarming(first))
        for line in reasons:
            print(alarming(line))
    return OK if answer["status"] == "ok" else FAILED


def _ask(address: str) -> dict[str, Any]:
    import http.client
    import json

    try:
        with closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", "/health")
            found = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException) as error:
        why = f"{address}: no answer over HTTP ({error}); a broker answers HTTP only if http.port is set"
        raise CommandError(why, UNREACHABLE) from error
    except ValueError:
        found = None
    if not isinstance(found, dict) or "not_compacted" not in found:
        raise CommandError(f"{address}: this is not the http.port of a Tidelog broker", UNREACHABLE)
    return found


def _in_words(health: dict[str, Any]) -> list[str]:
    held = f"{counted(health['topics'], 'topic')}, {counted(health['partitions'], 'partition')}"
    lines = [f"{health['status']}: broker {health['node_id']}, Tidelog {health['version']}, {held}"]
    for count, named, what in (
        (health["refusing_writes"], health["refused"], "takes no writes"),
        (health["compaction_failing"], health["not_compacted"], "compaction fails, and is tried again"),
    ):
        lines += [
            f"{each['log']}: {what if each.get('is_read', True) else 'not served'}: {each['reason']}"
            for each in named
        ]
        if count > len(named):
            lines.append(f"and {count - len(named)} more: {what}")
    return lines
