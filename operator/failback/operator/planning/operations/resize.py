"""VolumeResize: claims grow, then the StatefulSets are made again around their pods. Pure.

Claim templates are immutable, so a StatefulSet of the old size is deleted with propagation
``Orphan``. The next pass applies it again and the controller adopts the running pod. A claim whose
file system grows only at the next mount leaves its member to a Roll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from failback.operator.kinds.base import parse_quantity
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.operations.step_context import StepContext, timed
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.plan.types import (
    Advance,
    Delete,
    Event,
    Operation,
    ResizeClaim,
)
from failback.operator.planning.state import predicates
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Shape

TYPE: Final = "VolumeResize"

REFUSED: Final = "VolumeResizeRefused"
_BEFORE: Final = ("NotPaused", "NoChaosRunning")
AGAIN_SECONDS: Final = 5.0
SENT_TIMES: Final = 5
SENT_SECONDS: Final = 60.0
"""A claim that stays as it was after so many requests in so long is not allowed to grow."""


def causes(state: ClusterState) -> Iterator[Operation]:
    """Yield a VolumeResize of each pair whose claims or templates are too small."""
    cluster = state.cluster
    if cluster.spec.storage.type != "Persistent" or was_refused(cluster, state.status):
        return
    begun = any(item.type == TYPE for item in state.operations)
    if begun and predicates.evaluate(_BEFORE, state):
        return  # what one waits for would keep them all
    for pair in range(cluster.spec.pairs):
        size = cluster.pair(pair).storage_size
        views = state.wanted(pair)
        if any(_claim_is_small(view, size) or _template_is_small(view, size) for view in views):
            yield state.begin(TYPE, "ResizeClaims", size, pair=pair, data={"size": size})


def give_way(state: ClusterState, operation: Operation, urgent: Operation) -> Operation | None:
    """End the VolumeResize: claims and templates themselves say what is still to be done."""
    return operation if operation.data.get("refused") else None


def was_refused(cluster: BrokerCluster, status: Mapping[str, Any]) -> bool:
    """Tell whether the storage class refused this generation's size already."""
    found = find_condition(status, "Warning")
    if found is None or found["status"] != "True":
        return False
    said = REFUSED in found["reason"] or REFUSED in found["message"]
    return said and found.get("observedGeneration") == cluster.metadata.generation


def _claim_is_small(view: MemberView, size: str) -> bool:
    claim = view.claim
    if claim is None or not claim.requested:
        return False
    return parse_quantity(claim.requested) < parse_quantity(size)


def _template_is_small(view: MemberView, size: str) -> bool:
    have = _template_size(view)
    return have is not None and parse_quantity(have) < parse_quantity(size)


def _template_size(view: MemberView) -> str | None:
    for template in (view.statefulset or {}).get("spec", {}).get("volumeClaimTemplates", ()):
        if template["metadata"]["name"] == "data":
            return str(template["spec"]["resources"]["requests"]["storage"])
    return None


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Change nothing: claims and templates are no part of the shape."""
    return shape


def advance(step: StepContext) -> Advance:
    """Return what the VolumeResize wants of this pass.

    ``data.refused`` is in the status before the operation ends: the warning that keeps the
    same generation from trying again is made from it.
    """
    refused = step.data.get("refused")
    if refused:
        return Advance(None, events=(Event(REFUSED, str(refused), warning=True),))
    if step.state.is_leaving(step.pair):
        return Advance(None)
    return timed(step, _STEPS[step.operation.step](step))


def _views(step: StepContext) -> list[MemberView]:
    """Return the members in the order they grow: slaves from the highest, then the master."""
    slaves = sorted(step.slaves(), key=lambda view: -view.ordinal)
    return [*slaves, step.master_view]


def _size(step: StepContext) -> str:
    return step.cluster.pair(step.pair).storage_size


def _resize(step: StepContext) -> Advance:
    blocked = step.check(_BEFORE)
    if blocked:
        return step.stay(*blocked)
    small = [view.claim for view in _views(step) if _claim_is_small(view, _size(step))]
    claims = [claim for claim in small if claim is not None]
    if not claims:
        return step.go("WaitResized")
    sent = step.data.get("sent") or {"since": step.now, "at": 0.0, "times": 0}
    since, last, times = sent["since"], sent["at"], sent["times"]
    said = step.observed.refused.get(claims[0].name)
    if said or (times >= SENT_TIMES and step.now - since >= SENT_SECONDS):
        words = said or claims[0].message or "the API server does not take a larger request"
        return step.stay(refused=f"{claims[0].name}: {words}", wake=0.0)
    if step.now - last < AGAIN_SECONDS:
        return step.stay(wake=AGAIN_SECONDS)
    actions = tuple(ResizeClaim(claim.name, claim.uid, _size(step)) for claim in claims)
    sent = {"since": since, "at": step.now, "times": times + 1}
    return step.stay(actions=actions, counts=True, sent=sent)


def _wait(step: StepContext) -> Advance:
    if any(_claim_is_small(view, _size(step)) for view in _views(step)):
        return step.go("ResizeClaims")
    for view in _views(step):
        claim = view.claim
        if claim is None or claim.needs_restart:
            continue
        if not claim.capacity or parse_quantity(claim.capacity) < parse_quantity(_size(step)):
            return step.stay("ClaimsSettled", wake=5.0)
    return step.go("RecreateStatefulSet")


def _recreate(step: StepContext) -> Advance:
    for view in _views(step):
        statefulset = view.statefulset
        if statefulset is None:
            if view.claim is not None:
                return step.stay()  # the next pass applies it again
        elif _template_is_small(view, _size(step)):
            metadata = statefulset["metadata"]
            if metadata.get("deletionTimestamp"):
                return step.stay(wake=0.5)
            key = ("StatefulSet", metadata["name"])
            return step.stay(actions=(Delete(key, metadata["uid"], "Orphan"),), wake=0.5)
    name = step.cluster.broker_name(step.pair)
    return Advance(None, events=(Event("VolumeResized", f"{name} {_size(step)}"),))


_STEPS: Final[Mapping[str, Callable[[StepContext], Advance]]] = {
    "ResizeClaims": _resize,
    "WaitResized": _wait,
    "RecreateStatefulSet": _recreate,
}
