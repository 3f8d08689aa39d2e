"""The mistakes of tests/data/cli/mistakes.yaml, and the folder that they are made in."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from failback.cli.shared.bundled import bundled
from tests.support.analytics.bad_input.conditions import not_drained
from tests.support.analytics.bad_input.files import missing_segment
from tests.support.analytics.cases import CASES
from tests.support.processes.child_process import ROOT

_FILES: Final = {
    "file": b"",
    "binary": b"\xff\xfe\x00\x01",
    "hot/a.fblog": b"",
    "lake/table=send/date=2026-01-31/run=r1/a.parquet": b"",
    "folder/note.txt": b"no run",
    "broken/run.json": b"{\n",
    "kubeconfig": b"""\
apiVersion: v1
kind: Config
current-context: away
clusters: [{name: away, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: none}}]
contexts: [{name: away, context: {cluster: away, user: me}}]
""",
    "broker.conf": b"brokerName=b\nlistenPrt=1\n",
    "bad.yaml": b"""\
---
apiVersion: failback.dev/v1alpha1
kind: NameServer
metadata: {name: main}
spec: {replica: 1}
---
apiVersion: failback.dev/v1alpha1
kind: BrokerCluster
metadata: {name: demo}
spec:
  nameServerRef: {name: main}
  pair: 1
  slavesPerPair: x
""",
    "wrong.yaml": b"""\
---
apiVersion: failback.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: kill}
spec:
  clusterRef: {name: demo}
  sed: 42
  repetitions: two
  workload:
    topics: [{name: orders, queues: 4, rate: 200}]
    groups: [{name: billing}]
  faults:
    - {id: f1, fault: kil, at: 10s}
  expect: [{metric: totals.losst, op: "==", value: 0}]
""",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One line that somebody typed, and what has to come back."""

    line: str
    code: int
    say: str | None
    has: str | None
    where: str
    number: int | None
    environment: Mapping[str, str]
    see: str | None

    def __str__(self) -> str:
        return f"{self.number or '-'} {self.line}"

    def words(self, places: Mapping[str, str]) -> list[str]:
        return shlex.split(_filled(self.line, places))

    def set_for_it(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the environment that the row sets."""
        return {name: _filled(value, places) for name, value in self.environment.items()}

    def check(self, code: int, said: str, places: Mapping[str, str]) -> None:
        """Compare code and answer; no row may show what is for programmers."""
        assert code == self.code, said
        if self.say is not None:
            assert said.strip() == _filled(self.say, places)
        if self.has is not None:
            assert _filled(self.has, places) in said
        for inside in ("Traceback", "Errno", "internal error", "<class", "NoneType"):
            assert inside not in said


def mistakes(*where: str) -> list[Mistake]:
    """Return the rows that can be tried there: in the process, in a child, against a cluster."""
    return [each for each in every_mistake() if each.where in where]


def every_mistake() -> list[Mistake]:
    """Return all rows; ``see`` is set where another test does what is no line to type."""
    text = (ROOT / "tests" / "data" / "cli" / "mistakes.yaml").read_text(encoding="utf-8")
    return [
        Mistake(
            row.get("type", ""),
            row.get("code", 0),
            row.get("say"),
            row.get("has"),
            "elsewhere" if "see" in row else row.get("in", "process"),
            row.get("n"),
            row.get("env", {}),
            row.get("see"),
        )
        for row in YAML(typ="safe", pure=True).load(text)
    ]


def make_folder(folder: Path) -> None:
    """Put what the rows name into a folder."""
    for name, content in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    experiment = bundled("experiment.yaml").read_text(encoding="utf-8")
    before, sign, after = experiment.partition("totals.lost")
    if not sign:
        before, after = f"{experiment}  expect:\n    - {{metric: ", ", op: '==', value: 0}\n"
    (folder / "expects.yaml").write_text(f"{before}totals.losst{after}")
    CASES["c2"]()[0].write(folder / "runs" / "one")
    missing_segment(folder / "runs" / "gap")
    not_drained(folder / "runs" / "undrained")


def places(folder: Path, taken: socket.socket) -> dict[str, str]:
    """What stands for braces in a row."""
    return {
        "dir": str(folder),
        "bundled": str(bundled("")).rstrip("/"),
        "taken": str(taken.getsockname()[1]),
    }


def run_command(words: list[str], folder: Path, **environment: str) -> tuple[int, str]:
    """Run the program in a folder; returns its code, and what it said on both outputs."""
    done = subprocess.run(
        [sys.executable, "-m", "failback.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
