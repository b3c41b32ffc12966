"""A data folder in an object store: the same rows as those of the folder that was copied there."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.pipeline.jobs import chosen_of
from tests.pipeline.jobs import rows_of as read
from tests.support.logs import NOW, batch, open_log
from tidelog.pipeline.errors import DamagedLog, PipelineError
from tidelog.pipeline.files import from_segments, remote
from tidelog.storage.checkpoints import save_offsets
from tidelog.storage.layout import LOG_STARTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for partition in range(2):
        log = open_log(folder / f"t-{partition}", index_interval_bytes=200, segment_bytes=1500)
        for n in range(60):
            log.append(batch([NOW + (n * 37) % 101, NOW + n]), NOW + 10 * n)
        log.close()
    save_offsets(folder / LOG_STARTS, {("t", 1): 33})
    return folder


@pytest.fixture(scope="module")
def root(data: Path, store: str) -> str:
    return put(data, store, "whole")


def put(data: Path, store: str, bucket: str) -> str:
    """Copy a data folder to a prefix of a bucket; return its URI."""
    root = f"s3://id:secret@{bucket}/a/prefix{store}"
    there, path = fs.FileSystem.from_uri(root)
    there.create_dir(bucket)
    for each in data.rglob("*"):
        if each.is_file():
            with there.open_output_stream(f"{path}/{each.relative_to(data)}") as stream:
                stream.write(each.read_bytes())
    return root


def test_rows_are_those_of_the_folder_by_every_way_to_ask(data: Path, root: str) -> None:
    assert len(read(root)) == 120 + 120 - 33
    for options in (
        {"taskBytes": 800},
        {"from": NOW + 30, "to": NOW + 40},
        {"from": NOW + 100, "to": NOW + 250, "clock": "append", "partitions": "1"},
    ):
        assert read(root, **options) == read(str(data), **options) != []


def test_batches_and_segments_are_listed_too(data: Path, root: str) -> None:
    for table in ("batches", "segments"):
        there, here = read(root, table=table), read(str(data), table=table)
        assert [row | {"file": ""} for row in there] == [row | {"file": ""} for row in here] != []
        files = [f"s3://whole/a/prefix/{Path(row['file']).relative_to(data)}" for row in here]
        assert [row["file"] for row in there] == files  # without the secret


def test_a_range_reads_little_of_the_logs(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    pread = remote.RemoteLog.pread

    def counted(self: Any, count: int, position: int) -> bytes:
        taken.append(count)
        return pread(self, count, position)

    monkeypatch.setattr(remote.RemoteLog, "pread", counted)
    assert read(root, **{"from": NOW + 590, "to": NOW + 600, "clock": "append"}) != []
    assert 0 < sum(taken) < 6000  # of 2 x 8 KiB, in blocks and whole batches


@pytest.mark.parametrize("way", [from_segments.plan, from_segments.look])
def test_a_plan_fetches_each_file_once(root: str, monkeypatch: pytest.MonkeyPatch, way: Any) -> None:
    fetched: list[str] = []
    fetch = remote.fetch

    def noted(root: str, folder: str, *more: Any) -> None:
        fetched.append(folder)
        fetch(root, folder, *more)

    monkeypatch.setattr(remote, "fetch", noted)
    way(chosen_of(root), NOW)
    assert fetched == ["", "t-0", "t-1"]


def test_damage_is_named_and_kept_as_in_a_folder(data: Path, store: str, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    path = sorted(copy.glob("t-0/*.log"))[1]
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    root = put(copy, store, "damaged")
    with pytest.raises(DamagedLog, match=f"{path.name}@0: ") as caught:
        read(root)
    assert "secret" not in str(caught.value)
    kept = read(root, bad=f"quarantine:{tmp_path}/q")
    assert kept == read(str(copy), bad="skip")
    assert (tmp_path / "q" / "t-0" / f"{path.name}@0.bin").exists()


def test_what_is_not_there_is_said_without_secrets(root: str, store: str) -> None:
    with pytest.raises(PipelineError, match=r"s3://whole/a/prefix: no topic u is in it; there are: t$"):
        read(root, topic="u")
    for wrong in (
        f"s3://id:secret@nobody/x{store}",
        f"s3://id:secret@whole/elsewhere{store}",
        "s5://secret@x/y",
    ):
        with pytest.raises(PipelineError) as caught:
            read(wrong)
        assert "secret" not in str(caught.value)


def test_what_goes_while_it_is_read_is_said(data: Path, store: str) -> None:
    root = put(data, store, "gone")
    chosen = chosen_of(root)
    pieces = from_segments.plan(chosen, NOW)
    there, path = fs.FileSystem.from_uri(root)
    there.delete_dir(f"{path}/t-0")
    with pytest.raises(
        PipelineError, match=r"s3://gone/a/prefix/t-0/0{20}.log is not there any more; read it again"
    ):
        list(from_segments.rows(pieces[0], ("offset",), chosen))
