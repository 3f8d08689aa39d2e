"""Run the library of experiments; write docs/claims.md and docs/experiments.md: ``make claims``.

Names of experiments run one after another, each on a cluster of its own, and their figures stay in
docs/measured.json; ``missing`` stands for all that the engine has not run yet. ``--quick`` has all
timers at a tenth, of Failback alone. Without a name only the pages are written.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.claims_figures import CLAIMS, Claim, figures_of

from failback.cli.shared.bundled import BundledExperiment, bundled_experiments
from failback.common import numbers
from failback.common.bounded_yaml import load_all, written

ROOT: Final = Path(__file__).resolve().parent.parent
MEASURED: Final = ROOT / "docs" / "measured.json"
CLAIMS_PAGE: Final = ROOT / "docs" / "claims.md"
EXPERIMENTS_PAGE: Final = ROOT / "docs" / "experiments.md"
QUICK: Final = "0.1"
QUICK_RUN: Final = "Failback, quick timers"
ENGINES: Final[Mapping[str, Mapping[str, str]]] = {
    "Apache 4.9.7": {"type": "Apache", "version": "4.9.7"},
    "Apache 5.3.3": {"type": "Apache", "version": "5.3.3"},
    "Failback": {},
}
_ENGINE_KINDS: Final = ("NameServer", "BrokerCluster")
Runs = list[dict[str, Any]]


def run(experiment: BundledExperiment, engine: str, runs: Path, *, quick: bool) -> Runs:
    """Run every arm that the engine can run, on one cluster; return a row of each."""
    folder = Path(tempfile.mkdtemp(prefix=f"{experiment.name}-", dir=runs))
    cluster, root = folder / "cluster.yaml", folder / "root"
    cluster.write_text("---\n" + "---\n".join(_cluster(experiment, engine, quick)))
    rows: Runs = []
    failback = str(Path(sys.executable).parent / "failback")
    up = [failback, "up", str(cluster), "-d", "--root", str(root), *experiment.start.split()]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    try:
        for arm in _arms(experiment, engine):
            command = [failback, "experiment", "run", experiment.name, "--arm", arm]
            command += ["--root", str(root), "--runs", str(folder / "runs")]
            command += ["--time-scale", QUICK] if quick else []
            with (folder / f"{arm}.log").open("w") as log:
                subprocess.run(command, check=False, stdout=log, stderr=subprocess.STDOUT)
            rows.append(_row(experiment.name, arm, QUICK_RUN if quick else engine, folder))
            print(json.dumps(rows[-1]), flush=True)
    finally:
        down = [failback, "down", "--root", str(root)]
        subprocess.run(down, check=False, stdout=subprocess.DEVNULL)
    return rows


def _cluster(experiment: BundledExperiment, engine: str, quick: bool) -> list[str]:
    documents = load_all(experiment.cluster.read_text(encoding="utf-8"))
    for each in documents:
        if each["kind"] not in _ENGINE_KINDS:
            continue
        if ENGINES[engine]:
            each["spec"]["engine"] = dict(ENGINES[engine])
        if ENGINES[engine] and each["kind"] == "BrokerCluster":  # the bare engine is measured
            each["spec"]["offsetCarry"] = {"mode": "Off"}
        if quick:
            each["spec"].setdefault("config", {})["failbackTimeScale"] = QUICK
    return [written(each) for each in documents]


def _arms(experiment: BundledExperiment, engine: str) -> list[str]:
    (document,) = load_all(experiment.path.read_text(encoding="utf-8"))
    program = ENGINES[engine].get("type", "Failback")
    arms = document["spec"].get("arms", [{"name": "base"}])
    upgrades = "toVersion" in str(arms) and engine != "Apache 4.9.7"
    return [
        each["name"]
        for each in arms
        if each.get("engine", program) == program and not (upgrades and "engine" in each)
    ]


def _row(name: str, arm: str, engine: str, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {
        "experiment": name,
        "arm": arm,
        "engine": engine,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    found = sorted(folder.glob(f"runs/**/{arm}-000/report/report.json"))
    found = found or sorted(folder.glob(f"runs/**/*{arm}*/report/report.json"))
    if not found:
        lines = (folder / f"{arm}.log").read_text().strip().splitlines() or [""]
        _, refused, problem = lines[-1].partition("error: ")  # before anything was injected
        verdict, why = ("Refused", problem) if refused else ("Inconclusive", lines[-1])
        return {**row, "verdict": verdict, "why": why[:300], "figures": {}}
    report = json.loads(found[-1].read_bytes())
    totals = report["totals"]
    reasons = [str(reason["detail"]) for reason in report["verdict"]["reasons"]]
    return {
        **row,
        "verdict": report["verdict"]["value"],
        "why": "; ".join(reasons)[:300],
        "delivered": totals["delivered"],
        "distinct": totals["distinct"],
        "again": totals["dup"],
        "lost": totals["lost"],
        "figures": figures_of(name, found[-1].parent.parent, report),
    }


# --- the pages -----------------------------------------------------------------------------------


def claims_page(measured: Runs) -> str:
    """Return the text of docs/claims.md."""
    lines = [_CLAIMS_HEAD]
    for claim in CLAIMS:
        lines += [
            f"## {claim.number}. {claim.says}",
            "",
            f"Articles {claim.articles}. {claim.argument}",
            "",
        ]
        lines += [f"```bash\nfailback experiment run {claim.experiment}\n```", ""]
        lines += [
            "| brokers | verdict | arm | run | re-consumed | figures | on |",
            "|---|---|---|---|---|---|---|",
        ]
        for engine in ENGINES:
            lines += _claim_rows(claim, engine, measured)
        contradicted = [each for each in ENGINES if _verdict(claim, each, measured) == "wrong"]
        if contradicted:
            lines += ["", f"Wrong on {', '.join(contradicted)}: {claim.wrong}"]
        if claim.note:
            lines += ["", claim.note]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _claim_rows(claim: Claim, engine: str, measured: Runs) -> list[str]:
    rows = _of(measured, claim.experiment, engine)
    verdict = _verdict(claim, engine, measured)
    if not rows:
        return [f"| {engine} | not run | – | – | – | – | – |"]
    return [
        f"| {engine} | {verdict} | {row['arm']} | {row['verdict']}{_because(row)} | {_again(row)} "
        f"| {_figures(row)} | {row['date']} |"
        for row in rows
    ]


def _verdict(claim: Claim, engine: str, measured: Runs) -> str:
    rows = _of(measured, claim.experiment, engine)
    figures = {row["arm"]: {**row["figures"], "again": row.get("again", 0)} for row in rows}
    try:
        held = claim.holds(figures) if rows else None
    except (KeyError, TypeError):  # an arm or a figure is missing
        held = None
    return {True: "true", False: "wrong", None: "open"}[held]


def experiments_page(measured: Runs) -> str:
    """Return the text of docs/experiments.md."""
    lines = [_EXPERIMENTS_HEAD]
    for each in _experiments(of_claims=False):
        fault = f" ({each.catalogue})" if each.catalogue else ""
        lines += [f"## {each.name}{fault}", "", each.question, ""]
        lines += [f"Expected: {each.expected} Source: {each.source}.", ""]
        needs = f", on a cluster of `failback up FILE {each.start}`" if each.start else ""
        lines += [f"`failback experiment run {each.name}`{needs}.", ""]
        lines += [
            "| brokers | arm | verdict | re-consumed | lost | figures | on |",
            "|---|---|---|---|---|---|---|",
        ]
        for engine in ("Apache 4.9.7", QUICK_RUN):
            rows = _of(measured, each.name, engine)
            lines += [
                f"| {engine} | {row['arm']} | {row['verdict']}{_because(row)} | {_again(row)} "
                f"| {numbers.count(row.get('lost'))} | {_figures(row)} | {row['date']} |"
                for row in rows
            ] or [f"| {engine} | – | not run | – | – | – | – |"]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _experiments(*, of_claims: bool) -> list[BundledExperiment]:
    """Return those of the claims, or all others but the demo."""
    claimed = {claim.experiment for claim in CLAIMS}
    others = [each for each in bundled_experiments() if each.name != "failback-demo"]
    return [each for each in others if (each.name in claimed) is of_claims]


def _of(measured: Runs, name: str, engine: str) -> Runs:
    return [each for each in measured if (each["experiment"], each["engine"]) == (name, engine)]


def _again(row: Mapping[str, Any]) -> str:
    if "again" not in row:
        return numbers.count(None)
    share = f" ({numbers.percent(row['again'] / row['distinct'])})" if row["again"] else ""
    return f"{numbers.count(row['again'])} of {numbers.count(row['distinct'])}{share}"


def _because(row: Mapping[str, Any]) -> str:
    return f": {row['why']}".replace("|", "/") if row["verdict"] != "Pass" else ""


def _figures(row: Mapping[str, Any]) -> str:
    found = [f"{name} {value}" for name, value in row["figures"].items()]
    return "; ".join(found) or "–"


_CLAIMS_HEAD: Final = """# What the articles say, measured

Five articles explain the source of RocketMQ 4.4 to 4.9: (A) how master and slave synchronise
consumer progress, (B) an analysis of SlaveSynchronize, (C) consumer offsets in 4.9.0, (D) notes on
offsets and cluster management, (E) read/write splitting and the synchronisation of progress. Eight
claims of theirs are here, each with an experiment that anybody can run, at the timers of the
brokers. `make claims ARGS="claim-8-held-pull --engine 'Apache 4.9.7'"` runs one again and writes
this page. *Verdict* is that of the claim, *run* that of the experiment.
"""
_EXPERIMENTS_HEAD: Final = """# Experiments

What `failback experiment list` shows beside the demo and the [claims](claims.md): one experiment
for each fault, and one for each public issue that the faults can bring about. On Failback all
timers were at a tenth. `make claims ARGS="missing --quick"` runs those that have no figures yet,
and writes this page.
"""


def _kept() -> Runs:
    """Return the figures of earlier runs."""
    kept: Runs = json.loads(MEASURED.read_text(encoding="utf-8"))
    return kept


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="experiments to run, or: missing")
    parser.add_argument("--engine", choices=list(ENGINES), default="Failback")
    parser.add_argument("--quick", action="store_true", help="all timers at a tenth")
    options = parser.parse_args(arguments)
    measured = _kept()
    engine = QUICK_RUN if options.quick else options.engine
    if options.names:
        runs = Path(tempfile.mkdtemp(prefix="failback-claims-"))
        for each in _experiments(of_claims=True) + _experiments(of_claims=False):
            missing = "missing" in options.names and not _of(measured, each.name, engine)
            unsuited = options.quick and each in _experiments(of_claims=True)
            if each.name not in options.names and (not missing or unsuited):
                continue
            new = run(each, options.engine, runs, quick=options.quick)
            measured = _kept()  # another process may have run others meanwhile
            gone = _of(measured, each.name, engine)
            measured = [row for row in measured if row not in gone] + new
            measured.sort(key=lambda row: (row["experiment"], row["engine"]))
            MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
        print(f"the runs are in {runs}")
    CLAIMS_PAGE.write_text(claims_page(measured), encoding="utf-8")
    EXPERIMENTS_PAGE.write_text(experiments_page(measured), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
