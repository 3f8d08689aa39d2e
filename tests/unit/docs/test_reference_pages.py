"""The generated pages are what the code says, and have all causes, groups and keys."""

from __future__ import annotations

import pytest
from tools.key_meanings import MEANINGS as KEYS
from tools.reference_pages import DOCS, PAGES, broker_keys

from failback.analytics.analysis.causes.labels import CAUSE_WORDS, CAUSES, REPORT_GROUPS
from failback.analytics.analysis.causes.meanings import GROUPS, MEANINGS


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_code_says(page: str) -> None:
    made = PAGES[page]()
    assert (DOCS / page).read_text(encoding="utf-8") == made, "run: python tools/reference_pages.py"


def test_every_cause_and_group_has_its_words() -> None:
    assert set(MEANINGS) == set(CAUSES) >= set(CAUSE_WORDS)
    assert tuple(GROUPS) == REPORT_GROUPS
    assert all(1 <= number <= 27 for meaning in MEANINGS.values() for number in meaning.modes)


def test_every_key_of_broker_conf_has_its_words() -> None:
    assert set(KEYS) == set(broker_keys())
