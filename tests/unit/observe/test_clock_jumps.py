"""A wall clock that is set while somebody observes, the observer's or another one's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from failback.analytics.observe import folder as folders
from failback.analytics.observe.folder import Wanted, seconds
from failback.analytics.observe.following import Follower, ahead_ms
from failback.analytics.trace.pages import Place
from failback.client.remoting.connection import RemotingClient
from tests.support.analytics.trace_builder import TRACE_TOPIC, pub, stored
from tests.support.observe.folders import opened
from tests.support.observe.stories import Story

HOUR = 3600.0
JUMPS = pytest.mark.parametrize("jump", [HOUR, -HOUR])


def set_the_clock(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """From here on the wall clock tells another time."""
    tell, tell_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: tell() + jump)
    monkeypatch.setattr(time, "time_ns", lambda: tell_ns() + round(jump * 1e9))


@JUMPS
def test_the_pause_of_an_observer_is_as_long_as_it_was(
    tmp_path: Path, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path / "run")
    first.close()
    monkeypatch.setattr(folders, "seconds", lambda: seconds() + 100)  # so much later
    set_the_clock(monkeypatch, jump)
    again = opened(tmp_path / "run")
    again.close()
    assert again.zero == pytest.approx(first.zero, abs=5)


def test_where_the_machine_began_anew_looks_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    story.wait(30)
    first = opened(tmp_path / "run")
    first.add(story.looks[-1])
    first.close()
    monkeypatch.setattr(folders, "boot_id", lambda: "another life")
    set_the_clock(monkeypatch, -HOUR)
    again = opened(tmp_path / "run")
    again.close()
    assert seconds() - again.zero == pytest.approx(story.looks[-1].ended, abs=5)
    set_the_clock(monkeypatch, 2 * HOUR)
    later = opened(tmp_path / "run")
    later.close()
    assert HOUR <= seconds() - later.zero < HOUR + 60


@JUMPS
async def test_traces_stay_where_they_are_beside_looks(
    tmp_path: Path, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Wanted("story", ("ns0",), 1.0, trace=(TRACE_TOPIC,))
    wall_ns = time.time_ns()
    async with RemotingClient() as client:
        follower = Follower(client, wanted, tmp_path, wall_ns, seconds(), lambda _: None)
        place = Place("broker-a", TRACE_TOPIC, 0)
        for number in range(2):
            message = stored(TRACE_TOPIC, 0, number, pub("m"), {}, 0)
            message.store_timestamp = wall_ns // 1_000_000 - 250  # of a clock that is behind
            follower.take(place, 0, message)
            set_the_clock(monkeypatch, jump)
        follower.keep()
    ahead = ahead_ms(tmp_path)
    assert ahead is not None
    assert 250 <= ahead < 60_000
