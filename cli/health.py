"""`tidelog health`: the health that a broker reports at its HTTP port, in words."""

from contextlib import closing
from typing import Any, Final

import click

from tidelog.cli.arguments import json_option
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tidelog.cli.output import alarming, to_json
from tidelog.cli.profiles import bootstrap
from tidelog.cli.text import called, counted, examples, shown

# Enough for a broker with a hundred thousand partitions.
TIMEOUT_S = 30.0
# The http.port of the examples in the documentation.
USUAL_PORT: Final = 9464


def _usual_address() -> str:
    """Return the usual port at the host that other commands connect to."""
    from tidelog.client import address
    from tidelog.config.kinds import host_and_port

    try:
        host, _ = address.parse(bootstrap())
    except ValueError as error:
        raise CommandError(f"{bootstrap()}: {error}; name the broker with --http", USAGE) from None
    return host_and_port(host, USUAL_PORT)


@click.command(
    "health",
    epilog=examples("tidelog health", "tidelog health --http 127.0.0.1:9464 --json"),
)
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    default=_usual_address,
    show_default=False,
    help=f"Where the broker answers HTTP (http.port). Default: port {USUAL_PORT} of the profile's host.",
)
@json_option
def health(address: str, as_json: bool) -> int:
    """Show whether a broker is healthy. If not, show which logs refuse writes or cannot be compacted, and why.

    Also show the damaged ranges of logs that the broker knows. They do not change the exit code.
    """
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
    if not isinstance(found, dict) or not {"not_compacted", "damaged"} <= found.keys():
        raise CommandError(f"{address}: this is not the http.port of a Tidelog broker", UNREACHABLE)
    return found


def _in_words(health: dict[str, Any]) -> list[str]:
    held = f"{counted(health['topics'], 'topic')}, {counted(health['partitions'], 'partition')}"
    lines = [f"{health['status']}: broker {health['node_id']}, Tidelog {health['version']}, {held}"]
    lines += [
        f"{each['log']}: {each['range']} is damaged, and reads of it fail; the next offset is {each['next_offset']}"
        for each in health["damaged"]
    ]
    if (more := health["damaged_ranges"] - len(health["damaged"])) > 0:
        lines.append(f"and {counted(more, 'damaged range')} more; {called()} fsck lists all")
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
