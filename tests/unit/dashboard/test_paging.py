"""Pages by cursor: everything once, in order, also when the list grows at its front."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.dashboard.http.documents import encode, page
from failback.analytics.dashboard.problems import DashboardProblem


@given(st.lists(st.text(min_size=1), unique=True), st.integers(1, 7))
def test_all_pages_together_are_the_list(names: list[str], limit: int) -> None:
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        part, cursor = page(names, str, cursor, limit)
        assert len(part) <= limit
        found += part
    assert found == names


def test_what_comes_in_front_meanwhile_shifts_nothing() -> None:
    first, cursor = page(["c", "b", "a"], str, "", 2)
    assert cursor is not None
    second, _ = page(["d", "c", "b", "a"], str, cursor, 2)
    assert first + second == ["c", "b", "a"]


@pytest.mark.parametrize("cursor", ["%", "a===", "Zg==", encode("gone"), "\u00fc"])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(DashboardProblem, match="bad-cursor"):
        page(["a"], str, cursor, 2)
