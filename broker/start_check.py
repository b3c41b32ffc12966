"""Checks whether a broker would start, without starting it. Changes nothing.

It follows the order of a start: the data folder, the catalogue, the addresses.
"""

from typing import NamedTuple

from tidelog.broker import catalog, catalog_check
from tidelog.broker.catalog import ALL_BROKERS, CATALOG_FILE, CatalogError, Contents
from tidelog.broker.net.server import check_listeners
from tidelog.config import stored
from tidelog.config.options import BrokerConfig
from tidelog.storage import files, layout


class Outlook(NamedTuple):
    """What a start would use: the options, stored ones too, and the number of topics, None for a new folder."""

    config: BrokerConfig
    topics: int | None
    warnings: list[str]


def check(config: BrokerConfig) -> Outlook:
    """Return what a start would use. Raise what it would raise: StorageError, CatalogError, CannotListen."""
    layout.check(config.log_dir, config.node_id)
    path = config.log_dir / CATALOG_FILE
    found: list[Contents] = []

    def keep(contents: Contents) -> list[str]:
        found.append(contents)
        return []

    if faults := catalog.faults(path, keep):
        raise CatalogError(f"{path}: {'; '.join(faults)}")
    check_listeners(config)
    topics = None if files.status(path) is None else 0
    warnings = list(config.notes)
    for contents in found:
        topics = len(contents.topics)
        own, everywhere = (contents.options.get(each, {}) for each in (str(config.node_id), ALL_BROKERS))
        config, _ = stored.broker_options(config, own, everywhere)
        warnings += catalog_check.refused(contents)
    return Outlook(config, topics, warnings)
