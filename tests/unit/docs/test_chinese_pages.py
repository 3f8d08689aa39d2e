"""A Chinese page is as new as its English one, and has its commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import translations
from tools.translations import LEFT_OUT, chinese_pages, out_of_date, recorded, sections

from tests.support.docs.pages import blocks
from tests.support.processes.child_process import ROOT

NAMES = [str(page.relative_to(ROOT)) for page in chinese_pages()]


@pytest.mark.parametrize("name", NAMES)
def test_no_english_section_is_newer_than_its_chinese_one(name: str) -> None:
    found = list(out_of_date(ROOT / name))
    assert found == [], "after translating: python tools/translations.py --write PAGE"


@pytest.mark.parametrize("name", NAMES)
def test_both_pages_have_the_same_commands_and_lead_to_each_other(name: str) -> None:
    page = ROOT / name
    english, known = recorded(page)
    here, there = (
        [block.text for block in blocks(each) if block.language in ("bash", "dockerfile", "ini")]
        for each in (page, english)
    )
    whole = LEFT_OUT not in known.values()
    assert here == there if whole else set(here) <= set(there)
    for one, other in ((page, english), (english, page)):
        links = re.findall(r"\]\(([^)#\s]+)\)", one.read_text())
        assert other.resolve() in {(one.parent / link).resolve() for link in links}


def test_a_section_that_changed_is_new_or_gone_is_named(tmp_path: Path) -> None:
    english, chinese = tmp_path / "en.md", tmp_path / "zh.md"
    english.write_text("# A\n\none\n\n## B\n\ntwo\n\n```bash\n# no heading\n```\n\n## C\n\nthree\n")
    assert list(sections(english.read_text())) == ["A", "B", "C"]
    chinese.write_text("# 甲\n\n<!-- translates en.md\n1 A\n2 B\n- C\n3 D\n-->\n")
    chinese.write_text(translations.with_digests(chinese))
    assert list(out_of_date(chinese)) == []
    assert recorded(chinese)[1]["C"] == LEFT_OUT
    english.write_text(english.read_text().replace("two", "two\nmore").replace("one", "one\n"))
    assert list(out_of_date(chinese)) == ["zh.md: 'B' of en.md changed: translate it"]
    english.write_text("# A\n\none\n\n## E\n\n## C\n\nfour\n")
    assert list(out_of_date(chinese)) == [
        "zh.md: 'E' of en.md is new: translate it",
        "zh.md: en.md has no section 'B' now: take it out",
    ]


def test_a_page_without_its_comment_and_two_sections_of_one_name_are_refused(
    tmp_path: Path,
) -> None:
    page = tmp_path / "zh.md"
    page.write_text("# 甲\n")
    with pytest.raises(ValueError, match="`<!-- translates PAGE` is missing at the end"):
        recorded(page)
    with pytest.raises(ValueError, match="two sections are called 'A'"):
        sections("# A\n\n## A\n")


def test_all_failure_modes_are_in_the_chinese_table() -> None:
    text = (ROOT / "docs/zh/failure-modes.md").read_text()
    rows = re.findall(r'^\| <a id="mode-(\d+)"></a>\[\1\]\(\S+#mode-\1\) \|', text, re.MULTILINE)
    assert list(map(int, rows)) == list(range(1, 29))
