"""One pass over one resource. What it does, in order:

1. Read the resource from the store; without one there is no pass.
2. Observe and plan: :meth:`Kind.decide`, the one part that differs between the kinds.
3. Write the operations, where the plan asks for it: a step is in the status before its
   first side effect, so that the next operator goes on from there. Put the finalizer on, where
   the actions leave something that the end of the resource has to undo.
4. Carry out the plan's actions, in each lane up to the first that fails: :class:`CarryOut`.
5. Let the kind take note of what was done: :meth:`Kind.after`.
6. Write the status where it differs, with what could not be carried out.
7. Post the events, count the pass, return when the next one is due: :class:`Passed`.
8. Take the finalizer off, where nothing is left to undo.

A pass whose resource or child has changed since step 1 begins again, at most three times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pydantic import ValidationError

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.controller.carry_out import CarryOut
from failback.operator.controller.outcome import (
    NameTaken,
    Outcome,
    after_exception,
    failure_events,
    ready_false,
    with_outcome,
)
from failback.operator.kinds.base import schema_words
from failback.operator.kubernetes.events import Recorder
from failback.operator.kubernetes.finalizers import (
    FINALIZED_KINDS,
    has_finalizer,
    with_finalizer,
    without_finalizer,
)
from failback.operator.kubernetes.store import Store, where_of
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.plan.encoding import (
    OPERATION_FIELDS,
    difference,
    from_time,
    is_true,
    stored_operations,
)
from failback.operator.planning.plan.types import Action, Event, Plan

logger = logging.getLogger(__name__)

_MAX_REPEATS: Final = 3
_REFUSALS: Final = (400, 403, 422)
"""Codes of the API server that time alone does not change."""


@dataclass(frozen=True, slots=True)
class Passed:
    """How a pass ended."""

    result: str
    """ok, unchanged, failed or paused."""
    wake_after: float | None = None
    back_off: bool = False
    """The pass is repeated after a growing pause."""
    retry_after: float | None = None
    """Seconds that the other side asked for."""


_AGAIN: Final = Passed("again")
"""The pass begins again at once."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, with what carrying it out needs to know."""

    plan: Plan
    known: Mapping[Key, Object]
    """The children that were observed."""


class Kind(Protocol):
    """What differs between the kinds."""

    async def refresh(self, resource: Object) -> bool:
        """Ask peers what is due; tell whether anything turned out new."""

    async def decide(self, resource: Object) -> Decision:
        """Observe and plan."""

    def after(self, resource: Object, plan: Plan, outcome: Outcome) -> None:
        """Take note of what was carried out."""

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered of a resource that is gone."""


class Passes:
    """Runs passes. Holds nothing that a restart would lose."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        carry_out: CarryOut,
        recorder: Recorder,
        metrics: Metrics,
        kinds: Mapping[str, Kind],
    ) -> None:
        self._kube = kube
        self._store = store
        self._carry_out = carry_out
        self._recorder = recorder
        self._metrics = metrics
        self._kinds = kinds
        self._last: dict[str, tuple[tuple[Event, ...], tuple[Action, ...]]] = {}
        """By uid: events to post and what to do once a resource is gone."""
        self._blind: dict[tuple[str, str, str], str] = {}
        """Resources whose peers could not be looked at → why; their passes say so."""

    async def refresh(self, kind: str, namespace: str, name: str) -> bool:
        """Ask the peers of a resource what is due; tell whether anything turned out new."""
        resource = self._store.resource(kind, namespace, name)
        if resource is None:
            return False
        key = (kind, namespace, name)
        try:
            found = await self._kinds[kind].refresh(resource)
        except ValidationError:
            return False  # its pass says what is wrong with it
        except ApiError as error:
            logger.warning("%s %s/%s: %s", kind, namespace, name, error)
            return True
        except Exception as error:  # the boundary of a look at peers, as that of a pass
            logger.exception("%s %s/%s: look at peers failed", kind, namespace, name)
            self._blind[key] = f"{type(error).__name__}: {error}"
            return True
        return self._blind.pop(key, None) is not None or found

    async def run(self, kind: str, namespace: str, name: str) -> Passed | None:
        """Run one pass; ``None`` when the resource is gone.

        Every exception ends here: it is a failed pass, repeated after a pause.
        """
        begun = time.monotonic()
        try:
            passed = await self._run(kind, namespace, name)
        except ApiError as error:
            logger.warning("%s %s/%s: %s", kind, namespace, name, error)
            passed = Passed("failed", back_off=True, retry_after=error.retry_after)
            if error.code in _REFUSALS:
                await self._tell(kind, namespace, name, str(error))
        except Exception as error:  # the one boundary of a pass: a bug of one stops no other
            logger.exception("%s %s/%s: pass failed", kind, namespace, name)
            passed = Passed("failed", back_off=True)
            failure = f"{type(error).__name__}: {error}"
            await self._tell(kind, namespace, name, failure, poison=True)
        if passed is not None and passed.result == "failed":
            await self._give_up(kind, namespace, name)
        if passed is not None:
            self._metrics.passed(kind, namespace, name, passed.result, time.monotonic() - begun)
        return passed

    async def _tell(
        self, kind: str, namespace: str, name: str, failure: str, *, poison: bool = False
    ) -> None:
        """Say in the status, and by an event, that a pass ended before its end.

        Args:
            poison: What the resource says made it die, as far as can be told.
        """
        resource = self._store.resource(kind, namespace, name)
        if resource is None:
            return
        resource = {"kind": kind, **resource}
        have = resource.get("status", {})
        try:
            if patch := difference(have, after_exception(resource, failure, poison=poison)):
                await self._patch(resource, patch)
        except ApiError as error:
            logger.warning("%s %s/%s: %s", kind, namespace, name, error)
        await self._recorder.post(resource, Event("PassFailed", failure, warning=True))

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Drop everything about a resource that is gone."""
        self._blind.pop((kind, namespace, name), None)
        self._kinds[kind].forget(namespace, name)
        self._metrics.forget(kind, namespace, name)

    async def on_deleted(self, kind: str, resource: Object) -> None:
        """Post the events about the end of a resource that is gone, and do what was left for then.

        Posted before the finalizer goes, they would be posted again by every operator that dies
        between the two.
        """
        events, actions = self._last.pop(resource["metadata"]["uid"], ((), ()))
        await self._carry_out.run({**resource, "kind": kind}, actions, {}, range(len(actions)))
        await self._post({**resource, "kind": kind}, events)

    async def _run(self, kind: str, namespace: str, name: str) -> Passed | None:
        for _ in range(_MAX_REPEATS - 1):
            passed = await self._once(kind, namespace, name)
            if passed is not _AGAIN:
                return passed
        return await self._once(kind, namespace, name, last=True)

    async def _once(
        self, kind: str, namespace: str, name: str, *, last: bool = False
    ) -> Passed | None:
        """Do what the module's docstring lists; ``_AGAIN`` when something changed meanwhile."""
        resource: Object | None = self._store.resource(kind, namespace, name)
        if resource is None:
            return None
        if _is_leaving(resource) and kind in FINALIZED_KINDS and not has_finalizer(resource):
            return Passed("ok")  # its end is carried out: somebody else's finalizer holds it
        try:
            decision = await self._kinds[kind].decide(resource)
        except ValidationError as error:
            return await self._invalid(resource, error)
        plan = decision.plan
        try:
            resource = await self._write_operations(resource, plan)
            if plan.finalizer and not _is_leaving(resource):
                resource = await self._patch_finalizer(resource, with_finalizer(resource))
        except ApiError as error:
            if error.code == 404:
                return None
            if error.code != 409 or last:
                raise
            await self._reread(resource)
            return _AGAIN
        outcome = await self._carry_out.run(resource, plan.actions, decision.known, plan.lanes)
        self._kinds[kind].after(resource, plan, outcome)
        if _moved_on(outcome.error) and not last:
            return _AGAIN
        return await self._finish(resource, plan, outcome)

    async def _reread(self, resource: Object) -> None:
        newest = await self._kube.get(resource["kind"], *where_of(resource))
        if newest is not None:
            self._store.wrote({"kind": resource["kind"], **newest})

    async def _write_operations(self, resource: Object, plan: Plan) -> Object:
        """Write each operation before the first side effect of its step."""
        if plan.operations_first is None:
            return resource
        have = resource.get("status", {})
        stored = {key: have[key] for key in OPERATION_FIELDS if key in have}
        patch = difference(stored, plan.operations_first)
        return await self._patch(resource, patch) if patch else resource

    async def _patch(self, resource: Object, patch: Mapping[str, Any]) -> Object:
        metadata, kind = resource["metadata"], resource["kind"]
        guarded = any(field in patch for field in OPERATION_FIELDS)
        version = metadata["resourceVersion"] if guarded else None
        done = await self._kube.patch_status(
            kind, *where_of(resource), patch, resource_version=version, uid=metadata["uid"]
        )
        self._metrics.status_write(kind)
        return self._wrote(resource, done)

    async def _patch_finalizer(self, resource: Object, patch: Object | None) -> Object:
        if patch is None:
            return resource
        done = await self._kube.merge(resource["kind"], *where_of(resource), patch)
        return self._wrote(resource, done)

    def _wrote(self, resource: Object, done: Object) -> Object:
        """Return a resource as a write left it, which the store takes in."""
        self._store.wrote({"kind": resource["kind"], **done})
        return {"kind": resource["kind"], "apiVersion": resource["apiVersion"], **done}

    async def _give_up(self, kind: str, namespace: str, name: str) -> None:
        """Let a resource go whose end has failed for too long."""
        resource = self._store.resource(kind, namespace, name)
        if resource is None or not has_finalizer(resource):
            return
        since = from_time(resource["metadata"].get("deletionTimestamp"))
        if since is None or time.time() - since < FINALIZED_KINDS[kind]:
            return
        logger.warning("%s %s/%s: given up after its deletion", kind, namespace, name)
        try:
            await self._patch_finalizer(resource, without_finalizer(resource))
        except ApiError as error:
            logger.warning("%s %s/%s: %s", kind, namespace, name, error)

    async def _finish(self, resource: Object, plan: Plan, outcome: Outcome) -> Passed:
        have = resource.get("status", {})
        blind = self._blind.get((resource["kind"], *where_of(resource)), "")
        wanted = with_outcome(resource, plan, outcome, blind=blind)
        patch = difference(have, wanted)
        try:
            if patch:
                resource = await self._patch(resource, patch)
        except ApiError as error:
            if plan.actions and outcome.ok:  # posted now: what was done is not planned again
                await self._post(resource, plan.events)
            if error.code == 404:
                return Passed("ok")
            if error.code == 409:  # another one wrote meanwhile: look again
                await self._reread(resource)
                return Passed("failed", wake_after=0.0, back_off=True)
            raise
        self._note_operation(have, wanted)
        failures = (*outcome.events, *failure_events(have, wanted))
        told = (each for each in plan.events if outcome.ok or _is_of_another_lane(each, outcome))
        events = (*told, *failures)
        done = plan.finalizer is False and outcome.ok
        uid = resource["metadata"]["uid"]
        if done and _is_leaving(resource):
            self._last[uid] = events, plan.last_actions
        else:
            self._last[uid] = plan.farewell, plan.last_actions
            await self._post(resource, events)
        if done:
            await self._patch_finalizer(resource, without_finalizer(resource))
        if not outcome.ok:
            return Passed("failed", back_off=True, retry_after=_retry_after(outcome))
        changed = bool(patch) or bool(plan.actions)
        result = "ok" if changed else "unchanged"
        if is_true(wanted, "Paused"):
            result = "paused"
        due = [each for each in (plan.wake_after, outcome.look_again_after) if each is not None]
        return Passed(result, wake_after=min(due, default=None))

    async def _post(self, resource: Object, events: Iterable[Event]) -> None:
        for event in events:
            await self._recorder.post(resource, event)

    def _note_operation(self, have: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        after = {item["id"] for item in stored_operations(wanted)}
        for before in stored_operations(have):
            begun = from_time(before.get("startedAt"))
            if before["id"] not in after and begun is not None:
                self._metrics.operation_ended(before["type"], max(0.0, time.time() - begun))

    async def _invalid(self, resource: Object, error: ValidationError) -> Passed:
        """Say what is wrong with an object that the schema of this release refuses."""
        text = schema_words(error)
        plan = Plan(status=ready_false(resource, "InvalidSpec", text))
        turned = difference(resource.get("status", {}), plan.status)
        events = (Event("InvalidSpec", text, warning=True),) if turned else ()
        return await self._finish(resource, replace(plan, events=events), Outcome())


def _is_leaving(resource: Object) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def _moved_on(error: Exception | None) -> bool:
    """Tell whether an action was refused because the object changed or came meanwhile."""
    if isinstance(error, ApiError):
        return error.code == 409 and error.reason in ("Conflict", "AlreadyExists")
    return isinstance(error, NameTaken)


def _is_of_another_lane(event: Event, outcome: Outcome) -> bool:
    """Tell whether an event is about a pair whose actions were all carried out."""
    return event.lane is not None and event.lane not in outcome.ended


def _retry_after(outcome: Outcome) -> float | None:
    if outcome.retry_after is not None:
        return outcome.retry_after
    if isinstance(outcome.error, ApiError):
        if outcome.error.code == 429:
            return outcome.error.retry_after or 1.0
        return outcome.error.retry_after
    return None
