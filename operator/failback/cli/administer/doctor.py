"""``failback doctor``: what is missing on this machine, and what to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from failback.cli.shared.clusters import (
    NO_CLUSTER,
    ClusterOptions,
    LocalRootOption,
    cluster_options,
)
from failback.cli.shared.commands import command
from failback.cli.shared.errors import FAIL
from failback.cli.shared.options import RUNS, JsonOption, RunsOption, open_root, option
from failback.cli.shared.output import print_json, print_table, say

if TYPE_CHECKING:
    from failback.cli.administer.doctor_checks import Finding


@command(
    "doctor",
    "failback doctor",
    "failback doctor -n 10.0.0.1:9876                     is the cluster reachable?",
    "failback doctor --bundle q.tar.gz --run runs/d/stay  for a question to others",
)
@cluster_options(root=False)
def doctor(
    cluster: ClusterOptions = NO_CLUSTER,
    runs: RunsOption = RUNS,
    root: LocalRootOption = None,
    bundle: Annotated[
        Path | None,
        option(
            "--bundle",
            "FILE",
            "Pack versions, settings, logs and a run's documents into this tar.gz,"
            " without secrets.",
        ),
    ] = None,
    run: Annotated[
        Path | None, option("--run", "RUN", "With --bundle: the run in question.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check this machine: what is missing, what it is needed for, and what to type."""
    from failback.cli.administer.bundle import write_bundle
    from failback.cli.administer.doctor_checks import MISSING, look
    from failback.cli.shared.folders import one_run

    where = open_root(root).path
    wanted = one_run(run) if run is not None else None
    findings = list(look(runs, where, cluster.named()))
    if json:
        print_json([asdict(each) for each in findings])
    else:
        _show(findings)
    if bundle is not None:
        names = write_bundle(bundle, [asdict(each) for each in findings], where, wanted)
        if not json:
            say(f"{bundle}: {len(names)} files, without secrets; look into it before you send it")
    if any(each.state == MISSING for each in findings):
        raise typer.Exit(FAIL)


def _show(findings: Sequence[Finding]) -> None:
    from failback.cli.administer.doctor_checks import OK, OPTIONAL

    rows = [(each.check, each.state, each.found, each.advice) for each in findings]
    print_table(("CHECK", "STATE", "FOUND", "WHAT TO DO"), rows)
    states = [each.state for each in findings]
    wrong = len(states) - states.count(OK) - states.count(OPTIONAL)
    if wrong:
        say(f"{wrong} of {len(rows)} need a look.")
    else:
        say(f"Everything is there{', but what is optional' if OPTIONAL in states else ''}.")
