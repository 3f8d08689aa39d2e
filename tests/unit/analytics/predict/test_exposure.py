"""What a kill would cost at this moment, from measured ages."""

from __future__ import annotations

import pytest

from failback.analytics.predict.exposure import exposure
from failback.analytics.predict.faults import FAULTS
from failback.analytics.predict.prediction import predict
from failback.analytics.predict.settings import Settings

ONE_THREAD = Settings(rate=100, queues=4, consume_threads=1, backlog=0)


def test_it_grows_with_the_age_of_file_and_copy() -> None:
    found = exposure(ONE_THREAD, persist_age_seconds=3, copy_age_seconds=7)
    assert (found.after_return, found.on_slave, found.most) == (302, 702, 702)
    alone = exposure(ONE_THREAD, persist_age_seconds=3, copy_age_seconds=None)
    assert (alone.on_slave, alone.most) == (None, 302)


def test_a_returned_master_that_asks_its_slave_has_the_better_of_both() -> None:
    guarded = ONE_THREAD.with_values({"failbackRules": "guarded"})
    assert exposure(guarded, persist_age_seconds=4, copy_age_seconds=1).after_return == 102
    assert exposure(guarded, persist_age_seconds=1, copy_age_seconds=4).after_return == 102


def test_ages_are_as_measured_whatever_the_time_scale() -> None:
    scaled = ONE_THREAD.with_values({"failbackTimeScale": "0.1"})
    assert exposure(scaled, persist_age_seconds=0.3, copy_age_seconds=None).after_return == 32


def test_at_half_an_interval_it_is_what_is_predicted() -> None:
    # Of ten consumers nine are killed before they commit to the returned master.
    predicted = predict(ONE_THREAD, FAULTS["restart-without-slave"]).mean / 0.9
    now = exposure(ONE_THREAD, persist_age_seconds=2.5, copy_age_seconds=None)
    assert now.after_return == pytest.approx(predicted, rel=0.05)
