"""The page of failure modes has them all, and each mode has a test that makes it happen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from failback.broker.config.config import GUARDS, BrokerConfig

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "failure-modes.md"
MODES = {
    int(number): text
    for number, text in re.findall(r"^### (\d+)\. (.*?)(?=^##|\Z)", PAGE.read_text(), re.M | re.S)
}
TESTS_PAGE = ROOT / "docs" / "design" / "failure-mode-tests.md"
TESTS = {
    int(number): text
    for number, text in re.findall(r"^\| (\d+) \| (.+) \|$", TESTS_PAGE.read_text(), re.M)
}
LINK = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")
ON_BOTH = {1, 5, 6, 7, 8, 9, 12, 13, 14, 17, 22}
"""Provoked on Apache's broker too."""


def named(number: int) -> list[tuple[str, Path]]:
    """Return the tests that a mode names, and the files in which they should be."""
    found = LINK.findall(TESTS[number])
    return [(name, (TESTS_PAGE.parent / place).resolve()) for name, place in found]


def functions_in(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def test_all_28_modes_are_there() -> None:
    assert list(MODES) == list(range(1, 29)), "in the order of their numbers"
    text = PAGE.read_text()
    for number in MODES:
        assert f'<a id="mode-{number}"></a>' in text
        assert f"](#mode-{number})" in text, "it is not in the list of subjects"


def test_each_mode_has_a_test_or_a_reason() -> None:
    for number, mode in MODES.items():
        is_shown = "- **Reproduced on.** " in mode
        assert is_shown != ("- **Cannot occur.** " in mode), number
        assert bool(named(number)) == is_shown, number
        for name, file in named(number):
            assert file.is_relative_to(ROOT / "tests")
            assert name in functions_in(file), f"{name} is not in {file}"


def test_each_test_of_a_mode_is_named() -> None:
    files = sorted((ROOT / "tests" / "faults" / "modes").glob("test_*.py"))
    there = {(name, file) for file in files for name in functions_in(file)}
    named_somewhere = {each for number in MODES for each in named(number)}
    assert there - named_somewhere == set()


def test_the_page_says_what_runs_on_both_engines() -> None:
    for number, mode in MODES.items():
        on_both = any(is_on_both(name, file) for name, file in named(number))
        assert on_both == (number in ON_BOTH), number
        assert (", both engines" in TESTS[number]) == on_both, number
        assert ("Failback and Apache RocketMQ 4.9.7" in mode) == on_both, number


def is_on_both(name: str, file: Path) -> bool:
    """Whether a test has the engine as a parameter, its own or its fixture's."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            text = ast.unparse(node)
            return "ENGINES" in text or "outage: Outage" in text
    return False


def test_each_switch_is_one_of_the_brokers() -> None:
    switches = {BrokerConfig.key_of(name) for name in GUARDS}
    named_here = set(re.findall(r"failbackGuard\w+", PAGE.read_text()))
    assert named_here <= switches
