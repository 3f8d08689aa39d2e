"""What a trace makes exact, and every way in which it may lack something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from failback.analytics.observe.traced import Deliveries, Queue, QueueDeliveries
from tests.support.observe.outages import at_work, come_back, cost, serve, take_over
from tests.support.observe.stories import Story

KILLED, BACK, JOINED, LAST = 8, 19, 21, 50
"""Seconds of the story."""
FIRST_MEMBER, NEW_MEMBER = 1, 2


@dataclass
class Traced:
    """Deliveries of one queue: offset, second, process."""

    rows: list[tuple[int, float, int]] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)

    def handled(self) -> QueueDeliveries:
        rows = sorted(self.rows, key=lambda row: row[1])
        offset, second, process = (np.array(each) for each in zip(*rows, strict=True))
        begin = (second * 1e9).astype(np.int64)
        return QueueDeliveries(offset, begin, process, np.array(self.doubtful, np.int64))


def whole() -> Traced:
    """Offsets 80 to 150 before the return, 90 to 300 by a new member after it."""
    found = Traced([(offset, (offset - 80) / 10, FIRST_MEMBER) for offset in range(80, 150)])
    found.rows += [(offset, JOINED + (offset - 90) / 7, NEW_MEMBER) for offset in range(90, 300)]
    return found


def handed_over() -> Story:
    story = at_work(100, file=90, pause=KILLED // 2)
    serve(story, 150)
    come_back(story, 90)
    take_over(story, 300)
    story.store(300)
    story.wait(LAST - round(story.now))
    return story


def traced_cost(story: Story, *queues: Traced) -> dict[str, Any]:
    deliveries = Deliveries(
        {
            Queue("billing", "broker-a", "orders", number): each.handled()
            for number, each in enumerate(queues)
        }
    )
    return cost(story, counts=deliveries.counts)


def test_what_a_trace_that_lacks_much_saw_twice_is_a_lower_end() -> None:
    story = handed_over()
    some = Traced([row for row in whole().rows if row[0] % 10 == 0])
    deliveries = Deliveries({Queue("billing", "broker-a", "orders", 0): some.handled()})
    returns = story.observation.returns
    (group,) = returns[0].groups
    assert deliveries.counts(returns[0], group) == {}
    assert deliveries.doubles(returns[0], group, returns)[0] == 6  # 90, 100, ... 140
    found = story.observation.document(deliveries.counts, lambda back, group: {0: 1000, 1: 0})[
        "returns"
    ][0]["groups"][0]
    assert found["queues"][0]["lo"] == found["queues"][0]["hi"] == 1000
    assert not found["exact"]
    assert "E4" in found["basis"]


def test_a_whole_trace_makes_the_count_exact() -> None:
    found = traced_cost(handed_over(), whole(), whole())
    assert (found["lo"], found["hi"], found["exact"]) == (120, 120, True)
    assert found["basis"] == ["E1", "E2", "E3", "E4"]
    assert [(queue["lo"], queue["hi"]) for queue in found["queues"]] == [(60, 60), (60, 60)]


def test_members_that_stay_have_consumed_nothing_again() -> None:
    story = Story()
    story.store(150)
    story.commit(90)
    story.wait(8)
    serve(story, 150)
    story.start(90)
    story.wait(3)
    story.commit(300)
    story.wait(20)
    stayed = Traced([(offset, (offset - 80) / 7, FIRST_MEMBER) for offset in range(80, 300)])
    found = traced_cost(story, stayed, stayed)
    assert (found["lo"], found["hi"], found["exact"]) == (0, 0, True)
    assert found["causes"] == []


def without(chosen: Callable[[int, float], bool]) -> Traced:
    traced = whole()
    traced.rows = [row for row in traced.rows if not chosen(row[0], row[1])]
    return traced


HOLES = {
    "one before the return": without(lambda offset, second: offset == 120 and second < BACK),
    "the first of those again": without(lambda offset, second: offset == 90 and second > BACK),
    "one in the middle of those again": without(lambda o, second: o == 120 and second > BACK),
    "one beyond them, long ago": without(lambda offset, _: offset == 170),
    "all of a member without trace": without(lambda _, second: second > BACK),
    "the end of who went before all was committed": Traced(
        [*whole().rows, (150, KILLED + 1.0, FIRST_MEMBER)]
    ),
    "which copy it was": Traced(whole().rows, [100]),
}


@pytest.mark.parametrize("lost", HOLES)
def test_a_trace_that_may_lack_something_leaves_the_interval(lost: str) -> None:
    story = handed_over()
    told = cost(story)
    found = traced_cost(story, whole(), HOLES[lost])
    assert not found["exact"]
    assert "E4" not in found["basis"]
    assert found["queues"][1] == told["queues"][1]
    assert (found["queues"][0]["lo"], found["queues"][0]["hi"]) == (60, 60), "this one is whole"


@pytest.mark.parametrize(
    "lost",
    [
        without(lambda offset, second: offset < 90),
        without(lambda offset, second: offset == 297),
        Traced(whole().rows, [85]),
    ],
    ids=["below what the master had", "one of the last seconds", "a copy below"],
)
def test_what_is_lost_elsewhere_does_no_harm(lost: Traced) -> None:
    assert traced_cost(handed_over(), whole(), lost)["exact"]


def test_nothing_is_exact_while_the_group_is_behind() -> None:
    story = handed_over()
    story.observation.returns[0].groups[0].queues[1].master_offset = 120
    assert not traced_cost(story, whole(), whole())["exact"]


def test_a_group_that_does_not_trace_is_not_exact() -> None:
    assert not traced_cost(handed_over())["exact"]
