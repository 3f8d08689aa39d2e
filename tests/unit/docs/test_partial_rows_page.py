"""docs/design/partial-rows.md is what the families say, and every family is written and read."""

from __future__ import annotations

import re
from pathlib import Path

from tools.partial_rows_page import PAGE, render

from failback.analytics.analysis.counting import families

PRODUCT = Path(families.__file__).parents[2]
SOURCES = [
    path.read_text(encoding="utf-8")
    for path in PRODUCT.rglob("*.py")
    if path != Path(families.__file__)
]


def test_the_page_is_what_the_families_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render()


def test_names_are_unique() -> None:
    names = [family.name for _, family in families.all_families()]
    assert len(set(names)) == len(names)


def test_every_family_is_written_and_read() -> None:
    """A module that makes partial rows writes; one that does not, or says so, reads."""
    sources = [text for text in SOURCES if "families." in text]
    for constant in [name for name, _ in families.all_families()]:
        users = [text for text in sources if re.search(rf"\bfamilies\.{constant}\b", text)]
        writers = [text for text in users if "Partials()" in text or "out: Partials" in text]
        read = re.compile(rf"\bfamilies\.{constant}\.(rows|of)\(|Way\(.*families\.{constant}\)")
        assert writers, f"no module writes {constant}"
        assert any(text not in writers or read.search(text) for text in users), (
            f"no module reads {constant}"
        )
