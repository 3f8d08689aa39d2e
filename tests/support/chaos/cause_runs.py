"""Runs on real brokers in which one cause of duplicates acts, so that every label is known.

A :class:`CauseRun` says which label its duplicates must get and how they come about: the cluster's
settings, the workload, the faults, and what a hand from outside does besides (an operator's reset,
a process that is frozen). All timers run at a tenth; seconds below are those of the file.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from failback.analytics.report.make_report import report
from failback.chaos.experiment.spec import ChaosExperiment
from failback.chaos.run.outcome import RunOutcome
from failback.chaos.run.run import run_arm
from failback.chaos.targets.location import Location
from tests.support.chaos.chaos_lab import TIME_SCALE, LocalCluster, experiment, running_cluster
from tests.support.operator.resources import as_file, resource

TOPIC: Final = "orders"
GROUP: Final = f"group-{TOPIC}"
MASTER: Final = {"pair": "demo-0", "role": "Master"}
SLAVE: Final = {"pair": "demo-0", "role": "Slave"}
ALL: Final = {"group": GROUP, "mode": "All"}
BOTH: Final = {"pair": "demo-0", "role": "Master", "group": GROUP}
UNATTRIBUTED: Final = "unattributed"
MINUTES: Final = 600_000
"""An interval in ms that does not come round in a run."""

Hand = Callable[[LocalCluster, Path], None]
Fault = Mapping[str, Any]


@dataclass(frozen=True)
class CauseRun:
    """One run with one cause.

    Attributes:
        label: The cause that every duplicate must be given.
        how: How the run brings it about, for the table's reader.
        least: Duplicates that there must be.
        also: Further labels that duplicates of this run rightly get, and why.
        quick: Belongs to the sample that every test run looks at.
        hand: What is done besides the faults, from run zero on.
    """

    label: str
    how: str
    faults: tuple[Fault, ...]
    least: int = 200
    name: str = ""
    also: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    pairs: int = 1
    slaves: int = 1
    master_role: str = "ASYNC_MASTER"
    load: Mapping[str, Any] = field(default_factory=dict)
    group: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    members: int = 1
    cooldown: float = 30
    quick: bool = False
    hand: Hand | None = None

    def __str__(self) -> str:
        return self.name or self.label.lower().replace("_", "-")

    @property
    def wants(self) -> tuple[Any, ...]:
        """What tells clusters apart: runs that want the same one may share it."""
        return self.pairs, self.slaves, self.master_role, tuple(sorted(self.config.items()))

    @property
    def is_rollback(self) -> bool:
        return self.label.startswith("ROLLBACK_")

    @property
    def bar(self) -> float:
        """The share of duplicates that must be on the diagonal."""
        return 0.99 if self.is_rollback else 0.95

    def experiment(self) -> ChaosExperiment:
        """The experiment of this run."""
        switches = {"drain_on_shutdown_ms": 100_000, **self.switches}
        return experiment(
            [dict(each) for each in self.faults],
            topic=TOPIC,
            name=f"cause-{self}",
            members=self.members,
            load=dict(self.load),
            group=dict(self.group),
            workload={**self.workload, "switches": switches},
            warmupSeconds=20,
            steadyState={"holdSeconds": 10, "timeoutSeconds": 300},
            cooldownSeconds=self.cooldown,
            drain={"timeoutSeconds": 900, "quietSeconds": 5},
            recoverTimeoutSeconds=900,
            healDeadlineSeconds=600,
            timeoutSeconds=3000,
        )


SENT_AGAIN = "SEND_TIMEOUT_DUP"


@dataclass(frozen=True)
class Labelled:
    """What a run's report calls its duplicates."""

    run: CauseRun
    labels: Counter[str]
    folder: Path

    @property
    def total(self) -> int:
        return self.labels.total()

    @property
    def right(self) -> int:
        return self.labels[self.run.label] + sum(self.labels[also] for also in self.run.also)

    @property
    def share(self) -> float:
        """Of the duplicates that the fault made: sends time out by themselves on a busy machine."""
        made = self.total - (0 if self.run.label == SENT_AGAIN else self.labels[SENT_AGAIN])
        return self.right / made if made else 0.0

    @property
    def off(self) -> dict[str, int]:
        """Duplicates with another label."""
        known = {self.run.label, *self.run.also}
        return {label: n for label, n in sorted(self.labels.items()) if label not in known and n}

    @property
    def holds(self) -> bool:
        return self.total >= self.run.least and self.share >= self.run.bar

    def __str__(self) -> str:
        off = ", ".join(f"{label} {n}" for label, n in self.off.items()) or "none"
        return (
            f"{self.run}: {self.right} of {self.total} duplicates are {self.run.label}"
            f" ({self.share:.1%}), other labels: {off}"
        )


@contextmanager
def cluster_of(run: CauseRun, folder: Path) -> Iterator[LocalCluster]:
    """The cluster that a run asks for; stopped afterwards."""
    scale = {"failbackTimeScale": str(TIME_SCALE)}
    text = as_file(
        resource("NameServer", "ns", replicas=1, config=scale),
        resource(
            "BrokerCluster",
            "demo",
            nameServerRef={"name": "ns"},
            pairs=run.pairs,
            slavesPerPair=run.slaves,
            slaveReadEnable=run.slaves > 0,
            masterRole=run.master_role,
            config={**scale, **run.config},
        ),
    )
    with running_cluster(folder, text) as cluster:
        yield cluster


def carry_out(run: CauseRun, folder: Path) -> Labelled:
    """Run it on a cluster of its own; see :func:`carry_out_on`."""
    with cluster_of(run, folder) as cluster:
        return carry_out_on(cluster, run, folder / "run")


def carry_out_on(cluster: LocalCluster, run: CauseRun, run_dir: Path) -> Labelled:
    """Run it, report with the local engine, and read the labels.

    Raises:
        AssertionError: The run was not proved, or not drained: it proves nothing. Or an answer of
            a broker was called unexplained: these brokers do it right.
    """
    outcome, said = _run(run, cluster, run_dir)
    assert outcome.exit_code == 0, (str(run), outcome, said[-8:])
    paths = report(run_dir, "local")
    document = json.loads(paths.json.read_text())
    assert not document["resume_points"]["unexplained"], (str(run), document["resume_points"])
    return Labelled(run, labels_of(document), run_dir)


def _run(run: CauseRun, cluster: LocalCluster, run_dir: Path) -> tuple[RunOutcome, list[str]]:
    said: list[str] = []
    failures: list[BaseException] = []
    hands: list[threading.Thread] = []

    def act(hand: Hand) -> None:
        try:
            hand(cluster, run_dir)
        except BaseException as error:  # raised again in the caller's thread
            failures.append(error)

    def on_progress(line: str) -> None:
        said.append(line)
        if line == "run zero" and run.hand is not None:
            hands.append(threading.Thread(target=act, args=(run.hand,), name="hand"))
            hands[-1].start()

    where = Location(root=str(cluster.root))
    outcome = run_arm(
        run.experiment(), "base", 0, location=where, run_dir=run_dir, progress=on_progress
    )
    for hand in hands:
        hand.join()
    if failures:
        raise failures[0]
    assert run.hand is None or hands, said
    return outcome, said


def labels_of(document: Mapping[str, Any]) -> Counter[str]:
    """Duplicates by label over all groups of a report."""
    found: Counter[str] = Counter()
    for group in document["groups"]:
        found.update(group["causes"])
        found[UNATTRIBUTED] += group["unattributed"]
    return +found
