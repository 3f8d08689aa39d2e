"""What a kill would cost at this moment, from what is seen."""

from __future__ import annotations

import pytest

from failback.analytics.predict.consumption import exposure
from failback.analytics.predict.faults import FAULTS
from failback.analytics.predict.prediction import predict
from failback.analytics.predict.settings import Settings

ONE_THREAD = Settings(rate=100, queues=4, consume_threads=1, backlog=0)


def test_it_is_what_file_and_copy_lack_and_what_is_under_way() -> None:
    found = exposure(ONE_THREAD, file_behind=300, copy_behind=700)
    assert (found.after_return, found.on_slave, found.most) == (302, 702, 702)
    alone = exposure(ONE_THREAD, file_behind=300, copy_behind=None)
    assert (alone.on_slave, alone.most) == (None, 302)


def test_a_returned_master_that_asks_its_slave_has_the_better_of_both() -> None:
    guarded = ONE_THREAD.with_values({"failbackRules": "guarded"})
    assert exposure(guarded, file_behind=400, copy_behind=100).after_return == 102
    assert exposure(guarded, file_behind=100, copy_behind=400).after_return == 102


def test_a_group_that_consumes_nothing_has_nothing_under_way_however_much_waits() -> None:
    still = Settings(rate=0, queues=4, members=3, backlog=500)
    assert exposure(still, file_behind=7, copy_behind=0).after_return == 7


def test_at_half_an_interval_it_is_what_is_predicted() -> None:
    # Of ten consumers nine are killed before they commit to the returned master.
    predicted = predict(ONE_THREAD, FAULTS["restart-without-slave"]).mean / 0.9
    now = exposure(ONE_THREAD, file_behind=250, copy_behind=None)
    assert now.after_return == pytest.approx(predicted, rel=0.05)
