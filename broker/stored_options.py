"""Shows and changes stored dynamic options while no broker runs.

This repairs a broker that does not start, or that no client reaches, because of an option. Any option can be deleted,
whatever its name and value. An option that is set must be one that a running broker accepts.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.catalog import ALL_BROKERS, CATALOG_FILE, Catalog, Contents, read
from tidelog.config.nearest import nearest
from tidelog.config.options import dynamic_option
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files, layout
from tidelog.storage.errors import StorageError

Changes = Mapping[str, str | None]


class Owner(NamedTuple):
    """Owner of options: a topic by its name, or a broker by its id (`ALL_BROKERS` for all)."""

    topic: str | None
    broker: str = ALL_BROKERS


def stored(data_folder: Path, owner: Owner) -> dict[str, str]:
    """Return the stored options; a broker may have the catalogue open. StorageError, CatalogError."""
    path = _catalog_in(data_folder)
    return _options_of(owner, read(path), path)


def change(data_folder: Path, owner: Owner, changes: Changes) -> None:
    """Set options, and delete those whose value is None: durably, all or none.

    ConfigError for an option that cannot be set, DataDirLocked while a broker runs, CatalogError, StorageError, also
    for the deletion of an option that is not stored.
    """
    for name, value in changes.items():
        if value is not None and owner.topic is None:
            dynamic_option(name).read(value, given=name)
        elif value is not None:
            TopicConfig().override({name: value})
    path = _catalog_in(data_folder)
    lock = layout.lock(data_folder, int(layout.node_id_of(data_folder) or -1))
    try:
        with closing(Catalog(path)) as catalog:
            options = _changed(_options_of(owner, catalog.contents(), path), changes)
            if owner.topic is None:
                catalog.set_broker_options(owner.broker, options)
            else:
                catalog.set_options(owner.topic, options)
    finally:
        lock.release()


def _changed(options: Mapping[str, str], changes: Changes) -> dict[str, str]:
    for name, value in changes.items():
        if value is None and name not in options:
            raise StorageError(
                f"{name}: no such option is stored{nearest(name, options)}; nothing was changed"
            )
    return {name: value for name, value in {**options, **changes}.items() if value is not None}


def _catalog_in(data_folder: Path) -> Path:
    path = data_folder / CATALOG_FILE
    if files.status(path) is None or layout.node_id_of(data_folder) is None:
        raise StorageError(f"{path}: there is no catalogue; name the folder that a broker has its data in")
    return path


def _options_of(owner: Owner, contents: Contents, path: Path) -> dict[str, str]:
    if owner.topic is None:
        return contents.options.get(owner.broker, {})
    for record in contents.topics:
        if record.name == owner.topic:
            return record.options
    raise StorageError(f"{path}: it has no topic {owner.topic}")
