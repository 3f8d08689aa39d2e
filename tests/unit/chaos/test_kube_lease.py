"""The Lease of a cluster, over an API whose writes a test lets fail."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.errors import GuardRefused
from failback.chaos.targets.kube.api import KubeApi
from failback.chaos.targets.kube.lease import RUN_DIR, KubeLease
from failback.kube import leases


class Api(KubeApi):
    """One Lease; the next ``conflicts`` writes meet somebody else's."""

    def __init__(self) -> None:
        self.namespace = "shop"
        self.stored: dict[str, Any] | None = None
        self.conflicts = 0

    def cluster(self, name: str) -> dict[str, Any] | None:
        return None

    def lease(self, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.stored)

    def create_lease(self, body: dict[str, Any]) -> bool:
        self.stored = body
        return True

    def replace_lease(self, body: dict[str, Any]) -> bool:
        if self.conflicts:
            self.conflicts -= 1
            return False
        self.stored = body
        return True


def holder(api: Api) -> str:
    assert api.stored is not None
    return str(api.stored["spec"]["holderIdentity"])


def test_a_lease_is_given_back_although_its_last_renewal_came_in_between(tmp_path: Path) -> None:
    api = Api()
    lease = KubeLease(api, "demo", "one")
    lease.take(tmp_path)
    assert holder(api) == "one"
    api.conflicts = 1
    lease.give_back(healed=True)
    assert holder(api) == ""
    assert api.stored is not None
    assert RUN_DIR not in api.stored["metadata"]["annotations"]


def test_a_run_that_is_not_healed_leaves_its_name_and_folder(tmp_path: Path) -> None:
    api = Api()
    lease = KubeLease(api, "demo", "one")
    lease.take(tmp_path)
    lease.give_back(healed=False)
    assert holder(api) == "one (not healed)"
    assert api.stored is not None
    assert api.stored["metadata"]["annotations"][RUN_DIR] == str(tmp_path)
    with pytest.raises(GuardRefused, match=r"demo is in use by one \(not healed\)"):
        KubeLease(api, "demo", "two").take(tmp_path / "other")


def test_another_holders_lease_is_left_alone(tmp_path: Path) -> None:
    api = Api()
    lease = KubeLease(api, "demo", "one")
    lease.take(tmp_path)
    assert api.stored is not None
    api.stored["spec"]["holderIdentity"] = "two"
    lease.give_back(healed=True)
    assert holder(api) == "two"


class Clock:
    """Stands for the module ``time`` of one machine; a sleep lets ``renew`` happen elsewhere."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.renew: Callable[[], None] = lambda: None
        self.slept = 0.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        self.renew()


def held(clock: Clock, behind: float, since: float = 0.0) -> dict[str, Any]:
    """A lease of another machine whose clock is behind ours, renewed ``since`` seconds ago."""
    text = datetime.fromtimestamp(clock.now - behind - since, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 30, "renewTime": text}
    return {"metadata": {"name": "l"}, "spec": spec}


@pytest.mark.parametrize("behind", [-60.0, -20.0, 0.0, 31.0, 60.0])
def test_a_holder_that_lives_keeps_its_lease_whatever_its_clock_says(
    behind: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, clock = Api(), Clock()
    monkeypatch.setattr("failback.chaos.targets.kube.lease.time", clock)
    api.stored = held(clock, behind)
    clock.renew = lambda: setattr(api, "stored", held(clock, behind, clock.slept % 8))
    with pytest.raises(GuardRefused, match="demo is in use by other"):
        KubeLease(api, "demo", "one").take(tmp_path)
    assert holder(api) == "other"


@pytest.mark.parametrize(
    ("behind", "since", "waits"),
    [(60.0, 10.0, 30), (0.0, 31.0, 30), (-60.0, 95.0, 30), (60.0, 4000.0, 0)],
)
def test_a_lease_is_taken_after_its_holder_was_silent_for_as_long_as_it_lasts(
    behind: float, since: float, waits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, clock = Api(), Clock()
    monkeypatch.setattr("failback.chaos.targets.kube.lease.time", clock)
    api.stored = held(clock, behind, since)
    lease = KubeLease(api, "demo", "one")
    lease.take(tmp_path)
    assert (holder(api), clock.slept) == ("one", waits)
    clock.now += 23  # the thread's call hangs
    with pytest.raises(GuardRefused, match="could not be renewed for 22 s"):
        lease.require()
    lease.give_back(healed=True)


@pytest.mark.parametrize("behind", [-60.0, 0.0, 60.0])
def test_a_renewal_has_the_time_of_the_process_that_saw_it(behind: float) -> None:
    clock = Clock()
    seen = leases.SeenLeases(clock.time)

    def has_run_out(found: dict[str, Any]) -> bool:
        return leases.has_run_out(seen.of_own_clock(found)["spec"], clock.now)

    first = held(clock, behind, 100.0)
    assert not has_run_out(first), "it was not watched yet"
    for _ in range(10):
        clock.now += 8
        assert not has_run_out(held(clock, behind))
    last = held(clock, behind)
    clock.now += 31
    assert has_run_out(last)
    assert has_run_out(held(clock, behind, 4000.0))
