"""A run that is being observed: brokers now, events, groups at risk and what returns cost so far.

Its looks are read a little further each time. Deliveries that were traced count in the report only.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import msgspec

from failback.analytics.analysis.causes.labels import cause_words
from failback.analytics.dashboard.sources.live_run import Tail
from failback.analytics.dashboard.sources.runs import rfc3339
from failback.analytics.live.queues import members_in_words
from failback.analytics.observe.folder import LOOKS, settings_of
from failback.analytics.observe.looks import Look, Reader
from failback.analytics.observe.observation import Observation, dangers
from failback.common.files import read_object

Json = dict[str, Any]
MOST_ROWS: Final = 100
"""Of each table; the worst, or the newest."""


class ObservedRun:
    """What was read of one observation so far."""

    def __init__(self, run: str, path: Path, document: Json) -> None:
        self.run = run
        self._looks = path / LOOKS
        self._about = settings_of(document)
        self._file: int | None = None
        self._begin()
        self._progress: Json = self._told()

    def _begin(self) -> None:
        self._tail = Tail(self._looks)
        self._reader = Reader()
        self._observation = Observation(*self._about)
        self._now: Look | None = None

    @classmethod
    def open(cls, run: str, path: Path) -> ObservedRun:
        """Begin to read a run. Raises ``OSError`` or ``ValueError`` when there is no run.json."""
        return cls(run, path, read_object(path / "run.json"))

    def look(self, now_ns: int) -> set[str]:
        """Read on; return the kinds of what is new. Blocks."""
        del now_ns  # looks have their own times
        with contextlib.suppress(OSError):
            file = self._looks.stat().st_ino
            if self._file not in (None, file):  # thinned looks stand in the place of all
                self._begin()
            self._file = file
        events, returns = len(self._observation.finder.events), len(self._observation.returns)
        lines = self._tail.read()
        for line in lines:
            try:
                self._now = self._reader.look(line)
            except msgspec.DecodeError:  # a crash cut it
                continue
            self._observation.look(self._now)
        if not lines:
            return set()
        self._progress = self._told()
        is_new = (events, returns) != (
            len(self._observation.finder.events),
            len(self._observation.returns),
        )
        return {"counters", "phase"} if is_new else {"counters"}

    def progress(self) -> Json:
        """What is known so far, for the API: made by the last look. Times are seconds."""
        return self._progress

    def _told(self) -> Json:
        events = self._observation.finder.events
        at_risk = dangers(self._observation)
        returns = self._returns()
        return {
            "phase": self._phase(),
            "seconds": self._observation.ended or 0.0,
            "brokers": self._brokers(),
            "event_count": len(events),
            "events": [
                {"kind": each.kind, "broker": each.broker, "member": each.member,
                 "from": each.since, "until": each.until, "detail": each.detail}
                for each in events[: -MOST_ROWS - 1 : -1]
            ],
            "gap_count": len(self._observation.finder.gaps)
            + len(self._observation.finder.open_gaps()),
            "at_risk_count": len(at_risk),
            "at_risk": [
                {"broker": each.broker, "group": each.group, "topic": each.topic,
                 "behind": each.behind, "command": each.command,
                 "must_act": each.must_act, "members": members_in_words(each.members),
                 "safe_offsets": {str(queue): offset for queue, offset in each.safe.items()}}
                for each in at_risk[:MOST_ROWS]
            ],
            "return_count": len(self._observation.returns),
            "group_count": len(returns),
            "returns": returns[:MOST_ROWS],
        }  # fmt: skip

    def _phase(self) -> str:
        if self._now is None:
            return "nothing was looked at yet"
        away = sorted(
            each.pair.rpartition("/")[2] for each in self._observation.outages if each.back is None
        )
        if away:
            return f"the master of {', '.join(away)} is down"
        return "observing"

    def _brokers(self) -> list[Json]:
        brokers = self._now.brokers if self._now else ()
        found: list[Json] = []
        for each in sorted(brokers, key=lambda each: each.place):
            boot_ms = each.boot_ms or self._observation.finder.boot_of(each.place)
            found.append(
                {
                    "broker": each.place.broker,
                    "role": "master" if each.broker_id == 0 else f"slave {each.broker_id}",
                    "address": each.addr,
                    "state": each.state,
                    "problem": each.problem,
                    "up_since": rfc3339(boot_ms * 1_000_000) if boot_ms else None,
                }
            )
        return found

    def _returns(self) -> list[Json]:
        """A row for each group at each return, the newest return and then the most first."""
        found: list[Json] = []
        for back in reversed(self._observation.returns):
            rows = [
                {
                    "broker": back.broker,
                    "gone_from": back.outage.gone[0],
                    "back_until": (back.outage.back or back.outage.gone)[1],
                    "group": group.group,
                    "topic": group.topic,
                    "lo": group.at_least,
                    "hi": group.at_most,
                    "causes": [cause_words(each) for each in group.causes] if group.at_most else [],
                }
                for group in back.groups
            ]
            found += sorted(rows, key=lambda row: (-row["hi"], row["group"], row["topic"]))
        return found
