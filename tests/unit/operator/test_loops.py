"""When the loops look at their resources."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from failback.operator.controller.loops import next_look

POLL = 5.0
NEVER = float("inf")
times = st.floats(min_value=0, max_value=1e7)


def test_resources_that_are_looked_at_one_after_the_other_are_looked_at_together_next_time() -> (
    None
):
    looks = {next_look(1000 + step / 100, NEVER, POLL) for step in range(500)}
    assert len(looks) == 10


@given(now=times)
def test_a_poll_is_at_most_a_turn_early_and_never_late(now: float) -> None:
    assert POLL * 0.9 - 1e-6 <= next_look(now, NEVER, POLL) - now <= POLL + 1e-6


@given(now=times, after=st.floats(min_value=0, max_value=4))
def test_a_pass_that_is_due_sooner_comes_when_it_is_due(now: float, after: float) -> None:
    assert next_look(now, now + after, POLL) == now + after


@given(now=times, late=times)
def test_a_pass_that_is_late_comes_now(now: float, late: float) -> None:
    assert next_look(now, now - late, POLL) == now
