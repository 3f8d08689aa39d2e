"""Docstrings use the terms of docs/glossary.md, and none of the words that these replace."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools import size

_ROW = re.compile(r"^\|(?P<term>[^|]+)\|(?P<meaning>[^|]+)\|(?P<replaced>[^|]+)\|$", re.MULTILINE)
_WORD = re.compile(r"`([^`]+)`")


def replaced_words(page: str) -> list[str]:
    """Return the words in code style of the table's last column."""
    rows = _ROW.finditer(page.partition("## Words of the code")[2])
    return [word for row in rows for word in _WORD.findall(row["replaced"])]


def uses(source: str, words: list[str]) -> Iterator[tuple[int, str]]:
    """Yield line and word of each use of a replaced word in a docstring of ``source``."""
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b", re.IGNORECASE)
    for node in ast.walk(ast.parse(source)):
        for string in size._docstrings(node):
            text = string.value.value  # type: ignore[attr-defined]
            for found in pattern.finditer(text):
                yield string.lineno + text.count("\n", 0, found.start()), found[0]


def test_a_use_is_found_with_its_line() -> None:
    source = (
        '"""First.\n\nA Bird flies."""\n\n\ndef f():\n    """No birdsong."""\n    bird = "bird"\n'
    )
    assert list(uses(source, ["bird", "rung"])) == [(3, "Bird")]


def test_no_docstring_has_a_word_that_the_glossary_replaces() -> None:
    words = replaced_words((size.ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert "bird" in words
    found = [
        f"{path.relative_to(size.ROOT)}:{line}: {word}"
        for tree in size.TREES
        for path in sorted(Path(size.ROOT / tree).glob("failback/**/*.py"))
        for line, word in uses(path.read_text(encoding="utf-8"), words)
    ]
    assert found == []
