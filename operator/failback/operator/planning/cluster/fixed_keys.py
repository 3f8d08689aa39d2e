"""Keys of ``broker.conf`` that can't change once a store exists. Pure.

A broker whose log has files of another size ends at its start. An index of another size is read
wrongly. Rolled out, such a change would take down one member after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from failback.operator.engines.catalogue import config_keys, same_value
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, Object, ObservedCluster
from failback.operator.schema.rule_texts import MANAGED_BROKER_KEYS

FIXED: Final[Mapping[str, str]] = {
    name: row.default or ""
    for name, row in config_keys().items()
    if row.change == "immutable" and name not in MANAGED_BROKER_KEYS and name[:9] != "storePath"
}
"""Key → what a broker has when its file does not name it."""


def refused_changes(observed: ObservedCluster, desired: Mapping[Key, Object]) -> list[str]:
    """Say which keys of ``config`` may not change, once each, with the value in force.

    Only a member that is ready proves that its store is of this value: a wrong one over the kept
    volume of an earlier cluster can be corrected.
    """
    found: dict[str, str] = {}
    for _, view in sorted(observed.members.items()):
        if view.claim is None or view.config_map is None or not view.is_ready:
            continue
        wanted = desired.get(("ConfigMap", view.config_map["metadata"]["name"]))
        for key, value in _changes(view.config_map, wanted):
            text = f"is fixed once a store exists, there it is {value or 'not set'}"
            found.setdefault(key, f"config_keys spec.config: {key}: {text}")
    return list(found.values())


def _changes(current: Object, wanted: Object | None) -> Iterator[tuple[str, str]]:
    if wanted is None:
        return
    have, want = facts.properties(current), facts.properties(wanted)
    for key, default in FIXED.items():
        value = have.get(key, default)
        if not same_value(key, value, want.get(key, default)):
            yield key, value
