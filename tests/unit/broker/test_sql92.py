"""SQL92 filters: what matches, what never does, what is refused: 4.9.8's filter module."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.filters.sql92 import compile_filter
from failback.protocol.errors import ProtocolError

MESSAGE = {"a": "5", "b": "x", "c": "2.5", "t": "true", "big": "3000000000", "q": "it's", "e": ""}

MATCHES = [
    "a = 5",
    "5 = a",
    "a <> 6",
    "a > 4 AND a < 6",
    "a >= 5 and a <= 5",
    "a BETWEEN 5 AND 6",
    "a NOT BETWEEN 6 AND 9",
    "a > 4.9",
    "c > 2.4 AND c < 2.6",
    "c = 2.5",
    "-5 < a",
    "a > -1",
    "a > - -1",
    "+a = 5",
    "b = 'x'",
    "b <> 'y'",
    "b IN ('x', 'y')",
    "b NOT IN ('y')",
    "q = 'it''s'",
    "missing IS NULL",
    "a IS NOT NULL",
    "missing = alsoMissing",
    "e = ''",
    "t = TRUE",
    "b = FALSE",
    "TRUE",
    "NOT FALSE",
    "NOT b",
    "(a = 5 OR missing = 1) AND NOT (b = 'y')",
    "missing = 1 OR a = 5",
    "a = 5 -- a note\n AND b = 'x'",
    "a /* five */ = 5",
    "big = 3000000000",
    "big > 2999999999L",
    "(a > 4) = TRUE",
    "a = 5 whatever follows",
]
MISMATCHES = [
    "a = 6",
    "missing = 1",
    "missing <> 1",
    "NOT missing",
    "missing IN ('x')",
    "missing NOT IN ('x')",
    "missing > 1 OR b = 'y'",
    "missing IS NOT NULL",
    "NULL",
    "a",
    "t",
    "a = b",
    "b > 1",
    "c = 2",
    "c > 2",
    "big > 5",
    "TRUE = t",
    "b = 'X'",
    "a BETWEEN 6 AND 9",
    "NOT (missing = 1)",
    "b > a",
    "a = 5 AND missing = 1",
    "5 = TRUE",
    "a = 05",
    "b LIKE 'x%'",
]
REFUSED = [
    "",
    "   ",
    "5",
    "'x'",
    "a =",
    "a = NULL",
    "NULL <> a",
    "a > 'x'",
    "a > TRUE",
    "a < (b = 1)",
    "a BETWEEN 9 AND 6",
    "a BETWEEN NULL AND 6",
    "a BETWEEN 'x' AND 'y'",
    "a IN (1, 2)",
    "a IN ()",
    "5 IN ('x')",
    "(a = 5",
    "a IS 5",
    "a NOT 5",
    "TRUE = 5",
    "a = 9223372036854775808",
    "a = 0.0",
    "a = 1e999",
    "a = #",
    "a ! 5",
    "'open",
    "a = 5 OR",
    "NOT 5",
    "5 AND a = 1",
]


@pytest.mark.parametrize("text", MATCHES)
def test_a_message_matches(text: str) -> None:
    assert compile_filter(text)(MESSAGE)


@pytest.mark.parametrize("text", MISMATCHES)
def test_a_message_does_not_match(text: str) -> None:
    assert not compile_filter(text)(MESSAGE)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        compile_filter(text)


def test_two_texts_are_ordered_as_numbers_or_not_at_all() -> None:
    assert compile_filter("a > b")({"a": "10", "b": "9.5"})
    assert not compile_filter("a > b")({"a": "b", "b": "a"})
    assert not compile_filter("a > b OR a IS NOT NULL")({"a": "b", "b": "a"}), "an error wins"
    assert compile_filter("a IS NOT NULL OR a > b")({"a": "b", "b": "a"}), "decided before it"


def test_whole_numbers_have_the_size_of_what_they_are_compared_with() -> None:
    assert not compile_filter("a > 5")({"a": "3000000000"}), "no 32-bit number"
    assert compile_filter("a > 5.0")({"a": "3000000000"})
    assert compile_filter("a > -3000000000")({"a": "2999999999"})
    assert not compile_filter("a > 5")({"a": "6.5"})
    assert compile_filter("a > 5")({"a": "+6"})


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(f"p{number} = {number}" for number in range(2000)),
        " OR ".join(["a = 1"] * 2000),
    ],
)
def test_long_chains_of_conditions_are_worked_off(text: str) -> None:
    assert compile_filter(text)({f"p{number}": str(number) for number in range(2000)} | {"a": "1"})


@pytest.mark.parametrize(
    "text",
    ["(" * 5000 + "a = 1" + ")" * 5000, "NOT " * 5000 + "a", "- " * 5000 + "1 = a"],
)
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="nested more than"):
        compile_filter(text)


def test_results_that_are_compared_again_and_again_are_refused() -> None:
    with pytest.raises(ProtocolError, match="results of comparisons"):
        compile_filter("a = 1" + " = TRUE" * 1000)
    with pytest.raises(ProtocolError, match="characters"):
        compile_filter("a" * 40_000)


WORDS = ["a", "b", "5", "2.5", "'x'", "NULL", "TRUE", "(", ")", ",", "=", "<>", "<", ">=", "+", "-"]
WORDS += ["AND", "OR", "NOT", "IN", "BETWEEN", "IS", "--", "/*", "*/", "\n", "3000000000", ".", "é"]


@given(
    words=st.lists(st.sampled_from(WORDS), max_size=25),
    message=st.dictionaries(st.sampled_from("ab"), st.sampled_from(["5", "x", "true", "", "1e5"])),
)
def test_any_text_is_refused_or_answers(words: list[str], message: dict[str, str]) -> None:
    with contextlib.suppress(ProtocolError):
        assert compile_filter(" ".join(words))(message) in (True, False)
