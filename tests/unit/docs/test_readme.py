"""README.md links into the repository, and has the same figures in Chinese."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tools.translations import chinese_pages, recorded

ROOT = Path(__file__).parents[3]
ENGLISH = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh-CN.md").read_text()
LINK = re.compile(r"\]\(([^)\s]+)\)")
ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def test_it_names_no_place_that_is_not_in_the_repository() -> None:
    for text in (ENGLISH, CHINESE):
        assert "http" not in text


def test_both_languages_have_the_same_links_sections_commands_and_figures() -> None:
    other = {"README.md": "README.zh-CN.md", "README.zh-CN.md": "README.md"}
    for page in chinese_pages()[1:]:
        english = recorded(page)[0].resolve().relative_to(ROOT.resolve())
        other[str(page.relative_to(ROOT))] = str(english)
    links = Counter(other.get(link, link) for link in LINK.findall(CHINESE))
    wanted = Counter(LINK.findall(ENGLISH))
    assert not wanted - links
    assert set(links - wanted) <= set(other.values()), "only Chinese pages are linked more often"
    assert set(other) - {"README.zh-CN.md"} <= set(LINK.findall(CHINESE)), "a page is not linked"
    assert CHINESE.count("\n## ") == ENGLISH.count("\n## ")
    blocks = [re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for text in (ENGLISH, CHINESE)]
    assert blocks[0] == blocks[1]
    figures = [[NUMBER.findall(row) for row in ROW.findall(text)] for text in (ENGLISH, CHINESE)]
    assert figures[0][2:] == figures[1][2:]


def test_the_ratio_follows_from_the_columns_beside_it() -> None:
    rows = re.findall(r"\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) % \|", ENGLISH)
    assert len(rows) == 5
    for row in rows:
        delivered, distinct, again = (int(cell.replace(",", "")) for cell in row[:3])
        assert delivered == distinct + again
        assert row[3] == f"{again / distinct:.1%}".removesuffix("%")
