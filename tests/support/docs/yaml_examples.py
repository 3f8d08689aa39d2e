"""Finds the YAML that a reader copies: files of examples, and resources on pages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
KUSTOMIZATIONS = sorted((ROOT / "examples").rglob("kustomization.yaml"))
_FOLDERS = ("examples", "operator/failback/cli/data", "chaos/failback/chaos/scenarios")
EXAMPLE_FILES = sorted(
    {path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.yaml")} - {*KUSTOMIZATIONS}
)
_BLOCK = re.compile(r"^( *)```ya?ml[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def documents_of(text: str) -> list[dict[str, Any]]:
    """The documents of a YAML text that have a kind."""
    loaded = YAML(typ="safe", pure=True).load_all(text)
    return [each for each in loaded if isinstance(each, dict) and "kind" in each]


@cache
def blocks_of_pages() -> dict[str, str]:
    """Fenced YAML of README and docs that holds a resource, by page and line."""
    found = {}
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = page.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            if "apiVersion: " in block[2]:
                line = text.count("\n", 0, block.start()) + 1
                found[f"{page.relative_to(ROOT)}:{line}"] = block[2]
    return found
