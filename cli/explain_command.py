"""`tidelog explain`: its verbs and options. `cli.explain` does the work, and is imported when a verb runs."""

from collections.abc import Callable
from typing import Any, Final

import click

from tidelog.cli.arguments import PATH, TIME_HELP, Integer, Verbs, json_option, topic_argument
from tidelog.cli.broker_options import config_file_option, overrides_option
from tidelog.cli.text import examples
from tidelog.config.kinds import INT_MAX


@click.group(
    cls=Verbs,
    epilog=examples(
        "tidelog explain retention orders --data-dir data",
        "tidelog explain offset orders --data-dir data --at '1 hour ago'",
    ),
)
def explain() -> None:
    """Explain what a broker does, from its data folder. The broker may run; nothing is written."""


_clock_option = click.option(
    "--clock",
    "clock_name",
    type=click.Choice(["record", "append"]),
    help="Default: the topic's lookup.clock.",
)
# The options of all these verbs, in the order of the help.
_OPTIONS: Final = (
    topic_argument,
    click.option("--partition", "-p", type=Integer(0, INT_MAX), help="Default: all."),
    click.option(
        "--data-dir", type=PATH, help="The broker's data folder. Default: log.dir, as the broker takes it."
    ),
    config_file_option,
    overrides_option,
    json_option,
)


def _reads_folder(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options of all verbs here."""
    for option in reversed(_OPTIONS):
        option(verb)
    return verb


def _where(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, with those of the folder as one argument `where`."""
    from tidelog.cli.explain import Where

    where = Where(*[given.pop(name) for name in Where._fields])
    return {"where": where, **given}


@explain.command(
    "retention",
    epilog=examples(
        "tidelog explain retention orders --data-dir data",
        "tidelog explain retention orders --data-dir data --partition 0 --json",
    ),
)
@_reads_folder
def explain_retention(**given: Any) -> int:
    """Show when each segment expires, by which rule and clock."""
    from tidelog.cli.explain import retentions

    return retentions(**_where(given))


@explain.command(
    "compaction",
    epilog=examples(
        "tidelog explain compaction prices --data-dir data",
        "tidelog explain compaction prices --data-dir data --keys",
    ),
)
@click.option(
    "--keys",
    "reads_keys",
    is_flag=True,
    help="Read all keys, and estimate how much of each segment is garbage.",
)
@_reads_folder
def explain_compaction(**given: Any) -> int:
    """Show how far each segment is compacted, and what is due. Also show what the last pass saved."""
    from tidelog.cli.explain import compactions

    return compactions(**_where(given))


@explain.command(
    "offset",
    epilog=examples(
        "tidelog explain offset orders --data-dir data --at '1 hour ago'",
        "tidelog explain offset orders --data-dir data --at 09:00 --clock append",
    ),
)
@click.option("--at", metavar="TIME", required=True, help=f"{TIME_HELP}.")
@_clock_option
@_reads_folder
def explain_offset(**given: Any) -> int:
    """Show how the first record at or after a time is found.

    The output has the segments, index entries and bytes that were read.
    """
    from tidelog.cli.explain import offset

    return offset(**_where(given))


@explain.command(
    "range",
    epilog=examples(
        "tidelog explain range orders --data-dir data --from 1h --to now",
        "tidelog explain range orders --data-dir data --from 2h --to 1h --json",
    ),
)
@click.option("--from", "since", metavar="TIME", required=True, help=f"{TIME_HELP}.")
@click.option("--to", "until", metavar="TIME", required=True, help="The end, which is not in the range.")
@_clock_option
@_reads_folder
def explain_range(**given: Any) -> int:
    """Show the range of offsets that holds a range of times. Also show what was read to find it."""
    from tidelog.cli.explain import time_range

    return time_range(**_where(given))
