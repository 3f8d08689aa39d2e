"""What members say that they hold makes intervals narrower, where it can be relied on."""

from __future__ import annotations

from typing import Any

import pytest

from failback.analytics.observe.looks import HeldQueue, Reader, Writer
from tests.support.observe.outages import come_back, cost, serve, take_over
from tests.support.observe.stories import Story


def handed_over(*told: HeldQueue, since: int = 1) -> dict[str, Any]:
    """A member that had committed 1,500 of 9,000 is asked 5 s apart, leaves ``since`` s later."""
    story = Story()
    story.commit(900)
    story.wait(2)
    serve(story, 1500, stored=9000)
    for held in told:
        story.tell(held)
        story.wait(5)
    story.now -= 5 - since
    come_back(story, 900, after=5)
    take_over(story, 9500)
    return cost(story)


def test_nobody_was_asked() -> None:
    found = handed_over()
    assert (found["lo"], found["hi"]) == (1200, 16_200)


def test_what_was_handled_and_what_was_in_memory_bound_it() -> None:
    first, last = HeldQueue(1400, 1500, 2499, 1000), HeldQueue(1550, 1600, 2599, 1000)
    found = handed_over(first, last)
    assert (found["lo"], found["hi"]) == (2 * (1600 - 900), 2 * (2600 - 900))
    assert "E3" in found["basis"]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (
            HeldQueue(1400, 1500, 1509, 10),
            HeldQueue(1550, 1600, 1609, 10),
        ),  # all of it may be handled since
        (
            HeldQueue(1400, 1600, 2599, 1000),
            HeldQueue(1550, 1600, 2599, 1000),
        ),  # nobody knows how fast it is
        (HeldQueue(1400, 1500, 0, 0), HeldQueue(1600, 0, 0, 0)),
    ],
)
def test_a_member_that_may_have_come_further_is_not_held_to_it(
    first: HeldQueue, last: HeldQueue
) -> None:
    found = handed_over(first, last)
    assert (found["lo"], found["hi"]) == (2 * (1600 - 900), 16_200)


def test_what_was_said_too_long_before_bounds_nothing() -> None:
    first, last = HeldQueue(1400, 1500, 1599, 100), HeldQueue(1550, 1600, 1699, 100)
    assert handed_over(first, last)["hi"] == 2 * (1700 - 900)
    assert handed_over(first, last, since=4)["hi"] == 16_200


def test_messages_that_fill_a_member_are_not_taken_for_handled_ones() -> None:
    first, last = HeldQueue(1400, 1500, 1509, 10), HeldQueue(1550, 1600, 1899, 300)
    assert handed_over(first, last, since=4)["hi"] == 2 * (1900 - 900)


def test_a_look_is_kept_with_what_members_said() -> None:
    story = Story()
    story.tell(HeldQueue(1, 2, 3, 4))
    story.wait(2)
    writer, reader = Writer(), Reader()
    assert [reader.look(writer.line(look)) for look in story.looks] == story.looks
