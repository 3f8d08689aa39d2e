"""A run begins once every running broker answers, and not while one is down."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from failback.chaos.cluster.view import ClusterView, Pair, ProcessIdentity
from failback.chaos.errors import GuardRefused, TargetError
from failback.chaos.run import prepare
from tests.unit.chaos.test_victims import member, view

UP = view(Pair("p", "p", (member("p", 0, "master"), member("p", 1))))
SLOW = view(
    Pair(
        "p",
        "p",
        (member("p", 0, "master"), replace(member("p", 1), identity=ProcessIdentity("p-1", 1, 7))),
    )
)
DOWN = view(Pair("p", "p", (member("p", 0, "master"), member("p", 1, running=False))))


def looked(monkeypatch: pytest.MonkeyPatch, *views: ClusterView) -> tuple[ClusterView, int]:
    """Return the view that is gone on with, and after how many looks."""
    looks = iter(views)
    seen: list[ClusterView] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def look() -> ClusterView:
        seen.append(next(looks, views[-1]))
        return seen[-1]

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(prepare, "time", clock)
    session: Any = SimpleNamespace(target=SimpleNamespace(view=look))
    return prepare._answering_view(session), len(seen)


def test_a_broker_that_has_just_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked(monkeypatch, SLOW, SLOW, UP) == (UP, 3)


def test_one_that_never_answers_is_waited_for_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, looks = looked(monkeypatch, SLOW)
    assert (found, looks) == (SLOW, prepare.ANSWER_SECONDS + 1)


def test_one_that_is_down_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked(monkeypatch, DOWN) == (DOWN, 1)


def test_a_cluster_that_cannot_be_looked_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> ClusterView:
        raise TargetError("f", "no cluster")

    session: Any = SimpleNamespace(target=SimpleNamespace(view=fail))
    with pytest.raises(GuardRefused, match="TargetMatches"):
        prepare._answering_view(session)
