"""The jobs by `python -m tidelog.pipeline JOB`, and by spark-submit of this file: as by `tidelog pipeline JOB`."""

import sys

from tidelog.pipeline.commands import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "python -m tidelog.pipeline"))
