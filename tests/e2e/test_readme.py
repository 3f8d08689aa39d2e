"""What the README tells people to type exists."""

from __future__ import annotations

import re

import pytest

from tests.e2e.demo_run import run_command
from tests.support.processes.child_process import ROOT

pytestmark = pytest.mark.sample

README = (ROOT / "README.md").read_text(encoding="utf-8")


def typed(program: str) -> list[str]:
    """Return what the README has after ``program`` in code, spans and blocks alike."""
    blocks = re.findall(r"```\w*\n(.*?)```", README, re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
    begin = f"{program} "
    return [text.removeprefix(begin) for text in (*lines, *spans) if text.startswith(begin)]


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {
        name
        for line in re.findall(r"^([\w -]+):(?!=)", makefile, re.MULTILINE)
        for name in line.split()
    }
    assert "\nbench-%:" in makefile
    benchmarks = (ROOT / "tests" / "benchmarks").glob("bench_*.py")
    targets |= {file.stem.replace("_", "-", 1) for file in benchmarks}
    named = {text.split()[0] for text in typed("make")}
    assert {"demo", "test", "images"} <= named
    assert named <= targets


def test_every_command_and_option_of_the_readme_exists() -> None:
    listed = run_command("--help")
    assert listed.code == 0
    named = {text.split()[0] for text in typed("failback")}
    assert {"demo", "predict", "doctor"} <= named
    for command in sorted(named):
        assert re.search(rf"\b{command}\b", listed.output), f"failback has no {command}"
    demo = run_command("demo", "--help").output
    for option in re.findall(r"ARGS=\"?(--[a-z-]+)", README):
        assert option in demo


def test_every_file_that_the_readme_names_is_there() -> None:
    files = re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:md|yaml|toml|py))`", README)
    files += re.findall(r"\]\(((?:[\w.-]+/)*[\w-]+\.\w+)\)", README)
    assert "ARCHITECTURE.md" in files
    missing = [name for name in files if not (ROOT / name).exists() and name not in WRITTEN]
    assert missing == []


WRITTEN = {"summary.md"}
"""Files that a report brings."""
