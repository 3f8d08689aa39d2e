"""The Lease of a cluster, over an API whose writes a test lets fail."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.errors import GuardRefused
from failback.chaos.targets.kube.api import KubeApi
from failback.chaos.targets.kube.lease import RUN_DIR, KubeLease


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
