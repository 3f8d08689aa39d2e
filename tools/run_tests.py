"""Run the checks and test tiers and end with one table.

    make test                 lint, unit, and of every other tier what is marked `sample`
    make test-all             everything; with ARGS=--rest what `make test` left
    make test-TIER ARGS="…"   one tier; ARGS go to pytest (`-k name`, or a path below tests/)

A tier is a folder of tests. ``processes`` is three of them in one run of pytest. Three lanes run
side by side: lint, the tiers that compute, and those that wait for processes. The first two print
a tier's output as a whole when it ends. The first and the third help the second when they are done.
``--rest`` has no lint, and so two lanes: with three, tests on two cores time out.
Every tier runs even when an earlier one failed, so that one run shows everything; the exit code is
1 if any failed.
With ``FAILBACK_REQUIRE=all`` a skip for a missing tool is a failure (tests/conftest.py).
``make test`` selects tests of the Kubernetes API server only where that is built; ``--rest`` runs
the whole tier where the ``make test`` before it did not. A build starts in the background with the
first tier.

``make test`` leaves out what is marked `full`, and of unit what is marked `foreign`. It gives
properties the examples of the profile `quick`, and does not repeat tests without kernels or with
those of tools/sanitized.py. ``--rest`` runs what was left out, every property again with all its
examples, and these repetitions.

Tiers on real processes share a noisy machine. If few of their tests fail, those run once more, one
after the other. What passes only then is UNSTEADY: the table is followed by its first failure, and
tests/unsteady.md lists it until it is mended. A test that fails twice has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock, Thread, Timer
from typing import Final, TextIO

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SOURCES = ["operator", "broker-image", "chaos", "analytics", "tests", "tools"]

sys.path.insert(0, str(ROOT))
from tools import setup_kube  # noqa: E402 - a script sees tools/ only

Command = list[str]

LINT: list[Command] = [
    [str(BIN / "ruff"), "check", *SOURCES, "examples"],
    [str(BIN / "ruff"), "format", "--check", *SOURCES, "examples"],
    [sys.executable, "-m", "mypy"],  # its workers give up after 3 s on a busy machine
    [str(BIN / "lint-imports")],
    [sys.executable, "tools/build_docs.py"],
]
PURE = [
    *sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests/unit/store").glob("test_*.py")
        if not path.name.startswith("test_native_")
    ),
    *("tests/unit/broker/test_pull_requests.py", "tests/unit/broker/test_pull_serving.py"),
    *("tests/unit/broker/test_send_requests.py", "tests/unit/broker/test_waiting_answers.py"),
    "tests/unit/broker/test_server_runs.py",
]
"""What runs once more without kernels: the store, and each processor that has a twin in C."""
BUILD_SECONDS: Final = 40 * 60
"""How long a set-up may take; the longest is the first build of the API server."""


@dataclass(frozen=True, slots=True)
class Tier:
    """How the tests of a folder run, or of several together."""

    workers: int
    folders: tuple[str, ...] = ()
    """The folders below tests/; by default the one that has the tier's name."""
    dist: str = "loadfile"
    needs: str = ""
    """A script of tools/ that fetches what the tests need."""
    again: bool = True
    """Whether few failures are tried once more."""
    computes: bool = False
    """Whether it keeps a processor busy: it runs beside the tiers that wait."""
    alone: bool = False
    """Whether tests marked `alone` run behind the others, with one worker."""


WAITING = 4
"""Workers of tiers whose tests wait for processes half of their time, on two cores."""
TIERS = {
    "processes": Tier(WAITING, ("java", "faults", "integration"), needs="setup_java.py"),
    "unit": Tier(2, dist="load", again=False, computes=True),
    "integration": Tier(WAITING),
    "faults": Tier(WAITING, needs="setup_java.py"),
    "java": Tier(WAITING, needs="setup_java.py"),
    "spark": Tier(1, again=False, computes=True),
    "e2e": Tier(2, needs="setup_java.py", computes=True),
    "kube": Tier(6, needs="setup_kube.py", alone=True),
    "images": Tier(1, again=False, computes=True),
}
WHOLE = [name for name in TIERS if name not in TIERS["processes"].folders]
"""The tiers of a run of all tests."""
PARTS = {
    "all": "",
    "sample": " and sample and not full",
    "rest": " and (full or not sample)",
}
"""Part of a tier and what its tests are selected by; sample and rest are all."""
UNIT_PARTS = {
    "all": "",
    "sample": " and not foreign and not full",
    "rest": " and (foreign or full or hypothesis)",
}
"""The same of unit. Properties are in both: sample has few of their examples, rest has all."""
QUICK = ["--hypothesis-profile=quick"]
BUDGET = ROOT / "tools" / "budget.toml"
FEW = 3
"""A folder with more failures than these is broken, not unlucky."""
SAMPLED = ROOT / ".pytest_cache" / "sampled"
"""Which tiers the last ``make test`` in this checkout sampled; ``--rest`` uses it up."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a tier ended."""

    passed: bool
    seconds: float = 0.0
    cpu: float = 0.0
    """Processor time in seconds, of its processes and those that they waited for."""
    unsteady: dict[str, str] = field(default_factory=dict)
    """Tests that failed and then passed when they ran again alone, with their first failure."""


def pytest(name: str, part: str = "all", arguments: Sequence[str] = ()) -> Command:
    """Return the command of a part of a tier; paths among the arguments stand for its folder."""
    tier = TIERS[name]
    paths = [f"tests/{folder}" for folder in tier.folders or (name,)]
    if any(word.startswith("tests/") for word in arguments):
        paths = []
    spread = ["-n", str(tier.workers), "--dist", tier.dist] if tier.workers > 1 else []
    if tier.dist == "loadfile":
        spread.append("--no-loadscope-reorder")  # the order of tests/conftest.py: long files first
    marker = "not soak" + (UNIT_PARTS if name == "unit" else PARTS)[part]
    if name == "unit" and part == "sample":
        spread += QUICK
    if tier.alone and part != "sample" and not arguments:
        marker += " and not alone"
    return [sys.executable, "-m", "pytest", *paths, "-q", *spread, "-m", marker, *arguments]


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs commands in a folder; ``output`` takes what they print, ``None`` the terminal."""

    folder: Path = ROOT
    output: TextIO | None = None
    cpu: list[float] = field(default_factory=list)
    """Seconds of processor time of each command so far."""

    def run(self, name: str, command: Command, limit: float | None = None) -> bool:
        """Run a command; one that is not done after ``limit`` seconds has failed."""
        shown = " ".join([Path(command[0]).name, *command[1:]])
        print(f"\n=== {name}: {shown}", file=self.output, flush=True)
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdout=self.output,
            stderr=self.output and subprocess.STDOUT,
        )
        killer = Timer(limit or threading.TIMEOUT_MAX, process.kill)
        killer.start()
        _, status, usage = os.wait4(process.pid, 0)
        killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu.append(usage.ru_utime + usage.ru_stime)
        if limit and process.returncode == -signal.SIGKILL:
            print(f"{name}: not done after {limit:.0f} s, given up", file=self.output, flush=True)
        return process.returncode == 0


def run_with_second_try(name: str, command: Command, runner: Runner) -> Result:
    """Run pytest, and what failed once more if that is little."""
    cache = runner.folder / ".pytest_cache" / name  # its own, because tiers run side by side
    record, report = cache / "v/cache/lastfailed", cache / "first.xml"
    record.unlink(missing_ok=True)
    if runner.run(name, [*command, "-o", f"cache_dir={cache}", f"--junit-xml={report}"]):
        return Result(True)
    failed = sorted(json.loads(record.read_text())) if record.exists() else []
    if not 0 < len(failed) <= FEW * max(len(TIERS[name].folders), 1):
        return Result(False)
    failures = first_failures(report)
    if not runner.run(f"{name}, once more", [*command[:3], "-q", *failed]):
        return Result(False)
    return Result(True, unsteady={test: failures.get(dotted(test), "") for test in failed})


def first_failures(report: Path) -> dict[str, str]:
    """Return the text of every failure in a JUnit report, by :func:`dotted` name."""
    return {
        f"{case.get('classname')}.{case.get('name')}": bad.text or ""
        for case in ElementTree.parse(report).iter("testcase")
        for bad in (*case.findall("error"), *case.findall("failure"))
    }


def dotted(test: str) -> str:
    """Return the name that a JUnit report has for ``folder/test_file.py::Class::test[1/2]``."""
    place, bracket, parameters = test.partition("[")
    names = place.replace(".py::", ".").replace("::", ".").replace("/", ".")
    return f"{names}{bracket}{parameters}"


def run_tier(name: str, part: str, arguments: Sequence[str], runner: Runner) -> Result:
    started = time.monotonic()
    if name == "lint":
        outcomes = [runner.run(name, command) for command in LINT]
        result = Result(all(outcomes))
    elif TIERS[name].again:
        result = run_with_second_try(name, pytest(name, part, arguments), runner)
        if TIERS[name].alone and part != "sample" and not arguments:
            marker = "alone and not soak" + PARTS[part]
            command = [sys.executable, "-m", "pytest", f"tests/{name}", "-q", "-m", marker]
            passed = runner.run(f"{name}, one after the other", command)
            result = Result(passed and result.passed, unsteady=result.unsteady)
    else:
        result = Result(runner.run(name, pytest(name, part, arguments)))
        if name == "unit" and part != "sample" and not arguments:
            pure = ["env", "FAILBACK_PURE=1", *pytest(name, "all", PURE)]
            checked = [sys.executable, "tools/sanitized.py"]
            outcomes = [
                runner.run("unit without kernels", pure),
                runner.run("unit with kernels that check themselves", checked),
            ]
            result = Result(all(outcomes) and result.passed)
    return replace(result, seconds=time.monotonic() - started, cpu=sum(runner.cpu))


def part_of(name: str, part: str) -> str:
    """Return the part of a tier that runs in a part of the whole."""
    if name == "kube" and part == "rest":
        ran = SAMPLED.read_text().split() if SAMPLED.exists() else ()
        return part if name in ran else "all"
    return part


class Run:
    """A run of tiers in three lanes, with each tier's result."""

    def __init__(self, part: str, arguments: Sequence[str]) -> None:
        self._part = part
        self._arguments = arguments
        self._set_up = {script: Lock() for script in {tier.needs for tier in TIERS.values()}}
        self._computing: deque[str] = deque()
        self.results: dict[str, Result] = {}

    def run(self, names: Sequence[str]) -> dict[str, Result]:
        """Run lint, the tiers that compute and the others side by side."""
        lint = [name for name in names if name == "lint"]
        computing = [name for name in names if name != "lint" and TIERS[name].computes]
        waiting = [name for name in names if name not in (*lint, *computing)]
        self._computing.extend(computing)
        beside: list[Iterable[str]] = [self._taken()] if computing and waiting else []
        if lint and len(names) > 1:
            beside.append(chain(lint, self._taken()))
            lint = []
        threads = [Thread(target=self._run_quietly, args=(lane,)) for lane in beside]
        for thread in threads:
            thread.start()
        for name in chain(lint, waiting, self._taken()):
            self._run_one(name, Runner())
        for thread in threads:
            thread.join()
        return self.results

    def _run_quietly(self, names: Iterable[str]) -> None:
        """Run tiers; print what each of them printed when it has ended."""
        for name in names:
            with TemporaryFile("w+") as output:
                self._run_one(name, Runner(output=output))
                output.seek(0)
                print(output.read(), end="", flush=True)

    def _taken(self) -> Iterator[str]:
        """Take tiers that compute until none is left."""
        with suppress(IndexError):
            while True:
                yield self._computing.popleft()

    def _run_one(self, name: str, runner: Runner) -> None:
        needed = "" if name == "lint" else TIERS[name].needs
        if needed and not self._is_set_up(needed, runner):
            print(f"\n=== {name}: not run, because {needed} failed", file=runner.output, flush=True)
            self.results[name] = Result(False)
        else:
            part = part_of(name, self._part)
            self.results[name] = run_tier(name, part, self._arguments, runner)

    def _is_set_up(self, script: str, runner: Runner) -> bool:
        """Run a script of set-up, unless it ran."""
        with self._set_up[script]:
            if script not in self.results:
                started = time.monotonic()
                passed = runner.run(script, [sys.executable, f"tools/{script}"], BUILD_SECONDS)
                self.results[script] = Result(passed, time.monotonic() - started)
            return self.results[script].passed


@contextmanager
def building_server() -> Iterator[None]:
    """Build the Kubernetes API server meanwhile, at low priority; its tier waits for it."""
    process = subprocess.Popen(
        ["nice", "-n", "10", sys.executable, "tools/setup_kube.py"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def table(results: dict[str, Result]) -> str:
    """Return one line for each tier, and the first failure of each unsteady test."""
    lines = [
        f"{name:14} {'passed' if result.passed else 'FAILED':8} {result.seconds:7.0f} s"
        f"   {result.cpu:6.0f} s of processors"
        for name, result in results.items()
    ]
    for name, result in results.items():
        for test, failure in result.unsteady.items():
            lines += [f"UNSTEADY: {name}: {test} passed when it ran again; first failure:", failure]
    return "\n".join(lines) + "\n"


def together(part: str, seconds: float) -> str:
    """Return the line of a whole run; its minutes stand beside the budget and are not judged."""
    budget = tomllib.loads(BUDGET.read_text(encoding="utf-8"))["minutes"]
    minutes = f"{seconds / 60:.1f} min"
    match part:
        case "sample":
            minutes += f" (budget of make test: {budget['test']})"
        case "rest":
            minutes += f" (budget of make test and this: {budget['test_all']})"
        case "all":
            minutes += f" (budget: {budget['test_all']})"
    return f"{'together':23} {seconds:7.0f} s   {minutes}\n"


def tiers_of(part: str) -> list[str]:
    """Return the tiers that a whole run consists of."""
    if part == "rest":
        return WHOLE
    missing = () if part == "all" or setup_kube.is_ready() else ("kube",)
    return ["lint", *(name for name in WHOLE if name not in missing)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", choices=["lint", *TIERS], help="run this tier alone")
    halves = parser.add_mutually_exclusive_group()
    halves.add_argument("--sample", dest="part", action="store_const", const="sample")
    halves.add_argument("--rest", dest="part", action="store_const", const="rest")
    options, arguments = parser.parse_known_args()
    # Hundreds of processes would compile every module that they import.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A shell's background job ignores SIGINT, and so would the programs to which tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The JVMs of tests live for seconds: the second compiler costs more than it saves.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    part = options.part or "all"
    names = [options.only] if options.only else tiers_of(part)
    started = time.monotonic()
    ahead = "kube" in names[1:] and not setup_kube.is_ready()
    with building_server() if ahead else nullcontext():
        results = Run(part, arguments).run(names)
    seconds = time.monotonic() - started
    SAMPLED.unlink(missing_ok=True)
    if part == "sample":
        SAMPLED.parent.mkdir(exist_ok=True)
        SAMPLED.write_text(" ".join(results))
    shown = table(results) + together("" if options.only else part, seconds)
    print(f"\n=== summary ({part})\n{shown}", end="", flush=True)
    if kept := os.environ.get("FAILBACK_SUMMARY"):
        with Path(kept).open("a") as file:
            file.write(f"=== {part}\n{shown}")
    return 0 if all(result.passed for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
