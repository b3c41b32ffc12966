"""Options that were set while a broker ran, shown and changed while none does.

Owns the way back from an option with which a broker does not start, or answers nobody. An option is deleted whatever
its name and value; one that is set must be one that a running broker would take by itself.
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
    """Whose options are meant: a topic's by its name, or a broker's by its id (`ALL_BROKERS` of all)."""

    topic: str | None
    broker: str = ALL_BROKERS


def stored(data_folder: Path, owner: Owner) -> dict[str, str]:
    """Return the options in the catalogue; a broker may have it open. StorageError, CatalogError."""
    path = _catalog_in(data_folder)
    return _options_of(owner, read(path), path)


def change(data_folder: Path, owner: Owner, changes: Changes) -> None:
    """Set options, and delete those without a value: all of them durably, or none.

    ConfigError for one that cannot be set, DataDirLocked beside a broker, CatalogError, StorageError, which is also for
    one to be deleted that is not stored.
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
