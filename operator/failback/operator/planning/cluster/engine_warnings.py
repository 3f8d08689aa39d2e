"""Warnings about what the engine does, or may not become. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from failback.operator.engines.catalogue import normalise
from failback.operator.engines.quirks import EngineVersion, store_compatible
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.plan.encoding import find_condition, names
from failback.operator.planning.state.running_engine import held_engine

CHANGE_REFUSED: Final = "EngineChangeRefused"
_AUTO_CREATE: Final = "autoCreateTopicEnable"
_TEMPLATE: Final = "TBW102"
_INHERIT: Final = 1
"""Bit of a topic's permission: others are made after it (PermName.PERM_INHERIT)."""


def engine_warnings(view: ClusterView, version: str) -> Iterator[tuple[str, str]]:
    """Yield reason and message of an engine that must stay, and of topics that are not made."""
    refusal = _refused_change(view, version)
    if refusal is not None:
        yield CHANGE_REFUSED, refusal
    barren = [view.member_name(item) for item in view.members if _makes_no_topics(item.broker)]
    if barren:
        yield (
            "AutoCreateLost",
            f"{names(barren)} makes no topics although {_AUTO_CREATE} is true: {_TEMPLATE} is made"
            " at start, and refusing a topic ends its inheritance",
        )


def refused_change(status: Mapping[str, Any]) -> str | None:
    """Return what the condition ``Warning`` says of a refused change of the engine."""
    said = find_condition(status, "Warning") or {}
    for part in str(said.get("message", "")).split("; "):
        reason, _, message = part.partition(": ")
        if reason == CHANGE_REFUSED:
            return message
    return None


def _refused_change(view: ClusterView, version: str) -> str | None:
    wanted = view.cluster.spec.engine
    held = held_engine(view.cluster, view.observed, {"version": version})
    if held is None:
        return None
    running = EngineVersion(held["type"], held["version"])
    return store_compatible(running, EngineVersion(wanted.program, version))


def _makes_no_topics(broker: Any) -> bool:
    """Tell whether a master says that it makes topics on demand and has no topic to inherit."""
    if broker is None or broker.topics is None or not facts.says_master(broker):
        return False
    said = (broker.config or {}).get(_AUTO_CREATE, "")
    template = broker.topics.get(_TEMPLATE, {})
    return normalise(_AUTO_CREATE, said) == "true" and not template.get("perm", 0) & _INHERIT
