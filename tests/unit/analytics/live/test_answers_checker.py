"""The checker of live answers finds each kind of false statement, and no true one."""

from __future__ import annotations

import pytest

from tests.support.observe.answers import Answer, Sample, Truth, false_answers

GROUP, KEY = "billing", ("billing", 0)
KILLED, SERVED, BACK, COPIED = 100.0, 130.0, 160.0, 190.0


def sample(at: float) -> Sample:
    """Handled goes on by 10 a second until 150; the slave has it from 130 to 190."""
    handled = round(min(at, 150.0) * 10)
    master = None if KILLED < at < BACK else {KEY: 950 if at >= BACK else handled - 30}
    slave = handled - 30 if at < KILLED or SERVED <= at < COPIED else 900
    return Sample(at, {KEY: handled}, master, {KEY: 950 if at >= COPIED else slave})


TRUTH = Truth([sample(float(at)) for at in range(240)])


def at(second: float, **said: object) -> Answer:
    return Answer(second, "explain-offset", GROUP, 0, **said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [
        at(50, safe=470),
        at(50, says_none=True),
        at(120, safe=900, bound="at least"),
        at(150, safe=1470),
        at(200, safe=1470, bound="at least"),
        at(200, says_unknown=True),
        at(120, says_unknown=True),
    ],
)
def test_a_true_answer_is_none(answer: Answer) -> None:
    assert list(false_answers(TRUTH, [answer])) == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (at(120, safe=900), "1080 were handled"),
        (at(200, safe=950), "1500 were handled"),
        (at(200, safe=1501, bound="at least"), "skipped"),
        (at(200, says_none=True), "550 would be re-consumed"),
        (at(120, says_none=True), "would be re-consumed"),
        (at(150, says_unknown=True), "the slave has"),
    ],
)
def test_a_false_answer_is_found(answer: Answer, why: str) -> None:
    ((found, said),) = false_answers(TRUTH, [answer])
    assert found == answer
    assert why in said


HANDLED = ({("g", 0): 100}, {("g", 0): 130}, {("g", 0): 160})
SEEN = Truth([Sample(10.0 * n, each, each, {}) for n, each in enumerate(HANDLED)])


def is_false(at: float, safe: int) -> bool:
    return bool(list(false_answers(SEEN, [Answer(at, "dashboard", "g", 0, safe=safe)])))


def test_an_offset_is_held_against_what_was_handled_long_enough_before() -> None:
    assert [is_false(25.0, safe) for safe in (129, 130, 160, 161)] == [True, False, False, True]


def test_before_the_first_sample_nothing_is_known_to_be_handled() -> None:
    assert [is_false(2.0, safe) for safe in (0, 90, 130, 131)] == [False, False, False, True]
