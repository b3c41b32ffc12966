"""The generated document of the protocol."""

from pathlib import Path

import pytest
from scripts import docs

from tidelog.protocol import describe
from tidelog.protocol.registry import APIS


def test_every_api_and_field_is_described() -> None:
    text = describe.describe()
    for api in APIS.values():
        assert f"## {api.name}\n" in text
    assert "| `topics[].partitions[].current_leader_epoch` | int32 | 4+ |  | `-1` |  | yes |" in text
    assert "| 0 | [Produce](#produce) | 0-13 | 9+ |" in text
    assert "| `cluster_id` | string | 12+ | 12+ | `null` | 0 (12+) | yes |" in text


def test_check_tells_a_stale_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--check"], tmp_path) == 1
    assert docs.main([], tmp_path) == 0
    assert docs.main(["--check"], tmp_path) == 0
    assert "tidelog_group_lag_seconds" in (tmp_path / "metrics.md").read_text()
    (tmp_path / "protocol.md").write_text("edited by hand")
    capsys.readouterr()
    assert docs.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == f"{tmp_path}/protocol.md is out of date: make docs\n"
    assert docs.main(["--nonsense"]) == 2


def test_the_pages_in_the_repository_are_up_to_date() -> None:
    assert docs.main(["--check"]) == 0
