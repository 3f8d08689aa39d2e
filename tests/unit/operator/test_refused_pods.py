"""What is said of a pod that the API server refuses, and how often events are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from failback.kube.errors import ApiError
from failback.operator.controller.refused_pods import Missing, refused_pods

CLOCK = "failback.operator.controller.refused_pods.time.monotonic"
QUOTA = "failed quota: q: must specify requests.cpu for: conf,verify"


class Events:
    """Answers as an API server does that has these events of one StatefulSet or Job."""

    def __init__(self, *found: tuple[str, str, str]) -> None:
        self.found = [
            {
                "metadata": {"resourceVersion": str(number)},
                "type": kind,
                "lastTimestamp": at,
                "message": message,
            }
            for number, (at, kind, message) in enumerate(found)
        ]
        self.asked: list[str] = []
        self.forbidden = False

    async def list_all(self, kind: str, namespace: str, *, fields: str) -> list[dict[str, Any]]:
        self.asked.append(f"{kind} {namespace} {fields}")
        if self.forbidden:
            raise ApiError("list", "events", 403, "Forbidden", "no")
        return self.found


def maker(kind: str = "StatefulSet") -> dict[str, Any]:
    return {"kind": kind, "metadata": {"uid": "u1", "namespace": "shop"}}


def refused(pod: str = "demo-0-0-0") -> str:
    begin = f"Create Pod {pod} in StatefulSet demo-0-0 failed error: "
    return f'{begin}pods "{pod}" is forbidden: {QUOTA}'


async def looked(
    monkeypatch: pytest.MonkeyPatch, events: Events, of: str = "demo-0-0-0", kind: str = ""
) -> dict[str, str]:
    known: Missing = {}
    now = [1000.0]
    monkeypatch.setattr(CLOCK, lambda: now[0])
    makers = {of: maker(kind or "StatefulSet")}
    kube: Any = events
    assert await refused_pods(kube, known, makers) == {}
    assert events.asked == [], "it may be on its way"
    now[0] += 4
    found = await refused_pods(kube, known, makers)
    assert await refused_pods(kube, known, makers) == found
    assert events.asked == ["Event shop involvedObject.uid=u1"], "not at every look"
    assert await refused_pods(kube, known, {}) == {}
    assert known == {}
    return found


async def test_the_newest_event_about_the_pod_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = "create Pod demo-0-0-0 in StatefulSet demo-0-0 successful"
    for events, words in (
        (Events(("2", "Warning", refused())), QUOTA),
        (Events(("1", "Normal", made), ("2", "Warning", refused())), QUOTA),
        (Events(("2", "Normal", made), ("1", "Warning", refused())), ""),
        (Events(("2", "Warning", refused("demo-0-0-00"))), ""),
        (Events(), ""),
    ):
        found = await looked(monkeypatch, events)
        assert found == ({"demo-0-0-0": words} if words else {})
    claim = "create Claim data-m-0 for Pod m-0 in StatefulSet m failed error: exceeded quota: q"
    found = await looked(monkeypatch, Events(("1", "Warning", claim)), of="m-0")
    assert found == {"m-0": "exceeded quota: q"}
    job = f'Error creating: pods "lab-x7-" is forbidden: {QUOTA}'
    found = await looked(monkeypatch, Events(("1", "Warning", job)), of="lab", kind="Job")
    assert found == {"lab": QUOTA}


async def test_without_the_right_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Events(("1", "Warning", refused()))
    events.forbidden = True
    assert await looked(monkeypatch, events) == {}


async def test_many_pods_are_asked_about_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    events: Any = Events(*(("1", "Warning", refused(f"m-{index}")) for index in range(7)))
    known: Missing = {}
    now = [1000.0]
    monkeypatch.setattr(CLOCK, lambda: now[0])
    makers = {f"m-{index}": maker() for index in range(7)}
    told = []
    for _ in range(4):
        told.append(len(await refused_pods(events, known, makers)))
        now[0] += 4
    assert told == [0, 3, 6, 7]
