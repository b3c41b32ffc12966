"""Runs the jobs as `python -m tidelog.pipeline JOB`, or by spark-submit of this file, like `tidelog pipeline JOB`."""

import sys

from tidelog.pipeline.commands import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "python -m tidelog.pipeline"))
