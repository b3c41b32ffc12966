"""Catalogues and folders that hold what no broker put there: it is named, left alone, and the rest is served."""

import os
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.integration.test_topics import produce
from tests.support.logs import NOW, batch
from tests.support.served import Serve
from tidelog.broker.catalog import CATALOG_FILE
from tidelog.cli.exit_codes import FAILED
from tidelog.cli.main import app
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage.fsck import Fsck
from tidelog.storage.layout import CLEAN_SHUTDOWN


def set_option(value: str) -> str:
    return f"INSERT INTO topic_option VALUES ('bad', 'retention.ms', '{value}')"


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


async def two_topics(serve: Serve, *, is_killed: bool = False) -> Path:
    """Return a data folder with topics `bad` and `good`, of a record each."""
    served = await serve()
    client = await served.connect()
    for name in ("bad", "good"):
        await client.create(name, 2)
        await produce(client, name)
    data: Path = served.broker.logs.directory
    await served.stop()
    if is_killed:
        (data / CLEAN_SHUTDOWN).unlink()
    return data


def change_catalogue(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / CATALOG_FILE)) as db:
        db.execute(statement)
        db.commit()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def bound(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE topic SET partitions = 2000000000 WHERE name = 'bad'", "2000000000 partitions, not 1 to"),
        ("UPDATE topic SET partitions = -1 WHERE name = 'bad'", "-1 partitions, not 1 to"),
        ("UPDATE topic SET id = x'07' WHERE name = 'bad'", "its id in the catalogue is not 16 bytes"),
    ],
)
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_topic_that_the_catalogue_describes_wrongly_is_left_and_the_rest_is_served(
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
    statement: str,
    said: str,
    is_killed: bool,
) -> None:
    data = await two_topics(serve, is_killed=is_killed)
    change_catalogue(data, statement)
    before = {**snapshot(data / "bad-0"), **snapshot(data / "bad-1")}
    served = await serve()
    client = await served.connect()
    assert [topic.name for topic in served.broker.topics.all()] == ["good"]
    (line,) = [r.getMessage() for r in caplog.records if "topic not served" in r.getMessage()]
    assert "topic='bad'" in line
    assert said in line
    assert await produce(client, "good") == ErrorCode.NONE
    assert (await client.create("bad")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    await served.stop()
    assert {**snapshot(data / "bad-0"), **snapshot(data / "bad-1")} == before
    assert not (data / "bad-2").exists()
    points = (data / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert "bad 0 1" in points
    # A start that can serve it has to recover it, if nobody did.
    assert (data / CLEAN_SHUTDOWN).exists() is not is_killed


async def test_a_topic_keeps_its_records_until_its_invalid_retention_is_deleted(serve: Serve) -> None:
    data = await two_topics(serve)
    change_catalogue(data, set_option("soon"))
    served = await serve()
    assert served.broker.topics.by_name["bad"].config.retention_ms == -1
    await served.stop()
    line = ["configs", "alter", "--data-dir", str(data), "--topic", "bad", "--delete-config", "retention.ms"]
    assert CliRunner().invoke(app, line).exit_code == 0
    served = await serve()
    ends = {topic.name: topic.partitions[0].log.log_end_offset for topic in served.broker.topics.all()}
    assert ends == {"bad": 1, "good": 1}


@pytest.mark.parametrize("make", [fifo, device, bound, dangling])
@pytest.mark.parametrize("name", [f"{5:020d}.log", f"{0:020d}.index", "leader-epoch-checkpoint", "other"])
async def test_what_is_no_regular_file_is_named_and_not_opened(
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Path], None],
    name: str,
) -> None:
    data = await two_topics(serve)
    path = data / "bad-0" / name
    path.unlink(missing_ok=True)
    make(path)
    found = list(Fsck(data, deep=True, repair=False).problems())
    assert [(problem.path, problem.what) for problem in found] == [
        (path, "not a regular file: this partition is not read")
    ]
    served = await serve()
    (line,) = [r.getMessage() for r in caplog.records if "log not opened" in r.getMessage()]
    assert "log=bad-0" in line
    assert f"not a regular file; move it away: '{path}'" in line
    client = await served.connect()
    assert await produce(client, "bad") == ErrorCode.KAFKA_STORAGE_ERROR
    assert await produce(client, "bad", partition=1) == ErrorCode.NONE
    assert await produce(client, "good") == ErrorCode.NONE
    await served.stop()
    path.unlink()
    served = await serve()
    assert await produce(await served.connect(), "bad") == ErrorCode.NONE


async def test_a_folder_with_a_number_beyond_all_is_left(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    data = await two_topics(serve)
    for name in ("bad-999999999", "new-10000"):
        (data / name).mkdir()
    served = await serve()
    assert {topic.name: len(topic.partitions) for topic in served.broker.topics.all()} == {
        "bad": 2,
        "good": 2,
    }
    for name in ("bad-999999999", "new-10000"):
        assert f"log={name} error='there is a folder of partition" in caplog.text
        assert not list((data / name).iterdir())
    assert (await (await served.connect()).create("new")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_copied_topic_is_served_once_all_of_it_can_be_opened(serve: Serve, is_killed: bool) -> None:
    data = await two_topics(serve, is_killed=is_killed)
    for name in ("copy-0", "copy-1"):
        shutil.copytree(data / "bad-0", data / name)
        (data / name / "partition.metadata").unlink()
    fifo(data / "copy-1" / "pipe")
    log = data / "copy-0" / f"{0:020d}.log"
    before = log.read_bytes()
    served = await serve()
    assert [topic.name for topic in served.broker.topics.all()] == ["bad", "good"]
    # So retention leaves alone what is whole.
    assert "copy-1 could not be opened" in (served.broker.logs.logs["copy", 0].unopened or "")
    assert (await (await served.connect()).create("copy")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    await served.stop()
    assert log.read_bytes() == before
    (data / "copy-1" / "pipe").unlink()
    served = await serve()
    assert len(served.broker.topics.by_name["copy"].partitions) == 2
    assert await produce(await served.connect(), "copy") == ErrorCode.NONE


@pytest.mark.parametrize("make", [fifo, device])
async def test_a_log_that_is_a_link_to_a_file_is_read_and_no_other_is(
    serve: Serve, tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    data = await two_topics(serve)
    log = data / "good-0" / f"{0:020d}.log"
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    assert not list(Fsck(data, deep=True, repair=False).problems())
    source = tmp_path / "source-0"
    source.mkdir()
    path = source / f"{0:020d}.log"
    make(path)
    for verb in (
        ["import", str(source), "--topic", "t", "--data-dir", str(tmp_path / "d")],
        ["dump", str(path)],
    ):
        result = CliRunner().invoke(app, verb)
        assert result.exit_code == FAILED
        assert result.stderr == f"tidelog: {path}: not a regular file\n"
    assert not list((tmp_path / "d").glob("t-*"))


def test_a_log_becomes_no_topic_of_the_broker_itself(tmp_path: Path) -> None:
    source = tmp_path / "source-0"
    source.mkdir()
    (source / f"{0:020d}.log").write_bytes(batch([NOW]))
    line = ["import", str(source), "--topic", "__consumer_offsets", "--data-dir", str(tmp_path / "d")]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == FAILED
    assert "__consumer_offsets: this topic is internal" in result.stderr
    assert not (tmp_path / "d").exists()
