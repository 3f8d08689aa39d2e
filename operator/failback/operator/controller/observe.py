"""Observation: what one pass over a resource sees, from the watches and from the peers."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from failback.kube.asynchronous import Kube
from failback.operator.brokers.operator_keys import OperatorKeys
from failback.operator.brokers.peers import Peers, Target
from failback.operator.brokers.route_history import RouteHistory
from failback.operator.controller.nodes import Nodes
from failback.operator.controller.refused_pods import Missing, refused_pods
from failback.operator.engines.catalogue import quirk
from failback.operator.kinds.base import schema_words
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.kinds.permits import is_named
from failback.operator.kubernetes.store import Store
from failback.operator.planning.cluster import last_valid
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import (
    Broker,
    Key,
    MemberView,
    Object,
    ObservedCluster,
    ObservedNameServer,
    PairLag,
    Pod,
    Route,
    Snapshot,
)
from failback.operator.planning.observed.rivals import OtherOperator, older_rival
from failback.operator.planning.operations.switching import snapshot as snapshots
from failback.operator.planning.plan.encoding import is_true, stored_operations
from failback.operator.planning.state.decode import (
    decode_claim,
    decode_pod,
    is_owned,
    is_pod_of,
    member_of,
)
from failback.operator.render import common
from failback.operator.render.common import HTTP_PORT
from failback.operator.render.context import Context
from failback.operator.render.members import (
    APACHE_TLS,
    FAILBACK_TLS,
    claim_name,
    pod_name,
    service_name,
)
from failback.operator.render.nameserver import addresses, statefulset_name
from failback.operator.render.shape import Member

_LEASED: Final = frozenset({"RoleSwitch", "Resync"})
_NAMES: Final = ("brokerClusterName", "brokerName")
_SERVED_SECONDS: Final = 300.0
_LAG_SECONDS: Final = 5.0
_OVER: Final = frozenset({"Completed", "Aborted", "Failed", "Complete"})


@dataclass(slots=True)
class ClusterMemory:
    """What is remembered of a cluster between passes; it may be lost at any time."""

    routes: RouteHistory = field(default_factory=RouteHistory)
    foreign: set[Key] = field(default_factory=set)
    lags: dict[int, PairLag] = field(default_factory=dict)
    lags_at: float = 0.0
    topic_lags: dict[tuple[str, int], Mapping[int, int]] = field(default_factory=dict)
    order_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    tables_at: float = 0.0
    permissions: dict[str, dict[str, int] | None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    other_operator: OtherOperator = field(default_factory=OtherOperator)
    missing_pods: Missing = field(default_factory=dict)
    registered: list[object] | None = None
    """What the name servers said of this cluster's brokers when they were looked at last."""
    members: tuple[Sequence[Object], str, dict[Member, MemberView]] | None = None
    """Children, uid of their cluster, and the members among them: decoded once."""
    targets: dict[Member, Target] = field(default_factory=dict)
    """The brokers that can be asked, by ``targets_of``."""
    targets_of: tuple[BrokerCluster, Mapping[Member, MemberView], object] | None = None
    """Cluster, members and registrations."""

    def look_for_other_operators(
        self, status: Mapping[str, Any], context: Context
    ) -> tuple[tuple[str, ...], str]:
        """Return the versions of two operators on one resource, and the one to show."""
        shown = str(status.get("operatorVersion") or "")
        return self.other_operator.look(shown, context.version, time.monotonic())


class Observer:
    """Builds what planners look at. One for the whole process."""

    def __init__(
        self,
        store: Store,
        peers: Peers,
        kube: Kube,
        *,
        optional_kinds: Collection[str] = (),
        own_access: OperatorKeys | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make an observer; ``optional_kinds`` are those that this operator may make."""
        self._own_access = own_access or OperatorKeys(None)
        self._store = store
        self._peers = peers
        self._kube = kube
        self._nodes = Nodes(kube)
        self._clock = clock
        self._optional_kinds = frozenset(optional_kinds)
        self._served: frozenset[str] = frozenset()
        self._served_at: float | None = None
        self._memories = defaultdict[tuple[str, str], ClusterMemory](ClusterMemory)

    def memory(self, namespace: str, cluster: str) -> ClusterMemory:
        """Return what is remembered of a cluster."""
        return self._memories[namespace, cluster]

    def has_asked(self, namespace: str, cluster: str) -> bool:
        """Tell whether a cluster's brokers and name servers have been asked at all."""
        return self.memory(namespace, cluster).registered is not None

    def forget(self, namespace: str, cluster: str) -> None:
        """Drop what is remembered of a cluster that is gone."""
        self._memories.pop((namespace, cluster), None)

    async def served_kinds(self) -> frozenset[str]:
        """Return the optional kinds that are served and allowed, asked every five minutes."""
        if not self._optional_kinds:
            return frozenset()
        now = time.monotonic()
        if self._served_at is None or now - self._served_at > _SERVED_SECONDS:
            self._served = self._optional_kinds & await self._kube.served_kinds()
            self._served_at = now
        return self._served

    async def _monitors(self, namespace: str, name: str) -> list[Object]:
        """Return the PodMonitor of that name: of an optional kind there is no watch."""
        if "PodMonitor" not in await self.served_kinds():
            return []
        found = await self._kube.get("PodMonitor", namespace, name)
        return [] if found is None else [{"kind": "PodMonitor", **found}]

    # --- a BrokerCluster ----------------------------------------------------------------------

    def decoded(self, item: Object) -> tuple[BrokerCluster, str]:
        """Return a stored cluster, and what is wrong with its spec if it can't be read.

        Raises:
            ValidationError: It can't be read, and no last valid spec of it is known.
        """
        try:
            return BrokerCluster.model_validate(item), ""
        except ValidationError as error:
            kept = self._last_valid_spec(item)
            if kept is None:
                raise
            spec = {**kept, "suspend": item["spec"].get("suspend") is True}
            return BrokerCluster.model_validate({**item, "spec": spec}), schema_words(error)

    def _last_valid_spec(self, item: Object) -> Mapping[str, Any] | None:
        metadata = item["metadata"]
        key = last_valid.key_of(metadata["name"])
        children = self._store.children(metadata["namespace"], "BrokerCluster", metadata["name"])
        owned = _owned(children, metadata["uid"])
        return last_valid.stored_spec(owned.get(key))

    def name_servers(self, cluster: BrokerCluster, context: Context) -> list[str] | None:
        """Return the addresses a cluster registers at; ``None`` without its NameServer."""
        reference = cluster.spec.name_server_ref
        if reference is None:
            return list(cluster.spec.name_server_addresses or ())
        item = self._store.resource("NameServer", cluster.namespace, reference.name)
        if item is None:
            return None
        # Without either its own status says so; this cluster goes by what it was told.
        listed = self._published(cluster.namespace, reference.name)
        return listed or _addresses(item, context) or None

    def _rival(self, cluster: BrokerCluster, servers: Sequence[str]) -> str:
        own = self._store.resource(cluster.kind, cluster.namespace, cluster.name)
        others = self._store.of_broker_names(own) if own is not None else []
        return older_rival(own, others, servers, self._published) if own and others else ""

    def _published(self, namespace: str, name_server: str) -> list[str]:
        found = self._store.resource("NameServer", namespace, name_server) or {}
        return list(found.get("status", {}).get("addresses") or ())

    def _read_only(
        self, cluster: BrokerCluster, servers: Sequence[str], context: Context
    ) -> frozenset[str]:
        """Return those that no NameServer of the namespace runs by its spec, and no list has.

        A status is not believed here: an account that may write resources may be able to write it.
        """
        if context.permits is None:
            return frozenset()
        own = {
            address
            for item in self._store.resources("NameServer", cluster.namespace)
            for address in _addresses(item, context)
        }
        listed = context.permits.name_servers
        return frozenset(each for each in servers if each not in own and not is_named(each, listed))

    def members(self, cluster: BrokerCluster) -> dict[Member, MemberView]:
        """Return the members of a cluster as the watches show them, brokers left out."""
        memory, uid = self.memory(cluster.namespace, cluster.name), cluster.metadata.uid
        children = self._store.children(cluster.namespace, cluster.kind, cluster.name)
        known = memory.members
        if known is None or known[0] is not children or known[1] != uid:
            known = memory.members = (children, uid, _decoded(children, uid))
        return known[2]

    def targets(
        self, cluster: BrokerCluster, members: Mapping[Member, MemberView], context: Context
    ) -> dict[Member, Target]:
        """Return the brokers that can be asked now: members whose pod has an address."""
        memory = self.memory(cluster.namespace, cluster.name)
        of, registered = memory.targets_of, memory.registered
        if of is None or of[0] is not cluster or of[1] is not members or of[2] != registered:
            memory.targets = _targets(cluster, members, context, registered)
            memory.targets_of = (cluster, members, registered)
        return memory.targets

    async def refresh_cluster(
        self, cluster: BrokerCluster, context: Context, status: Mapping[str, Any]
    ) -> bool:
        """Ask what is due of name servers and brokers; tell whether anything turned out new."""
        switches = self._store.of_cluster("RoleSwitch", cluster.namespace, cluster.name)
        switching = any(_phase(item) not in _OVER for item in switches)
        fast = bool(stored_operations(status)) or switching
        memory = self.memory(cluster.namespace, cluster.name)
        servers = self.name_servers(cluster, context) or []
        members = self.members(cluster)
        targets = self.targets(cluster, members, context)
        self._use_own_access(cluster, members, targets, context)
        by_pair: dict[int, list[Target]] = {}
        for (pair, _), target in targets.items():
            by_pair.setdefault(pair, []).append(target)
        questions = [
            self._peers.refresh_pair(pair, fast=fast)
            for pair in by_pair.values()
            if self._peers.is_due(pair, fast=fast)
        ]
        if any(self._peers.is_route_due(address, fast=fast) for address in servers):
            questions.append(self._peers.refresh_routes(servers, fast=fast))
        before = self._answers(targets) if questions else None
        if questions:
            await asyncio.gather(*questions)
        answered = before is not None and before != self._answers(targets)
        names = {pair: cluster.broker_name(pair) for pair in {member[0] for member in members}}
        routes = [self._peers.route(address) for address in servers]
        masters = memory.routes.recent_masters, memory.routes.masterless_since
        memory.routes.note(routes, names, self._clock())
        after = memory.routes.recent_masters, memory.routes.masterless_since
        registered = _registered(routes, names)
        listed_anew = registered != memory.registered
        memory.registered = registered
        changed = await self._refresh_extras(cluster, servers, members, targets, fast)
        changed |= await self._nodes.refresh(_nodes_to_ask(cluster, members))
        return changed or listed_anew or masters != after or answered

    def _use_own_access(
        self,
        cluster: BrokerCluster,
        members: Mapping[Member, MemberView],
        targets: Mapping[Member, Target],
        context: Context,
    ) -> None:
        """Have a guarded cluster's brokers and name servers asked with its key, and over TLS."""
        spec, own = cluster.spec, (cluster.namespace, cluster.name)
        if spec.acl is None and spec.tls is None and not self._guarded_name_server(cluster):
            for target in targets.values():  # a pod of a guarded cluster may have had its address
                self._peers.use(target.address, None, "")
            return
        service = service_name(cluster)
        tls = False
        for member, target in targets.items():
            speaks = _speaks_tls(facts.properties(members[member].config_map))
            host = context.address_of(pod_name(cluster, *member), service)
            self._peers.use(target.address, self._own_access.of(*own, tls=speaks), host)
            tls |= speaks
        if spec.name_server_ref is None:  # they run elsewhere: what is signed could be sent on
            for address in spec.name_server_addresses or ():
                access = self._own_access.of(*own, tls=tls, signed=False)
                self._peers.use(address, access or None, address.rpartition(":")[0])
            return
        self._use_access_of_name_servers(cluster.namespace, spec.name_server_ref.name, context)

    def _guarded_name_server(self, cluster: BrokerCluster) -> bool:
        reference = cluster.spec.name_server_ref
        return reference is not None and self._own_access.has_key(cluster.namespace, reference.name)

    def _use_access_of_name_servers(self, namespace: str, name: str, context: Context) -> None:
        item = self._store.resource("NameServer", namespace, name)
        if item is None:
            return
        file = facts.properties(self._name_server_file(namespace, name), common.TLS_FILE)
        takes = file.get("tls.server.mode") == "enforcing"
        access = self._own_access.of(namespace, name, tls=takes) or None
        for address in _addresses(item, context):
            self._peers.use(address, access, address.rpartition(":")[0])

    def _name_server_file(self, namespace: str, name: str) -> Object | None:
        children = self._store.children(namespace, "NameServer", name)
        maps = (item for item in children if item["kind"] == "ConfigMap")
        return next((item for item in maps if common.TLS_FILE in item.get("data", {})), None)

    def _name_servers_take_tls(self, cluster: BrokerCluster) -> bool:
        """Tell whether all pods of a cluster's NameServer do; others are believed to."""
        if cluster.spec.name_server_ref is None:
            return True
        name = cluster.spec.name_server_ref.name
        item = self._store.resource("NameServer", cluster.namespace, name)
        if item is None or item["spec"].get("tls", {}).get("mode", "Permissive") == "Disabled":
            return False
        status = item.get("status", {})
        done = status.get("observedGeneration") == item["metadata"].get("generation")
        return "tls" in item["spec"] and done and is_true(status, "Ready")

    def _clusters_of(self, name_server: NameServer, *, speak: bool) -> tuple[str, ...]:
        """Return its clusters with a member that speaks TLS, or with one that does not."""
        found = []
        for item in self._store.resources("BrokerCluster", name_server.namespace):
            if item["spec"].get("nameServerRef", {}).get("name") != name_server.name:
                continue
            name = item["metadata"]["name"]
            children = self._store.children(name_server.namespace, "BrokerCluster", name)
            files = [facts.properties(each) for each in children if member_of(each) is not None]
            if any(_speaks_tls(each) is speak for each in files if each):
                found.append(name)
        return tuple(found)

    def _answers(self, targets: Mapping[Member, Target]) -> list[Broker]:
        return [
            replace(known, runtime=None, end_at=None, offsets_at=None, metrics=None)
            for known in map(self._peers.broker, targets.values())
        ]

    async def _refresh_extras(
        self,
        cluster: BrokerCluster,
        servers: Sequence[str],
        members: Mapping[Member, MemberView],
        targets: Mapping[Member, Target],
        fast: bool,
    ) -> bool:
        """Ask what only drains, operations and topics need: 105, backlogs, 219."""
        memory, now = self.memory(cluster.namespace, cluster.name), self._clock()
        before = dict(memory.permissions), dict(memory.lags), dict(memory.order_configs)
        pairs = {pair for pair, _ in members}
        if fast:
            topics = {cluster.broker_name(pair): cluster.broker_name(pair) for pair in pairs}
            answers = await asyncio.gather(
                *(self._peers.permissions(address, topics) for address in servers)
            )
            memory.permissions = dict(zip(servers, answers, strict=True))
        else:
            memory.permissions = {}
        leaving = [pair for pair in pairs if pair >= cluster.spec.pairs]
        if not leaving:
            memory.lags = {}
        elif now - memory.lags_at >= _LAG_SECONDS:
            memory.lags_at = now
            for pair in leaving:
                await self._refresh_backlog(memory, pair, targets)
        if now - memory.tables_at >= _LAG_SECONDS:
            memory.tables_at = now
            await self._refresh_topics(cluster, memory, servers, targets)
        return before != (memory.permissions, memory.lags, memory.order_configs)

    async def _refresh_backlog(
        self, memory: ClusterMemory, pair: int, targets: Mapping[Member, Target]
    ) -> None:
        masters = [
            target for (index, _), target in targets.items() if index == pair and target.is_master
        ]
        lag = None
        if masters:
            topics = self._peers.broker(masters[0]).topics
            lag = await self._peers.backlogs.of_pair(masters[0].address, topics)
        if lag is None:
            memory.lags.pop(pair, None)
        else:
            memory.lags[pair] = lag

    async def _refresh_topics(
        self,
        cluster: BrokerCluster,
        memory: ClusterMemory,
        servers: Sequence[str],
        targets: Mapping[Member, Target],
    ) -> None:
        """Ask for order topics, and for the backlog of topics that lose read queues."""
        topics = self._store.of_cluster("Topic", cluster.namespace, cluster.name)
        if not any(item["spec"].get("order") for item in topics) and not memory.order_configs:
            order: dict[str, Mapping[str, str]] = {}
        else:
            answers = await asyncio.gather(*map(self._peers.order_config, servers))
            order = {
                address: answer
                for address, answer in zip(servers, answers, strict=True)
                if answer is not None
            }
        memory.order_configs = order if any(order.values()) or topics else {}
        found: dict[tuple[str, int], Mapping[int, int]] = {}
        for item in topics:
            name = item["spec"].get("topicName") or item["metadata"]["name"]
            wanted = item["spec"].get("readQueueNums", 8)
            for (pair, _), target in targets.items():
                stored = (self._peers.broker(target).topics or {}).get(name)
                if not target.is_master or stored is None or stored["readQueueNums"] <= wanted:
                    continue
                lag = await self._peers.backlogs.of_topic(target.address, name)
                if lag is not None:
                    found[name, pair] = lag
        memory.topic_lags = found

    async def observe_cluster(
        self, cluster: BrokerCluster, context: Context, status: Mapping[str, Any]
    ) -> ObservedCluster:
        """Return everything a pass over a cluster sees; asks brokers nothing."""
        memory = self.memory(cluster.namespace, cluster.name)
        children = self._store.children(cluster.namespace, cluster.kind, cluster.name)
        members = await self._with_claims(cluster, self.members(cluster))
        targets = self.targets(cluster, self.members(cluster), context)
        views = {
            member: replace(
                view,
                broker=self._peers.broker(targets[member]) if member in targets else None,
            )
            for member, view in members.items()
        }
        servers = self.name_servers(cluster, context)
        switches = self._store.of_cluster("RoleSwitch", cluster.namespace, cluster.name)
        experiments = self._store.of_cluster("ChaosExperiment", cluster.namespace, cluster.name)
        marks = cluster.metadata.annotations.get("failback.dev/node-fenced", "")
        monitors = await self._monitors(cluster.namespace, cluster.name)
        other_operators, shown = memory.look_for_other_operators(status, context)
        return ObservedCluster(
            at=self._clock(),
            objects=_owned([*children, *monitors], cluster.metadata.uid),
            foreign=await self._foreign(cluster.namespace, cluster.metadata.uid, memory.foreign),
            rival=self._rival(cluster, servers or []),
            members=views,
            refused_pods=await refused_pods(self._kube, memory.missing_pods, _makers(members)),
            has_key=self._own_access.has_key(cluster.namespace, cluster.name),
            name_servers_take_tls=self._name_servers_take_tls(cluster),
            name_servers=servers,
            read_only=self._read_only(cluster, servers or (), context),
            routes=self._routes(servers or [], memory),
            master_since=memory.routes.master_since,
            recent_masters=memory.routes.recent_masters,
            masterless_since=memory.routes.masterless_since,
            budgets=_budgets(children),
            lags=dict(memory.lags),
            leases=await self._leases(cluster, status, switches, experiments),
            topics=self._store.of_cluster("Topic", cluster.namespace, cluster.name),
            groups=self._store.of_cluster("SubscriptionGroup", cluster.namespace, cluster.name),
            role_switches=switches,
            experiments=experiments,
            snapshots=_snapshots(children, status),
            order_configs=dict(memory.order_configs),
            topic_lags=dict(memory.topic_lags),
            served_kinds=await self.served_kinds(),
            fenced_nodes=frozenset(filter(None, marks.replace(" ", "").split(","))),
            leaving_nodes=self._nodes.leaving(_nodes_to_ask(cluster, members)),
            other_operators=other_operators,
            version_shown=shown,
        )

    async def _with_claims(
        self, cluster: BrokerCluster, members: Mapping[Member, MemberView]
    ) -> Mapping[Member, MemberView]:
        """Return the members with the claims of their names, also those that others made.

        The watch shows claims by their labels; a claim that was kept or brought from elsewhere
        need not have them. Asked only about members that have no StatefulSet, or no claim yet.
        """
        if cluster.spec.storage.type != "Persistent":
            return members
        found = dict(members)
        for pair in range(cluster.spec.pairs):
            for ordinal in cluster.pair(pair).ordinals:
                view = members.get((pair, ordinal)) or MemberView(pair, ordinal)
                if view.statefulset is not None and view.claim is not None:
                    continue
                name = claim_name(cluster, pair, ordinal)
                item = await self._kube.get("PersistentVolumeClaim", cluster.namespace, name)
                claim = None if item is None else decode_claim(item)
                if claim != view.claim:
                    found[pair, ordinal] = replace(view, claim=claim)
        return found

    def _routes(self, servers: Sequence[str], memory: ClusterMemory) -> tuple[Route, ...]:
        return tuple(
            replace(self._peers.route(address), permissions=memory.permissions.get(address))
            for address in servers
        )

    async def _foreign(self, namespace: str, uid: str, known: set[Key]) -> frozenset[Key]:
        """Return which of the names that were taken are still taken."""
        for kind, name in sorted(known):
            found = await self._kube.get(kind, namespace, name)
            if found is None or is_owned(found, uid):
                known.discard((kind, name))
        return frozenset(known)

    async def _leases(
        self,
        cluster: BrokerCluster,
        status: Mapping[str, Any],
        switches: Sequence[Object],
        experiments: Sequence[Object],
    ) -> dict[str, Object]:
        """Return the Leases that matter now: none are read while none could be held."""
        names = []
        leased = [item for item in stored_operations(status) if item["type"] in _LEASED]
        active = [item for item in switches if _phase(item) not in _OVER]
        if leased or active:
            pairs = {item["spec"].get("pair") for item in active}
            pairs |= {item.get("pair") for item in leased}
            names += [f"failback-{cluster.name}-{pair}" for pair in pairs if pair is not None]
        if any(_phase(item) not in _OVER for item in experiments):
            names.append(f"failback-{cluster.name}-chaos")
        found: dict[str, Object] = {}
        for name in sorted(names):
            lease = await self._kube.lease(cluster.namespace, name)
            if lease is not None:
                found[name] = lease
        return found

    # --- a NameServer -------------------------------------------------------------------------

    async def refresh_name_server(self, name_server: NameServer, context: Context) -> bool:
        """Ask every address whose pod could answer; tell whether anything turned out new."""
        pods = self._pods(name_server)
        listed = addresses(name_server, context)
        asked = [address for index, address in enumerate(listed) if index in pods]
        self._use_access_of_name_servers(name_server.namespace, name_server.name, context)
        before = self._said(listed)
        await self._peers.refresh_routes(asked, fast=False)
        return before != self._said(listed)

    def _said(self, name_servers: Sequence[str]) -> list[tuple[bool, str]]:
        """Return of each whether it gave its list, and why it did not."""
        routes = map(self._peers.route, name_servers)
        return [(route.brokers is None, route.problem) for route in routes]

    def _pods(self, name_server: NameServer) -> dict[int, Pod]:
        found = {}
        for item in self._store.children(name_server.namespace, name_server.kind, name_server.name):
            _, _, index = item["metadata"]["name"].rpartition("-")
            if item["kind"] != "Pod" or not index.isdigit():
                continue
            if is_pod_of(item, statefulset_name(name_server), index):
                found[int(index)] = decode_pod(item)
        return found

    async def observe_name_server(
        self, name_server: NameServer, context: Context
    ) -> ObservedNameServer:
        """Return everything a pass over a NameServer sees."""
        children = self._store.children(name_server.namespace, name_server.kind, name_server.name)
        memory = self.memory(name_server.namespace, f"nameserver/{name_server.name}")
        pods = self._pods(name_server)
        routes = {
            address: self._peers.route(address)
            for index, address in enumerate(addresses(name_server, context))
            if index in pods
        }
        uid, name = name_server.metadata.uid, statefulset_name(name_server)
        maker = _owned(children, uid).get(("StatefulSet", name), {"spec": {"replicas": 0}})
        wanted = set(range(maker["spec"].get("replicas", 1))) - pods.keys()
        makers = {f"{name}-{index}": maker for index in sorted(wanted)}
        monitors = await self._monitors(name_server.namespace, statefulset_name(name_server))
        other_operators, shown = memory.look_for_other_operators(name_server.status, context)
        return ObservedNameServer(
            at=self._clock(),
            objects=_owned([*children, *monitors], uid),
            foreign=await self._foreign(name_server.namespace, uid, memory.foreign),
            pods=pods,
            plain_clusters=self._clusters_of(name_server, speak=False),
            tls_clusters=self._clusters_of(name_server, speak=True),
            routes=routes,
            refused_pods=await refused_pods(self._kube, memory.missing_pods, makers),
            served_kinds=await self.served_kinds(),
            other_operators=other_operators,
            version_shown=shown,
        )


def _decoded(children: Sequence[Object], uid: str) -> dict[Member, MemberView]:
    parts: dict[Member, dict[str, Any]] = {}
    for item in children:
        member = member_of(item)
        if member is None:
            continue
        part = parts.setdefault(member, {})
        kind = item["kind"]
        if kind == "Pod":
            cluster = item["metadata"]["labels"].get("failback.dev/cluster", "")
            if not is_pod_of(item, f"{cluster}-{member[0]}-{member[1]}"):
                continue
            pod = decode_pod(item)
            if "pod" not in part or part["pod"].deleting:
                part["pod"] = pod
        elif kind == "PersistentVolumeClaim" and _is_named_after_its_labels(item):
            part["claim"] = decode_claim(item)
        elif is_owned(item, uid):
            key = {"StatefulSet": "statefulset", "ConfigMap": "config_map"}.get(kind)
            if key is not None:
                part[key] = item
    return {
        member: MemberView(member[0], member[1], **part) for member, part in sorted(parts.items())
    }


def _makers(members: Mapping[Member, MemberView]) -> dict[str, Object]:
    """Return the pods that are not there although they are to run, each with its StatefulSet."""
    sets = [view.statefulset for view in members.values() if view.pod is None and view.statefulset]
    return {f"{each['metadata']['name']}-0": each for each in sets if each["spec"]["replicas"]}


def _nodes_to_ask(cluster: BrokerCluster, members: Mapping[Member, MemberView]) -> list[str]:
    """Return the nodes whose drain concerns a cluster."""
    if cluster.spec.failover.on_drain == "Allow":
        return []
    pods = [view.pod for view in members.values() if view.pod is not None]
    return sorted({pod.node for pod in pods if pod.node})


def _addresses(name_server: Object, context: Context) -> list[str]:
    """Return what a NameServer runs by its spec; nothing while its spec is none."""
    try:
        return addresses(NameServer.model_validate(name_server), context)
    except ValidationError:
        return []


def _speaks_tls(properties: Mapping[str, str]) -> bool:
    """Tell whether a member's own connections are said to be of TLS."""
    return any(properties.get(key) == "true" for key in (FAILBACK_TLS[1], APACHE_TLS[1]))


def _is_named_after_its_labels(claim: Object) -> bool:
    """Tell whether a claim is the one that a member uses, and no copy of it."""
    owner, metadata = decode_claim(claim).owner, claim["metadata"]
    return bool(metadata["name"] == f"data-{'-'.join(owner)}-0")


def _targets(
    cluster: BrokerCluster,
    members: Mapping[Member, MemberView],
    context: Context,
    registered: object,
) -> dict[Member, Target]:
    engine = cluster.spec.engine
    version = common.engine_version(engine, context)
    period = float(quirk("slaveSyncSeconds", engine.program, version))
    found = {}
    for member, view in members.items():
        if view.pod is None or not view.pod.ip:
            continue
        properties = facts.properties(view.config_map)
        port = properties.get("listenPort", str(cluster.spec.networking.listen_port))
        url = f"http://{view.pod.ip}:{HTTP_PORT}"
        has_carry = view.statefulset is not None and facts.has_carry(view.statefulset)
        found[member] = Target(
            address=f"{view.pod.ip}:{port}",
            incarnation=view.pod.uid,
            is_master=properties.get("brokerRole", "SLAVE") != "SLAVE",
            sync_seconds=period,
            http=url if engine.program == "failback" else "",
            carry=url if has_carry else "",
            names={key: properties[key] for key in _NAMES if key in properties},
            signs=(view.pod.ready, view.pod.restarts, registered),
        )
    return found


def _phase(item: Object) -> str:
    return str(item.get("status", {}).get("phase", ""))


def _registered(routes: Sequence[Route], names: Mapping[int, str]) -> list[object]:
    """Return, of each name server, whether it answers and what it lists under our names."""
    return [
        None
        if route.brokers is None
        else {name: route.brokers.get(name) for name in names.values()}
        for route in routes
    ]


def _owned(children: Sequence[Object], uid: str) -> dict[Key, Object]:
    return {
        (item["kind"], item["metadata"]["name"]): item
        for item in children
        if item["kind"] not in ("Pod", "PersistentVolumeClaim") and is_owned(item, uid)
    }


def _budgets(children: Sequence[Object]) -> dict[int, int]:
    found = {}
    for item in children:
        pair = item["metadata"].get("labels", {}).get("failback.dev/pair", "")
        if item["kind"] == "PodDisruptionBudget" and pair.isdigit():
            found[int(pair)] = int(item.get("status", {}).get("disruptionsAllowed", 0))
    return found


def _snapshots(children: Sequence[Object], status: Mapping[str, Any]) -> dict[str, Snapshot]:
    """Return the offset snapshots of the running RoleSwitches, by the name of the ConfigMap."""
    names = {(item.get("data") or {}).get("snapshot") for item in stored_operations(status)}
    found = {}
    for item in children:
        metadata = item["metadata"]
        if item["kind"] == "ConfigMap" and metadata["name"] in names:
            table, label = snapshots.read(item)
            found[metadata["name"]] = Snapshot(metadata["uid"], table, label)
    return found
