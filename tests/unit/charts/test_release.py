"""What the uninstall hook does to one custom resource."""

from __future__ import annotations

import pytest

from failback.operator.kubernetes.finalizers import without_finalizer


@pytest.mark.parametrize(
    ("finalizers", "kept"),
    [
        (["failback.dev/finalizer"], []),
        (["example.com/audit", "failback.dev/finalizer"], ["example.com/audit"]),
    ],
)
def test_only_our_finalizer_goes(finalizers: list[str], kept: list[str]) -> None:
    resource = {"metadata": {"name": "main", "resourceVersion": "7", "finalizers": finalizers}}
    patch = {"metadata": {"resourceVersion": "7", "finalizers": kept}}
    assert without_finalizer(resource) == patch


@pytest.mark.parametrize("finalizers", [None, [], ["example.com/audit"]])
def test_a_resource_without_it_is_left_alone(finalizers: list[str] | None) -> None:
    metadata = {"name": "main", "resourceVersion": "7", "finalizers": finalizers}
    assert without_finalizer({"metadata": metadata}) is None
