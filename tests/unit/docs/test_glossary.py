"""Docstrings, printed texts and pages use the terms of docs/glossary.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools import size

_ROW = re.compile(r"^\|(?P<term>[^|]+)\|(?P<meaning>[^|]+)\|(?P<replaced>[^|]+)\|$", re.MULTILINE)
_WORD = re.compile(r"`([^`]+)`")
GLOSSARY = size.ROOT / "docs" / "glossary.md"


def replaced_words(page: str, heading: str) -> list[str]:
    """Return the words in code style of the last column of the table below a heading."""
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [word for row in _ROW.finditer(section) for word in _WORD.findall(row["replaced"])]


def found_in(text: str, words: list[str]) -> Iterator[tuple[int, str]]:
    """Yield line, from 0, and word of each use of a replaced word."""
    spaced = [re.escape(word).replace(r"\ ", r"\s+") for word in words]
    pattern = re.compile(rf"\b({'|'.join(spaced)})\b", re.IGNORECASE)
    for found in pattern.finditer(text):
        yield text.count("\n", 0, found.start()), " ".join(found[0].split())


def uses(source: str, words: list[str]) -> Iterator[tuple[int, str]]:
    """Yield line and word of each use of a replaced word in a docstring of ``source``."""
    for node in ast.walk(ast.parse(source)):
        for string in size._docstrings(node):
            text = string.value.value  # type: ignore[attr-defined]
            for line, word in found_in(text, words):
                yield string.lineno + line, word


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of ``source``, joined strings as one, docstrings too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "{}"
                    for part in node.values
                ),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_a_use_is_found_with_its_line() -> None:
    source = (
        '"""First.\n\nA Bird flies."""\n\n\ndef f():\n    """No birdsong."""\n    bird = "bird"\n'
    )
    assert list(uses(source, ["bird", "rung"])) == [(3, "Bird")]


def test_no_docstring_has_a_word_that_the_glossary_replaces() -> None:
    words = replaced_words(GLOSSARY.read_text(encoding="utf-8"), "Words of the code")
    assert "bird" in words
    found = [
        f"{path.relative_to(size.ROOT)}:{line}: {word}"
        for tree in size.TREES
        for path in sorted(Path(size.ROOT / tree).glob("failback/**/*.py"))
        for line, word in uses(path.read_text(encoding="utf-8"), words)
    ]
    assert found == []


def test_no_text_has_a_word_that_the_glossary_replaces() -> None:
    words = replaced_words(GLOSSARY.read_text(encoding="utf-8"), "Words of pages and commands")
    assert "came again" in words
    found = []
    for tree in size.TREES:
        for path in sorted(Path(size.ROOT / tree).glob("failback/**/*")):
            if path.suffix == ".py":
                parts = texts(path.read_text(encoding="utf-8"))
            elif path.suffix in (".j2", ".html", ".js"):
                parts = iter([(1, path.read_text(encoding="utf-8"))])
            else:
                continue
            place = path.relative_to(size.ROOT)
            found += [
                f"{place}:{at + line}: {word}"
                for at, text in parts
                for line, word in found_in(text, words)
            ]
    pages = [size.ROOT / "README.md", *sorted((size.ROOT / "docs").rglob("*.md"))]
    for path in pages:
        if path != GLOSSARY and "decisions" not in path.parts:
            text = path.read_text(encoding="utf-8")
            place = path.relative_to(size.ROOT)
            found += [f"{place}:{line + 1}: {word}" for line, word in found_in(text, words)]
    assert found == []
