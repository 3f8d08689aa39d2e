"""Holds and stops are renewed while the harness lives, and no longer."""

from __future__ import annotations

import threading

from failback.chaos.cluster.lease import Renewal
from failback.chaos.errors import TargetError


class Renewed:
    """Counts what is renewed; one pod can't be."""

    def __init__(self) -> None:
        self.pods: list[str] = []
        self.round = threading.Semaphore(0)

    def __call__(self, pod: str) -> None:
        self.pods.append(pod)
        self.round.release()
        if pod == "a":
            raise TargetError("renew", "between two starts")


def test_each_pod_is_renewed_until_it_is_dropped_or_all_ends() -> None:
    renewed = Renewed()
    renewal = Renewal(renewed, 0.01)
    renewal.add("a")
    renewal.add("b")
    for _ in range(6):
        assert renewed.round.acquire(timeout=60)
    assert set(renewed.pods) == {"a", "b"}
    renewal.drop("a")
    assert renewed.round.acquire(timeout=60)  # one may be under way
    renewal.close()
    ended = len(renewed.pods)
    assert renewed.pods[-1] == "b"
    renewal.add("c")
    assert len(renewed.pods) == ended


def test_nothing_runs_where_nothing_is_held() -> None:
    before = threading.active_count()
    Renewal(Renewed()).close()
    assert threading.active_count() == before
