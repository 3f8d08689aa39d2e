"""Probes of an experiment: whether traffic is steady, roles, faults that are left, and others."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration, Secrets

from failback.chaos import session as sessions
from failback.chaos.cluster.broker_facts import ask_nameservers
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Member, Role
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.experiment.model import SteadyState
from failback.chaos.session import Session
from failback.chaos.targets.local import ControlSocket, LocalTarget
from failback.chaos.toolkit.action_context import NO_RUN, activity, session_of
from failback.common.numbers import whole_or_0

__all__ = [
    "another_incident",
    "broker_role",
    "cluster_is_steady",
    "disk_free_ratio",
    "group_lag_messages",
    "no_fault_left",
    "offsets_of",
    "process_state",
    "recorder_is_recording",
    "replication_lag_bytes",
    "route_has",
    "sync_age_seconds",
]


def _target_of(configuration: Configuration) -> Target:
    """The run's target; without a run that of the local runtime that the configuration names."""
    session = sessions.find(configuration)
    if session is not None:
        return session.target
    root = (configuration or {}).get("root")
    if not root:
        raise ActivityFailed(NO_RUN)
    return LocalTarget(ControlSocket.of_root(Path(root)), str((configuration or {})["cluster"]))


_of_run = activity(session_of)
_of_cluster = activity(_target_of)


def recorder_is_recording(configuration: Configuration = None, secrets: Secrets = None) -> bool:
    """Is the recorder alive, does every process of the workload answer, and is there no gap?"""
    session = sessions.find(configuration)
    if session is None or session.recorder is None:
        return False
    for name in session.load.silent() if session.supervisor else []:
        session.recorder.add_gap(f"{name} has not answered for 5 s")
    return session.recorder.is_recording()


@_of_run
def cluster_is_steady(
    session: Session,
    min_produce_per_second: float | None = None,
    max_lag_messages: int | None = None,
    max_sync_age_seconds: float | None = None,
) -> dict[str, Any]:
    """Wait until the limits held for the experiment's ``holdSeconds`` in a row.

    Once ``recover`` has measured the steady state again, its result is returned: by the time that
    the hypothesis is asked a second time the producers are stopped.
    """
    kept = session.results.steady_now
    if kept:
        return dict(kept)
    limits = {
        "min_produce_per_second": min_produce_per_second,
        "max_lag_messages": max_lag_messages,
        "max_sync_age_seconds": max_sync_age_seconds,
    }
    result = hold_steady(session, session.experiment.spec.steady_state.model_copy(update=limits))
    session.results.steady = bool(result["steady"])
    session.results.steady_why = "; ".join(result["why"])
    return result


def hold_steady(session: Session, limits: SteadyState) -> dict[str, Any]:
    """Measure until the limits held ``hold_seconds`` (of the file) in a row or time is over."""
    hold = session.scaled(limits.hold_seconds)
    deadline = time.monotonic() + limits.timeout_seconds
    held_since: float | None = None
    while True:
        session.check()
        why = unsteady(session, limits)
        if why:
            held_since = None
        elif held_since is None:
            held_since = time.monotonic()
        if held_since is not None and time.monotonic() - held_since >= hold:
            return {"steady": True, "why": []}
        if time.monotonic() >= deadline:
            return {"steady": False, "why": why or ["not steady for long enough"]}
        time.sleep(0.1)


def unsteady(session: Session, limits: SteadyState) -> list[str]:
    """What does not hold now, in words with numbers; empty when all does."""
    why: list[str] = []
    if (least := limits.min_produce_per_second) is not None:
        rate = session.load.produced_per_second()
        if rate < least:
            why.append(f"produced {rate:.0f} of {least:g} messages per second")
    if limits.max_lag_messages is not None:
        for group in session.group_topics():
            lag = session.rec.latest_samples.group_lag(group)
            if lag is None:
                why.append(f"{group}: nothing was sampled yet")
            elif lag > limits.max_lag_messages:
                why.append(f"{group} lags {lag} messages, {limits.max_lag_messages} allowed")
    if limits.max_sync_age_seconds is not None and session.view is not None:
        limit = session.scaled(limits.max_sync_age_seconds)
        for pair in session.view.pairs:
            if len(pair.members) < 2:
                continue
            age = session.rec.latest_samples.sync_age_seconds(pair.name)
            if age is None or age > limit:
                shown = "unknown" if age is None else f"{age:.1f} s"
                why.append(f"{pair.name}: slave table is {shown} old, {limit:g} s allowed")
    return why


@_of_run
def no_fault_left(session: Session) -> dict[str, Any]:
    """Is every entry of the undo ledger healed as observed?"""
    left = [
        f"{entry.fid}: {entry.call} {dict(entry.args)}"
        for entry in session.ledger.open_entries(faults_only=True)
    ]
    return {"clean": not left, "left": left}


@_of_cluster
def broker_role(target: Target, pair: str, role: Role) -> dict[str, Any]:
    """The member that has this role in a pair, as the brokers say."""
    member = _member(target, pair, role)
    return {"pod": member.pod, "address": member.address, "broker_id": member.broker_id}


@_of_cluster
def process_state(target: Target, pair: str, role: Role) -> str:
    """State of a broker's process, from the kernel."""
    member = _member(target, pair, role)
    return "GONE" if member.identity is None else target.process_state(member.identity).value


@_of_cluster
def route_has(target: Target, pair: str, broker_id: int) -> bool:
    """Does every name server show this broker id of a pair?"""
    view = target.view()
    found = view.pair(pair)
    if found is None:
        raise ActivityFailed(f"no pair {pair}")
    shown = ask_nameservers(view.nameservers).values()
    return all(
        table is not None and broker_id in table.get(found.broker_name, {}) for table in shown
    )


@_of_cluster
def replication_lag_bytes(target: Target, pair: str) -> int:
    """How far the slowest slave's log is behind the master's."""
    found = target.view().pair(pair)
    ends: dict[str, list[int]] = {"master": [], "slave": []}
    for member in found.members if found else ():
        with WireConnection(member.address) as connection:
            runtime = connection.runtime_info(timeout=3.0)
        ends[member.role].append(whole_or_0(runtime.get("commitLogMaxOffset")))
    if not ends["master"] or not ends["slave"]:
        raise ActivityFailed(f"{pair} has no master with a slave")
    return max(0, ends["master"][0] - min(ends["slave"]))


@_of_run
def sync_age_seconds(session: Session, pair: str) -> float:
    """Age of the master's offset table as the slave shows it."""
    age = session.rec.latest_samples.sync_age_seconds(pair)
    if age is None:
        raise ActivityFailed(f"{pair}: no synchronisation was seen yet")
    return age


@_of_run
def group_lag_messages(session: Session, group: str) -> int:
    """Messages that a group has not committed, by the newest samples."""
    lag = session.rec.latest_samples.group_lag(group)
    if lag is None:
        raise ActivityFailed(f"{group}: nothing was sampled yet")
    return lag


@_of_cluster
def offsets_of(target: Target, pair: str, role: Role, group: str) -> dict[str, dict[str, int]]:
    """A group's offsets on one broker: topic to queue to offset."""
    with WireConnection(_member(target, pair, role).address) as connection:
        table = connection.all_offsets()
    return {
        key.removesuffix(f"@{group}"): {str(queue): offset for queue, offset in queues.items()}
        for key, queues in table.items()
        if key.endswith(f"@{group}")
    }


@_of_cluster
def disk_free_ratio(target: Target, pair: str) -> float:
    """Free share of the fullest disk under the pair's stores."""
    found = target.view().pair(pair)
    stores = [member.store for member in found.members if member.store] if found else []
    if not stores:
        raise ActivityFailed(f"{pair}: no store is known")
    usages = [shutil.disk_usage(store) for store in stores]
    return min(usage.free / usage.total for usage in usages)


@_of_run
def another_incident(session: Session) -> bool:
    """Did a broker die that no fault asked to die?"""
    return session.rec.unplanned_deaths > 0


def _member(target: Target, pair: str, role: Role) -> Member:
    found = target.view().pair(pair)
    member = found.member(role) if found else None
    if member is None:
        raise ActivityFailed(f"no {role} in {pair}")
    return member
