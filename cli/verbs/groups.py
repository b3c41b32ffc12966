"""`tidelog groups`: what its command lines take."""

from typing import Annotated

import typer

from tidelog.cli.verbs.arguments import LOCAL, TIME_HELP, Bootstrap, Json, Yes, sent

app = typer.Typer(
    help="List and describe consumer groups, set where they read on, and delete them.", no_args_is_help=True
)
Group = Annotated[str, typer.Argument(metavar="GROUP", callback=sent, show_default=False)]


@app.command("list")
def list_groups(
    held: Annotated[
        bool,
        typer.Option(
            "--held", help="Show who committed, when last, and how much memory of the broker that takes."
        ),
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """List all groups."""
    from tidelog.broker.clock import Clock
    from tidelog.cli.groups import list_all

    return list_all(held, as_json, bootstrap, Clock())


@app.command("describe")
def describe_group(group: Group, as_json: Json = False, bootstrap: Bootstrap = LOCAL) -> int:
    """Show what a group has committed, how far behind it is, in records and in time, and its members."""
    from tidelog.broker.clock import Clock
    from tidelog.cli.groups import describe

    return describe(group, as_json, bootstrap, Clock())


@app.command("reset")
def reset_group(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME[:P,P]",
            callback=sent,
            help="A topic, or some of its partitions; may be repeated.",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition of which the group has committed an offset.")
    ] = False,
    to_offset: Annotated[
        str | None, typer.Option(metavar="N", help="earliest, latest, or the number of a record.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help=f"The first record at or after it: {TIME_HELP}."),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="LENGTH", help="The first record of the last 2h, '3 days' or 1h30m."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="Move by this many records; a negative number moves back.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Set where a group without members reads on. The plan is shown first: what is skipped, what is read again."""
    from tidelog.broker.clock import Clock
    from tidelog.cli.group_reset import Target, run

    target = Target(to_offset, to_time, by_duration, shift_by)
    return run(group, topic or [], all_topics, target, dry_run, yes, as_json, bootstrap, Clock())


@app.command("delete")
def delete_groups(
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP...", callback=sent, show_default=False, help="Names, or patterns such as 'test-*'."
        ),
    ],
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="ADDRESS", help="Only groups for which this address has committed."
        ),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Delete groups without members, and what they have committed."""
    from tidelog.broker.clock import Clock
    from tidelog.cli.groups import delete

    return delete(groups, address, yes, as_json, bootstrap, Clock())
