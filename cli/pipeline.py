"""`tidelog pipeline JOB`: passes the command line to the pipeline, an optional part with packages of its own."""

from collections.abc import Sequence

import click

from tidelog.cli.errors import CommandError
from tidelog.cli.text import called

NEEDED = ("pyarrow", "numpy")


@click.command(
    "pipeline",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.pass_context
def pipeline(context: click.Context) -> int:
    """Run a job over the log: backfill, ingest, audit, others."""
    return run_job(context.args)


def run_job(words: Sequence[str]) -> int:
    """Run a job by its command line; return its exit code. CommandError if a package that all jobs need is missing."""
    from importlib import util

    missing = [name for name in NEEDED if util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the pipeline needs {' and '.join(missing)}: make setup-pipeline in a checkout, or "
            "pip install '/path/to/the/checkout[pipeline]'"
        )
    from tidelog.pipeline import commands

    return commands.run(words, f"{called()} pipeline")
