"""Values of a status survive being written and read; conditions move only when they turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.operator.planning.plan.encoding import (
    condition,
    difference,
    from_time,
    merge_conditions,
    names,
    operations_from_status,
    operations_to_status,
    to_time,
)
from failback.operator.planning.plan.types import Operation
from tests.support.operator.merge_patch import merged

words = st.text("abc", min_size=1, max_size=4)
operations = st.builds(
    Operation,
    id=words,
    type=words,
    step=words,
    pair=st.none() | st.integers(0, 63),
    member=st.none() | st.integers(0, 3),
    started_at=st.integers(0, 2**31).map(float),
    step_started_at=st.integers(0, 2**31).map(float),
    attempts=st.integers(0, 9),
    blocked_by=st.lists(words, max_size=3).map(tuple),
    data=st.dictionaries(words, st.integers() | words, max_size=3),
)


@given(running=st.lists(operations, max_size=3))
def test_operations_survive_the_status(running: list[Operation]) -> None:
    assert operations_from_status(operations_to_status(running)) == tuple(running)


@pytest.mark.parametrize("status", [{}, {"currentOperation": None}, {"currentOperation": {}}])
def test_no_operation_is_none(status: dict[str, Any]) -> None:
    assert operations_from_status(status) == ()


@given(seconds=st.integers(0, 2**33))
def test_a_time_survives_its_text(seconds: int) -> None:
    assert from_time(to_time(seconds)) == seconds


@pytest.mark.parametrize("text", ["", None, "yesterday"])
def test_text_that_is_no_time_is_none(text: str | None) -> None:
    assert from_time(text) is None


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = condition({}, "Ready", False, "Creating", now=100, generation=1)
    status = {"conditions": [first]}
    same = condition(status, "Ready", False, "SlaveDown", now=200, generation=2)
    turned = condition(status, "Ready", True, "AllReady", now=200, generation=2)
    assert same["lastTransitionTime"] == first["lastTransitionTime"]
    assert turned["lastTransitionTime"] == to_time(200)
    assert condition({}, "Ready", None, "x", now=0, generation=1)["status"] == "Unknown"


def test_a_long_message_is_cut() -> None:
    found = condition({}, "Ready", False, "x", "m" * 900, now=0, generation=1)
    assert len(found["message"]) == 512


def test_conditions_of_others_are_kept() -> None:
    kept = merge_conditions(
        {"conditions": [{"type": "Safe", "status": "True"}]}, [{"type": "Ready", "status": "False"}]
    )
    assert [item["type"] for item in kept] == ["Ready", "Safe"]


json_values = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
statuses = st.dictionaries(words, json_values, max_size=4)


@given(old=statuses, new=statuses)
def test_the_difference_turns_one_status_into_the_other(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    patch = difference(old, new)
    assert merged(old, patch) == new
    assert (patch == {}) == (old == new)


with_nothings = st.recursive(
    st.none() | st.integers(),
    lambda inner: st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(old=statuses, new=st.dictionaries(words, with_nothings, max_size=4))
def test_what_was_written_differs_no_more(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert difference(merged(old, difference(old, new)), new) == {}


def test_a_list_in_a_message_is_short() -> None:
    assert names(["a", "b"]) == "a, b"
    assert names("abcdefg") == "a, b, c, d, e and 2 more"
