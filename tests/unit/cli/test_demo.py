"""What the demo says of Spark, of a report that fails, and where its stores go."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from failback.analytics.report import make_report
from failback.cli.experiment import demo, on_spark
from failback.cli.experiment.on_spark import OnSpark


@pytest.mark.parametrize(
    ("spark", "quick", "wanted"),
    [
        (None, False, True),
        (None, True, False),
        (True, True, True),
        (False, False, False),
    ],
)
def test_spark_counts_by_default_only_what_runs_with_real_timers(
    spark: bool | None, quick: bool, wanted: bool
) -> None:
    assert demo._wants_spark(spark, quick) is wanted


def test_equal_is_one_line_with_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    OnSpark(34.4, ()).tell()
    assert capsys.readouterr().out == "Spark: equal, 34 s\n"
    assert OnSpark(34.44, ()).plain() == {"equal": True, "seconds": 34.4}


def test_every_difference_is_counted_and_the_first_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    OnSpark(1.0, tuple(f"stay: totals.{n}: 1, 2" for n in range(12))).tell()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Spark: 12 differences (here, by Spark), 1 s"
    assert lines[1] == "  stay: totals.0: 1, 2"
    assert lines[-1] == "  and 2 more"


def test_without_spark_the_demo_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "why_not_spark", lambda: "needs Java 17: apt-get install x")
    assert demo._on_spark([], "", silent=False) is None
    shown = capsys.readouterr()
    assert shown.err == "Spark: not compared: needs Java 17: apt-get install x\n"


def test_what_is_missing_is_fetched_first_where_a_command_for_it_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(demo, "why_not_spark", lambda: None if done else "needs pyspark")
    monkeypatch.setattr(demo, "fetch", done.append)
    monkeypatch.setattr(demo, "count_on_spark", lambda *_, **__: OnSpark(1.0, ()))
    assert demo._on_spark([], "fetch it", silent=True) == OnSpark(1.0, ())
    assert done == ["fetch it"]


def test_a_spark_that_fails_is_no_equality(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> OnSpark:
        raise RuntimeError("the JVM died")

    monkeypatch.setattr(demo, "why_not_spark", lambda: None)
    monkeypatch.setattr(demo, "count_on_spark", failing)
    found = demo._on_spark([], "", silent=False)
    assert found is not None
    assert found.differences
    assert "the JVM died" in capsys.readouterr().out


def test_the_command_line_s_words_are_not_in_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from failback.analytics.analysis.engines.spark import session

    monkeypatch.setattr(session, "why_not", lambda: session.INSTALL_JAVA)
    assert on_spark.why_not_spark() == "needs Java 17: apt-get install openjdk-17-jre-headless"


def test_a_report_that_fails_does_not_take_the_runs_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ValueError("no such opacity")

    monkeypatch.setattr(make_report, "report_many", failing)
    (tmp_path / "roots").mkdir()
    with pytest.raises(typer.Exit) as caught, demo._tidied(tmp_path, keep=False):
        demo._report([], tmp_path)
    assert caught.value.exit_code == 3
    told = capsys.readouterr().err
    assert "no such opacity" in told
    assert f"the runs are complete, try: failback report {tmp_path}" in told
    assert list(tmp_path.iterdir()) == []


def test_stores_stay_where_a_run_failed_and_go_where_it_was_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "roots").mkdir()
    with pytest.raises(ValueError, match="broken"), demo._tidied(tmp_path, keep=False):
        raise ValueError("broken")
    assert f"stores and logs are in {tmp_path / 'roots'}" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt), demo._tidied(tmp_path, keep=True):
        raise KeyboardInterrupt
    assert (tmp_path / "roots").exists()
    with pytest.raises(KeyboardInterrupt), demo._tidied(tmp_path, keep=False):
        raise KeyboardInterrupt
    assert not (tmp_path / "roots").exists()
