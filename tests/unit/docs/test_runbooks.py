"""Every alert has its page, every page its parts; test_commands.py parses their commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.dashboard.alert_rules import alerts
from tests.support.docs.pages import blocks
from tests.support.processes.child_process import ROOT

FOLDER = ROOT / "docs" / "runbooks"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.stem != "README")
PARTS = ["What it means", "How to check", "What to do", "How to prevent it"]


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert {page.stem for page in PAGES} == set(alerts())
    index = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == set(alerts())


def test_every_alert_links_to_its_page() -> None:
    for name, rule in alerts().items():
        url = rule["annotations"]["runbook_url"]
        assert url == f"https://docs.example.org/runbooks/{name}.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_all_parts_and_something_to_copy(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    severity = alerts()[page.stem]["labels"]["severity"]
    assert f"\nSeverity: {severity}" in text
    assert any(block.language == "bash" for block in blocks(page)), "nothing to copy"
