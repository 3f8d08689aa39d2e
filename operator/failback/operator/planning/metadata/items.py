"""What Topic and SubscriptionGroup plans share: where an item is, its owner, its status. Pure.

An item is written to masters only; a slave copies its master's tables within one synchronisation
period, and what it has is observed, never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.kinds.topic import Topic
from failback.operator.planning.cluster.warnings import joined, unknown_annotations
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Broker, MemberView, Object, ObservedCluster
from failback.operator.planning.plan.encoding import (
    Verdict,
    find_condition,
    from_time,
    judged,
    names,
    with_reasons,
)
from failback.operator.planning.plan.types import Action, Event, Plan
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.schema.rules import violations

MANAGED: Final = "failback.dev/managed"
WAITING_SECONDS: Final = 5.0
GIVE_UP_SECONDS: Final = 60.0
"""Deletion waits so long for masters that do not answer."""

Config = Mapping[str, Any]
"""A topic's or group's configuration in RocketMQ's field names."""
Verdicts = list[Verdict]


@dataclass(frozen=True, slots=True)
class OnPair:
    """An item on one pair of the cluster."""

    name: str
    index: int
    address: str = ""
    """Of the master; empty while no member says that it is master."""
    known: bool = False
    """The master's table is known."""
    problem: str = ""
    """Why it is not known, where a broker of the pair gave no answer."""
    contested: bool = False
    """Two processes act as its master: nothing is written to either, and no table counts."""
    stored: Config | None = None
    """The item in that table."""
    slaves: tuple[tuple[str, Config | None, bool], ...] = ()
    """Member name, the item in its table, and whether that table is known."""

    @property
    def on_slaves(self) -> bool:
        """Every slave has what the master has."""
        return all(known and has == self.stored for _, has, known in self.slaves)


@dataclass(frozen=True, slots=True)
class Item:
    """A Topic or SubscriptionGroup resource, as far as both are treated alike."""

    resource: Topic | SubscriptionGroup
    word: Literal["Topic", "Group"]
    name: str
    """Its RocketMQ name."""
    wanted: Config
    pairs: Sequence[str] = ("*",)

    @property
    def name_field(self) -> str:
        """The field of spec and status that has the RocketMQ name."""
        return "topicName" if self.word == "Topic" else "groupName"

    @property
    def is_managed(self) -> bool:
        """Drift is repaired, not only shown."""
        return self.resource.metadata.annotations.get(MANAGED) != "false"

    @property
    def is_paused(self) -> bool:
        return self.resource.metadata.is_paused

    def siblings(self, observed: ObservedCluster) -> Sequence[Object]:
        """Return all resources of the kind that name the cluster."""
        return observed.topics if self.word == "Topic" else observed.groups

    def is_as_wanted(self, stored: Config | None) -> bool:
        """Tell whether a table has the item as the resource wants it."""
        return stored is not None and all(
            stored.get(key) == value for key, value in self.wanted.items()
        )

    def is_named(self, pair: str) -> bool:
        """Tell whether a pair is to have the item."""
        return "*" in self.pairs or pair in self.pairs


@dataclass(frozen=True, slots=True)
class Work:
    """What a kind found to do on the pairs it has looked at."""

    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    unready: Verdict | None = None
    """A reason of the kind's own why it is not Ready."""
    more: Verdicts = field(default_factory=list)
    """Conditions of the kind's own."""


def find_pairs(item: Item, cluster: BrokerCluster, observed: ObservedCluster) -> list[OnPair]:
    """Return the item on every pair that is to have it."""
    state = ClusterState(cluster, cluster.status, observed, observed.at)
    return [
        _on_pair(item, state, index)
        for index in range(cluster.spec.pairs)
        if item.is_named(cluster.broker_name(index))
    ]


def _on_pair(item: Item, state: ClusterState, index: int) -> OnPair:
    name = state.cluster.broker_name(index)
    master = state.master(index)
    slaves = []
    for view in state.wanted(index):
        if view.ordinal != master.ordinal:
            table = _table(item, view.broker)
            has = None if table is None else table.get(item.name)
            slaves.append((f"{name}-{view.ordinal}", has, table is not None))
    contested = state.is_contested(index)
    counts = _is_master(master) and not contested
    table = _table(item, master.broker) if counts else None
    return OnPair(
        name=name,
        index=index,
        address=master.broker.address if master.broker and table is not None else "",
        known=table is not None,
        problem="" if table is not None or master.broker is None else master.broker.problem,
        contested=contested,
        stored=None if table is None else table.get(item.name),
        slaves=tuple(slaves),
    )


def _is_master(member: MemberView) -> bool:
    """Tell whether the member says so itself: a slave must never be written to."""
    return bool(facts.says_master(member.broker))


def _table(item: Item, broker: Broker | None) -> Mapping[str, Config] | None:
    if broker is None:
        return None
    return broker.topics if item.word == "Topic" else broker.groups


def older_twin(item: Item, others: Sequence[Object]) -> str | None:
    """Return the name of an older resource that stands for the same item, or ``None``."""
    own = (item.resource.metadata.creation_timestamp or "", item.resource.name)
    older = [name for created, name in twins(item, others) if (created, name) < own]
    return min(older) if older else None


def twins(item: Item, others: Sequence[Object]) -> list[tuple[str, str]]:
    """Return creation time and name of the resources that stand for the same item, and stay."""
    return [
        (other["metadata"].get("creationTimestamp") or "", str(other["metadata"]["name"]))
        for other in others
        if other["metadata"].get("uid") != item.resource.metadata.uid
        and not other["metadata"].get("deletionTimestamp")
        and (other.get("spec", {}).get(item.name_field) or other["metadata"]["name"]) == item.name
    ]


# --- conditions ---------------------------------------------------------------------------------


def early(item: Item, cluster: BrokerCluster | None, others: Sequence[Object]) -> Verdict | None:
    """Return why nothing can be done for the item at all, or ``None``."""
    broken = violations(item.resource)
    if broken:
        text = "; ".join(f"{found.rule} {found.path}: {found.message}" for found in broken[:3])
        return Verdict("Ready", False, "InvalidSpec", text)
    if cluster is None:
        reference = item.resource.spec.cluster_ref.name
        return Verdict("Ready", False, "ClusterMissing", f"there is no BrokerCluster {reference}")
    twin = older_twin(item, others)
    if twin is not None:
        text = f"{item.resource.kind}/{twin} is older and stands for {item.name} too"
        return Verdict("Ready", False, "Duplicate", text)
    return None


def ready(item: Item, pairs: Sequence[OnPair], refused: Mapping[str, str]) -> Verdict:
    """Return whether every master has the item."""
    contested = [pair.name for pair in pairs if pair.contested]
    if contested:
        text = f"{names(contested)} has two masters, neither is written to"
        return Verdict("Ready", False, "TwoMasters", text)
    silent = [pair.name for pair in pairs if not pair.known]
    if silent:
        text = f"no master answers on {names(silent)}"
        text = with_reasons(text, (pair.problem for pair in pairs))
        return Verdict("Ready", False, "MasterDown", text)
    no = [pair for pair in pairs if pair.address in refused and not item.is_as_wanted(pair.stored)]
    if no:
        text = names(f"{pair.name}: {refused[pair.address]}" for pair in no)
        return Verdict("Ready", False, "Rejected", text)
    absent = [pair.name for pair in pairs if pair.stored is None]
    if absent:
        return Verdict("Ready", False, "NotOnMaster", f"not yet on {names(absent)}")
    return Verdict("Ready", True, "OnAllMasters")


def synced(item: Item, pairs: Sequence[OnPair]) -> Verdict:
    """Return whether masters have the item as wanted and slaves as their masters."""
    if not all(pair.known for pair in pairs):
        silent = [pair.name for pair in pairs if not pair.known]
        return Verdict("Synced", None, "UnableToRetrieve", f"no master on {names(silent)}")
    absent = [pair.name for pair in pairs if pair.stored is None]
    if absent:
        return Verdict("Synced", False, "NotOnMaster", f"not yet on {names(absent)}")
    drifted = [pair for pair in pairs if not item.is_as_wanted(pair.stored)]
    if drifted:
        text = names(f"{pair.name}: {change(item, pair.stored)}" for pair in drifted)
        return Verdict("Synced", False, "Drifted", text)
    behind = [
        member
        for pair in pairs
        for member, has, known in pair.slaves
        if not known or has != pair.stored
    ]
    if behind:
        return Verdict("Synced", False, "NotOnSlave", f"not yet copied by {names(behind)}")
    return Verdict("Synced", True, "Synced")


def change(item: Item, stored: Config | None) -> str:
    """Return what differs, as ``field stored -> wanted``."""
    have = stored or {}
    return ", ".join(
        f"{key} {_word(have.get(key))} -> {_word(value)}"
        for key, value in item.wanted.items()
        if have.get(key) != value
    )


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def warning(item: Item, found: Sequence[tuple[str, str]]) -> Verdict:
    """Return the condition Warning of a kind's own reasons and of unknown annotations."""
    unknown = unknown_annotations(item.resource.metadata.annotations)
    more = [("UnknownAnnotation", names(unknown))] if unknown else []
    return joined([*found, *more])


def put_events(item: Item, pairs: Sequence[OnPair], status: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return what the writes of this pass mean: created, updated, or drift repaired."""
    created = [pair.name for pair in pairs if pair.stored is None]
    changed = [pair for pair in pairs if pair.stored is not None]
    found: tuple[Event, ...] = ()
    if created:
        text = f"{item.name} on {names(created)}"
        found += (Event(f"{item.word}Created", text),)
    if changed:
        drift = status.get("observedGeneration") == item.resource.metadata.generation
        what = "DriftRepaired" if drift else "Updated"
        text = names(f"{pair.name}: {change(item, pair.stored)}" for pair in changed)
        found += (Event(f"{item.word}{what}", f"{item.name} on {text}", warning=drift),)
    return found


def _turned(status: Mapping[str, Any], verdict: Verdict) -> bool:
    before = find_condition(status, verdict.type)
    return before is None or (before["reason"], before["message"]) != (
        verdict.reason,
        verdict.message[:512],
    )


# --- plans --------------------------------------------------------------------------------------


def settle(
    item: Item,
    status: Mapping[str, Any],
    verdicts: Verdicts,
    rows: Sequence[Mapping[str, Any]] | None,
    work: Work,
    now: float,
    *,
    finalizer: bool | None = None,
) -> Plan:
    """Return the plan of a pass from what was found.

    Args:
        rows: ``status.pairs``; ``None`` = as it was.
        finalizer: As :attr:`Plan.finalizer`.
    """
    by_type = {verdict.type: verdict for verdict in verdicts}
    events = work.events
    if by_type["Ready"].reason == "Rejected" and _turned(status, by_type["Ready"]):
        events += (Event(f"{item.word}Rejected", by_type["Ready"].message, warning=True),)
    drift = by_type.get("Synced")
    if drift and drift.reason == "Drifted" and not item.is_managed and _turned(status, drift):
        events += (Event(f"{item.word}DriftSeen", drift.message, warning=True),)
    new: dict[str, Any] = {**status, item.name_field: item.name}
    if rows is not None:
        new["pairs"] = [dict(row) for row in rows]
    whole = all(by_type[kind].value for kind in ("Ready", "Synced") if kind in by_type)
    settled = whole and "Synced" in by_type and not work.actions
    generation = item.resource.metadata.generation
    if settled:
        new["observedGeneration"] = generation
    verdicts = [*verdicts, Verdict("Paused", item.is_paused, _paused(item))]
    new["conditions"] = judged(status, verdicts, now=now, generation=generation)
    wake = None if settled else WAITING_SECONDS
    farewell = () if finalizer else (_event(item, "Retained"),)
    return Plan(
        actions=work.actions,
        status=new,
        events=events,
        wake_after=wake,
        farewell=farewell,
        finalizer=finalizer,
    )


def _paused(item: Item) -> str:
    return "Requested" if item.is_paused else ""


def plan_deletion(
    item: Item,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    cluster: BrokerCluster | None,
    now: float,
    remove: Callable[[list[OnPair]], tuple[Action, ...]],
) -> Plan:
    """Return the plan of a resource that is being deleted.

    Args:
        remove: Pairs → what deletes the item there and at the name servers. It is repeated as a
            whole until it succeeds.
    """
    spec = item.resource.spec
    if spec.deletion_policy == "Retain":
        return Plan(status=status, finalizer=False, events=(_event(item, "Retained"),))
    if cluster is None or cluster.metadata.deletion_timestamp:
        return Plan(status=status, finalizer=False)
    if twins(item, item.siblings(observed)) or not item.is_managed:
        return Plan(status=status, finalizer=False, events=(_event(item, "Retained"),))
    pairs = find_pairs(item, cluster, observed)
    known = all(pair.known for pair in pairs)
    gone = known and all(pair.stored is None for pair in pairs)
    since = from_time(item.resource.metadata.deletion_timestamp)
    if since is not None and now - since > GIVE_UP_SECONDS and not gone:
        text = f"{item.name} could not be deleted everywhere within {GIVE_UP_SECONDS:.0f} s"
        given_up = Event(f"{item.word}Retained", text, warning=True)
        return Plan(status=status, finalizer=False, events=(given_up,))
    if not known:
        return Plan(status=status, wake_after=WAITING_SECONDS)
    actions = remove(pairs)
    return Plan(actions=actions, status=status, finalizer=False, events=(_event(item, "Deleted"),))


def _event(item: Item, what: str) -> Event:
    return Event(f"{item.word}{what}", item.name)
