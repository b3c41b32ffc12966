"""`tidelog audit`: what its command lines take."""

from typing import Annotated

import typer

from tidelog.cli.arguments import LOCAL, Bootstrap, Json, Topic, sent
from tidelog.config.kinds import INT_MAX

app = typer.Typer(
    name="audit",
    help="Compare what a group has read of a topic with what was produced.",
    no_args_is_help=True,
)


@app.command("keys")
def audit_keys(
    topic: Topic,
    group: Annotated[
        str, typer.Option("--group", "-g", metavar="GROUP", callback=sent, help="The group that reads it.")
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, max=INT_MAX, help="Default: all; may be repeated."),
    ] = None,
    memory: Annotated[
        int,
        typer.Option(
            metavar="MIB",
            min=1,
            max=1 << 16,
            help="For the keys, of which 20,000 take 1; the log is read several times where there are more.",
        ),
    ] = 96,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Show for each key that a group has not read to its end its last record and the last one that was delivered.

    Of the others everything that was produced is delivered. Records are those that a reader of committed ones gets.
    """
    from tidelog.broker.clock import Clock
    from tidelog.cli.audit import run

    return run(topic, group, partition or [], memory << 20, as_json, bootstrap, Clock())
