"""The generated document of the protocol."""

from pathlib import Path

import pytest

from tidelog.protocol import describe
from tidelog.protocol.registry import APIS


def test_every_api_and_field_is_described() -> None:
    text = describe.describe()
    for api in APIS.values():
        assert f"## {api.name}\n" in text
    assert "| `topics[].partitions[].current_leader_epoch` | int32 | 4+ |  | `-1` |  | yes |" in text
    assert "| 0 | [Produce](#produce) | 0-13 | 9+ |" in text
    assert "| `cluster_id` | string | 12+ | 12+ | `null` | 0 (12+) | yes |" in text


def test_check_tells_a_stale_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(describe, "DOCUMENT", tmp_path / "protocol.md")
    assert describe.main(["--check"]) == 1
    assert describe.main([]) == 0
    assert describe.main(["--check"]) == 0
    (tmp_path / "protocol.md").write_text("edited by hand")
    assert describe.main(["--check"]) == 1
    assert "make docs" in capsys.readouterr().err
    assert describe.main(["--nonsense"]) == 2


def test_the_document_in_the_repository_is_up_to_date() -> None:
    assert describe.main(["--check"]) == 0
