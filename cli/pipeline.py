"""`tidelog pipeline JOB`: hands the command line to the pipeline, which is an optional part.

Owns what is said where Spark is missing. Refuses to know the jobs and their flags.
"""

from collections.abc import Sequence
from importlib import util

from tidelog.cli.errors import CommandError
from tidelog.cli.text import called

NEEDED = ("pyspark", "pyarrow", "numpy")


def run(arguments: Sequence[str]) -> int:
    """Run a job; return its exit code. CommandError where what it needs is not installed."""
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

    return commands.run(arguments, f"{called()} pipeline")
