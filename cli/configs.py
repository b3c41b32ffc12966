"""`tidelog configs`: show and change the options of topics and of the broker.

A running broker checks names and values; for a stopped one, `broker/stored_options` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.cli.arguments import (
    PATH,
    Integer,
    Verbs,
    bootstrap_option,
    config_option,
    delete_config_option,
    json_option,
    parse_options,
    topic_option,
)
from tidelog.cli.connect import connected
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, USAGE
from tidelog.cli.output import Column, or_dash, print_rows, to_json
from tidelog.cli.text import examples
from tidelog.config.kinds import INT_MAX
from tidelog.config.nearest import nearest
from tidelog.config.units import readable

if TYPE_CHECKING:
    from tidelog.broker.stored_options import Owner
    from tidelog.client.admin import Resource
    from tidelog.client.cluster import Cluster

# The sources of a value, by their numbers in DescribeConfigs.
OF_TOPIC: Final = 1
SOURCES: Final = {OF_TOPIC: "topic", 2: "dynamic broker", 3: "dynamic default", 4: "broker", 5: "default"}
OPTIONS: Final = (
    Column("option", "option"),
    Column("value", "value", or_dash, wraps=True),
    Column("source", "source"),
    Column("read_only", "can change", lambda is_read_only: "no" if is_read_only else "yes"),
)

DIFFERENT: Final = (
    Column("of", "of"),
    Column("option", "option"),
    Column("value", "value", or_dash, wraps=True),
    Column("default", "default", or_dash, wraps=True),
    Column("source", "source"),
)

Changes = dict[str, str | None]
# Shows the value of an option, by its name.
_Show = Callable[[str, str | None], str | None]


@click.group(
    cls=Verbs,
    epilog=examples("tidelog configs diff", "tidelog configs alter --topic orders --config retention.ms=7d"),
)
def configs() -> None:
    """Show and change the options of topics and of the broker.

    The broker is running (--bootstrap), or stopped (--data-dir).
    """


_topic_option = topic_option("The topic whose options to show or change.")
_broker_option = click.option(
    "--broker", metavar="ID", type=Integer(0, INT_MAX), help="The broker, by its node.id."
)
_data_dir_option = click.option(
    "--data-dir",
    type=PATH,
    help="The data folder of a stopped broker: show or change the options that are stored there.",
)
_all_brokers_option = click.option(
    "--all-brokers", is_flag=True, help="With --data-dir: the options that are set for all brokers."
)


@configs.command(
    "describe",
    epilog=examples("tidelog configs describe --topic orders", "tidelog configs describe --broker 1 --all"),
)
@_topic_option
@_broker_option
@click.option("--all", "every", is_flag=True, help="Show options with their default too.")
@json_option
@bootstrap_option
@_data_dir_option
@_all_brokers_option
def describe(
    topic: str | None,
    broker: int | None,
    every: bool,
    as_json: bool,
    bootstrap: str,
    data_dir: Path | None,
    all_brokers: bool,
) -> int:
    """Show the options that were set on a topic or for a broker."""
    if data_dir is not None or all_brokers:
        return _describe_stored(topic, broker, all_brokers, as_json, data_dir)
    resource = _resource(topic, broker)
    with connected(bootstrap) as cluster:
        found = options_of(cluster, resource, every=every)
    rows = [
        {
            "option": name,
            "value": option.value if as_json else readable(name, option.value),
            "source": SOURCES.get(option.config_source, "unknown"),
            "read_only": option.read_only,
        }
        for name, option in found.items()
    ]
    _print(
        OPTIONS, rows, as_json, str(resource), f"{resource}: every option has its default; --all shows them"
    )
    return OK


@configs.command("diff", epilog=examples("tidelog configs diff", "tidelog configs diff --json"))
@json_option
@bootstrap_option
def diff(as_json: bool, bootstrap: str) -> int:
    """Show what differs from the defaults. Each option has its owner and what set it."""
    show: _Show = (lambda _, value: value) if as_json else readable
    with connected(bootstrap) as cluster:
        from tidelog.client import admin

        rows = [
            row
            for node in cluster.brokers()
            for row in _different(f"broker {node}", admin.described_broker(cluster, node), show)
        ]
        topics = sorted(str(topic.name) for topic in cluster.topics())
        for topic, options in admin.described(cluster, topics).items():
            rows += _different(f"topic {topic}", options, show, of_topic=True)
    _print(DIFFERENT, rows, as_json, "", "every option has its default")
    return OK


def _different(
    of: str, options: Sequence[Any], show: _Show, *, of_topic: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield a row for each option that was set; for a topic, only those that were set on it."""
    for option in sorted(options, key=lambda option: str(option.name)):
        source = SOURCES.get(option.config_source, "unknown")
        if source != "default" and (not of_topic or option.config_source == OF_TOPIC):
            yield {
                "of": of,
                "option": option.name,
                "value": show(option.name, option.value),
                "default": _default(option, show),
                "source": source,
            }


def _default(option: Any, show: _Show) -> str | None:
    """Return the default of an option, with its name if that has another unit: log.retention.hours=168."""
    found = [each for each in option.synonyms if SOURCES.get(each.source) == "default"]
    if not found:
        return None
    name, value = str(found[-1].name), found[-1].value
    has_unit_of_option = name.rpartition(".")[2] == str(option.name).rpartition(".")[2]
    return show(name, value) if value is None or has_unit_of_option else f"{name}={show(name, value)}"


def _describe_stored(
    topic: str | None, broker: int | None, all_brokers: bool, as_json: bool, data_dir: Path | None
) -> int:
    from tidelog.broker import stored_options

    folder, owner, name = _owner(topic, broker, all_brokers, data_dir)
    with _folder_errors():
        found = stored_options.stored(folder, owner)
    rows = [
        {"option": option, "value": value if as_json else readable(option, value)}
        for option, value in sorted(found.items())
    ]
    _print(OPTIONS[:2], rows, as_json, name, f"{name}: no option is kept in {folder}")
    return OK


def _print(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], as_json: bool, caption: str, without: str
) -> None:
    if rows or as_json:
        print_rows(columns, rows, as_json=as_json, caption=caption)
    else:
        print(without)


@configs.command(
    "alter",
    epilog=examples(
        "tidelog configs alter --topic orders --config retention.ms=7d",
        "tidelog configs alter --broker 1 --delete-config max.connections",
    ),
)
@_topic_option
@_broker_option
@config_option
@delete_config_option
@json_option
@bootstrap_option
@_data_dir_option
@_all_brokers_option
def alter(
    topic: str | None,
    broker: int | None,
    config: Sequence[str],
    delete_config: Sequence[str],
    as_json: bool,
    bootstrap: str,
    data_dir: Path | None,
    all_brokers: bool,
) -> int:
    """Change options of a topic or of a broker. They apply at once, and after a restart."""
    if data_dir is not None or all_brokers:
        folder, owner, name = _owner(topic, broker, all_brokers, data_dir)
        wanted = _wanted(config, delete_config)
        from tidelog.broker import stored_options

        with _folder_errors():
            stored_options.change(folder, owner, wanted)
        done = f"{name} changed in {folder}: {', '.join(in_words(wanted))}; the next start uses it"
    else:
        resource = _resource(topic, broker)
        wanted = _wanted(config, delete_config)
        with connected(bootstrap) as cluster:
            change(cluster, resource, wanted)
        done = f"{resource} changed: {', '.join(in_words(wanted))}"
    named = {"topic": topic} if topic is not None else {"broker": broker}
    print(to_json({**named, **as_row(wanted)}) if as_json else done)
    return OK


def options_of(cluster: "Cluster", resource: "Resource", *, every: bool) -> dict[str, Any]:
    """Return the options of a topic or broker by name: those that were set, or every option."""
    from tidelog.client.admin import DEFAULT_SOURCE, describe_options

    found = describe_options(cluster, resource)
    return {name: each for name, each in found.items() if every or each.config_source != DEFAULT_SOURCE}


def change(cluster: "Cluster", resource: "Resource", wanted: Changes, *, validate_only: bool = False) -> None:
    """Set options of a topic or broker, and delete those that are None; CommandError."""
    from tidelog.client.admin import alter_options, describe_options

    if deleted := [name for name, value in wanted.items() if value is None]:
        _check_deleted(resource, deleted, describe_options(cluster, resource))
    alter_options(cluster, resource, wanted, validate_only=validate_only)


def _check_deleted(resource: "Resource", names: Sequence[str], known: Mapping[str, Any]) -> None:
    """Refuse to delete an option that cannot be set: brokers, Kafka included, accept any name."""
    for name in names:
        if name not in known:
            problem = f"no such option{nearest(name, known)}"
        elif known[name].read_only:
            problem = "cannot be changed while the broker runs"
        else:
            continue
        raise CommandError(f"{resource} was not changed: --delete-config {name}: {problem}")


def changes(settings: Sequence[str], deleted: Sequence[str]) -> Changes:
    """Return the new value of each option, None for one to delete."""
    found: Changes = {**parse_options(settings)}
    for name in map(str.strip, deleted):
        if not name:
            raise CommandError("--delete-config: the name is empty", USAGE)
        if name in found:
            raise CommandError(f"--delete-config {name}: --config sets it in the same command", USAGE)
        found[name] = None
    return found


def as_row(wanted: Changes) -> dict[str, Any]:
    """Return changes for JSON."""
    return {
        "set": {name: value for name, value in wanted.items() if value is not None},
        "deleted": [name for name, value in wanted.items() if value is None],
    }


def in_words(wanted: Changes) -> list[str]:
    """Return changes in words."""
    return [
        f"{name} deleted" if value is None else f"{name}={readable(name, value)}"
        for name, value in wanted.items()
    ]


def _wanted(settings: Sequence[str], deleted: Sequence[str]) -> Changes:
    wanted = changes(settings, deleted)
    if not wanted:
        raise CommandError("nothing to change: give --config NAME=VALUE or --delete-config NAME", USAGE)
    return wanted


def _resource(topic: str | None, broker: int | None) -> "Resource":
    from tidelog.client.admin import Resource

    if (topic is None) == (broker is None):
        raise CommandError("name either a --topic or a --broker", USAGE)
    return Resource(topic, broker)


def _owner(
    topic: str | None, broker: int | None, all_brokers: bool, data_dir: Path | None
) -> "tuple[Path, Owner, str]":
    """Return the data folder, the owner of the options, and the owner in words."""
    from tidelog.broker.stored_options import Owner

    if data_dir is None:
        raise CommandError("--all-brokers needs --data-dir", USAGE)
    if all_brokers and topic is None and broker is None:
        return data_dir, Owner(None), "all brokers"
    if all_brokers or (topic is None) == (broker is None):
        raise CommandError("name one of --topic, --broker and --all-brokers", USAGE)
    owner = Owner(topic) if topic is not None else Owner(None, str(broker))
    return data_dir, owner, str(_resource(topic, broker))


@contextmanager
def _folder_errors() -> Iterator[None]:
    """Turn errors of a data folder into CommandError."""
    from tidelog.broker.catalog import CatalogError
    from tidelog.config.errors import ConfigError
    from tidelog.storage.errors import StorageError

    try:
        yield
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from error
    except (StorageError, CatalogError) as error:
        raise CommandError(str(error)) from error
