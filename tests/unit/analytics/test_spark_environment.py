"""An environment that Spark can't work in is named in one line, and auto goes on without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from failback.analytics.analysis.engines.spark.session import why_not


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java 17 is the only program in PATH."""
    program(tmp_path / "bin" / "java", "echo 'openjdk version \"17.0.10\"' >&2")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "FAILBACK_SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)


def test_an_environment_that_can_do_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert why_not() is None


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("echo 'openjdk version \"11.0.22\" 2024-01-16' >&2", "11.0.22"),
        ("echo 'java version \"1.8.0_402\"' >&2", "1.8.0_402"),
        ("exit 3", "an unknown version"),
    ],
)
def test_a_java_of_another_age_is_named(said: str, found: str, tmp_path: Path) -> None:
    java = program(tmp_path / "bin" / "java", said)
    problem = why_not()
    assert problem is not None
    assert "needs Java 17" in problem
    assert problem.endswith(f"{java} is {found}")


def test_a_java_home_without_java_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin" / "java").unlink()
    assert "needs Java 17" in str(why_not())


def test_the_spark_of_another_age_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert f"SPARK_HOME={tmp_path} has no Spark" in str(why_not())
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.3.2.jar").touch()
    assert f"SPARK_HOME={tmp_path} has 3.3.2; unset it" in str(why_not())


@pytest.mark.parametrize(("said", "found"), [("echo 3.7", "3.7"), ("exit 1", "no Python")])
def test_a_python_of_another_age_is_named(
    said: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program(tmp_path / "python", said)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    assert f"PYSPARK_PYTHON={python} is {found}; unset it" in str(why_not())
