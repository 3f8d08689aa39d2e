"""Drift of children: which desired object is missing, outdated or changed by others. Pure.

An apply that changes nothing is still a request, so desired and observed are compared first. A hash
of the whole desired object catches fields that are no longer wanted. Comparing our fields one by
one catches what another one changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from failback.operator.kinds.base import parse_quantity
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.plan.memory import Memory
from failback.operator.planning.plan.types import Action, Apply, Delete
from failback.operator.render.service import OUTSIDE

HASH: Final = "failback.dev/applied-hash"
_T = TypeVar("_T", bound=Object)
_QUANTITIES: Final = frozenset({"requests", "limits", "sizeLimit"})
_FREE_TO_DELETE: Final = frozenset({"PodDisruptionBudget", "PodMonitor"})


def key_of(manifest: Object) -> Key:
    """Return kind and name of an object."""
    return manifest["kind"], manifest["metadata"]["name"]


def by_key(manifests: Iterable[_T]) -> dict[Key, _T]:
    """Return objects by kind and name, in their order."""
    return {key_of(manifest): manifest for manifest in manifests}


def finished(manifest: Object, have: Object | None = None) -> dict[str, Any]:
    """Return the object as it is applied: claim templates as they stand, and its hash.

    Claim templates of a StatefulSet are immutable: while the stored ones differ, they are kept
    until the object is made again.
    """
    done: dict[str, Any] = {**manifest, "metadata": dict(manifest["metadata"])}
    if have is not None and "volumeClaimTemplates" in done.get("spec", {}):
        stored = have.get("spec", {}).get("volumeClaimTemplates", ())
        templates = _kept_templates(done["spec"]["volumeClaimTemplates"], stored)
        done["spec"] = {**done["spec"], "volumeClaimTemplates": templates}
    text = json.dumps(done, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    annotations = done["metadata"].get("annotations", {})
    done["metadata"]["annotations"] = {**annotations, HASH: digest}
    return done


def _kept_templates(wanted: Iterable[Object], stored: Iterable[Object]) -> list[dict[str, Any]]:
    """Return the claim templates with the sizes that are stored."""
    have = {item["metadata"]["name"]: item["spec"]["resources"]["requests"] for item in stored}
    found = []
    for template in wanted:
        requests = have.get(template["metadata"]["name"])
        spec = dict(template["spec"])
        if requests is not None:
            spec["resources"] = {"requests": dict(requests)}
        found.append({**template, "spec": spec})
    return found


def drift(want: Object, have: Object | None) -> str | None:
    """Say why ``want`` (as :func:`finished`) must be applied, or ``None``.

    ``missing``, ``outdated`` (we want something else than what we applied last) or ``drifted``
    (another one changed a field of ours).
    """
    if have is None:
        return "missing"
    metadata = have["metadata"]
    if metadata.get("deletionTimestamp"):
        return None  # its end wakes the pass that makes it again
    if metadata.get("annotations", {}).get(HASH) != want["metadata"]["annotations"][HASH]:
        return "outdated"
    return None if _contains(have, _compared(want)) else "drifted"


def _compared(want: Object) -> dict[str, Any]:
    """Return the fields that are compared: those that the server stores as they were sent."""
    fields = {key: value for key, value in want.items() if key not in ("apiVersion", "kind")}
    fields["metadata"] = {
        key: value
        for key, value in want["metadata"].items()
        if key in ("labels", "annotations", "ownerReferences")
    }
    if "spec" in fields:
        fields["spec"] = {
            key: value for key, value in fields["spec"].items() if key != "volumeClaimTemplates"
        }
    return fields


def _contains(have: Any, want: Any, quantity: bool = False) -> bool:
    """Tell whether ``have`` holds every field of ``want``; lists item by item, by position.

    The server drops what is empty and writes quantities its own way (``1000m`` is ``1``).
    """
    if want in ({}, [], "") and have is None:
        return True
    if isinstance(want, Mapping):
        return isinstance(have, Mapping) and all(
            _contains(have.get(key), value, quantity or key in _QUANTITIES)
            for key, value in want.items()
        )
    if isinstance(want, (list, tuple)):
        if not isinstance(have, (list, tuple)) or len(have) != len(want):
            return False
        return all(map(_contains, have, want))
    if quantity and isinstance(want, str) and isinstance(have, str):
        return parse_quantity(have) == parse_quantity(want)
    return bool(have == want)


def plan_children(
    desired: Iterable[Object],
    objects: Mapping[Key, Object],
    memory: Memory | None = None,
    last: Key | None = None,
) -> tuple[tuple[Action, ...], dict[Key, str]]:
    """Return what brings the children towards ``desired``, and why, by object.

    Members' objects are never deleted here: that is the business of an operation.

    Args:
        last: What is applied after all others.
    """
    memory = Memory() if memory is None else memory
    actions: list[Action] = []
    reasons: dict[Key, str] = {}
    wanted = by_key(desired)
    for key, manifest in sorted(
        wanted.items(), key=lambda item: (item[0] == last, _small_first(item[0]))
    ):
        have = objects.get(key)
        if have is not None and memory.is_equal(key, manifest, have):
            continue
        ready = finished(manifest, have)
        reason = drift(ready, have)
        if reason is not None:
            reasons[key] = reason
            actions.append(Apply(ready))
        elif have is not None and not have["metadata"].get("deletionTimestamp"):
            memory.note_equal(key, manifest, have)
    memory.keep(wanted)
    for key, have in sorted(objects.items()):
        outside = key[0] == "Service" and OUTSIDE in have["metadata"].get("labels", {})
        if key in wanted or not (outside or key[0] in _FREE_TO_DELETE):
            continue
        if not have["metadata"].get("deletionTimestamp"):
            actions.append(Delete(key, have["metadata"]["uid"]))
    return tuple(actions), reasons


def _small_first(key: Key) -> tuple[bool, Key]:
    """Sort key: what pods need (ConfigMaps, Services) before the pods."""
    return key[0] == "StatefulSet", key
