"""`tidelog audit`: its verb and options. `cli.audit` does the work, and is imported when the verb runs."""

from typing import Any

import click

from tidelog.cli.arguments import (
    Integer,
    Verbs,
    bootstrap_option,
    group_option,
    json_option,
    partitions_option,
    topic_argument,
)
from tidelog.cli.text import examples


@click.group(
    cls=Verbs,
    epilog=examples(
        "tidelog audit keys prices --group shop", "tidelog audit keys prices --group shop --json"
    ),
)
def audit() -> None:
    """Compare what a group has read with what was produced."""


@audit.command(
    "keys",
    epilog=examples(
        "tidelog audit keys prices --group shop",
        "tidelog audit keys prices --group shop --partition 0 --json",
    ),
)
@topic_argument
@group_option("The group that reads it.", required=True)
@partitions_option
@click.option(
    "--memory",
    metavar="MIB",
    type=Integer(1, 1 << 16),
    default=96,
    help="The memory for keys: 1 MiB holds 20,000. With more keys, the log is read several times.",
)
@json_option
@bootstrap_option
def audit_keys(**given: Any) -> int:
    """List each key whose last record a group has not read. A line has the last record and the last one delivered.

    All records of other keys are delivered. Records of aborted and open transactions do not count.
    """
    from tidelog.cli.audit import keys

    return keys(**given)
