"""Carry out the actions of a plan, in order; in each lane up to the first that fails.

Each action can be repeated. Who carries it out: :class:`KubernetesWrites`, :class:`BrokerCalls`
or :class:`NameServerCalls`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from failback.kube.asynchronous import Kube
from failback.operator.brokers.peers import Peers
from failback.operator.controller.broker_calls import BrokerCalls
from failback.operator.controller.kubernetes_writes import KubernetesWrites
from failback.operator.controller.name_server_calls import NameServerCalls
from failback.operator.controller.outcome import Outcome
from failback.operator.kubernetes.conflicts import Conflicts
from failback.operator.kubernetes.store import Store
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.plan.types import (
    Action,
    CommitOffsets,
    DeleteGroup,
    DeleteTopic,
    PutGroup,
    PutKv,
    PutTopic,
    RestoreOffsets,
    SetConfig,
)
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)


class CarryOut:
    """Carries out actions for one resource at a time; shared by all of them."""

    def __init__(
        self, kube: Kube, peers: Peers, store: Store, conflicts: Conflicts, metrics: Metrics
    ) -> None:
        self._kubernetes = KubernetesWrites(kube, store, conflicts, metrics)
        self._brokers = BrokerCalls(peers, metrics)
        self._name_servers = NameServerCalls(peers)

    async def run(
        self,
        resource: Object,
        actions: Sequence[Action],
        known: Mapping[Key, Object],
        lanes: Sequence[int | None] = (),
    ) -> Outcome:
        """Carry out ``actions`` of ``resource``; a failure ends its lane.

        Args:
            known: Children that were observed: others are looked for before they are made.
            lanes: Of each action; empty = all are in one.

        Returns:
            How far it got, with the first failure.
        """
        outcome = Outcome()
        ended: set[int | None] = set()
        for action, lane in zip(actions, lanes or [None] * len(actions), strict=True):
            if lane in ended:
                continue
            try:
                await self._one(resource, action, known, outcome)
            except (FailbackError, TimeoutError) as error:
                # Without its traceback, which has this frame and so the outcome itself.
                logger.info("%s: %s", type(action).__name__, error)
                ended.add(lane)
                if outcome.ok:
                    outcome.failed, outcome.error = action, error.with_traceback(None)
            else:
                outcome.done += 1
        return outcome

    async def _one(
        self, resource: Object, action: Action, known: Mapping[Key, Object], outcome: Outcome
    ) -> None:
        match action:
            case SetConfig():
                await self._brokers.set_config(action)
            case PutTopic():
                await self._brokers.put_topic(action, outcome)
            case PutGroup():
                await self._brokers.put_group(action, outcome)
            case DeleteTopic():
                await self._brokers.delete_topic(action)
                await self._name_servers.delete_topic(action)
            case DeleteGroup():
                await self._brokers.delete_group(action)
            case PutKv():
                await self._name_servers.put_kv(action)
            case CommitOffsets():
                await self._brokers.commit_offsets(action)
            case RestoreOffsets():
                await self._brokers.restore_offsets(action)
            case _:
                await self._kubernetes.carry_out(resource, action, known, outcome)
