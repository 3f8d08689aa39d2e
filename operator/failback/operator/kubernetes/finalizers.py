"""Which kinds may carry our finalizer, and the patches that put it on and take it off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failback.operator.kinds.base import FINALIZER

FINALIZED_KINDS: Final[Mapping[str, float]] = {
    "Topic": 60.0,
    "SubscriptionGroup": 60.0,
    "RoleSwitch": 60.0,
    "ChaosExperiment": 300.0,
}
"""Kinds whose end may ask for work → seconds after which an end that fails is given up."""


def has_finalizer(resource: Mapping[str, Any]) -> bool:
    """Tell whether a resource carries our finalizer."""
    return FINALIZER in (resource["metadata"].get("finalizers") or ())


def with_finalizer(resource: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the patch that puts our finalizer on, or ``None`` when it is there."""
    if has_finalizer(resource):
        return None
    return _patch(resource, [*(resource["metadata"].get("finalizers") or ()), FINALIZER])


def without_finalizer(resource: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the patch that takes our finalizer off, or ``None`` when it is not there."""
    if not has_finalizer(resource):
        return None
    return _patch(
        resource, [each for each in resource["metadata"]["finalizers"] if each != FINALIZER]
    )


def _patch(resource: Mapping[str, Any], finalizers: list[str]) -> dict[str, Any]:
    """Return a patch of the stored version only: a finalizer that came meanwhile is not lost."""
    version = resource["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
