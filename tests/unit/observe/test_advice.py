"""What an observed report advises: the predictor, asked with what the cluster told of itself."""

from __future__ import annotations

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


def test_where_nothing_came_again_there_is_nothing_to_advise() -> None:
    story = Story()
    story.wait(3)
    assert observed_knobs(story.observation) == (
        [],
        "no group is known to have consumed anything again",
    )
