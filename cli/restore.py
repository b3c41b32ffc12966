"""`tidelog restore`: make a data folder of a backup. `broker.restoring` does the work."""

import time
from pathlib import Path

import click

from tidelog.cli.arguments import PATH, json_option
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, USAGE
from tidelog.cli.output import progress, to_json
from tidelog.cli.text import counted, examples, note, shown


@click.command(
    "restore",
    epilog=examples(
        "tidelog restore --from /mnt/backups/monday --data-dir data",
        "tidelog restore --from /mnt/backups/monday --data-dir data --json",
    ),
)
@click.option("--from", "source", type=PATH, required=True, help="The folder of a backup.")
@click.option("--data-dir", type=PATH, required=True, help="A folder that is empty or missing.")
@json_option
def restore(source: Path, data_dir: Path, as_json: bool) -> int:
    """Make a data folder from a backup, and verify every byte of it. The backup is only read.

    Either all of it is restored or nothing. The folder belongs to the same cluster and node as the original: do not run
    both at once under one address.
    """
    from tidelog.broker.catalog import CatalogError
    from tidelog.broker.clock import Clock
    from tidelog.broker.restoring import restore as make
    from tidelog.cli.broker_options import configure
    from tidelog.cli.fsck import quiet
    from tidelog.config.errors import ConfigError
    from tidelog.storage import backup
    from tidelog.storage.errors import StorageError

    began_s = time.monotonic()
    if data_dir.resolve().is_relative_to(source.resolve()):
        raise CommandError(f"{data_dir}: is in the backup; use another folder", USAGE)
    try:
        manifest = backup.load(source)
        node = f"node.id={manifest.about['node_id']}"
        with quiet(), progress("Copying", manifest.total_bytes) as report:
            restored = make(
                source, manifest, data_dir, lambda at: configure(None, [node], at), Clock(), report
            )
    except (StorageError, CatalogError, ConfigError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{data_dir}: not restored: {error}") from error
    for log, problem in sorted(restored.problems.items()):
        note(f"{log}: damaged, restored as it is: {problem}")
    seconds = time.monotonic() - began_s
    if as_json:
        sizes = {"bytes": manifest.total_bytes, "seconds": round(seconds, 3)}
        print(to_json({**manifest.about, **restored._asdict(), **sizes}))
        return OK
    topics, partitions = counted(restored.topics, "topic"), counted(restored.partitions, "partition")
    total = counted(manifest.total_bytes, "byte")
    print(f"{shown(str(data_dir))}: {topics}, {partitions}, {total}, verified, in {seconds:.1f} s")
    if manifest.about["node_id"] != 1:
        note(f"start the broker on it with --config {node}")
    return OK
