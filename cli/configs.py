"""`tidelog configs`: the options of topics and of the broker, and how they are changed.

Owns the words of these verbs. Refuses to know what an option means: names and values go to a running broker as they
are, and its answer comes back, or into the data folder of a stopped one (`broker/stored_options`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tidelog.broker import stored_options
from tidelog.broker.catalog import CatalogError
from tidelog.broker.stored_options import Owner
from tidelog.cli import client
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, USAGE
from tidelog.cli.named_values import parse_options
from tidelog.cli.output import Column, print_rows, to_json
from tidelog.config.errors import ConfigError
from tidelog.storage.errors import StorageError

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
    wanted = _wanted(settings, deleted)
    with client.admin(bootstrap) as session:
        client.alter_options(session, resource, wanted)
    if as_json:
        named = {"topic": topic} if topic is not None else {"broker": broker}
        print(to_json({**named, **told(wanted)}))
    else:
        print(f"{resource} changed: {', '.join(in_words(wanted))}")
    return OK


def describe_stored(
    topic: str | None, broker: int | None, all_brokers: bool, as_json: bool, data_dir: Path | None
) -> int:
    """Print the options that a data folder keeps; return the exit code."""
    folder, owner, name = _owner(topic, broker, all_brokers, data_dir)
    with _in_lines():
        found = stored_options.stored(folder, owner)
    rows = [{"option": option, "value": value} for option, value in sorted(found.items())]
    if rows or as_json:
        print_rows(OPTIONS[:2], rows, as_json=as_json, caption=name)
    else:
        print(f"{name}: no option is kept in {folder}")
    return OK


def alter_stored(
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    settings: Sequence[str],
    deleted: Sequence[str],
    as_json: bool,
    data_dir: Path | None,
) -> int:
    """Set and delete options that a data folder keeps, while no broker runs on it; return the exit code."""
    folder, owner, name = _owner(topic, broker, all_brokers, data_dir)
    wanted = _wanted(settings, deleted)
    with _in_lines():
        stored_options.change(folder, owner, wanted)
    if as_json:
        named = {"topic": topic} if topic is not None else {"broker": broker}
        print(to_json({**named, **told(wanted)}))
    else:
        print(f"{name} changed in {folder}: {', '.join(in_words(wanted))}; the next start goes by it")
    return OK


def _owner(
    topic: str | None, broker: int | None, all_brokers: bool, data_dir: Path | None
) -> tuple[Path, Owner, str]:
    """Return the data folder, whose options are meant, and the words for that."""
    if data_dir is None:
        raise CommandError("--all-brokers: give --data-dir, too", USAGE)
    if all_brokers and topic is None and broker is None:
        return data_dir, Owner(None), "all brokers"
    if all_brokers or (topic is None) == (broker is None):
        raise CommandError("name one of --topic, --broker and --all-brokers", USAGE)
    owner = Owner(topic) if topic is not None else Owner(None, str(broker))
    return data_dir, owner, str(client.Resource(topic, broker))


@contextmanager
def _in_lines() -> Iterator[None]:
    """Turn what goes wrong with a data folder into one line."""
    try:
        yield
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from error
    except (StorageError, CatalogError) as error:
        raise CommandError(str(error)) from error


def _wanted(settings: Sequence[str], deleted: Sequence[str]) -> Changes:
    wanted = changes(settings, deleted)
    if not wanted:
        raise CommandError("nothing to change: give --config NAME=VALUE or --delete-config NAME", USAGE)
    return wanted


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
