"""The size of the project stays within tools/budget.toml."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path

import pytest
from tools import size

from tests.conftest import UNIT_CASES


def test_no_figure_is_above_its_budget_or_far_below(request: pytest.FixtureRequest) -> None:
    figures = size.measure()
    budget = size.read_budget()
    cases = {"total": {"unit_cases": request.config.stash[UNIT_CASES]}}
    assert [*size.above(figures, budget), *size.above(cases, budget)] == []
    assert list(size.slack(figures, budget)) == []


def test_a_line_is_the_first_of_code_import_docstring_comment_and_blank(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    text = '''
        """Says what it is.

        In two paragraphs.
        """
        from a import (
            b,  # why
        )

        # A comment.
        LIMIT = 1  # beside code
        """What it limits."""
        TEXT = """not

        a docstring"""
        if LIMIT:
            import c
    '''
    file.write_text(textwrap.dedent(text).lstrip("\n"))
    source = size.read(file)
    assert source.docstrings == ("Says what it is.\n\nIn two paragraphs.\n", "What it limits.")
    assert source.lines == {"docstring": 5, "import": 4, "blank": 1, "comment": 1, "code": 5}


@pytest.mark.parametrize(
    ("text", "sentences", "of_persons"),
    [
        ("Whoever asks gets it. The broker answers.", 2, 1),
        ("Count what nobody\nreads; say so.", 1, 1),
        ("Return the whole of it", 1, 0),
        ("First paragraph\n\nwho is in the second", 2, 1),
    ],
)
def test_sentences_about_persons_are_counted(text: str, sentences: int, of_persons: int) -> None:
    package = size.Package()
    package.add(size.Source(Counter(), (text,)))
    assert (package.sentences, package.of_persons) == (sentences, of_persons)


def test_options_and_commands_are_counted_without_help_and_lists_of_commands() -> None:
    page = """
## Exit codes
* `0`: no option
## Commands
## failback a
Commands:
* `b`: a command
Options:
* `-h, --help`: Show this.
## failback a b
Arguments:
* `FILE`: A file.
Options:
* `--json`: Print JSON.
"""
    assert size.reference(page) == (2, 2)


def test_a_figure_without_a_budget_and_one_above_it_are_named() -> None:
    figures = {"total": {"product_lines": 11, "new": 1, "low": 5}}
    budget: dict[str, dict[str, float]] = {"total": {"product_lines": 10, "low": 10}}
    assert list(size.above(figures, budget)) == [
        "total.product_lines: 11, the budget is 10",
        "total.new: 1, and tools/budget.toml has no budget for it",
    ]
    assert list(size.slack(figures, budget)) == [
        "total.low: 5, the budget is 10: make size ARGS=--write"
    ]


def test_writing_a_budget_lowers_and_never_raises() -> None:
    budget: dict[str, dict[str, float]] = {"total": {"a": 7, "b": 8}, "minutes": {"test": 7}}
    text = size.lowered({"total": {"a": 5, "b": 9.5}}, budget)
    assert text.splitlines()[1:] == [
        *("", "[total]", "a = 5", "b = 8"),
        *("", "[minutes]", "test = 7"),
    ]
