"""Imports a partition's folder into a data folder that no broker has open.

The copy is written and synced beside its target, then renamed. Then the folder is opened and closed as a broker would
do it, which adopts the partition (`Topics.open`). So a kill leaves either nothing or all of it. If the topic gets
options, it is in the catalogue before the rename, still empty.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.catalog import CATALOG_FILE, Catalog, TopicRecord, new_topic_id
from tidelog.broker.clock import Clock
from tidelog.broker.topic_rules import TopicNamesCollide, metric_name, name_problem, record_problem
from tidelog.broker.topics import Topics
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC, TopicConfig
from tidelog.protocol.topic_names import CLUSTER_METADATA, is_internal
from tidelog.storage import files, importing, layout, retention
from tidelog.storage.errors import DataDirLocked, StorageError
from tidelog.storage.importing import Staged
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager


class Expired(NamedTuple):
    """What retention will delete as soon as a broker looks."""

    segments: int
    end_offset: int
    is_all: bool


class Imported(NamedTuple):
    """What was imported, which files were not, and what retention will delete of it."""

    staged: Staged
    partitions: int
    foreign: list[str]
    config: TopicConfig
    expired: Expired | None
    has_transactions: bool


def import_partition(
    config: BrokerConfig, clock: Clock, source: Path, topic: str, partition: int, options: Mapping[str, str]
) -> Imported:
    """Import a folder. StorageError, ConfigError, CatalogError or OSError mean that nothing was imported."""
    if problem := _problem(topic, partition):
        raise StorageError(problem)
    if files.status(source) is None:
        raise StorageError(f"{source}: there is no such folder")
    logs = LogManager(config.log_dir, config, clock.now_ms)
    _refuse_open(source)
    logs.lock()
    try:
        catalog = Catalog(logs.directory / CATALOG_FILE)
        try:
            return _import(logs, catalog, config, clock, source, (topic, partition), dict(options))
        finally:
            catalog.close()
    finally:
        logs.abandon()


def _problem(topic: str, partition: int) -> str | None:
    if topic == CLUSTER_METADATA:
        return f"{topic}: is the log of Kafka's controllers; choose another topic"
    if is_internal(topic):
        return (
            f"{topic}: this topic is internal, and the broker would take imported records for committed offsets; "
            "choose another topic"
        )
    if partition >= MAX_PARTITIONS_PER_TOPIC:
        return f"partition {partition}: a topic has at most {MAX_PARTITIONS_PER_TOPIC}, numbered from 0"
    return name_problem(topic)


def _refuse_open(source: Path) -> None:
    """Raise DataDirLocked for a folder that a broker has open, by whatever path it is named."""
    if files.is_locked(files.real(source).parent / layout.LOCK):
        raise DataDirLocked(f"{source}: a broker has this log open; stop it first")


def _import(
    logs: LogManager,
    catalog: Catalog,
    config: BrokerConfig,
    clock: Clock,
    source: Path,
    key: tuple[str, int],
    options: dict[str, str],
) -> Imported:
    name, partition = key
    config = catalog.changed(config)
    record = _record(catalog, name, options)
    is_new = record is None
    if record is None:
        record = TopicRecord(name, new_topic_id(), partition + 1, options)
    elif problem := record_problem(record):
        raise StorageError(f"topic {name}: {problem}")
    defaults = config.topic_defaults()
    topic_config = defaults.override(record.options, source=f"topic {name}").bounded_by(defaults)
    target = logs.directory / f"{name}-{partition}"
    if files.status(target) is not None and importing.has_records(target):
        raise StorageError(
            f"{target}: partition {partition} of topic {name} holds records, or has held some; name another with "
            "--partition, or another topic"
        )
    foreign = importing.foreign_in(source)
    staged = importing.stage(source, target, key, record.id, topic_config, clock.now_ms())
    if is_new and options:
        catalog.add_topic(record)
    importing.put(staged, target)
    loop = asyncio.new_event_loop()
    try:
        topics = Topics(catalog, logs, config, loop)
        topics.open()
    finally:
        loop.close()
    log, served = logs.logs[key], topics.by_name[name]
    # Records that are too old are kept for a check interval after their append, which is the import.
    looked_ms = clock.now_ms() + config.log_retention_check_interval_ms
    expired = _expired(log, looked_ms)
    has_transactions = any(segment.summary.transactional for segment in log.segments)
    imported = Imported(staged, len(served.partitions), foreign, log.config, expired, has_transactions)
    if not logs.close():
        raise StorageError(
            f"{logs.directory}: not everything could be written to disk; start the broker, and see its log"
        )
    return imported


def _record(catalog: Catalog, name: str, options: dict[str, str]) -> TopicRecord | None:
    """Return the topic if it exists; StorageError if it cannot be created, or exists with other options."""
    if name in catalog.deletions():
        raise StorageError(
            f"topic {name}: was deleted, but some of its files remain; start and stop the broker first"
        )
    for record in catalog.topics():
        if record.name == name:
            if options and options != record.options:
                raise StorageError(f"topic {name}: exists with other options; leave --config out")
            return record
        if metric_name(record.name) == metric_name(name):
            raise StorageError(str(TopicNamesCollide(name, record.name)))
    return None


def _expired(log: Log, now_ms: int) -> Expired | None:
    """Return what retention would delete at that time."""
    count = retention.expired(log.segments, log.log_start_offset, log.config, now_ms)
    if not count:
        return None
    return Expired(count, log.segments[count - 1].next_offset, count == len(log.segments))
