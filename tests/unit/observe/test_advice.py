"""What an observed report advises: the predictor, asked with what the cluster told of itself."""

from __future__ import annotations

import pytest

from failback.analytics.report.observed import observed_knobs
from tests.support.observe.outages import come_back, serve, take_over
from tests.support.observe.stories import MASTER, Story


def handed_over(**config: str) -> Story:
    """A group of 100 messages/s and queue that is handed over at a return."""
    story = Story()
    story.brokers[MASTER].config = config
    for second in range(20):
        story.store(100 * second)
        story.commit(100 * second)
        story.wait(1)
    serve(story, 3000)
    come_back(story, 1000, after=20)
    take_over(story, 3000)
    return story


def test_settings_of_the_broker_are_where_the_advice_begins() -> None:
    story = handed_over(flushConsumerOffsetInterval="20000")
    rows, _ = observed_knobs(story.observation)
    (flush,) = (row for row in rows if row["name"] == "flushConsumerOffsetInterval")
    assert (flush["from"], flush["fault"]) == (20_000, "handover")
    assert flush["predicted_reduction"] > 0


def test_apaches_brokers_are_not_told_to_set_what_they_lack() -> None:
    rows, _ = observed_knobs(handed_over(flushConsumerOffsetInterval="5000").observation)
    assert rows
    assert not [row["name"] for row in rows if row["name"].startswith("failback")]
    ours, _ = observed_knobs(handed_over(failbackGuardReturnedOffsets="false").observation)
    assert [row["name"] for row in ours if row["name"].startswith("failback")]


@pytest.mark.parametrize("waiting", [0, 110, 100_000])
def test_what_waited_bounds_the_advice_and_no_setting_saves_more_than_came_again(
    waiting: int,
) -> None:
    story = Story()
    for second in range(20):
        story.store(100 * second + waiting // 2)
        story.commit(100 * second)
        story.wait(1)
    reached = 1900 + min(waiting // 2, 5000)
    serve(story, reached, stored=1900 + waiting // 2)
    come_back(story, 1000, after=20)
    take_over(story, reached)
    (returned,) = story.observation.returns
    (group,) = returned.groups
    assert set(group.waiting) == {2 * (waiting // 2)}
    rows, _ = observed_knobs(story.observation)
    saved = [row[name] for row in rows for name in ("predicted_reduction", "worst_reduction")]
    assert rows
    assert all(isinstance(each, int) and 0 <= each <= group.at_most for each in saved)


def test_without_a_backlog_less_is_predicted_than_with_enough_of_it() -> None:
    story = handed_over()
    few = sum(row["predicted_reduction"] for row in observed_knobs(story.observation)[0])
    for group in story.observation.returns[0].groups:
        group.waiting = ()
    enough = sum(row["predicted_reduction"] for row in observed_knobs(story.observation)[0])
    assert few < enough


def test_where_nothing_came_again_there_is_nothing_to_advise() -> None:
    story = Story()
    story.wait(3)
    assert observed_knobs(story.observation) == (
        [],
        "no group is known to have consumed anything again",
    )
