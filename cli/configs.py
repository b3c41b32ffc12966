"""`tidelog configs`: the options of topics and of the broker, and how they are changed while it runs.

Owns the words of these verbs. Refuses to know what an option means: names and values go to the broker as they are, and
its answer comes back.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.cli import client
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, USAGE
from tidelog.cli.named_values import parse_options
from tidelog.cli.output import Column, print_rows, to_json

# Where a value comes from, by Kafka's numbers.
_SOURCES: Final = {1: "topic", 2: "dynamic broker", 3: "dynamic default", 4: "broker", 5: "default"}
OPTIONS: Final = (
    Column("option", "option"),
    Column("value", "value", lambda value: "-" if value is None else str(value)),
    Column("source", "source"),
    Column("read_only", "can change", lambda is_read_only: "no" if is_read_only else "yes"),
)

Changes = dict[str, str | None]


def describe(topic: str | None, broker: int | None, every: bool, as_json: bool, bootstrap: str) -> int:
    """Print the options that were set, or all; return the exit code."""
    resource = _resource(topic, broker)
    with client.admin(bootstrap) as session:
        found = client.options(session, resource, every=every)
    rows = [
        {
            "option": name,
            "value": option["value"],
            "source": _SOURCES.get(option["config_source"], "unknown"),
            "read_only": option["read_only"],
        }
        for name, option in found.items()
    ]
    if rows or as_json:
        print_rows(OPTIONS, rows, as_json=as_json, caption=str(resource))
    else:
        print(f"{resource}: every option has its default; --all shows them")
    return OK


def alter(
    topic: str | None,
    broker: int | None,
    settings: Sequence[str],
    deleted: Sequence[str],
    as_json: bool,
    bootstrap: str,
) -> int:
    """Set and delete options, all of them or none; return the exit code."""
    resource = _resource(topic, broker)
    wanted = changes(settings, deleted)
    if not wanted:
        raise CommandError("nothing to change: give --config NAME=VALUE or --delete-config NAME", USAGE)
    with client.admin(bootstrap) as session:
        client.alter_options(session, resource, wanted)
    if as_json:
        named = {"topic": topic} if topic is not None else {"broker": broker}
        print(to_json({**named, **told(wanted)}))
    else:
        print(f"{resource} changed: {', '.join(in_words(wanted))}")
    return OK


def changes(settings: Sequence[str], deleted: Sequence[str]) -> Changes:
    """Return the new value of each option, None for one that is to be as if never set."""
    found: Changes = {**parse_options(settings, "--config")}
    for name in map(str.strip, deleted):
        if not name:
            raise CommandError("--delete-config: it is empty; name an option", USAGE)
        if name in found:
            raise CommandError(f"--delete-config {name}: --config sets it", USAGE)
        found[name] = None
    return found


def told(wanted: Changes) -> dict[str, Any]:
    """Return changes as they are told in JSON."""
    return {
        "set": {name: value for name, value in wanted.items() if value is not None},
        "deleted": [name for name, value in wanted.items() if value is None],
    }


def in_words(wanted: Changes) -> list[str]:
    """Return changes as they are told to people."""
    return [f"{name} deleted" if value is None else f"{name}={value}" for name, value in wanted.items()]


def _resource(topic: str | None, broker: int | None) -> client.Resource:
    if (topic is None) == (broker is None):
        raise CommandError("name either a --topic or a --broker", USAGE)
    return client.Resource(topic, broker)
