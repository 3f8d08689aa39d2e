"""The blocks of README.md and docs/, as a reader sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.processes.child_process import ROOT

PAGES: Final = (
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.relative_to(ROOT / "docs").parts[0] not in ("design", "decisions")
    ),
)
"""What users read."""
_BLOCK: Final = re.compile(r"^( *)```(\S*)(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, what else its first line says, its text, and where it is."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in their order."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        indent, language, words, body = found.groups()
        lines = [line.removeprefix(indent) for line in body.splitlines()]
        at = text.count("\n", 0, found.start()) + 1
        yield Block(page, at, language, tuple(words.split()), "\n".join(lines) + "\n")


def all_blocks(*languages: str) -> list[Block]:
    """Return the blocks of all pages in one of ``languages``."""
    return [block for page in PAGES for block in blocks(page) if block.language in languages]
