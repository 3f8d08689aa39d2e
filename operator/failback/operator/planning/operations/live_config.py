"""LiveConfig: set live keys in running brokers, and repair what others set otherwise. Pure.

Per member: ConfigMap, then 25, then 26, in one plan for all members, in an order that holds:
carrying out stops at the first failure. The reverse order could lose a change at the next start of
a pod. ``slaveReadEnable`` is turned on at the slaves before the master suggests them, and off at
the master before the slaves refuse. Other keys go to the slaves first.

A member that does not answer gets its ConfigMap, so that a new pod starts right. What the next
members must wait for then waits.

A line that is to go names the default first. It goes once the broker answers the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from failback.operator.engines.catalogue import quirk
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.operations.step_context import StepContext, member_label, timed
from failback.operator.planning.plan import children
from failback.operator.planning.plan.types import (
    Action,
    Advance,
    Apply,
    Event,
    Operation,
    SetConfig,
)
from failback.operator.planning.state import live_keys, precedence, predicates
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.live_keys import PERMISSION, READ
from failback.operator.planning.state.running_engine import accepts
from failback.operator.render.config import properties_text
from failback.operator.render.members import member_name
from failback.operator.render.shape import Member, Shape

TYPE: Final = "LiveConfig"
MAX_ATTEMPTS: Final = 3
"""Passes that sent the same value to the same broker, before it counts as refused."""
AGAIN_SECONDS: Final = 5.0
"""Pause before the same value is sent to the same broker once more."""
_ENABLE: Final[tuple[str, ...]] = ("NotPaused", "NameServersReachable", "PrefixVerified")


@dataclass(frozen=True, slots=True)
class Change:
    """What one member needs."""

    member: Member
    file: Mapping[str, str | None] = field(default_factory=dict)
    """Lines of its ConfigMap; ``None`` = the line goes."""
    broker: Mapping[str, str] = field(default_factory=dict)
    """Values to set in its process."""

    def without(self, keys: frozenset[str]) -> Change:
        """Return the change without some keys."""
        file = {key: value for key, value in self.file.items() if key not in keys}
        broker = {key: value for key, value in self.broker.items() if key not in keys}
        return Change(self.member, file, broker)


@dataclass(frozen=True, slots=True)
class Work:
    """All that is to be done now, in order, and what keeps the rest waiting."""

    changes: tuple[Change, ...] = ()
    blocked: tuple[str, ...] = ()


def causes(state: ClusterState) -> Iterator[Operation]:
    """Yield a LiveConfig when a file or a broker has another live value than wanted."""
    work = work_of(state)
    if not work.changes and not work.blocked:
        return
    why = [f"{member_label(state.cluster, c.member)}{sorted(c.broker)}" for c in work.changes]
    data = {"changes": _changed_keys(state, work.changes, {})}
    blocked = work.blocked if not work.changes else ()
    yield state.begin(TYPE, "SetConfig", " ".join(why), blocked_by=blocked, data=data)


def give_way(state: ClusterState, operation: Operation, urgent: Operation) -> Operation | None:
    """Go on: a LiveConfig holds no pair."""
    return operation


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Change nothing: ConfigMaps are applied member by member with the requests."""
    return shape


def advance(step: StepContext) -> Advance:
    """Return the files and requests of this pass; ended when every answer (26) is as wanted."""
    work = work_of(step.state)
    rejected = _rejected(step)
    kept = (_without_rejected(step.cluster, change, rejected) for change in work.changes)
    changes = tuple(change for change in kept if change.file or change.broker)
    if changes:
        return timed(step, _send(step, changes, work.blocked))
    if work.blocked or rejected:
        waits = (*work.blocked, *(("RejectedKey",) if rejected else ()))
        return timed(step, step.stay(*waits, wake=5.0))
    return Advance(None, events=_events(step))


def _send(step: StepContext, changes: tuple[Change, ...], blocked: tuple[str, ...]) -> Advance:
    """Send everything, or what the last pass could not, or give a value up."""
    first = f"{changes[0].member} {sorted((changes[0].broker or changes[0].file).items())}"
    sent = step.data.get("sent") or {}
    again = sent.get("first") == first
    if again and step.now - sent["at"] < AGAIN_SECONDS:
        return step.stay(*blocked, wake=AGAIN_SECONDS)
    attempts = sent["attempts"] + 1 if again else 1
    if attempts > MAX_ATTEMPTS and changes[0].broker:
        return _reject(step, changes[0], blocked)
    changed = _changed_keys(step.state, changes, step.data.get("changes") or {})
    return step.stay(
        *blocked,
        actions=_actions(step, changes),
        counts=True,
        sent={"first": first, "at": step.now, "attempts": attempts},
        changes=changed,
    )


# --- what is to be done -------------------------------------------------------------------------


def work_of(state: ClusterState) -> Work:
    """Return every change that may be made now, pair by pair in index order."""
    shape = state.base_shape
    changes: list[Change] = []
    blocked: list[str] = []
    permission = False
    for pair in range(shape.pairs):
        ordinals = state.ordinals.get(pair, ())
        master = shape.masters[pair]
        found = [
            Change(
                member,
                live_keys.file_changes(state, shape, member),
                live_keys.broker_changes(state, shape, member),
            )
            for member in ((pair, ordinal) for ordinal in ordinals)
            if state.observed.member(*member).config_map is not None
        ]
        if state.is_contested(pair):  # which of two masters is right is not for us to say
            blocked += ["SingleMaster"] * any(each.file or each.broker for each in found)
            continue
        mounts = (live_keys.mounted_changes(state, shape, each.member) for each in found)
        waits = _may_enable(state, pair, master, found)
        blocked += ["ConfigMount"] * (any(mounts) and "ConfigMount" not in blocked)
        blocked += [name for name in waits if name not in blocked]
        enables = state.cluster.pair(pair).slave_read_enable or not any(map(_reads, found))
        changes += _in_order(state, master, found, enables=enables, withhold=bool(waits))
        if not permission:
            repair = _permission(state, pair)
            permission = bool(repair)
            changes += repair
    return Work(tuple(change for change in changes if change.file or change.broker), tuple(blocked))


def _reads(change: Change) -> bool:
    return READ in change.file or READ in change.broker


def _may_enable(
    state: ClusterState, pair: int, master: int, found: list[Change]
) -> tuple[str, ...]:
    """Return what forbids to turn reads of slaves on now; a forced failover asks nothing more."""
    if not any(map(_reads, found)) or not state.cluster.pair(pair).slave_read_enable:
        return ()
    names = _ENABLE
    slaves = [view for (p, o), view in state.observed.members.items() if p == pair and o != master]
    if all(view.broker is not None and view.broker.config is not None for view in slaves):
        names = (*_ENABLE, "MetadataEqual")
    found_false = predicates.evaluate(names, state, pair=pair, master=master)
    engine = state.cluster.spec.engine
    drops = quirk("dropsTopicsOnSync", engine.program, engine.version or "")
    if drops and not accepts(state.cluster, "dropsTopicsOnSync"):
        return (*found_false, "EngineQuirk")
    return found_false


def _in_order(
    state: ClusterState,
    master: int,
    found: list[Change],
    *,
    enables: bool,
    withhold: bool,
) -> Iterator[Change]:
    """Yield a pair's changes in the order in which they are safe.

    No client may be sent to a slave that would refuse: the master is the last to suggest and the
    first to stop. It waits for all slaves, and they for it, while one does not answer.
    """
    waits: set[int] = set()
    everyone = {change.member[1] for change in found}
    silent = {o for o in everyone if _is_silent(state, (found[0].member[0], o))}
    if withhold:
        waits = everyone
    elif any(map(_reads, found)) and found[0].member[0] not in state.base_shape.read_forced:
        if enables and silent - {master}:
            waits = {master}
        elif not enables and master in silent:
            waits = everyone - {master}
    for change in sorted(found, key=lambda c: ((c.member[1] == master) == enables, -c.member[1])):
        yield change.without(frozenset({READ})) if change.member[1] in waits else change


def _is_silent(state: ClusterState, member: Member) -> bool:
    broker = state.observed.member(*member).broker
    return broker is None or broker.config is None


def _permission(state: ClusterState, pair: int) -> list[Change]:
    """Return one request for a member whose permission is not what its file says.

    An operation that closes or opens the pair at its step sends its own.
    """
    if any(op.pair == pair and precedence.sets_permission(op) for op in state.operations):
        return []
    for ordinal in state.ordinals.get(pair, ()):
        view = state.observed.member(pair, ordinal)
        want = facts.properties(view.config_map).get(PERMISSION)
        config = (view.broker.config if view.broker else None) or {}
        if want is not None and PERMISSION in config and config[PERMISSION] != want:
            return [Change((pair, ordinal), {}, {PERMISSION: want})]
    return []


# --- files and requests -------------------------------------------------------------------------


def _actions(step: StepContext, changes: tuple[Change, ...]) -> tuple[Action, ...]:
    found: list[Action] = []
    for change in changes:
        found += _file(step, change.member, change.file)
        broker = step.observed.member(*change.member).broker
        if change.broker and broker is not None:
            found.append(SetConfig(change.member, broker.address, dict(change.broker)))
    return tuple(found)


def _file(step: StepContext, member: Member, lines: Mapping[str, str | None]) -> list[Action]:
    """Return the apply of a member's ConfigMap with some lines changed."""
    key = ("ConfigMap", member_name(step.cluster, *member))
    rendered = step.desired.get(key)
    if not lines or rendered is None:
        return []
    found: dict[str, str | None] = {**facts.properties(rendered), **lines}
    text = properties_text({name: value for name, value in found.items() if value is not None})
    manifest = {**rendered, "data": {**rendered["data"], "broker.conf": text}}
    return [Apply(children.finished(manifest, step.observed.objects.get(key)))]


# --- what a broker refuses ----------------------------------------------------------------------


def _rejected(step: StepContext) -> dict[str, dict[str, Any]]:
    """Return the values that were given up, by member: left alone until the spec changes."""
    found = step.data.get("rejected") or {}
    generation = step.cluster.metadata.generation
    return {name: row for name, row in found.items() if row["generation"] == generation}


def _without_rejected(
    cluster: BrokerCluster, change: Change, rejected: Mapping[str, Mapping[str, Any]]
) -> Change:
    row = rejected.get(member_label(cluster, change.member))
    return change if row is None else change.without(frozenset(row["keys"]))


def _reject(step: StepContext, change: Change, blocked: tuple[str, ...]) -> Advance:
    """Set the file back to what the broker answers: the next pod must not start worse."""
    label = member_label(step.cluster, change.member)
    broker = step.observed.member(*change.member).broker
    answer = (broker.config if broker else None) or {}
    keys = sorted(change.broker)
    verified = {key: answer[key] for key in keys if key in answer and key != PERMISSION}
    before = _rejected(step)
    row = before.get(label, {"keys": []})
    text = f"{label} does not take {', '.join(f'{key}={change.broker[key]}' for key in keys)}"
    given_up = {
        "keys": sorted({*row["keys"], *keys}),
        "generation": step.cluster.metadata.generation,
    }
    return step.stay(
        *blocked,
        "RejectedKey",
        actions=tuple(_file(step, change.member, verified)),
        events=(Event("ConfigRejected", text, warning=True),),
        rejected={**before, label: given_up},
        sent={},
    )


# --- events -------------------------------------------------------------------------------------


def _changed_keys(
    state: ClusterState,
    changes: tuple[Change, ...],
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what the final event says, by key: old value, new value, members, drift."""
    found = {key: dict(row) for key, row in before.items()}
    for change in changes:
        view = state.observed.member(*change.member)
        file = facts.properties(view.config_map)
        answer = (view.broker.config if view.broker else None) or file
        wanted = {
            key: live_keys.DEFAULTS.get(key, "") if value is None else value
            for key, value in {**change.file, **change.broker}.items()
        }
        for key in sorted(wanted):
            row = found.setdefault(
                key,
                {
                    "from": (answer if key in change.broker else file).get(key, ""),
                    "to": wanted[key],
                    "on": [],
                    "drift": key not in change.file,
                },
            )
            label = member_label(state.cluster, change.member)
            row["to"] = wanted[key]
            if label not in row["on"]:
                row["on"] = [*row["on"], label]
    return found


def _events(step: StepContext) -> tuple[Event, ...]:
    events = []
    for key, row in sorted((step.data.get("changes") or {}).items()):
        if row["from"] == row["to"]:  # a line that named the default went
            continue
        drift = " (drift)" if row["drift"] else ""
        text = f"{key} {row['from']} -> {row['to']} on {', '.join(row['on'])}{drift}"
        events.append(Event("ConfigUpdated", text))
    return tuple(events)
