"""``failback report`` on its command line: comparisons, metrics, the schema, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failback.analytics.report import make_report
from failback.analytics.report.schema import read_report, report_schema
from failback.cli.__main__ import main
from tests.support.analytics.cases import c2, c3


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has its own tests; drawing it here would only take time."""
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    one, two = (build()[0] for build in (c2, c3))
    two.run["arm"] = "other"
    return one.write(tmp_path / "runs" / "one"), two.write(tmp_path / "runs" / "two")


def test_runs_behind_compare_are_set_beside_the_first(runs: tuple[Path, Path]) -> None:
    one, two = runs
    words = ["report", str(one), "--engine", "local", "--compare", str(two)]
    assert main(words) in (0, 1, 3)
    compare = read_report(one / "report" / "report.json")["compare"]
    assert compare["baseline"] == "base"
    assert {arm["name"]: arm["n"] for arm in compare["arms"]} == {"base": 1, "other": 1}
    assert read_report(two / "report" / "report.json")["compare"] is None
    before = (two / "report" / "report.json").stat().st_mtime_ns
    assert main([*words[:-1], str(two / "report" / "report.json")]) in (0, 1, 3)
    assert main(words) in (0, 1, 3)
    assert (two / "report" / "report.json").stat().st_mtime_ns == before, "it was only read"


def test_runs_of_one_folder_are_compared(runs: tuple[Path, Path]) -> None:
    assert main(["report", str(runs[0].parent), "--engine", "local"]) in (0, 1, 3)
    for run in runs:
        compare = read_report(run / "report" / "report.json")["compare"]
        assert [arm["name"] for arm in compare["arms"]] == ["base", "other"]


def test_a_textfile_and_tables_are_written(runs: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "metrics" / "failback.prom"
    words = ["report", str(runs[0]), "--engine", "local", "--textfile", str(target)]
    assert main(words) in (0, 1, 3)
    assert 'failback_run_verdict{arm="base"' in target.read_text()
    assert sorted(path.name for path in target.parent.iterdir()) == ["failback.prom"]
    names = {path.name for path in (runs[0] / "report" / "tables").iterdir()}
    assert {"causes.csv", "causes.parquet", "windows.csv", "queues.parquet"} <= names


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == report_schema()


def test_definitions_are_those_of_the_command_line(runs: tuple[Path, Path]) -> None:
    words = ["report", str(runs[0]), "--engine", "local", "--key", "messageId", "--window", "1h"]
    words += ["--ignore-retry-topics", "--since", "0", "--until", "1e3"]
    assert main(words) in (0, 1, 3)
    found = read_report(runs[0] / "report" / "report.json")["definitions"]
    assert found == {
        "key": "messageId", "window_ns": 3600 * 10**9, "ignore_retry_topics": True, "since_ns": 0,
        "until_ns": 10**12,
    }  # fmt: skip
    closed = runs[0] / "closed.json"
    closed.write_text(closed.read_text() + " ")
    assert main(words) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "RUN: name"),
        (["{run}", "--key", "name"], "'name' is not one of 'lid', 'messageId', 'businessKey'"),
        (["{run}", "--compare", "/nowhere"], "/nowhere"),
        (["{run}", "--compare", "{run}/run.json"], "schema is 'failback.run/1'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], said: str, runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    named = [word.replace("{run}", str(runs[0])) for word in words]
    assert main(["report", "--engine", "local", *named]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("started", [True, False])
def test_the_page_is_opened_where_there_is_a_browser(
    started: bool,
    runs: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return started

    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: True)
    monkeypatch.setattr("webbrowser.open", browse)
    assert main(["report", str(runs[0]), "--engine", "local", "--open"]) in (0, 1, 3)
    assert opened == [(runs[0] / "report" / "report.html").as_uri()]
    assert ("no browser" in capsys.readouterr().err) is not started
