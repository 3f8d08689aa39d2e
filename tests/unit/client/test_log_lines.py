"""One record is one line, whatever a peer put into it."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.client.program import LineFormatter
from failback.common.text import is_visible, visible

pytestmark = pytest.mark.foreign

FORGED = "x\n2031-01-01 00:00:00,000 CRITICAL failback.namesrv: all brokers removed"


def written(message: str, *arguments: object, error: Exception | None = None) -> str:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning(message, *arguments, exc_info=error)
    return out.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 集群 é €", "plain text, 集群 é €"),
        ("a\u3000b", "a\u3000b"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[2J\x9b", r"\x1b[2J\x9b"),
        ("a\u202eb\u2066c\u200bd", r"a\u202eb\u2066c\u200bd"),
        ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
        ("\x7f\0", r"\x7f\x00"),
        ("\ud800", r"\ud800"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_what_cannot_be_seen_stands_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert written("name %s", text) == f"WARNING name {shown}\n"


@given(st.text())
def test_any_text_is_one_line(text: str) -> None:
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert visible(shown) == shown
    assert is_visible(shown)
    shown.encode()


def test_one_place_writes_one_traceback_of_a_kind_a_minute() -> None:
    formatter = LineFormatter("%(message)s")

    def line(error: Exception, at: float, lineno: int = 7) -> str:
        exc = (type(error), error, None)
        record = logging.LogRecord("x", logging.ERROR, "f.py", lineno, "code %d", (10,), exc)
        record.created = at
        return formatter.format(record)

    first = "code 10\n    ValueError: a"
    assert line(ValueError("a"), 100.0) == first
    assert line(ValueError("100 %"), 159.9) == "code 10: ValueError('100 %')"
    assert line(ValueError("a"), 159.9, lineno=8) == first
    assert line(KeyError("a"), 159.9) == "code 10\n    KeyError: 'a'"
    assert line(ValueError("a"), 160.0) == first
    assert line(ValueError("a"), 50.0) == first


def test_a_long_text_is_cut_and_counted() -> None:
    assert visible("a" * 100, 5) == "aaaaa... (100 characters)"
    assert len(written("%s", "a" * 200_000)) < 20_000


def test_no_line_of_a_traceback_looks_like_a_record() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        lines = written("failed", error=error).splitlines()
    assert lines[0] == "WARNING failed"
    assert all(line.startswith("    ") for line in lines[1:])
    assert any("CRITICAL" in line for line in lines)


def test_no_process_begins_its_log_in_another_way() -> None:
    root = Path(__file__).parents[3]
    files = [
        file
        for package in ("broker-image", "operator", "analytics", "chaos")
        for file in (root / package / "failback").rglob("*.py")
    ]
    assert len(files) > 500
    begins = {file.name for file in files if "logging.basicConfig(" in file.read_text()}
    formats = {file.name for file in files if "logging.Formatter" in file.read_text()}
    # The operator's second form is JSON, which escapes by itself.
    assert begins == formats == {"program.py", "main.py"}
