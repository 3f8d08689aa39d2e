"""Carry out the actions of a plan, in order, up to the first that fails.

Each action can be repeated. A success code is not evidence: what was set is read back.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from failback.operator.brokers.peers import Peers
from failback.operator.engines.catalogue import same_value
from failback.operator.kubernetes.api import ApiError, Kube
from failback.operator.kubernetes.conflicts import Conflicts
from failback.operator.kubernetes.store import Store
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.plan.encoding import from_time, names
from failback.operator.planning.plan.types import (
    Action,
    Apply,
    CommitOffsets,
    Delete,
    DeleteGroup,
    DeletePod,
    DeleteTopic,
    Event,
    Evict,
    LabelPod,
    PatchMetadata,
    PatchSpec,
    PutGroup,
    PutKv,
    PutTopic,
    ReleaseLease,
    ResizeClaim,
    SaveSnapshot,
    SetConfig,
    SetPodCondition,
    TakeLease,
)
from failback.operator.planning.state.decode import is_owned
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.errors import BrokerError, FailbackError
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig

logger = logging.getLogger(__name__)

EVICTION_RETRY_SECONDS: Final = 5.0
_FOR_GOOD: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION, 13})


class NameTaken(FailbackError):
    """An object of a name we need belongs to somebody else."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"{key[0]}/{key[1]} belongs to somebody else")
        self.key = key


class NotReadBack(FailbackError):
    """A peer acknowledged a change that its next answer does not show."""


class NoAnswer(FailbackError):
    """A broker or name server did not answer in time."""


@dataclass(slots=True)
class Outcome:
    """How far a plan got."""

    done: int = 0
    failed: Action | None = None
    error: Exception | None = None
    events: list[Event] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Broker address → why it refused a topic or group for good."""
    blocked_by: tuple[str, ...] = ()
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Everything was carried out."""
        return self.failed is None


class CarryOut:
    """Carries out actions for one resource at a time; shared by all of them."""

    def __init__(
        self, kube: Kube, peers: Peers, store: Store, conflicts: Conflicts, metrics: Metrics
    ) -> None:
        self._kube = kube
        self._peers = peers
        self._store = store
        self._conflicts = conflicts
        self._metrics = metrics

    async def run(
        self, resource: Object, actions: Sequence[Action], known: Mapping[Key, Object]
    ) -> Outcome:
        """Carry out ``actions`` of ``resource``; stop at the first failure.

        Args:
            known: Children that were observed: others are looked for before they are made.
        """
        outcome = Outcome()
        for action in actions:
            try:
                await self._one(resource, action, known, outcome)
            except (FailbackError, TimeoutError) as error:
                outcome.failed, outcome.error = action, error
                logger.info("%s: %s", type(action).__name__, error)
                return outcome
            outcome.done += 1
        return outcome

    async def _one(
        self, resource: Object, action: Action, known: Mapping[Key, Object], outcome: Outcome
    ) -> None:
        namespace = resource["metadata"]["namespace"]
        match action:
            case Apply():
                await self._apply(resource, action.manifest, known, outcome)
            case Delete():
                kind, name = action.key
                await self._kube.delete(
                    kind, namespace, name, uid=action.uid, propagation=action.propagation
                )
            case Evict():
                await self._evict(resource, action, outcome)
            case DeletePod():
                await self._kube.delete(
                    "Pod",
                    namespace,
                    action.pod,
                    uid=action.uid,
                    grace_seconds=action.grace_seconds,
                )
                self._count_restart(resource, "Deleted")
            case LabelPod():
                body = {"metadata": {"uid": action.uid, "labels": dict(action.labels)}}
                await self._patch_pod(namespace, action.pod, body)
            case SetPodCondition():
                await self._set_pod_condition(namespace, action)
            case ResizeClaim():
                body = {
                    "metadata": {"uid": action.uid},
                    "spec": {"resources": {"requests": {"storage": action.size}}},
                }
                await self._kube.merge("PersistentVolumeClaim", namespace, action.claim, body)
            case PatchSpec():
                await self._patch_spec(resource, action)
            case PatchMetadata():
                marks = dict.fromkeys(action.remove_annotations)
                body = {"metadata": {"annotations": marks}}
                name = resource["metadata"]["name"]
                await self._kube.merge(resource["kind"], namespace, name, body)
            case SaveSnapshot():
                await self._save_snapshot(resource, action)
            case TakeLease():
                await self._take_lease(resource, action)
            case ReleaseLease():
                await self._release_lease(namespace, action)
            case _:
                await self._peer(action, outcome)

    # --- objects ------------------------------------------------------------------------------

    async def _apply(
        self, resource: Object, manifest: Object, known: Mapping[Key, Object], outcome: Outcome
    ) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        namespace = resource["metadata"]["namespace"]
        if (kind, name) not in known and manifest["metadata"].get("ownerReferences"):
            have = await self._kube.get(kind, namespace, name)
            if have is not None and not is_owned(have, resource["metadata"]["uid"]):
                raise NameTaken((kind, name))
        try:
            done = await self._kube.apply(manifest)
        except ApiError as error:
            if not error.is_field_conflict:
                raise
            verdict = self._conflicts.judge(kind, namespace, name, error)
            self._metrics.field_conflict(verdict.manager)
            if verdict.tell:
                text = f"{verdict.manager} set {names(verdict.fields)} of {kind}/{name}"
                outcome.events.append(Event("FieldManagerConflict", text, warning=True))
            if not verdict.force:
                return
            done = await self._kube.apply(manifest, force=True)
        self._store.wrote({"kind": kind, **done})

    async def _evict(self, resource: Object, action: Evict, outcome: Outcome) -> None:
        try:
            await self._kube.evict(resource["metadata"]["namespace"], action.pod, action.uid)
        except ApiError as error:
            if error.code == 429:
                outcome.blocked_by = ("PDBAllows",)
                outcome.retry_after = EVICTION_RETRY_SECONDS
            raise
        self._count_restart(resource, "Evicted")

    def _count_restart(self, resource: Object, reason: str) -> None:
        metadata = resource["metadata"]
        operation = resource.get("status", {}).get("currentOperation") or {}
        why = str(operation.get("type") or reason)
        self._metrics.pod_restart(metadata["namespace"], metadata["name"], why)

    async def _patch_pod(self, namespace: str, pod: str, body: Object) -> None:
        try:
            self._store.wrote(await self._kube.merge("Pod", namespace, pod, body))
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or another pod of that name
                raise

    async def _set_pod_condition(self, namespace: str, action: SetPodCondition) -> None:
        condition = {
            "type": action.condition,
            "status": "True" if action.value else "False",
            "lastTransitionTime": _stamp(),
        }
        try:
            await self._kube.patch_pod_condition(namespace, action.pod, action.uid, condition)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _patch_spec(self, resource: Object, action: PatchSpec) -> None:
        """Record the master member of a pair, if it still is what it was."""
        metadata = resource["metadata"]
        where = (resource["kind"], metadata["namespace"], metadata["name"])
        have = await self._kube.get(*where)
        if have is None:
            return
        overrides = have["spec"].get("pairOverrides") or []
        found = [index for index, item in enumerate(overrides) if item["index"] == action.pair]
        member = overrides[found[0]].get("masterMember", 0) if found else 0
        if member == action.master_member:
            return
        if member != action.expected:
            text = f"masterMember of pair {action.pair} is {member}, expected {action.expected}"
            raise NotReadBack(text)
        version = have["metadata"]["resourceVersion"]
        check = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        if found:
            path = f"/spec/pairOverrides/{found[0]}/masterMember"
            change: Object = {"op": "add", "path": path, "value": action.master_member}
        else:
            entry = {"index": action.pair, "masterMember": action.master_member}
            path = "/spec/pairOverrides/-" if overrides else "/spec/pairOverrides"
            change = {"op": "add", "path": path, "value": entry if overrides else [entry]}
        self._store.wrote(await self._kube.json_patch(*where, [dict(check), dict(change)]))

    async def _save_snapshot(self, resource: Object, action: SaveSnapshot) -> None:
        metadata = resource["metadata"]
        made = snapshot.manifest(action, metadata["namespace"], metadata["name"])
        self._store.wrote(await self._kube.apply(made, force=True))

    # --- leases -------------------------------------------------------------------------------

    async def _take_lease(self, resource: Object, action: TakeLease) -> None:
        namespace = resource["metadata"]["namespace"]
        have = await self._kube.get("Lease", namespace, action.name)
        spec = {
            "holderIdentity": action.holder,
            "leaseDurationSeconds": action.seconds,
            "renewTime": _stamp(micro=True),
        }
        if have is None:
            await self._kube.create(_lease(resource, action.name, spec))
            return
        old = have.get("spec", {})
        holder = old.get("holderIdentity")
        if holder and holder != action.holder and not _is_expired(old):
            raise ApiError("update", "leases", 409, "LeaseHeld", f"{action.name}: {holder}")
        await self._kube.replace({**have, "kind": "Lease", "spec": {**old, **spec}})

    async def _release_lease(self, namespace: str, action: ReleaseLease) -> None:
        have = await self._kube.get("Lease", namespace, action.name)
        if have is None or have.get("spec", {}).get("holderIdentity") != action.holder:
            return
        await self._kube.delete("Lease", namespace, action.name, uid=have["metadata"]["uid"])

    # --- brokers and name servers -------------------------------------------------------------

    async def _peer(self, action: Action, outcome: Outcome) -> None:
        match action:
            case SetConfig():
                await self._set_config(action)
            case PutTopic():
                await self._put_topic(action, outcome)
            case PutGroup():
                await self._put_group(action, outcome)
            case DeleteTopic():
                await self._delete_topic(action)
            case DeleteGroup():
                code = RequestCode.DELETE_SUBSCRIPTIONGROUP
                await self._order(
                    code,
                    action.address,
                    self._peers.admin.delete_group(
                        action.address, action.group, remove_offset=action.remove_offsets
                    ),
                )
            case PutKv():
                await self._put_kv(action)
            case CommitOffsets():
                await self._commit_offsets(action)
            case _:
                raise TypeError(f"no such action: {action!r}")

    async def _order(self, code: int, address: str, order: Any) -> Any:
        """Send an order to a peer within the time limit; count it."""
        try:
            return await self._peers.order(code, order)
        finally:
            self._peers.expire(address)

    async def _set_config(self, action: SetConfig) -> None:
        admin, address = self._peers.admin, action.address
        values = dict(action.values)
        await self._order(
            RequestCode.UPDATE_BROKER_CONFIG, address, admin.update_broker_config(address, values)
        )
        answer = await self._order(
            RequestCode.GET_BROKER_CONFIG, address, admin.broker_config(address)
        )
        wrong = [
            key
            for key, value in sorted(values.items())
            if not same_value(key, answer.get(key, ""), value)
        ]
        self._metrics.config_update("rejected" if wrong else "applied")
        if wrong:
            pair, ordinal = action.member
            text = f"member {ordinal} of pair {pair} does not take {names(wrong)}"
            raise NotReadBack(text)

    async def _put_topic(self, action: PutTopic, outcome: Outcome) -> None:
        admin, address = self._peers.admin, action.address
        topic = msgspec.convert(dict(action.config), TopicConfig)
        try:
            await self._order(
                RequestCode.UPDATE_AND_CREATE_TOPIC, address, admin.create_topic(address, topic)
            )
        except BrokerError as error:
            _note_refusal(outcome, address, error)
            raise
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        table = await self._order(code, address, admin.all_topic_config(address))
        stored = table.topic_config_table.get(topic.topic_name)
        if stored is None or (stored.read_queue_nums, stored.write_queue_nums, stored.perm) != (
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm,
        ):
            raise NotReadBack(f"{address} does not show topic {topic.topic_name} as sent")

    async def _put_group(self, action: PutGroup, outcome: Outcome) -> None:
        admin, address = self._peers.admin, action.address
        group = msgspec.convert(dict(action.config), SubscriptionGroupConfig)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        try:
            await self._order(code, address, admin.create_group(address, group))
        except BrokerError as error:
            _note_refusal(outcome, address, error)
            raise
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        table = await self._order(code, address, admin.all_groups(address))
        if table.subscription_group_table.get(group.group_name) != group:
            raise NotReadBack(f"{address} does not show group {group.group_name} as sent")

    async def _delete_topic(self, action: DeleteTopic) -> None:
        admin = self._peers.admin
        for address in action.brokers:
            code = RequestCode.DELETE_TOPIC_IN_BROKER
            await self._order(code, address, admin.delete_topic(address, action.topic))
        for address in action.name_servers:
            code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            if action.topic not in await self._order(code, address, admin.topics_at(address)):
                continue  # told before, or it forgot with the last broker
            code = RequestCode.DELETE_TOPIC_IN_NAMESRV
            order = admin.delete_topic_in_namesrv(address, action.topic, action.cluster or None)
            await self._order(code, address, order)

    async def _put_kv(self, action: PutKv) -> None:
        admin = self._peers.admin
        for address in action.name_servers:
            if (await self._kv_at(address, action.namespace)).get(action.key, "") == action.value:
                continue
            if action.value:
                code = RequestCode.PUT_KV_CONFIG
                order = admin.put_kv(address, action.namespace, action.key, action.value)
            else:
                code = RequestCode.DELETE_KV_CONFIG
                order = admin.delete_kv(address, action.namespace, action.key)
            await self._order(code, address, order)

    async def _kv_at(self, address: str, namespace: str) -> Mapping[str, str]:
        """Return what a name server has in a namespace of its KV table; empty without one."""
        code = RequestCode.GET_KVLIST_BY_NAMESPACE
        try:
            found = await self._order(code, address, self._peers.admin.kv_list(address, namespace))
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return {}
        return dict(found)

    async def _commit_offsets(self, action: CommitOffsets) -> None:
        """Store offsets that are above what the broker has now, then read them back."""
        admin, address = self._peers.admin, action.address
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        have = await self._order(code, address, admin.all_offsets(address))
        for key, queue, offset in action.offsets:
            if have.get(key, {}).get(queue, -1) >= offset:
                continue
            topic, _, group = key.partition("@")
            order = admin.update_offset(address, group, topic, queue, offset)
            await self._order(RequestCode.UPDATE_CONSUMER_OFFSET, address, order)
        have = await self._order(code, address, admin.all_offsets(address))
        lost = [
            key
            for key, queue, offset in action.offsets
            if have.get(key, {}).get(queue, -1) < offset
        ]
        if lost:
            raise NotReadBack(f"{address} does not show the offsets of {names(sorted(set(lost)))}")


def _note_refusal(outcome: Outcome, address: str, error: BrokerError) -> None:
    if error.code in _FOR_GOOD:
        outcome.refused[address] = str(error.remark)


def _lease(resource: Object, name: str, spec: Mapping[str, Any]) -> Object:
    metadata = resource["metadata"]
    cluster = resource.get("spec", {}).get("clusterRef", {}).get("name") or metadata["name"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {
                "app.kubernetes.io/name": "failback",
                "app.kubernetes.io/managed-by": "failback-operator",
                "failback.dev/cluster": cluster,
            },
            "ownerReferences": [
                {
                    "apiVersion": resource["apiVersion"],
                    "kind": resource["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": dict(spec),
    }


def _is_expired(spec: Mapping[str, Any]) -> bool:
    renewed = from_time(spec.get("renewTime"))
    if renewed is None:
        return True
    age = datetime.datetime.now(datetime.UTC).timestamp() - renewed
    return age > float(spec.get("leaseDurationSeconds") or 0)


def _stamp(*, micro: bool = False) -> str:
    shape = "%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.datetime.now(datetime.UTC).strftime(shape)
