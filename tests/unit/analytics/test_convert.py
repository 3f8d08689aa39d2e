"""JSON Lines become the lake that the same rows would have made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.jobs.lake import main
from failback.analytics.lake.lake import open_lake
from failback.client.consumelog.upload.sealing import Shipper
from tests.support.analytics.collector_lab import RUN, write_log


def as_json(row: dict[str, Any]) -> str:
    return json.dumps({k: v.hex() if isinstance(v, bytes) else v for k, v in row.items()})


def test_rows_and_what_is_complete_survive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = write_log(tmp_path / "hot", deliveries=60)
    Shipper(tmp_path / "hot", tmp_path / "lake").seal_all(final=True)
    direct = open_lake(tmp_path / "lake", RUN)
    files = []
    for table in direct.parts:
        path = tmp_path / f"{table}-1.jsonl"
        path.write_text("\n".join(map(as_json, direct.records(table))) + "\n")
        files.append(str(path))
    assert main(["convert", *files, "--to", str(tmp_path / "converted")]) == 0
    assert f"deliver: {direct.rows('deliver')} rows" in capsys.readouterr().out
    converted = open_lake(tmp_path / "converted", RUN)
    for table in direct.parts:
        mine = converted.read(table).sort_by("seq")
        assert mine.to_pylist() == direct.read(table).sort_by("seq").to_pylist(), table
    assert sum(int(s["records"]) for s in converted.segments()) == last
    assert main(["convert", *files, "--to", str(tmp_path / "converted")]) == 2
    assert "already" in capsys.readouterr().err
    assert open_lake(tmp_path / "converted", RUN).rows("deliver") == direct.rows("deliver")


@pytest.mark.parametrize(
    ("name", "line", "problem"),
    [
        ("life.jsonl", '{"run": "r", "proc": "zz"', "is not JSON Lines of table life"),
        ("life.jsonl", '{"state": "RUNNING"}', "column run of life is missing"),
        ("life.jsonl", '{"run": "r", "proc_no": 1}', "column proc of life is missing"),
        ("life.jsonl", '{"run": 7}', "is not JSON Lines of table life"),
        ("nothing.jsonl", "{}", "the name begins with no table's"),
    ],
)
def test_bad_lines_are_named_and_nothing_is_left(
    name: str, line: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(line + "\n")
    assert main(["convert", str(tmp_path / name), "--to", str(tmp_path / "lake")]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert name in error
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(tmp_path / "life.jsonl"), "--to", str(tmp_path)]) == 2
    assert "no such file" in capsys.readouterr().err
