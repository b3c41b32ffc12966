"""Under spark-submit its settings hold; the session itself is tried with it by hand, as a start takes long."""

import pytest


class _Conf:
    def getAll(self) -> list[tuple[str, str]]:
        return [("spark.master", "spark://somewhere:7077")]


def test_settings_of_spark_submit_are_read_from_its_java(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.pipeline import session

    connected: list[bool] = []
    monkeypatch.setattr(session.SparkContext, "_ensure_initialized", lambda: connected.append(True))
    monkeypatch.setattr(session, "SparkConf", _Conf)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert session._submitted() == {}
    assert not connected
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session._submitted() == {"spark.master": "spark://somewhere:7077"}
    assert connected
