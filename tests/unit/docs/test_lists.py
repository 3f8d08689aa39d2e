"""Lists of the pages are lists in every reader of Markdown, MkDocs' among them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.docs.pages import PAGES
from tests.support.processes.child_process import ROOT

_ITEM = re.compile(r"\s*([*-]|\d+\.)\s+\S")
_FENCE = re.compile(r"\s*```")


def glued(text: str) -> list[str]:
    """Return items that a reader glues to the paragraph before them."""
    found, in_block, in_item, before = [], False, False, ""
    for line in text.splitlines():
        if _FENCE.match(line):
            in_block = not in_block
            in_item = False
        elif not in_block:
            if _ITEM.match(line):
                if before.strip() and not in_item and not _FENCE.match(before):
                    found.append(line)
                in_item = True
            elif not line.strip():
                in_item = False
        before = line
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_list_begins_after_a_blank_line(page: Path) -> None:
    assert glued(page.read_text()) == []


def test_a_glued_item_is_found() -> None:
    assert glued("words\n* one\n") == ["* one"]
    assert glued("1. one\n\n    more\n2. two\n") == ["2. two"]
    assert glued("words\n\n* one\n  goes on\n* two\n") == []
