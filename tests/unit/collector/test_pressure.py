"""How much is taken at once, and when the others are told to come back."""

from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.collector.pressure import UploadBudget, retry_after_seconds


def test_refusals_begin_at_three_quarters_and_ask_for_more_the_fuller_it_is() -> None:
    assert [retry_after_seconds(held, 100) for held in (75, 100, 400)] == [1, 30, 30]
    assert retry_after_seconds(80, 100) < retry_after_seconds(95, 100)


def test_what_is_taken_comes_back() -> None:
    budget = UploadBudget(100, 10)
    assert budget.take(40) is None
    assert budget.take(35) is None
    assert budget.take(1) == 2  # seconds
    budget.give_back(40)
    assert budget.take(40) is None
    assert (budget.held_bytes, budget.uploads) == (75, 2)


def test_the_number_of_uploads_is_bounded_too() -> None:
    budget = UploadBudget(1000, 2)
    assert [budget.take(0), budget.take(0), budget.take(0)] == [None, None, 1]


def test_one_upload_always_gets_through() -> None:
    assert UploadBudget(10, 1).take(1000) is None


@given(st.lists(st.integers(0, 60), max_size=30))
def test_two_or_more_never_hold_more_than_three_quarters(sizes: list[int]) -> None:
    budget = UploadBudget(100, 64)
    for size in sizes:
        budget.take(size)
        assert budget.uploads < 2 or budget.held_bytes <= 75
