"""The message and the exit code of a job that failed.

An error that the pipeline raises in a worker comes back from Spark as text with a traceback. The last of our errors in
that text is the one to report.
"""

import re
from typing import Final

from tidelog.pipeline import demand_spark
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.jobs.parts.exit_codes import FAILED, USAGE

_OURS: Final = re.compile(r"tidelog\.pipeline\.errors\.(\w+): (.*)")
# The last line of a traceback from a worker.
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception): .+$", re.MULTILINE)
# The Java exception in the text of a Py4J error, after a line that names the call.
_JAVA: Final = re.compile(r"^An error occurred while calling .+\n: (.+)$", re.MULTILINE)


def described(error: BaseException) -> tuple[str, int] | None:
    """Return the message and the exit code of an error; None for a bug of ours, whose traceback must be shown."""
    if isinstance(error, PipelineError):
        return str(error), USAGE if isinstance(error, WrongOption) else FAILED
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "pyspark":
        try:
            demand_spark()
        except PipelineError as missing:
            return str(missing), FAILED
    module = type(error).__module__.partition(".")[0]
    if module in ("pyspark", "py4j"):
        found = _OURS.findall(str(error))
        if found:
            kind, message = found[-1]
            return message.strip(), USAGE if kind == WrongOption.__name__ else FAILED
        raised = _RAISED.findall(str(error))
        if raised:
            return f"Spark: {raised[-1]}", FAILED
        java = _JAVA.search(str(error))
        return f"Spark: {java[1] if java else _first_line(str(error))}", FAILED
    if isinstance(error, OSError):
        return f"{error.filename or 'the system'}: {error.strerror or _first_line(str(error))}", FAILED
    if module in ("deltalake", "_internal", "pyarrow"):
        return f"{module.strip('_')}: {_first_line(str(error))}", FAILED
    return None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "it failed without a message")
