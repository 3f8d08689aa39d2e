"""F18: master and slave of a pair change places, by a RoleSwitch that the operator carries out.

Proof of effect: every name server shows another member as id 0. Proof of heal: the switch is over,
and the brokers agree with every name server. Nothing is taken back: a second switch does that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from failback.chaos.cluster.broker_facts import ask_nameservers
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import RoleSwitcher, Target
from failback.chaos.cluster.view import MASTER
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import AFTER, MILESTONES, FaultKind, Parameter, Values
from failback.chaos.faults import member_faults
from failback.chaos.faults.broker_faults import finish_effect, victim_of
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import broker_action, enter
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session

AWAIT_SWITCH: Final = "await-switch"
EFFECT_SECONDS: Final = 600.0
COMPLETE: Final = "Complete"
_OVER: Final = (COMPLETE, "Failed")
_POLICIES: Final = ("none", "wait-sync", "copy-max")

KIND = FaultKind(
    code="F18",
    name="swap-roles",
    needs="Kubernetes with Failback's operator, and spec.guard.consent: [role-swap]",
    proves="name servers show the other member as id 0; healed when the switch is over",
    action="swap_roles",
    target="broker",
    title="Master and slave change places by a RoleSwitch with offsetPolicy",
    parameters=(
        Parameter("offsetPolicy", "choice", "offset_policy", "none", _POLICIES, always=True),
        AFTER,
    ),
    milestones=MILESTONES[:1],
    supported_by=frozenset({"kubernetes"}),
)


def swap(session: Session, record: FaultRecord, values: Values) -> None:
    """Ask for the switch, and wait until name servers show the new master."""
    target, (master, _) = session.target, victim_of(record)
    if not isinstance(target, RoleSwitcher):
        raise TargetError(record.fid, f"a {target.kind} target switches no roles")
    pair = [each for each in target.view().members if each.pair == master.pair]
    others = [each for each in pair if each.role != MASTER and each.running]
    if not others:
        raise TargetError(record.fid, f"{master.pair} has no slave that could become master")
    record.heals_itself = True
    record.restarted = frozenset(each.pod for each in pair)
    name = f"{session.run}-{record.fid}"[:63]
    enter(session, record, AWAIT_SWITCH, {"switch": name})
    issued = now()
    record.issued = (issued, issued)
    session.phases.fault_begun(issued.mono_ns)
    target.switch_roles(name, others[0], str(values["offsetPolicy"]))
    record.issued = (issued, now())
    record.proof["K2"] = True
    session.progress(f"{record.fid}: {others[0].pod} becomes master of {master.broker_name}")

    def shown() -> bool:
        tables = ask_nameservers(session.target.view().nameservers).values()
        found = [(table or {}).get(master.broker_name, {}).get(0) for table in tables]
        return bool(found) and all(each == others[0].address for each in found)

    record.proof["ROUTES"] = session.wait_for(shown, EFFECT_SECONDS, period=0.5)
    if record.proof["ROUTES"]:
        session.rec.gone(record, now())
    else:
        record.add_unproved_reason(f"no name server shows {others[0].pod} as master")
    finish_effect(session, record, "SWAP", observer="witness")
    session.rec.later(lambda: _is_over(target, name), lambda: _close(session, record, name))


def _is_over(target: RoleSwitcher, name: str) -> bool:
    return target.switch_phase(name) in _OVER and not target.view().conflicts


def _close(session: Session, record: FaultRecord, name: str) -> None:
    assert isinstance(session.target, RoleSwitcher)
    phase = session.target.switch_phase(name)
    if phase != COMPLETE:
        record.add_unproved_reason(f"RoleSwitch {name} is {phase}")
    session.ledger.mark_undone(record.undo)
    member_faults.heal_seen(session, record, {"switch": phase})
    session.progress(f"{record.fid}: healed, the switch is {phase}")


def _await_switch(
    target: Target, args: Mapping[str, Any], deadline: float
) -> dict[str, Any] | None:
    """Wait until the operator has ended what it began."""
    name = str(args["switch"])
    while isinstance(target, RoleSwitcher):
        phase = target.switch_phase(name)
        if phase in ("", *_OVER) and not target.view().conflicts:  # empty: it was never made
            return {"switch": name, "phase": phase}
        if time.monotonic() >= deadline:
            break
        time.sleep(0.5)
    return None


FAULT = Fault(KIND, broker_action(KIND, swap), Undo(AWAIT_SWITCH, _await_switch))
