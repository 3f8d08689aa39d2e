"""A dashboard beside a demo: what it showed of exposure and risk, look by look.

Started before the demo, so that its own start costs the demo nothing; it finds the demo's clusters
by itself, below the folder of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.demo_checks import GROUP, TOPIC
from tests.support.common.background_thread import Beside
from tests.support.dashboard.dashboard_lab import DashboardLab, running_dashboard

LOOK_SECONDS: Final = 0.2
"""How often the brokers are looked at: at a tenth of the timers a kill comes after two seconds."""
_ASK_SECONDS: Final = 0.15


@dataclass(frozen=True)
class Look:
    """What the dashboard said of one arm's pair at one instant, Unix time in ns."""

    at_ns: int
    arm: str
    master_answers: bool
    rate: float | None
    after_return: float | None
    """What is re-consumed if the master dies now and members start after its return."""
    on_slave: float | None
    at_risk: int | None
    """The same for members whose progress the slave knows, over all queues: best less file."""


class ExposureWatch(Beside):
    """Asks the dashboard's API again and again while the block lasts."""

    def __init__(self, lab: DashboardLab) -> None:
        self.looks: list[Look] = []
        self.problems: list[str] = []
        super().__init__("exposure watch")
        self._lab = lab

    def work(self) -> None:
        seen = -1
        while not self.stopping.wait(_ASK_SECONDS):
            clusters = self._lab.ask("GET", "/api/v1/clusters").json()
            if clusters["at_ns"] == seen:
                continue
            offsets = self._lab.ask("GET", f"/api/v1/offsets?group={GROUP}&topic={TOPIC}").json()
            if clusters["at_ns"] == offsets["at_ns"]:  # both are of one look
                seen = clusters["at_ns"]
                self.problems += clusters["problems"]
                self.looks += looks_of(clusters, offsets)


def looks_of(clusters: dict[str, Any], offsets: dict[str, Any]) -> Iterator[Look]:
    """The demo's pairs of one look at everything."""
    for cluster in clusters["clusters"]:
        arm = cluster["cluster"].partition(".")[0].removeprefix("demo-")
        mine = [each for each in offsets["offsets"] if each["cluster"] == cluster["cluster"]]
        risks = [each["at_risk"] for each in mine]
        known = bool(risks) and None not in risks
        for pair in cluster["pairs"]:
            rows = [row for row in pair["groups"] if (row["group"], row["topic"]) == (GROUP, TOPIC)]
            row = rows[0] if rows else {"rate": None, "after_return": None, "on_slave": None}
            yield Look(
                at_ns=clusters["at_ns"],
                arm=arm,
                master_answers=any(
                    each["role"] == "master" and each["answered"] for each in pair["members"]
                ),
                rate=row["rate"],
                after_return=row["after_return"],
                on_slave=row["on_slave"],
                at_risk=sum(risks) if known else None,
            )


@contextmanager
def watched_runs(folder: Path) -> Iterator[tuple[Path, Sequence[Look]]]:
    """A folder for runs with a dashboard that watches it; and the looks, filled while it does."""
    with (
        running_dashboard(
            folder, "--poll-seconds", str(LOOK_SECONDS), "--audit", str(folder / "audit.jsonl"),
            with_runs=False,
        ) as lab,
        ExposureWatch(lab) as watch,
    ):  # fmt: skip
        yield lab.runs, watch.looks
    assert watch.problems == []
