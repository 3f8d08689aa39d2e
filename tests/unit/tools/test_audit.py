"""What becomes of pip-audit's report, and of none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tools import audit
from tools.audit import judge

CLEAN = {"name": "rich", "version": "15.0.0", "vulns": []}
UNKNOWN = {"name": "lark", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def flawed(*fixes: str) -> dict[str, object]:
    flaw = {"id": "PYSEC-2026-1", "fix_versions": list(fixes), "aliases": [], "description": ""}
    return {"name": "jinja2", "version": "3.1.0", "vulns": [flaw]}


@pytest.mark.parametrize(
    ("packages", "lines", "failed"),
    [
        ([CLEAN, CLEAN], ["packages looked up: 1, vulnerabilities: 0"], False),
        (
            [CLEAN, flawed("3.1.5", "3.1.6")],
            [
                "jinja2 3.1.0 has PYSEC-2026-1, fixed in 3.1.5, 3.1.6",
                "packages looked up: 2, vulnerabilities: 1",
            ],
            True,
        ),
        (
            [flawed()],
            [
                "jinja2 3.1.0 has PYSEC-2026-1, no fix yet",
                "packages looked up: 1, vulnerabilities: 1",
            ],
            False,
        ),
        (
            [CLEAN, UNKNOWN],
            [
                "packages looked up: 1, vulnerabilities: 0; "
                "the index does not answer about 1, such as lark"
            ],
            False,
        ),
    ],
)
def test_what_has_a_fix_fails(
    packages: list[dict[str, object]], lines: list[str], failed: bool
) -> None:
    assert judge({"dependencies": packages, "fixes": []}) == (lines, failed)


def test_without_a_network_one_line_says_so_and_nothing_fails() -> None:
    closed = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
    done = subprocess.run(
        [sys.executable, audit.__file__], env=closed, capture_output=True, text=True, check=False
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith("audit: not done: ")
    assert (done.returncode, done.stderr) == (0, "")
