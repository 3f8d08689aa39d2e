"""Runs whose clocks, traffic, faults or end leave something open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.analytics.bad_input.outcome import (
    Case,
    Document,
    Told,
    clean,
    codes,
    inconclusive,
)
from tests.support.analytics.run_builder import MS, RunBuilder


def _clocks(folder: Path, rows: Sequence[tuple[str, str, int]], why: str) -> Told:
    b = clean()
    for host, boot, error in rows:
        b.add("clock", host=host, boot_id=boot, source="exchange", offset_ns=0,
              error_ns=error * MS)  # fmt: skip
    b.write(folder)

    def told(document: Document) -> None:
        inconclusive("CLOCK")(document)
        assert why in document["verdict"]["reasons"][0]["detail"]
        assert document["totals"]["delivered"] == 3

    return told


def clock_known_too_badly(folder: Path) -> Told:
    return _clocks(folder, [("far", "one", 60), ("h", "h", 0)], "known to 60 ms only")


def host_started_anew(folder: Path) -> Told:
    return _clocks(folder, [("h", "one", 0), ("h", "two", 0)], "restarted")


def order_within_the_clocks_error(folder: Path) -> Told:
    b = RunBuilder("hosts")
    b.assign(0, 0, end=(21, "SHUTDOWN"))
    b.deliver(0, 10, 20)
    b.assign(22, 0, proc=2, host="far")
    b.deliver(0, 23, 24, proc=2, host="far")
    for host in ("h", "far"):
        b.add("clock", host=host, boot_id=host, source="exchange", offset_ns=0, error_ns=2 * MS)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["totals"]["dup_unknown_order"] == 1
        inconclusive("CLOCK")(document)

    return told


def no_delivery(folder: Path) -> Told:
    RunBuilder("empty").write(folder)

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Inconclusive"
        assert "NO_TRAFFIC" in codes(document)
        assert document["totals"]["dup_ratio"] is None

    return told


def silent_group(folder: Path) -> Told:
    b = clean()
    b.run["groups"].append({**b.run["groups"][0], "name": "silent", "topic": "T2"})
    b.write(folder)

    def told(document: Document) -> None:
        inconclusive("NO_TRAFFIC")(document)
        silent = next(group for group in document["groups"] if group["group"] == "silent")
        assert silent["dup_ratio"] is None

    return told


def group_without_assignment(folder: Path) -> Told:
    b = clean()
    b.rows["assign"].clear()
    b.write(folder)

    def told(document: Document) -> None:
        assert codes(document)[-1] == "NO_TRAFFIC"

    return told


def quiet_fault_window(folder: Path) -> Told:
    b = clean()
    b.run["workload"] = {"topics": [{"name": "T", "ratePerSecond": 400}]}
    b.fault("KILL", 1000)
    b.fault("ACCEPT", 3000)
    b.fault("HEALED", 4000)
    b.write(folder)
    return inconclusive("NO_TRAFFIC")


def _closed(folder: Path, code: str, **change: Any) -> Told:
    b = clean()
    assert b.closed is not None
    b.closed |= change
    b.write(folder)

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Inconclusive"
        assert code in codes(document)
        if code == "NO_DRAIN":
            assert document["totals"]["lost"] is None
            assert document["loss"]["fates"] is None
            assert document["totals"]["delivered"] == 3

    return told


def not_drained(folder: Path) -> Told:
    return _closed(folder, "NO_DRAIN", drained=False)


def not_scanned(folder: Path) -> Told:
    return _closed(folder, "NO_DRAIN", scan=False)


def clock_step(folder: Path) -> Told:
    return _closed(folder, "CLOCK", clock={"steps": 1, "hosts": []})


def not_steady(folder: Path) -> Told:
    return _closed(folder, "STEADY_STATE", steady=False, steady_why="lag 900")


def aborted(folder: Path) -> Told:
    return _closed(folder, "ABORTED", aborted="Ctrl-C")


def sampler_slept(folder: Path) -> Told:
    return _closed(folder, "RECORDER_GAP", recorder_gaps=["sampler slept 4 s"])


def declared_gap(folder: Path) -> Told:
    return _closed(folder, "RECORDER_GAP", gaps=[{"proc_no": 7, "from_seq": 1, "to_seq": 2}])


def never_closed(folder: Path) -> Told:
    b = clean()
    b.closed = None
    b.write(folder)

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Inconclusive"
        assert "ABORTED" in codes(document)

    return told


def fault_without_observation(folder: Path) -> Told:
    b = clean()
    b.fault("KILL", 5, observed=None, honest=False)
    b.write(folder)

    def told(document: Document) -> None:
        assert "FAULT_NOT_PROVED" in codes(document)
        assert document["faults"][0]["proved"] is False
        assert document["rto"][0]["consume_ms"] == {"p50": None, "max": None}

    return told


def fault_never_injected(folder: Path) -> Told:
    b = clean()
    b.run["faults"] = [{"id": "f1"}]
    b.write(folder)
    return inconclusive("FAULT_NOT_PROVED")


CASES: Final[tuple[Case, ...]] = (
    clock_known_too_badly,
    host_started_anew,
    order_within_the_clocks_error,
    no_delivery,
    silent_group,
    group_without_assignment,
    quiet_fault_window,
    not_drained,
    not_scanned,
    clock_step,
    not_steady,
    aborted,
    sampler_slept,
    declared_gap,
    never_closed,
    fault_without_observation,
    fault_never_injected,
)
