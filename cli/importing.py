"""`tidelog import`: copy the folder of a partition into a data folder.

Warnings about what a broker will do with it go to stderr, and the exit code stays 0. `broker.importing` does the work.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.arguments import PATH, Integer, parse_options, topic_options_option, utf8
from tidelog.cli.broker_options import config_file_option, configure, without_file
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, USAGE
from tidelog.cli.fsck import quiet
from tidelog.cli.text import counted, examples, note
from tidelog.config.errors import ConfigError
from tidelog.config.kinds import INT_MAX

if TYPE_CHECKING:
    from tidelog.broker.importing import Imported
    from tidelog.config.options import BrokerConfig
    from tidelog.config.topic_options import TopicConfig


@click.command(
    "import",
    epilog=examples(
        "tidelog import /kafka/data/orders-1 --topic orders --data-dir data",
        "tidelog import copied --topic orders --partition 1 --data-dir data",
    ),
)
@click.argument("folder", type=PATH, help="The folder of a partition, written by Kafka or by Tidelog.")
@click.option(
    "--topic", metavar="NAME", required=True, callback=utf8, help="The topic; created if it is missing."
)
@click.option("--data-dir", type=PATH, required=True, help="The data folder; created if it is missing.")
@click.option("--partition", type=Integer(0, INT_MAX), help="Default: the number in the folder's name.")
@topic_options_option
@config_file_option
def import_folder(
    folder: Path,
    topic: str,
    data_dir: Path,
    partition: int | None,
    options: Sequence[str],
    config_file: Path | None,
) -> int:
    """Copy the log of a partition into a data folder. No broker may have either open.

    Offsets and bytes stay as they are; indexes are rebuilt. Either all of it is imported or nothing. A warning says
    what the topic's retention would delete.
    """
    from tidelog.broker.catalog import CatalogError
    from tidelog.broker.clock import Clock
    from tidelog.broker.importing import import_partition
    from tidelog.storage import files
    from tidelog.storage.errors import StorageError

    number = _number(folder) if partition is None else partition
    try:
        config_file, options = without_file(config_file, options)
        config = configure(config_file, (), data_dir)
        with quiet():
            imported = import_partition(config, Clock(), folder, topic, number, parse_options(options))
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from error
    except (StorageError, CatalogError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        # If the disk is full, the error of a copy names its source; the error of a failed sync names no file.
        path = data_dir if error.errno in files.FULL else error.filename or data_dir
        raise CommandError(f"{path}: {error.strerror or error}") from error
    _warn(imported, config, folder, topic)
    staged = imported.staged
    offsets = f"offsets {staged.first_offset} to {staged.end_offset - 1}"
    print(
        f"{topic}-{number}: {offsets if staged.log_bytes else 'no records'}, "
        f"{counted(staged.segments, 'segment')}, {counted(staged.log_bytes, 'byte')}; "
        f"topic {topic} has {counted(imported.partitions, 'partition')}"
    )
    return OK


def _number(folder: Path) -> int:
    from tidelog.storage import files
    from tidelog.storage.layout import partition_of

    named = partition_of(folder.name) or partition_of(files.real(folder).name)
    if named is None:
        raise CommandError(
            f"{folder}: its name does not end in -N; name the partition with --partition", USAGE
        )
    return named[1]


def _warn(imported: "Imported", config: "BrokerConfig", folder: Path, topic: str) -> None:
    staged, expired = imported.staged, imported.expired
    if imported.foreign:
        note(f"{folder}: not imported, as these are not files of a log: {', '.join(imported.foreign)}")
    if staged.cut_bytes:
        note(f"{folder}: its last {staged.cut_bytes} bytes are not a whole batch, and were left out")
    for place in staged.damaged:
        note(f"{folder}/{place}: damaged, imported as it is; reads there are refused")
    if imported.has_transactions:
        note(
            f"{folder}: it holds transactions, and consumers with isolation.level=read_committed will get aborted and "
            "open ones too; to have only committed records, copy the topic in Kafka with a read_committed consumer and "
            "a producer without transactions, and import the copy"
        )
    if expired is None:
        return
    what = "all of it" if expired.is_all else f"its first {counted(expired.segments, 'segment')}"
    topic_config = imported.config
    note(
        f"topic {topic} keeps records for retention.ms={topic_config.retention_ms} and "
        f"retention.bytes={topic_config.retention_bytes}: a broker that is started on it deletes {what}, offsets "
        f"{staged.first_offset} to {expired.end_offset - 1}, within "
        f"log.retention.check.interval.ms={config.log_retention_check_interval_ms} of its start; to keep them "
        f"{_remedy(topic_config)}"
    )


def _remedy(config: "TopicConfig") -> str:
    if config.overrides.keys() & {"retention.ms", "retention.bytes"}:
        return (
            "move the partition away first, and import it into a new topic with --config retention.ms=-1: this topic "
            "sets its own retention"
        )
    return (
        "start it with log.retention.ms=-1 and log.retention.bytes=-1 (--config, or in server.properties), or import "
        "into a new topic with --config retention.ms=-1"
    )
