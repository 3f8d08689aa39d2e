"""Which engine ``--engine auto`` takes."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from failback.analytics.analysis.engines.spark.session import is_given
from failback.analytics.report.make_report import _choose


@pytest.mark.parametrize(
    ("port", "engine"), [(None, "local"), ("25333", "spark")], ids=["alone", "under spark-submit"]
)
def test_auto_takes_the_spark_that_is_there(
    port: str | None, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if port is not None:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", port)
    assert is_given() is (port is not None)
    assert _choose("auto", [], None, None) == engine
    assert _choose("local", [], None, None) == "local"


def test_auto_stays_local_beside_an_active_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    session = SimpleNamespace(getActiveSession=lambda: object())
    monkeypatch.setitem(sys.modules, "pyspark.sql", SimpleNamespace(SparkSession=session))
    assert _choose("auto", [], None, None) == "local"
    assert _choose("spark", [], None, None) == "spark"
