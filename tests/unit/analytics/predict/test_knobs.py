"""Knobs: one setting at a time, the largest saving first, each with what it costs."""

from __future__ import annotations

import pytest

from failback.analytics.predict.faults import FAULTS
from failback.analytics.predict.knobs import rank_knobs, useful
from failback.analytics.predict.prediction import predict
from failback.analytics.predict.settings import Settings


def test_the_largest_saving_comes_first_and_is_that_of_a_second_prediction() -> None:
    settings, fault = Settings(await_termination=30_000), FAULTS["handover"]
    before = predict(settings, fault, draws=2_000)
    ranked = rank_knobs(settings, fault, before=before, draws=2_000)
    saved = [round(knob.saved, 1) for knob in ranked]
    assert saved == sorted(saved, reverse=True)
    assert ranked[0].key in ("failbackGuardReturnedOffsets", "failbackRules")
    for knob in ranked:
        changed = settings.with_values({knob.key: knob.after})
        again = predict(changed, fault, draws=2_000)
        assert knob.saved == pytest.approx(before.mean - again.mean)
        assert knob.saved_worst == before.worst - again.worst
        assert knob.cost


def test_a_shorter_flush_saves_half_of_the_difference_at_the_consume_rate() -> None:
    settings = Settings(rate=100, consume_threads=1)
    (knob,) = [
        each
        for each in rank_knobs(settings, FAULTS["restart-without-slave"])
        if each.key == "flushConsumerOffsetInterval"
    ]
    # Nine in ten are killed before they commit to the returned master.
    assert knob.saved == pytest.approx(0.9 * 100 * (5 - 1) / 2, rel=0.1)
    assert knob.saved_worst == 400
    assert knob.cost == "+0.8 writes/s of consumerOffset.json at each broker"


def test_what_is_set_already_is_no_knob() -> None:
    settings = Settings().with_values(
        {"flushConsumerOffsetInterval": 1000, "failbackRules": "guarded"}
    )
    keys = {knob.key for knob in rank_knobs(settings, FAULTS["handover"], draws=100)}
    assert "flushConsumerOffsetInterval" not in keys
    assert not {key for key in keys if key.startswith("failback")}
    assert "persistConsumerOffsetInterval" in keys


def test_knobs_that_change_nothing_are_not_useful() -> None:
    ranked = rank_knobs(Settings(members=1), FAULTS["kill"], draws=100)
    assert ranked
    assert useful(ranked) == []
