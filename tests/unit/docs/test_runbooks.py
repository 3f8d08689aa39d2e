"""Every alert has its page, every page its parts, and every command on them parses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from failback.cli.app import app
from tests.support.dashboard.alert_rules import alerts
from tests.support.processes.child_process import ROOT

FOLDER = ROOT / "docs" / "runbooks"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.stem != "README")
PARTS = ["What it means", "How to check", "What to do", "How to prevent it"]
PLAIN = {"cat", "cp", "df", "export", "kubectl", "ls"}
"""Commands that are not ours."""
_USAGE_ERROR = typer.BadParameter.__mro__[1]
KUBECTL = {"annotate", "delete", "describe", "get", "logs"}


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def parse(words: list[str]) -> None:
    """Parse one of our command lines as far as it goes without running it."""
    command: Any = typer.main.get_command(app)
    while (children := getattr(command, "commands", None)) is not None:
        assert words, "a group is no command"
        assert words[0] in children, f"no command {words[0]}"
        command, words = children[words[0]], words[1:]
    # Variables stand for numbers and for texts; a number is both.
    filled = ["7" if re.fullmatch(r"\$\w+", word) else word for word in words]
    command.make_context("failback", filled)


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert {page.stem for page in PAGES} == set(alerts())
    index = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == set(alerts())


def test_every_alert_links_to_its_page() -> None:
    for name, rule in alerts().items():
        url = rule["annotations"]["runbook_url"]
        assert url == f"https://docs.example.org/runbooks/{name}.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_all_parts_and_commands_that_parse(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    severity = alerts()[page.stem]["labels"]["severity"]
    assert f"\nSeverity: {severity}" in text
    found = commands(page)
    assert found, "nothing to copy"
    for line in found:
        words = shlex.split(line)
        if words[0] == "failback":
            parse(words[1:])
        else:
            assert words[0] in PLAIN, line
            assert words[0] != "kubectl" or words[1] in KUBECTL, line


@pytest.mark.parametrize(
    "line",
    ["admin consumerProgres -g x", "admin consumerProgress", "explain-offset g t --live", "nosuch"],
)
def test_a_command_that_is_wrong_does_not_parse(line: str) -> None:
    with pytest.raises((_USAGE_ERROR, AssertionError)):
        parse(shlex.split(line))
