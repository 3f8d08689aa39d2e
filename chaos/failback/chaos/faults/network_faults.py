"""What faults of the network share: cut a link with the undo in the ledger first, and join it.

Rules in the victim's namespace are the injector. What is seen of it elsewhere is the proof: each
fault has its own sight of a total cut. Of one that lets packets pass, TCP's repeats are counted.
A link is joined once that sight is gone; then the recorder waits for the broker as after a pause.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from failback.chaos.cluster.broker_facts import ask_nameservers, boot_ms_of
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.link import LINKS, Cut
from failback.chaos.cluster.target import LinkCutter, Target
from failback.chaos.cluster.view import MASTER, ClusterView, Member
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter, Values
from failback.chaos.failpoints import crash_point
from failback.chaos.faults.broker_faults import (
    close_when_healed,
    finish_effect,
    issued_ns,
    member_of,
    victim_of,
)
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import broker_action, enter, undone
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.protocol.errors import BrokerError, FailbackError

SILENT_SECONDS: Final = 3.0
QUIET_SECONDS: Final = 1.0
"""How long nothing more may be sent again before packets count as no longer lost."""
LEAST_DELAY_MS: Final = 50.0
RESENT: Final = 3
"""Segments that must be sent again before packets count as lost."""
NEEDS: Final = "failback up --isolate-network (root); on Kubernetes Chaos Mesh"

Sight = Callable[[ClusterView, Member], str]
"""What is seen of a total cut, as a sentence; empty while it is not seen."""


def fault_of(
    code: str,
    name: str,
    title: str,
    seconds: float,
    *further: Parameter,
    proves: str,
    **sights: Callable[[], Sight],
) -> Fault:
    """Return a fault that hits one link of a broker, with its action and its undo.

    Args:
        sights: Make the sight of a total cut, by the side that is cut off: ``broker``, ``clients``.
    """
    kind = FaultKind(
        code=code,
        name=name,
        action=name.replace("-", "_"),
        target="broker",
        title=title,
        parameters=(
            Parameter("durationSeconds", "seconds", "duration_seconds", seconds, always=True),
            Parameter("direction", "choice", "direction", "both", ("both", "in", "out")),
            Parameter("mode", "choice", "mode", "drop", ("drop", "reject")),
            Parameter("lossRatio", "ratio", "loss_ratio", 1.0),
            Parameter("bytesPerSecond", "count", "bytes_per_second"),
            Parameter("delayMs", "milliseconds", "delay_ms"),
            *further,
            AFTER,
        ),
        lasts="durationSeconds",
        milestones=("gone", "accept", "registered"),
        check=_one_way_to_hit,
        needs=NEEDS,
        proves=proves,
    )

    def hit(session: Session, record: FaultRecord, values: Values) -> None:
        side = str(values.get("side", "broker"))
        link = LINKS[name] if side == "broker" else "clients"
        what = Cut(
            link,
            values["direction"],
            values["mode"] == "reject",
            values["lossRatio"],
            values["bytesPerSecond"] or 0,
            values["delayMs"] or 0.0,
            session.scaled(values["durationSeconds"]),
        )
        view = session.target.view()
        places = (victim_of(record)[0].address,) if side == "broker" else view.nameservers
        _cut(session, record, what, view, places, sights[side]())

    undo = Undo(_joining(name), _take_back, _joining(kind.action))
    return Fault(kind, broker_action(kind, hit), undo)


def _joining(cutting: str) -> str:
    """The name of the undo of a fault or an action."""
    return cutting.replace("cut", "join")


def _one_way_to_hit(values: Values) -> tuple[str, str] | None:
    """One of these parameters says what happens to the packets, and it must be seen."""
    given = ["mode"] if values["mode"] == "reject" else []
    given += ["lossRatio"] if values["lossRatio"] < 1 else []
    given += [name for name in ("bytesPerSecond", "delayMs") if values[name]]
    if values["lossRatio"] == 0:
        return "lossRatio", "must be above 0: with 0 nothing is lost"
    if len(given) > 1:
        return given[1], f"does not go with {given[0]}: one of them says what happens"
    if values["delayMs"] and values["delayMs"] < LEAST_DELAY_MS:
        return "delayMs", f"must be at least {LEAST_DELAY_MS:g}: less comes of the machine itself"
    if values["delayMs"] and values.get("side") == "broker":
        return "delayMs", "goes with side Clients: a registration that comes late is not seen"
    return None


def _cut(
    session: Session,
    record: FaultRecord,
    cut: Cut,
    view: ClusterView,
    places: Sequence[str],
    sight: Sight,
) -> None:
    """Cut a link at these addresses, prove it, and have the recorder join it."""
    member, _ = victim_of(record)
    cutter = cutter_of(session.target)
    resent = _resent(cutter, places)
    _begin(session, record, cutter, cut, places)
    due = issued_ns(record) + round(cut.seconds * 1e9)

    def seen() -> str:
        if cut.delay_ms:
            late = late_ms(cut, view, member, places)
            return f"what was due at once came {late:.0f} ms later" if _is_late(late, cut) else ""
        if cut.total:
            return sight(view, member)
        count = _resent(cutter, places) - resent
        return f"{count} segments were sent again" if count >= RESENT else ""

    session.undo_at(due, lambda: _join(session, record, cutter, cut, places, view))
    _prove(session, record, seen, due, SILENT_SECONDS if cut.total or cut.delay_ms else 0.0)
    finish_effect(session, record, "CUT", observer="witness")


def cutter_of(target: Target) -> LinkCutter:
    """What cuts links of a target. Raises ``TargetError`` when nothing does."""
    found = getattr(target, "network", None)
    if not isinstance(found, LinkCutter):
        raise TargetError("cut a link", f"a {target.kind} target has no rules for packets")
    return found


def _begin(
    session: Session, record: FaultRecord, cutter: LinkCutter, cut: Cut, places: Sequence[str]
) -> None:
    """K2: the rules are in force everywhere, or nowhere."""
    member, _ = victim_of(record)
    args = {"pod": member.pod, "link": cut.link, "at": list(places)}
    record.keeps_process = True
    enter(session, record, _joining(record.fault), args)
    stamp = now()
    record.issued = (stamp, stamp)
    try:
        for place in places:
            cutter.cut(place, cut)
    except TargetError as error:
        record.issued = None
        record.proof["K2"] = False
        record.add_unproved_reason(error.why)
        with contextlib.suppress(TargetError):
            for place in places:
                cutter.join(place, cut.link)
            session.ledger.mark_healed(record.undo, {"cut": False})
        session.rec.call_off(record)
        session.rec.evidence(record, "not-injected")
        raise
    crash_point("link-cut")
    session.phases.fault_begun(stamp.mono_ns)
    record.issued = (stamp, now())
    record.proof["K2"] = True
    session.progress(f"{record.fid}: link {cut.link} of {member.pod}: {cut.text}")


def _prove(
    session: Session, record: FaultRecord, seen: Callable[[], str], due: int, seconds: float
) -> None:
    """Wait until the cut was seen for ``seconds`` in a row; later than ``due`` it is over."""
    member, identity = victim_of(record)
    since: int | None = None
    while time.monotonic_ns() < due:
        session.check()
        begun = now()
        text = seen()
        if not text:
            since = None
        elif since is None:
            since = begun.mono_ns
            record.observed["gone_ns"] = begun
        if text and since is not None and time.monotonic_ns() - since >= seconds * 1e9:
            record.proof["LINK"] = text
            session.rec.milestones.post(record.fid, "gone", record.observed["gone_ns"])
            break
        time.sleep(0.1)
    else:
        record.observed.pop("gone_ns", None)
        record.proof["LINK"] = False
        record.add_unproved_reason(f"the cut of {member.pod} was not seen")
    state = session.target.process_state(identity).value
    record.proof["K6"] = state
    if state != "RUNNING":
        record.add_unproved_reason(f"pid {identity.pid} is {state}, so its silence proves no cut")


def _join(
    session: Session,
    record: FaultRecord,
    cutter: LinkCutter,
    cut: Cut,
    places: Sequence[str],
    view: ClusterView,
) -> None:
    member, _ = victim_of(record)
    crash_point("before-join")
    for place in places:
        cutter.join(place, cut.link)
    undone(session, record, "JOIN", f"link {cut.link} of {member.pod} is joined")
    resent, since = _resent(cutter, places), time.monotonic()

    def whole() -> bool:
        nonlocal resent, since
        before, resent = resent, _resent(cutter, places)
        if not cut.total and not cut.delay_ms and before != resent:
            since = time.monotonic()
        if cut.delay_ms and _is_late(late_ms(cut, view, member, places), cut):
            return False
        return time.monotonic() - since >= QUIET_SECONDS and not what_is_cut(view, member)

    def resume() -> None:
        record.resumed = now()
        close_when_healed(session, record)

    session.rec.later(whole, resume)


def _resent(cutter: LinkCutter, places: Sequence[str]) -> int:
    """What the pods sent again so far; nothing of those that are gone."""
    try:
        return sum(map(cutter.resent, places))
    except TargetError:
        return 0


# --- what others see -------------------------------------------------------------------------


def silent(address: str) -> bool:
    """Whether a new connection of a client gets no answer to code 28."""
    return boot_ms_of(address) is None


def listed_at(view: ClusterView, member: Member) -> list[str]:
    """The name servers that show the broker at its address."""
    tables = ask_nameservers(view.nameservers)
    return [
        each
        for each, table in tables.items()
        if table is not None
        and table.get(member.broker_name, {}).get(member.broker_id) == member.address
    ]


def log_end(member: Member) -> int:
    """Where a broker's commit log ends. Raises ``FailbackError`` when it does not say so."""
    with WireConnection(member.address) as connection:
        return int(connection.runtime_info(timeout=1.0)["commitLogMaxOffset"])


def late_ms(cut: Cut, view: ClusterView, member: Member, places: Sequence[str]) -> float:
    """How long a client waits for an answer, or slaves for what their master has; 0: unknown."""
    begun = time.monotonic()
    try:
        if cut.link != "replication":
            with WireConnection(places[0], 10.0) as connection, contextlib.suppress(BrokerError):
                begun = time.monotonic()
                connection.runtime_info(timeout=10.0)  # a name server answers that it has none
        else:
            pair = [each for each in view.members if each.pair == member.pair]
            (end,) = [log_end(each) for each in pair if each.role == MASTER]
            slaves = [each for each in pair if each.role != MASTER]
            begun = time.monotonic()
            while min(map(log_end, slaves)) < end and time.monotonic() - begun < 10:
                time.sleep(0.005)
    except (FailbackError, ValueError):
        return 0.0
    return (time.monotonic() - begun) * 1000


def _is_late(late: float, cut: Cut) -> bool:
    return late >= cut.delay_ms / 2  # the newest bytes of a log have been under way for a while


def what_is_cut(view: ClusterView, member: Member) -> str:
    """Say what is not as before at a broker whose links were joined; empty: nothing."""
    if silent(member.address):
        return f"{member.address} does not answer"
    missing = set(view.nameservers) - set(listed_at(view, member))
    if missing:
        return f"{', '.join(sorted(missing))} does not list {member.pod}"
    pair = [each for each in view.members if each.pair == member.pair and each.running]
    try:
        # The master's end first: what it had then its slaves must have afterwards.
        pair.sort(key=lambda each: each.role != MASTER)
        ends = [log_end(each) for each in pair]
    except FailbackError as error:
        return str(error)
    return "" if min(ends[1:], default=ends[0]) >= ends[0] else f"a slave of {member.pair} lags"


def _take_back(target: Target, args: Mapping[str, Any], deadline: float) -> dict[str, Any] | None:
    """Remove the rules of one link, and see that the broker is whole."""
    cutter = cutter_of(target)
    for place in args["at"]:
        cutter.join(str(place), str(args["link"]))
    pod = str(args["pod"])
    end = min(deadline, time.monotonic() + 10)
    while True:
        member, view = member_of(target, pod), target.view()
        if not member.running:
            return {"pod": pod, "running": False}
        if not what_is_cut(view, member):
            return {"pod": pod, "link": args["link"], "whole": True}
        if time.monotonic() >= end:
            return None
        time.sleep(0.2)
