"""Every alert has its page and every page its alert; test_commands.py parses their commands."""

from __future__ import annotations

import re

from tests.support.dashboard.alert_rules import alerts
from tests.support.docs.pages import blocks
from tests.support.processes.child_process import ROOT

FOLDER = ROOT / "docs" / "runbooks"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.stem != "README")


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert {page.stem for page in PAGES} == set(alerts())
    index = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == set(alerts())


def test_every_alert_links_to_its_page() -> None:
    for name, rule in alerts().items():
        url = rule["annotations"]["runbook_url"]
        assert url == f"https://docs.example.org/runbooks/{name}.md"


def test_a_page_has_the_severity_of_its_alert_and_something_to_copy() -> None:
    rules = alerts()
    for page in PAGES:
        severity = rules[page.stem]["labels"]["severity"]
        assert f"\nSeverity: {severity}" in page.read_text(), page
        assert any(block.language == "bash" for block in blocks(page)), page
