"""What must hold before a disruptive step: named, each a pure function of a :class:`Question`.

Unknown is never good enough: a broker or name server that does not answer makes the predicate
that needs its answer false. The status lists the names of false predicates in ``blockedBy``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from failback.operator.engines.catalogue import quirk
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state import precedence
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.running_engine import engine_of
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.names import is_system_topic

STABLE_MASTER_SECONDS: Final = 60.0
"""How long id 0 must have had one address: two masters show as an address that alternates."""
SYNC_PERIODS: Final = 3
"""A slave's metadata may be so many of its synchronisation periods old."""
SYNC_AGE: Final = "rocketmq_slave_metadata_sync_age_seconds"
_INJECTING: Final = frozenset({"Injecting", "Recovering"})
_BAD_PREFIX: Final = frozenset({"Diverged", "SlaveAhead"})


@dataclass(frozen=True, slots=True)
class Question:
    """About which member of which pair, and for whom, the predicates are asked."""

    state: ClusterState
    pair: int | None = None
    """``None`` = about every pair."""
    member: int | None = None
    """The ordinal that the step would take away."""
    operation: Operation | None = None
    """The operation that asks."""
    master: int | None = None
    """The pair's master member; ``None`` = as the ConfigMaps say."""

    def other_operations(self) -> list[Operation]:
        """The operations of the cluster without the one that asks."""
        own = self.operation.id if self.operation is not None else ""
        return [other for other in self.state.operations if other.id != own]

    def pairs(self) -> range | tuple[int, ...]:
        """The pairs that are asked about."""
        return range(self.state.cluster.spec.pairs) if self.pair is None else (self.pair,)

    def master_of(self, pair: int) -> int:
        """The master member of a pair."""
        if self.master is not None and pair == self.pair:
            return self.master
        return self.state.master_member(pair)

    def master_view(self, pair: int) -> MemberView:
        """The master of a pair."""
        return self.state.observed.member(pair, self.master_of(pair))

    def slaves(self, pair: int) -> list[MemberView]:
        """The slaves a pair should have."""
        master = self.master_of(pair)
        return [view for view in self.state.wanted(pair) if view.ordinal != master]


def not_paused(question: Question) -> bool:
    """No pause annotation, no ``suspend``."""
    return not question.state.is_paused


def no_other_operation(question: Question) -> bool:
    """No other operation has taken a member of another pair away, or closed that pair, just now."""
    return not any(
        other.pair != question.pair and precedence.disturbs(other, question.state.now)
        for other in question.other_operations()
    )


def pair_free(question: Question) -> bool:
    """No other operation works on the pair."""
    asking = question.operation.type if question.operation is not None else ""
    return not any(
        other.pair == question.pair and precedence.keeps_out(other, asking)
        for other in question.other_operations()
    )


def no_other_pair_disrupted(question: Question) -> bool:
    """Every other pair has all its members ready and its master registered."""
    pairs = range(question.state.cluster.spec.pairs)
    return all(question.state.is_whole(pair) for pair in pairs if pair != question.pair)


def pair_has_in_sync_slave(question: Question) -> bool:
    """The pair keeps a ready slave that is in sync when the member goes.

    A pair that has no other slave by spec keeps none: nothing is asked of it.
    """
    return all(_keeps_slave(question, pair) for pair in question.pairs())


def _keeps_slave(question: Question, pair: int) -> bool:
    others = [view for view in question.slaves(pair) if view.ordinal != question.member]
    master = question.master_view(pair).broker
    return not others or any(
        view.is_ready and facts.in_sync(master, view.broker, question.state.now) for view in others
    )


def no_other_member_down(question: Question) -> bool:
    """Every other member of the pair is ready."""
    return all(
        view.is_ready
        for pair in question.pairs()
        for view in question.state.wanted(pair)
        if view.ordinal != question.member
    )


def offsets_fresh(question: Question) -> bool:
    """Every slave copied its master's tables within three synchronisation periods."""
    return all(
        _is_fresh(question, question.master_view(pair), slave)
        for pair in question.pairs()
        for slave in question.slaves(pair)
    )


def _is_fresh(question: Question, master: MemberView, slave: MemberView) -> bool:
    metrics = (slave.broker.metrics if slave.broker else None) or {}
    if SYNC_AGE in metrics:
        return metrics[SYNC_AGE] <= SYNC_PERIODS * _sync_seconds(slave)
    tables = facts.compare_metadata(master.broker, slave.broker)
    return tables is not None and not tables.stale


def _sync_seconds(view: MemberView) -> float:
    engine = {"type": "failback", "version": ""}
    if view.statefulset is not None:
        engine = engine_of(view.statefulset)
    return float(quirk("slaveSyncSeconds", engine["type"], engine["version"]))


def metadata_equal(question: Question) -> bool:
    """Topics and groups of every slave are those of its master."""
    return all(
        _tables_equal(question.master_view(pair), slave)
        for pair in question.pairs()
        for slave in question.slaves(pair)
    )


def _tables_equal(master: MemberView, slave: MemberView) -> bool:
    one, other = master.broker, slave.broker
    if one is None or other is None:
        return False
    return _holds(other.topics, one.topics) and _holds(other.groups, one.groups)


def _holds(
    table: Mapping[str, Mapping[str, Any]] | None, wanted: Mapping[str, Mapping[str, Any]] | None
) -> bool:
    if table is None or wanted is None:
        return False
    return all(table.get(name) == value for name, value in wanted.items())


def name_servers_reachable(question: Question) -> bool:
    """At least one name server answers, and most of those that do agree on each id 0."""
    answers = [
        route.brokers for route in question.state.observed.routes if route.brokers is not None
    ]
    if not answers:
        return False
    for pair in question.pairs():
        name = question.state.cluster.broker_name(pair)
        said = Counter(answer.get(name, {}).get(0) for answer in answers)
        if said.most_common(1)[0][1] * 2 <= len(answers):
            return False
    return True


def single_master(question: Question) -> bool:
    """One member says that it is master, all name servers have it as id 0, and for a while."""
    observed, now = question.state.observed, question.state.now
    since = [observed.master_since.get(pair) for pair in question.pairs()]
    return master_agreed(question) and all(
        at is not None and now - at >= STABLE_MASTER_SECONDS for at in since
    )


def master_agreed(question: Question) -> bool:
    """One member says that it is master, and all name servers have it as id 0."""
    return all(_has_agreed_master(question, pair) for pair in question.pairs())


def _has_agreed_master(question: Question, pair: int) -> bool:
    observed = question.state.observed
    views = [view for (index, _), view in sorted(observed.members.items()) if index == pair]
    masters = facts.claims_to_be_master(observed, pair)
    silent = [v for v in views if v.is_ready and facts.says_master(v.broker) is None]
    if len(masters) != 1 or silent:
        return False
    own = facts.announced_addresses(masters[0])
    answers = [route.brokers for route in observed.routes if route.brokers is not None]
    name = question.state.cluster.broker_name(pair)
    return bool(answers) and all(answer.get(name, {}).get(0) in own for answer in answers)


def prefix_verified(question: Question) -> bool:
    """No member's log was found to differ from its master's."""
    return not any(
        view.pod is not None and view.pod.prefix in _BAD_PREFIX
        for pair in question.pairs()
        for view in question.state.wanted(pair)
    )


def no_chaos_running(question: Question) -> bool:
    """No experiment injects or recovers now, unless the operation is its own."""
    own = question.operation.data.get("experiment") if question.operation else None
    return not any(
        (experiment.get("status") or {}).get("phase") in _INJECTING
        and experiment["metadata"]["name"] != own
        for experiment in question.state.observed.experiments
    )


def pdb_allows(question: Question) -> bool:
    """The pair's budget allows a disruption, or the pod is not ready and may go anyway."""
    if not question.state.cluster.spec.pod_disruption_budget.enabled:
        return True
    for pair in question.pairs():
        if question.member is not None:
            view = question.state.observed.member(pair, question.member)
            alone = question.state.holds(view) and not question.slaves(pair)
            if alone or (view.pod is not None and not view.pod.ready):
                continue
        if question.state.observed.budgets.get(pair, 0) < 1:
            return False
    return True


def min_ready_seconds(question: Question) -> bool:
    """The member of the cluster that became ready last has been so for ``minReadySeconds``."""
    needed = question.state.cluster.spec.update_strategy.min_ready_seconds
    pods = [view.pod for _, view in sorted(question.state.observed.members.items())]
    since = [pod.ready_since for pod in pods if pod is not None and pod.ready]
    return all(time is not None and question.state.now - time >= needed for time in since)


def store_compatible(question: Question) -> bool:
    """No engine must stay: the wanted one reads the stores, and a one-way upgrade is accepted."""
    return question.state.held_engine is None


def claims_settled(question: Question) -> bool:
    """No claim of the member (of the pair, when none is named) is being resized."""
    return not any(
        view.claim is not None and view.claim.resizing
        for pair in question.pairs()
        for view in question.state.wanted(pair)
        if question.member is None or view.ordinal == question.member
    )


PREDICATES: Final[Mapping[str, Callable[[Question], bool]]] = {
    "NotPaused": not_paused,
    "NoOtherOperation": no_other_operation,
    "PairFree": pair_free,
    "NoOtherPairDisrupted": no_other_pair_disrupted,
    "PairHasInSyncSlave": pair_has_in_sync_slave,
    "NoOtherMemberDown": no_other_member_down,
    "OffsetsFresh": offsets_fresh,
    "MetadataEqual": metadata_equal,
    "NameServersReachable": name_servers_reachable,
    "SingleMaster": single_master,
    "MasterAgreed": master_agreed,
    "PrefixVerified": prefix_verified,
    "NoChaosRunning": no_chaos_running,
    "PDBAllows": pdb_allows,
    "MinReadySeconds": min_ready_seconds,
    "StoreCompatible": store_compatible,
    "ClaimsSettled": claims_settled,
}


def evaluate(
    names: Iterable[str],
    state: ClusterState,
    *,
    pair: int | None = None,
    member: int | None = None,
    operation: Operation | None = None,
    master: int | None = None,
) -> tuple[str, ...]:
    """Return those of ``names`` that are false, in their order.

    Args:
        pair: The pair that the step disturbs; ``None`` = all pairs.
        member: The ordinal that the step takes away, if one.
        operation: The operation that asks.
        master: The pair's master member, when not as the ConfigMaps say.

    Raises:
        KeyError: There is no predicate of that name.
    """
    question = Question(state, pair=pair, member=member, operation=operation, master=master)
    return tuple(name for name in names if not PREDICATES[name](question))


_WRITE: Final = 2


def is_broker_made(topic: str) -> bool:
    """Tell whether brokers make and fill a topic themselves: system topics, retries, dead letters.

    The two that are named after a pair and its cluster are not among them.
    """
    return is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def others_take_messages_of(state: ClusterState, pair: int) -> bool:
    """Tell whether every topic that producers write to on a pair is open on another one too.

    What is not known of the pair's own topics speaks for closing it.
    """
    own = _written_topics(state, pair)
    if own is None:
        return True
    others = [other for other in state.pairs if other != pair and _takes_writes(state, other)]
    elsewhere = set().union(*(_written_topics(state, other) or () for other in others))
    return bool(others) and own <= elsewhere


def _takes_writes(state: ClusterState, pair: int) -> bool:
    master = state.master(pair)
    name = state.cluster.broker_name(pair)
    listed = facts.is_registered(state.observed, name, master, 0)
    return master.is_ready and listed and pair not in state.base_shape.closed


def _written_topics(state: ClusterState, pair: int) -> set[str] | None:
    broker = state.master(pair).broker
    if broker is None or broker.topics is None:
        return None
    of_brokers = {state.cluster.cluster_name, state.cluster.broker_name(pair)}
    return {
        name
        for name, config in broker.topics.items()
        if _is_written(config) and name not in of_brokers and not is_broker_made(name)
    }


def _is_written(config: Mapping[str, Any]) -> bool:
    return bool(config.get("perm", 6) & _WRITE)
