"""`tidelog pipeline JOB`: passes the command line to the pipeline, an optional part that needs Spark."""

from collections.abc import Sequence

import click

from tidelog.cli.errors import CommandError
from tidelog.cli.text import called

NEEDED = ("pyspark", "pyarrow", "numpy")


@click.command(
    "pipeline",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
@click.pass_context
def pipeline(context: click.Context) -> int:
    """Run a job on Spark: backfill, ingest, audit and others."""
    return run_job(context.args)


def run_job(words: Sequence[str]) -> int:
    """Run a job by its command line; return its exit code. CommandError if Spark is missing."""
    from importlib import util

    missing = [name for name in NEEDED if util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the pipeline needs {' and '.join(missing)}: make setup-pipeline in a checkout, or "
            "pip install '/path/to/the/checkout[pipeline]'"
        )
    from tidelog.pipeline import demand_spark
    from tidelog.pipeline.errors import PipelineError

    try:
        demand_spark()
    except PipelineError as error:
        raise CommandError(str(error)) from None
    from tidelog.pipeline import commands

    return commands.run(words, f"{called()} pipeline")
