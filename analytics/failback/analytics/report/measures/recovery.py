"""Faults and how long everything took to come back: ``faults[]`` and ``rto[]``. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.families import Family
from failback.analytics.analysis.counting.partials.context import Outage, instants_of
from failback.analytics.analysis.counting.partials.phases import PHASES
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import Row, millis, quantile
from failback.analytics.run.history import FaultStep
from failback.protocol.message import RETRY_PREFIX

EFFECT_KINDS: Final[Mapping[str, str]] = {
    "KILL": "killed",
    "TERM": "asked to stop",
    "PAUSE": "paused",
    "CUT": "cut off",
    "CLOCK": "has another clock",
    "FILES": "has files that fail or wait",
    "DISK_FULL": "has a full disk",
    "READ_ONLY": "has a disk that takes no write",
    "FEW_WRITES": "has a disk that takes few writes",
    "MEMORY": "has less memory",
    "SWAP": "gave its role to another member",
    "KILL_NAMESERVER": "name server killed",
    "CLIENT_KILL": "consumer killed",
    "CLIENT_TERM": "consumer stopped",
    "SET_HANDLER": "handlers changed",
    "UNSUBSCRIBE": "consumers unsubscribed",
    "SCALE": "consumers scaled",
    "NONE": "",
}
"""Rows that say of a fault that its effect was seen, and the words for each."""
HEAL_KINDS: Final = ("HEALED", "ACCEPT", "RESUMED", "CLIENT_START")


def fault_figures(figures: Figures) -> list[Row]:
    """One entry per fault: intended, issued, observed; what proves it."""
    by_fid: dict[str, list[FaultStep]] = defaultdict(list)
    for step in figures.analysis.history.faults:
        by_fid[step.fid].append(step)
    return [_fault(fid, steps) for fid, steps in by_fid.items()]


def _fault(fid: str, steps: Sequence[FaultStep]) -> Row:
    effect = next((step for step in steps if step.kind in EFFECT_KINDS), steps[0])
    details = [step.details for step in steps]
    proof: Row = {}
    for detail in details:
        proof |= detail.get("proof") or {}
    heal = _first(steps, *HEAL_KINDS)
    accept = _first(steps, "ACCEPT", "RESUMED")
    proofs = [step.honest for step in steps if step.honest is not None]
    down = None
    if effect.observed is not None and accept is not None:
        down = millis(accept.t - effect.t)
    return {
        "fid": fid,
        "name": next((d["fault"] for d in details if d.get("fault")), effect.kind.lower()),
        "kind": effect.kind,
        "victims": sorted({_victim(step) for step in steps if step.kind in EFFECT_KINDS}),
        "intended_ns": effect.intended,
        "issued_ns": [effect.issued, effect.issued_end],
        "effect_ns": effect.observed,
        "heal_ns": heal.observed if heal else None,
        "proved": bool(proofs) and all(proofs) and effect.observed is not None,
        "proof": {
            **proof,
            **{step.kind: step.observed for step in steps if step.kind not in EFFECT_KINDS},
        },
        "peer_saw": next((d["peer"] for d in details if d.get("peer")), None),
        "down_seconds": None if down is None else down / 1000,
        "why": next((d["why"] for d in details if d.get("why")), None),
    }


def _victim(step: FaultStep) -> str:
    if step.broker is None:
        detail = step.details
        who = f"{detail.get('group', '')}-{detail.get('member', '')}".strip("-")
        return who or step.proc_ref or "?"
    return f"{step.pair or step.broker}/{step.bid} {step.addr or ''}".strip()


def _first(steps: Sequence[FaultStep], *kinds: str) -> FaultStep | None:
    for kind in kinds:
        for step in steps:
            if step.kind == kind and step.observed is not None:
                return step
    return None


def rto_figures(figures: Figures) -> list[Row]:
    """Per outage: how long sends and pulls failed, and when each step of recovery was seen."""
    analysis = figures.analysis
    pulled = {
        family: _by_outage(figures, family)
        for family in (families.PULLED_BEFORE, families.PULLED_AFTER, families.PULLED_ACCEPTED)
    }
    found = []
    for number, outage in enumerate(analysis.context.outages):
        steps = [step for step in analysis.history.faults if step.fid == outage.fid]
        consume = _delays(pulled[families.PULLED_AFTER].get(number, {}), outage.killed)
        after_accept = (
            []
            if outage.accepted is None
            else _delays(pulled[families.PULLED_ACCEPTED].get(number, {}), outage.accepted)
        )
        before = set(pulled[families.PULLED_BEFORE].get(number, {}))
        again = set(pulled[families.PULLED_AFTER].get(number, {}))
        phases = _phases(figures, number, outage, steps)
        found.append(
            {
                "fid": outage.fid,
                "broker": outage.broker,
                "produce_ms": _produce_ms(figures, number, outage),
                "consume_ms": {
                    "p50": millis(quantile(consume, 0.5)),
                    "max": millis(consume[-1]) if consume else None,
                },
                "second_stall_ms": millis(after_accept[-1]) if after_accept else None,
                "queues_never": len(before - again),
                "ttfr_kill_ms": _first_repeat(figures, outage.killed),
                "ttfr_accept_ms": (
                    None if outage.accepted is None else _first_repeat(figures, outage.accepted)
                ),
                "phases": phases,
                "phase_rows": _phase_rows(figures, number, outage, steps),
            }
        )
    return found


def _by_outage(figures: Figures, family: Family) -> dict[int, dict[tuple[Any, ...], int]]:
    found: dict[int, dict[tuple[Any, ...], int]] = defaultdict(dict)
    for row in figures.values(family):
        found[row["outage"]][row["grp"], row["broker"], row["topic"], row["qid"]] = row["value"]
    return found


def _delays(ends: Mapping[tuple[Any, ...], int], since: int) -> list[int]:
    """Delays of the queues (group, broker, topic, queue id), shortest first.

    Retry queues are left out where there are others: they are mostly empty, and the broker holds a
    pull that finds nothing for up to 20 s, which would pass for an outage.
    """
    work = {key: end for key, end in ends.items() if not key[2].startswith(RETRY_PREFIX)}
    return sorted(end - since for end in (work or ends).values())


def _produce_ms(figures: Figures, number: int, outage: Outage) -> float | int | None:
    if not figures.analysis.failed_after[number]:
        return 0 if figures.table(families.SEND_RATE).num_rows else None
    end = figures.analysis.resumed.get(number)
    return None if end is None else millis(end - outage.killed)


def _first_repeat(figures: Figures, since: int) -> float | int | None:
    first = instants_of(figures.analysis.context.outages).index(since)
    rows = figures.values(families.FIRST_DUPS)
    later = [row["value"] for row in rows if row["instant"] >= first]
    return millis(min(later) - since) if later else None


def _phases(figures: Figures, number: int, outage: Outage, steps: Sequence[FaultStep]) -> Row:
    def value(phase: str) -> int | None:
        rows = figures.values(PHASES[phase].family)
        found = [row["value"] for row in rows if row["outage"] == number]
        return found[0] if found else None

    def step(*kinds: str) -> int | None:
        found = _first(steps, *kinds)
        return found.observed if found else None

    return {
        "kill": outage.killed,
        "peer_closed": step("PEER"),
        "last_old_route_use": value("last_old_route_use"),
        "first_pull_on_slave": value("first_pull_on_slave"),
        "accept": outage.accepted,
        "registered": step("REGISTERED"),
        "first_send_ok": value("first_send_ok"),
        "first_pull_on_master": value("first_pull_on_master"),
        "first_fresh_slave_sync": step("SLAVE_SYNC"),
    }


_STEP_KINDS: Final = {
    "kill": ("GONE", "KILL", "TERM"),
    "peer_closed": ("PEER",),
    "accept": ("ACCEPT",),
    "registered": ("REGISTERED",),
    "first_fresh_slave_sync": ("SLAVE_SYNC",),
}


def _phase_rows(figures: Figures, number: int, outage: Outage, steps: Sequence[FaultStep]) -> Row:
    """The row behind each phase: a witness's by fault and kind, others by process and seq."""
    found: Row = {}
    for phase, kinds in _STEP_KINDS.items():
        for kind in kinds:
            step = _first(steps, kind)
            if step is not None:
                found[phase] = f"fault/{outage.fid}/{step.kind}"
                break
    for phase in PHASES:
        row = figures.analysis.phase_rows.get((number, phase))
        if row is not None:
            found[phase] = row
    return dict(sorted(found.items()))
