"""Carry out the actions of a plan, in order; in each lane up to the first that fails.

Each action can be repeated. :class:`KubernetesWrites`, :class:`BrokerCalls` or
:class:`NameServerCalls` carries it out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from failback.kube.asynchronous import Kube
from failback.operator.brokers.peers import Peers
from failback.operator.controller.broker_calls import BrokerCalls, NameServerCalls
from failback.operator.controller.kubernetes_writes import KubernetesWrites
from failback.operator.controller.outcome import Outcome, is_refusal
from failback.operator.kubernetes.conflicts import Conflicts
from failback.operator.kubernetes.store import Store
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.plan.types import (
    Action,
    Apply,
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


_BEHIND_ALL: Final = "last-valid-spec"
"""Ends the name of what is applied only once nothing was refused: see planning.cluster."""


def _stands_alone(action: Action, refused: Collection[str] | None) -> bool:
    """Tell whether an object is applied although others of its lane were refused.

    Args:
        refused: Their kinds; ``None`` = the lane ended by something else.
    """
    if refused is None or not isinstance(action, Apply):
        return False
    manifest = action.manifest
    if manifest["metadata"]["name"].endswith(_BEHIND_ALL):
        return False
    return manifest["kind"] != "StatefulSet" or "ConfigMap" not in refused


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

        Behind an object that the API server refuses the other objects of the lane are applied all
        the same, but those that need it: a person is told of all refusals at once.

        Args:
            known: Children that were observed: others are looked for before they are made.
            lanes: Of each action; empty = all are in one.

        Returns:
            How far it got, with the first failure.
        """
        outcome = Outcome()
        refused: dict[int | None, set[str]] = {}
        for action, lane in zip(actions, lanes or [None] * len(actions), strict=True):
            if lane in outcome.ended and not _stands_alone(action, refused.get(lane)):
                continue
            try:
                await self._one(resource, action, known, outcome)
            except (FailbackError, TimeoutError) as error:
                # Without its traceback, which has this frame and so the outcome itself.
                logger.info("%s: %s", type(action).__name__, error)
                failure = error.with_traceback(None)
                if isinstance(action, Apply) and is_refusal(failure):
                    outcome.rejected.append((action, failure))
                    if lane not in outcome.ended or lane in refused:
                        refused.setdefault(lane, set()).add(action.manifest["kind"])
                else:
                    refused.pop(lane, None)
                outcome.ended.add(lane)
                if outcome.ok:
                    outcome.failed, outcome.error = action, failure
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
