"""Signposts are short and whole: ARCHITECTURE.md, and the first line of every module."""

from __future__ import annotations

import ast

import pytest

from tests.support.processes.child_process import ROOT

MODULES = [
    module
    for top in ("broker-image", "operator", "chaos", "analytics")
    for module in sorted((ROOT / top / "failback").rglob("*.py"))
]


def signpost(text: str) -> str:
    """Return the first line of a module's docstring; empty where there is none."""
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def is_whole(line: str) -> bool:
    """Tell whether a line ends where its sentence does."""
    return line.endswith((".", "?", ":"))


def test_the_architecture_is_read_in_ten_minutes() -> None:
    prose, _, table = (ROOT / "ARCHITECTURE.md").read_text().partition("## I want to change")
    assert prose.count("\n") <= 110
    assert table.count("\n") <= 120


@pytest.mark.parametrize("top", ["broker-image", "operator", "chaos", "analytics"])
def test_the_first_line_of_a_module_is_a_sentence(top: str) -> None:
    mine = [module for module in MODULES if (ROOT / top) in module.parents]
    assert mine
    cut = [str(each.relative_to(ROOT)) for each in mine if not is_whole(signpost(each.read_text()))]
    assert cut == []


def test_a_cut_or_missing_first_line_is_found() -> None:
    assert not is_whole(signpost("import os\n"))
    assert not is_whole(signpost('"""Asked before the slave starts, and under the\nrules."""\n'))
    assert is_whole(signpost('"""Who is hit.\n\nMore."""\n'))
