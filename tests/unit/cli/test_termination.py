"""The termination message: one line of JSON that the kubelet has room for, or nothing at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failback.cli.shared import termination
from failback.cli.shared.termination import MAX_BYTES, VARIABLE, fit, write_termination


def test_it_is_one_line_at_the_named_place(tmp_path: Path) -> None:
    file = tmp_path / "log"
    assert write_termination({"a": [1, 2]}, {VARIABLE: str(file)})
    assert file.read_text() == '{"a":[1,2]}\n'


def test_a_machine_without_such_a_file_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = tmp_path / "termination-log"
    monkeypatch.setattr(termination, "DEFAULT_PATH", str(default))
    assert not write_termination({}, {})
    assert not default.exists()
    default.touch()
    assert write_termination({}, {})


def test_a_file_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    assert not write_termination({}, {VARIABLE: str(tmp_path / "no" / "folder")})


def test_more_than_the_kubelet_reads_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most 4096 bytes"):
        write_termination({"a": "x" * MAX_BYTES}, {VARIABLE: str(tmp_path / "log")})


def test_lists_are_shortened_in_the_given_order(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "first": ["x" * 100] * 10,
        "second": ["y" * 100] * 50,
        "third": ["z"],
        "truncated": False,
    }
    found = fit(document, ("first", "second", "third"))
    assert write_termination(found, {VARIABLE: str(tmp_path / "log")})
    assert found["first"] == []
    assert 0 < len(found["second"]) < 50
    assert found["third"] == ["z"]
    assert found["truncated"] is True
    assert len(document["second"]) == 50
    small = {"first": [1], "truncated": False}
    assert fit(small, ("first",)) == small
    assert json.loads((tmp_path / "log").read_text()) == found
