"""Decide what brings observed objects towards desired ones. Pure.

Order of making: name servers and everything small first; masters when the name servers are
ready; slaves when the masters are. Order of taking away: the reverse, and nothing is taken
while something wanted is still missing, because an orphan may hold the only copy of a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Object = Mapping[str, Any]
Key = tuple[str, str]
"""Kind and name of an object, in the one namespace of a pass."""

_NAME_SERVERS: Final = 0
_MASTERS: Final = 1
_SLAVES: Final = 2


@dataclass(frozen=True, slots=True)
class Apply:
    """Make the object be as ``manifest`` says: create it, or update the one that is there."""

    key: Key
    manifest: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Take the object away."""

    key: Key


Action = Apply | Delete


@dataclass(frozen=True, slots=True)
class Observed:
    """What is there: the objects as last applied, and which StatefulSets have all pods ready."""

    objects: Mapping[Key, Object]
    ready: frozenset[Key]


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions of a pass, in order, and what the next pass waits for."""

    actions: tuple[Action, ...] = ()
    waiting_for: tuple[Key, ...] = ()

    @property
    def done(self) -> bool:
        """Nothing to do and nothing to wait for."""
        return not self.actions and not self.waiting_for


def key_of(manifest: Object) -> Key:
    """Return kind and name of an object."""
    return manifest["kind"], manifest["metadata"]["name"]


def plan(observed: Observed, desired: Iterable[Object]) -> Plan:
    """Return what brings ``observed`` towards ``desired``.

    A stage (name servers, masters, slaves) is applied when all StatefulSets of the stages
    before it stand as desired and are ready. Equal arguments give an equal plan; once nothing
    is left to change, the plan is empty.
    """
    wanted = {key_of(manifest): manifest for manifest in desired}
    actions: list[Action] = []
    waiting: list[Key] = []
    for stage in (_NAME_SERVERS, _MASTERS, _SLAVES):
        members = {
            key: manifest for key, manifest in wanted.items() if _stage(key, wanted) == stage
        }
        changed = [key for key in members if observed.objects.get(key) != members[key]]
        actions += [Apply(key, members[key]) for key in sorted(changed, key=_small_first)]
        waiting += [
            key
            for key in members
            if _expected(members[key]) and (key in changed or key not in observed.ready)
        ]
        if waiting:
            break
    if not waiting and not actions:
        actions += _deletions(observed, wanted)
    return Plan(tuple(actions), tuple(sorted(waiting)))


def deletion_order(objects: Mapping[Key, Object]) -> list[list[Key]]:
    """Return the objects in the stages in which they go: slaves, masters, name servers."""
    stages: list[list[Key]] = []
    for stage in (_SLAVES, _MASTERS, _NAME_SERVERS):
        keys = [key for key in objects if _stage(key, objects) == stage]
        sets = sorted(key for key in keys if key[0] == "StatefulSet")
        rest = sorted(key for key in keys if key[0] != "StatefulSet")
        stages += [group for group in (sets, rest) if group]
    return stages


def _deletions(observed: Observed, wanted: Mapping[Key, Object]) -> list[Action]:
    orphans = {key: value for key, value in observed.objects.items() if key not in wanted}
    return [
        Delete(key) for stage in deletion_order(observed.objects) for key in stage if key in orphans
    ]


def _small_first(key: Key) -> tuple[bool, Key]:
    """Sort key: what pods need (ConfigMaps, Services) before the pods."""
    return key[0] == "StatefulSet", key


def _expected(manifest: Object) -> bool:
    return bool(manifest["kind"] == "StatefulSet" and manifest["spec"].get("replicas", 1) > 0)


def _stage(key: Key, objects: Mapping[Key, Object]) -> int:
    """Return when an object is applied; the role is in the member's ConfigMap only."""
    labels = objects[key]["metadata"].get("labels", {})
    if key[0] != "StatefulSet" or "failback.dev/member" not in labels:
        return _NAME_SERVERS
    config = objects.get(("ConfigMap", key[1]), {}).get("data", {}).get("broker.conf", "")
    return _MASTERS if "brokerId=0" in config.splitlines() else _SLAVES
