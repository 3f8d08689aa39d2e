"""F14: SIGKILL of one name server, or of all, held down for a while; each returns empty.

Routes are in a name server's memory only: one that starts again knows no broker until brokers have
registered. Proof of effect: the witness, which looks at the routes of every name server, is
refused. Proof of heal: every name server shows it every broker.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.chaos.cluster.broker_facts import ask_nameservers
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import NameServers, Target
from failback.chaos.cluster.view import ClusterView, Member, ProcessIdentity
from failback.chaos.errors import GuardRefused, TargetError
from failback.chaos.experiment.fault_kinds import AFTER, DOWN, FaultKind, Parameter, Values
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import member_faults, proof
from failback.chaos.faults.broker_faults import EFFECT_SECONDS, let_start
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import Call, action_of, describe, returned, wait_for_time
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session

RELEASE: Final = "release-nameservers"
SEEN_SECONDS: Final = 5.0
REGISTER_SECONDS: Final = 60.0
"""More than the 30 s after which a broker registers again."""

KIND = FaultKind(
    code="F14",
    name="kill-nameserver",
    proves="the witness is refused; healed when each name server shows every broker",
    action="kill_nameservers",
    target="nameservers",
    title="SIGKILL of one name server or all, held down for downSeconds; they return empty",
    parameters=(
        Parameter("which", "choice", "which", "one", ("one", "all"), always=True),
        DOWN,
        AFTER,
    ),
    lasts="downSeconds",
    milestones=("gone", "registered"),
    modes=(),
    supported_by=frozenset({"local"}),
)


def kill_nameservers(session: Session, call: Call, values: Values) -> dict[str, Any]:
    """SIGKILL one name server, chosen by the seed, or all; without ``downSeconds`` for a moment."""
    which = str(values["which"])
    intended = wait_for_time(session, call, values["after"])
    session.refuse_unsafe(KIND.name)
    seed = session.schedule.seeds["victims"]
    victims = chosen(pods_of(session.target), which, seed)
    identities = [session.target.identity(each) for each in victims]
    record = FaultRecord(
        call.fid, KIND.name, f"nameservers mode={which}", seed, intended_ns=intended
    )
    record.others = tuple(identities)
    record.victims = [describe(*each) for each in zip(victims, identities, strict=True)]
    _kill(session, record, victims, identities)
    due = time.monotonic_ns() + round(session.scaled(values["downSeconds"] or 0.0) * 1e9)
    session.undo_at(due, lambda: _release(session, record, victims))
    return returned(session, record)


def pods_of(target: Target) -> tuple[Member, ...]:
    """The name servers of a cluster.

    Raises:
        TargetError: This target cannot hit them.
    """
    if not isinstance(target, NameServers):
        raise TargetError("name servers", f"a {target.kind} target cannot hit them")
    return target.nameserver_pods()


def chosen(pods: Sequence[Member], which: str, seed: int) -> list[Member]:
    """Return the victims: all that run, or one of them by the seed.

    Raises:
        GuardRefused: None runs.
    """
    running = sorted((each for each in pods if each.running), key=lambda each: each.pod)
    if not running:
        raise GuardRefused("TARGET_ALREADY_DOWN", "no name server is running")
    return running if which == "all" else random.Random(seed).sample(running, 1)


def _kill(
    session: Session,
    record: FaultRecord,
    victims: Sequence[Member],
    identities: Sequence[ProcessIdentity],
) -> None:
    undo = {"pods": [each.pod for each in victims]}
    member_faults.begin(session, record, RELEASE, undo)
    for each in victims:
        session.target.hold(each, record.undo)
    crash_point("held")
    record.signum = signal.SIGKILL
    issued = now()
    record.issued = (issued, issued)
    for identity in identities:
        session.target.signal(identity, signal.SIGKILL)
    crash_point("signalled")
    record.issued = (issued, now())
    record.proof["K2"] = True
    names = ", ".join(each.pod for each in victims)
    session.progress(f"{record.fid}: SIGKILL to {names}")
    for member, identity in zip(victims, identities, strict=True):
        proof.prove_death(session, record, member, identity, signal.SIGKILL, EFFECT_SECONDS)
    seen = session.wait_for(lambda: _refused(session, record, victims), SEEN_SECONDS, period=0.05)
    record.proof["K6"] = seen
    if not seen:
        record.add_unproved_reason(f"{names} answered the witness after the signal")
    detail = {"victims": record.victims, "proof": record.proof, "why": record.why}
    member_faults.effect_seen(session, record, "KILL_NAMESERVER", detail, "witness")
    crash_point("effect-proved")


def _refused(session: Session, record: FaultRecord, victims: Sequence[Member]) -> bool:
    """Whether the witness was refused by all of them since they were gone."""
    gone = record.observed["gone_ns"].mono_ns
    looks = [session.rec.latest_samples.routes.get(each.address) for each in victims]
    return all(look and not look.answered and look.stamp.mono_ns >= gone for look in looks)


def _release(session: Session, record: FaultRecord, victims: Sequence[Member]) -> None:
    since = time.monotonic_ns()
    let_start(session, record, victims)
    session.rec.later(lambda: _registered(session, since), lambda: _close(session, record, victims))


def _registered(session: Session, since: int) -> bool:
    """Whether every name server has shown the witness every broker since then."""
    view = session.view
    assert view is not None
    looks = [session.rec.latest_samples.routes.get(each) for each in view.nameservers]
    return all(
        look and look.stamp.mono_ns >= since and shows_all(view, look.brokers) for look in looks
    )


def shows_all(view: ClusterView, brokers: Mapping[str, Mapping[int, str]]) -> bool:
    """Whether a route, or a name server's table, names every broker of a cluster."""
    return all(
        brokers.get(each.broker_name, {}).get(each.broker_id) == each.address
        for each in view.members
    )


def _close(session: Session, record: FaultRecord, victims: Sequence[Member]) -> None:
    found = [session.target.identity(each) for each in victims]
    record.proof["K7"] = ", ".join(f"{each.pod} pid {each.pid}" for each in found)
    session.rec.milestones.post(record.fid, "registered", now())
    member_faults.heal_seen(session, record, {"pods": [each.pod for each in victims]})
    session.progress(f"{record.fid}: healed, all brokers are registered at all name servers")


def _take_back(target: Target, args: Mapping[str, Any], deadline: float) -> dict[str, Any] | None:
    """Release name servers, and see every broker registered at every one."""
    named = [str(each) for each in args["pods"]]
    for each in pods_of(target):
        if each.pod in named:
            target.release(each)
            target.start(each)
    end = min(deadline, time.monotonic() + REGISTER_SECONDS)
    while True:
        view = target.view()
        tables = ask_nameservers(view.nameservers).values()
        if all(table is not None and shows_all(view, table) for table in tables):
            return {"pods": named, "registered": len(view.members)}
        if time.monotonic() >= end:
            return None
        time.sleep(0.5)


FAULT = Fault(
    KIND, action_of(KIND, kill_nameservers), Undo(RELEASE, _take_back, "release_nameservers")
)
