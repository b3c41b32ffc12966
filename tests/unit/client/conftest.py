"""Errors that may pass are tried again at once, and not for long."""

import pytest

from tidelog.client import cluster, fetching


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 2)
    monkeypatch.setattr(cluster, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(fetching, "_WAIT_MS", 1)
