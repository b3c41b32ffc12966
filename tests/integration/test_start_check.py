"""`tidelog serve --check` says what a start would do, and changes nothing."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.broker.catalog import CATALOG_FILE, Catalog, TopicRecord, new_topic_id
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.main import app
from tidelog.config.options import BrokerConfig
from tidelog.storage.log_manager import LogManager


def check(data: Path, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["serve", "--check", "--port", "0", "--data-dir", str(data), *words])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a broker that was stopped, with a topic and an option that is not honoured."""
    data = tmp_path / "data"
    logs = LogManager(data, BrokerConfig(log_dir=data), lambda: 0)
    logs.lock()
    with closing(Catalog(data / CATALOG_FILE)) as catalog:
        catalog.set_broker_options("1", {"max.connections": "7", "nonsense": "x"})
        catalog.add_topic(TopicRecord("t", new_topic_id(), 1, {}))
    logs.abandon()
    before = contents(data)
    yield data
    assert contents(data) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_that_is_missing_would_be_made_and_is_not(tmp_path: Path) -> None:
    code, out, _ = check(tmp_path / "a" / "b", "--override", "num.partitions=3")
    assert code == OK
    assert ["num.partitions", "3", "broker"] in [line.split() for line in out.splitlines()]
    assert out.splitlines()[-1].endswith("made at the start")
    assert not (tmp_path / "a").exists()


def test_stored_options_are_in_force_and_those_not_honoured_are_warnings(data: Path) -> None:
    code, out, _ = check(data)
    assert code == OK
    lines = out.splitlines()
    assert any(line.split() == ["max.connections", "7", "dynamic", "broker"] for line in lines)
    assert any(line.startswith("warning: ") and "nonsense" in line for line in lines)
    assert lines[-1].startswith("would start: ")
    assert lines[-1].endswith("1 topic")


@pytest.mark.parametrize("is_http", [False, True])
def test_a_port_that_is_taken_fails_as_a_start_would(data: Path, is_http: bool) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        words = ["--override", f"http.port={port}"] if is_http else ["--port", port]
        code, out, err = check(data, *words)
    assert (code, out) == (FAILED, "")
    assert f"port {port} is in use" in err


def test_a_folder_in_use_of_another_node_or_of_other_files_fails_as_a_start_would(data: Path) -> None:
    logs = LogManager(data, BrokerConfig(log_dir=data), lambda: 0)
    logs.lock()
    try:
        assert "another broker uses this data folder" in check(data)[2]
    finally:
        logs.abandon()
    code, _, err = check(data, "--override", "node.id=2")
    assert (code, "belongs to node 1" in err) == (FAILED, True)
    assert check(Path(__file__).parent)[0] == FAILED
    assert "Not a directory" in check(Path(__file__) / "below")[2]
    for folder in ("/proc/x", "/proc/x/y"):  # it grants all rights
        code, _, err = check(Path(folder))
        assert (code, f"{folder}: cannot be used as a data folder" in err) == (FAILED, True)


def test_the_files_of_a_backup_are_no_data_folder(data: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(data, backup / "files")
    assert check(backup / "files")[0] == OK
    (backup / "manifest.json").write_text("{}")
    (tmp_path / "link").symlink_to(backup / "files")
    code, _, err = check(backup / "files")
    assert code == FAILED
    assert f"tidelog restore --from {backup} --data-dir DIR" in err


def test_a_damaged_catalogue_and_a_wrong_option_fail_as_a_start_would(data: Path, tmp_path: Path) -> None:
    assert check(data, "--override", "num.partitions=none")[0] == USAGE
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in data.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    (damaged / CATALOG_FILE).write_bytes(b"no catalogue" * 1000)
    code, _, err = check(damaged)
    assert (code, "not a catalogue" in err) == (FAILED, True)
