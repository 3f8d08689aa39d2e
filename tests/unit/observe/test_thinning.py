"""Old looks at which nothing happened are left out, and nothing that is concluded changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failback.analytics.dashboard.sources.observed_run import ObservedRun
from failback.analytics.observe import folder as folders
from failback.analytics.observe.folder import LOOKS, looks_in
from failback.analytics.observe.looks import Look
from failback.analytics.observe.observation import Observation
from failback.analytics.observe.thinning import busy_spans, thinned
from tests.support.observe.folders import add, opened
from tests.support.observe.stories import SLAVE, Story

HOUR = 3600


class Day(Story):
    """A group that goes on with each look, and what may happen to its pair."""

    at = 0

    def work(self, seconds: int, *, places: tuple[int, ...] = (0, 1)) -> None:
        for _ in range(seconds):
            self.at += 7
            self.store(self.at)
            self.commit(self.at, at=places)
            self.wait()

    def outage(self, client: str) -> None:
        """Half of what the slave alone was told is re-consumed, to a new member."""
        file = self.at
        self.kill()
        self.work(8, places=(SLAVE,))
        self.members["billing"] = set()
        self.wait(4)
        self.start(file - 40)
        self.wait(3)
        self.members["billing"] = {client}
        self.wait(3)

    def reset(self) -> None:
        self.at -= 500
        self.work(3)

    def members_change(self, *names: str) -> None:
        self.members["billing"] = set(names)
        self.work(9)

    def everything(self) -> None:
        self.work(HOUR)
        self.outage("c")
        self.work(HOUR // 2)
        self.members_change("c", "d")
        self.work(HOUR // 4)
        self.freeze(SLAVE)
        self.work(HOUR // 4, places=(0,))
        self.thaw(SLAVE)
        self.work(HOUR // 4)
        self.sleep(40)
        self.work(HOUR // 4)
        self.reset()
        self.work(HOUR // 4)
        self.outage("e")
        self.work(HOUR)


def told(looks: list[Look]) -> dict[str, Any]:
    return Observation.of(looks).document()


def again(looks: list[Look]) -> list[Look]:
    """Thin what is known now."""
    observation = Observation.of(looks)
    return list(thinned(looks, busy_spans(observation, 1.0), looks[-1].ended))


@pytest.mark.full
def test_conclusions_are_the_same_without_quiet_looks() -> None:
    day = Day()
    day.everything()
    whole = told(day.looks)
    assert {event["kind"] for event in whole["events"]} >= {"MasterBack", "Reset", "MembersChanged"}
    assert [row["groups"][0]["lo"] > 0 for row in whole["returns"]] == [True, True]
    assert [gap["what"] for gap in whole["gaps"]] == [
        "broker-a-1 did not answer", "the observer did not look",
    ]  # fmt: skip
    kept = again(day.looks)
    assert told(kept) == whole
    assert len(kept) < len(day.looks) / 3
    assert told(again(kept)) == whole
    assert kept[-1] == day.looks[-1]


@pytest.mark.full
def test_thinned_again_and_again_it_is_the_same_as_at_once() -> None:
    day = Day()
    kept: list[Look] = []
    for _ in range(3):
        known = len(day.looks)
        day.work(HOUR // 2)
        day.outage(f"m{known}")
        kept = again([*kept, *day.looks[known:]])
    day.work(HOUR // 2)
    kept = again([*kept, *day.looks[-HOUR // 2 :]])
    assert told(kept) == told(day.looks)
    assert not told(kept)["gaps"]


@pytest.mark.full
def test_old_looks_are_left_out_down_to_one_in_five_minutes() -> None:
    day = Day(every=10.0)
    day.work(2 * 8640)
    kept = again(day.looks)
    old = [look for look in kept if day.now - look.ended > 86_400]
    assert 280 < len(old) < 290
    assert len(kept) - len(old) < 2880 + 60


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LARGE_BYTES", 100_000)


@pytest.mark.usefixtures("small")
@pytest.mark.soak
def test_looks_that_come_while_others_are_thinned_are_kept(tmp_path: Path) -> None:
    day, run = Day(), tmp_path / "run"
    day.work(HOUR)
    day.outage("c")
    folder = opened(run)
    add(folder, day)
    assert folder.is_large
    on_page = ObservedRun.open("run", run)
    while on_page.look(0):
        pass
    known, size = len(day.looks), (run / LOOKS).stat().st_size
    folder.thin(busy_spans(day.observation, 1.0), day.looks[-1].ended)
    day.work(5)
    add(folder, day, known)
    assert told(list(looks_in(run))) == told(day.looks)
    folder.take_thinned()
    assert (run / LOOKS).stat().st_size < size / 2
    assert not folder.is_large, "it is thinned again when it has doubled"
    day.work(2)
    add(folder, day, known + 5)
    assert told(list(looks_in(run))) == told(day.looks)
    folder.close()
    assert {each.name for each in run.iterdir()} == {"run.json", "lock", LOOKS}
    while on_page.look(0):
        pass
    shown = on_page.progress()
    assert shown["seconds"] == day.looks[-1].ended
    assert (shown["return_count"], shown["gap_count"]) == (1, 0)
