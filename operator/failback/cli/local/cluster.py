"""``up``, ``down``, ``ps``, ``logs``: resources as local processes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from failback.cli.shared.commands import command
from failback.cli.shared.errors import NOT_HEALED, USER_ERROR, fail
from failback.cli.shared.options import JsonOption, RootOption, argument, flag, open_root, option
from failback.cli.shared.output import print_json, print_table, say
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.operator.local.root import Root
    from failback.operator.schema.loading import Resources

_FOLLOW_SECONDS = 0.2
_LONG_SECONDS = 3.0


@command(
    "up",
    "failback up cluster.yaml        here, until Ctrl-C",
    "failback up cluster.yaml -d     in the background; failback down ends it",
)
def up(
    files: Annotated[list[Path] | None, argument("FILE", "File with resources, YAML.")] = None,
    more: Annotated[list[Path] | None, option("--file, -f", "FILE", "The same as FILE.")] = None,
    detach: Annotated[bool, flag("--detach, -d", "Go on in the background.")] = False,
    isolate_network: Annotated[
        bool,
        flag(
            "--isolate-network",
            "Give every pod a network namespace of its own, for faults of the network (root only).",
        ),
    ] = False,
    root: RootOption = None,
    namespace: Annotated[
        str | None,
        option("--namespace", "NAME", "Put everything into this namespace (default: the files')."),
    ] = None,
    faults: Annotated[
        str,
        option(
            "--faults",
            "KIND,...",
            "What experiments may change besides processes: clock, files, disk, memory.",
        ),
    ] = "",
    json: JsonOption = False,
) -> None:
    """Run NameServer, BrokerCluster, Topic and SubscriptionGroup resources as local processes."""
    from failback.operator.local.supported import WITHOUT_EFFECT
    from failback.operator.schema.loading import load_resources

    given = [*(files or ()), *(more or ())]
    if not given:
        raise ConfigError("FILE", "is missing: name a file with a BrokerCluster")
    where = open_root(root)
    resources = load_resources(given, namespace=namespace)
    notes = [f"warning: {warning}" for warning in resources.warnings]
    notes += [f"note: {other.label} of {other.file} is not run by up" for other in resources.others]
    if not json:
        notes.append(f"note: without effect here: {WITHOUT_EFFECT}")
    for note in notes:
        print(note, file=sys.stderr)
    kinds = [each.strip() for each in faults.split(",") if each.strip()]
    if detach:
        _up_detached(where, resources, json, kinds, isolate_network)
    else:
        _up_here(where, resources, json, kinds, isolate_network)


def _up_here(
    where: Root, resources: Resources, json: bool, faults: Sequence[str], isolate_network: bool
) -> None:
    from failback.operator.local.background import serve
    from failback.operator.local.runtime import LocalRuntime

    def log(line: str) -> None:
        if not json:
            say(line)

    def ready() -> None:
        _show(where, runtime.view.control(), json)
        log("ready; Ctrl-C stops everything")

    where.create()
    with where.lock():
        runtime = LocalRuntime(where, log=log, faults=faults, isolate_network=isolate_network)
        runtime.prepare(resources.items, resources.secrets)
        asyncio.run(serve(runtime, on_ready=ready))


def _up_detached(
    where: Root, resources: Resources, json: bool, faults: Sequence[str], isolate_network: bool
) -> None:
    from failback.operator.local.background import (
        start_in_background,
        stop_background,
        wait_ready,
    )
    from failback.operator.local.control import call

    started = time.monotonic()
    progress = Progress(silent=json)
    pid = start_in_background(
        where, resources.items, resources.secrets, faults=faults, isolate_network=isolate_network
    )
    try:
        wait_ready(where, pid, progress)
    except BaseException:
        stop_background(where, pid)
        raise
    _show(where, call(where, "view"), json)
    if not json:
        seconds = time.monotonic() - started
        say(f"ready after {seconds:.1f} s; stop it with: failback down{_root(where)}")


class Progress:
    """Prints the progress of a start: every new condition, and which one takes long."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._told: set[str] = set()
        self._since: dict[str, float] = {}

    def __call__(self, status: dict[str, Any]) -> None:
        for label, each in status.get("status", {}).items():
            for condition in each.get("conditions") or ():
                ready = condition["status"] == "True"
                self._tell(f"{label}: {'ready' if ready else condition['message']}")
        waiting: dict[str, str] = status.get("waiting", {})
        now = time.monotonic()
        self._since = {pod: self._since.get(pod, now) for pod in waiting}
        for pod, since in self._since.items():
            if now - since >= _LONG_SECONDS:
                self._tell(f"{pod}: still {waiting[pod]}")

    def _tell(self, line: str) -> None:
        if line not in self._told and not self._silent:
            self._told.add(line)
            say(line)


@command("down", "failback down")
def down(root: RootOption = None) -> None:
    """Stop what `up` started, also after its runtime was killed."""
    from failback.operator.local.control import bring_down

    where = open_root(root)
    lines = bring_down(where)
    for line in lines or [f"nothing runs at {where.path}"]:
        say(line)


@command("ps", "failback ps", "failback ps --json")
def ps(root: RootOption = None, json: JsonOption = False) -> None:
    """List pods: state, address, pid, restarts."""
    from failback.operator.local.control import RuntimeAway, call

    where = open_root(root)
    try:
        view = call(where, "view")
    except RuntimeAway as error:
        left = _leftovers(where)
        for line in left:
            say(line)
        fail(f"{error}; end it with: failback down{_root(where)}" if left else str(error))
        raise typer.Exit(NOT_HEALED if left else USER_ERROR) from None
    _show(where, view, json)


@command("logs", "failback logs demo-pair-0-0 -f")
def logs(
    pod: Annotated[str, argument("POD", "Name of the pod, see failback ps.")],
    follow: Annotated[bool, flag("--follow, -f", "Go on with new lines.")] = False,
    lines: Annotated[int, option("--lines, -n", "N", "Only the last N lines; 0: all.")] = 0,
    root: RootOption = None,
) -> None:
    """Print what a pod wrote to its output."""
    from failback.common.text import did_you_mean

    where = open_root(root)
    path = where.log_file(pod)
    if not path.is_file():
        known = sorted(each.stem for each in (where.path / "logs").glob("*.log"))
        hint = did_you_mean(pod, known) or (f", there is {', '.join(known)}" if known else "")
        raise ConfigError("POD", f'no log of "{pod}" at {where.path}{hint}')
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=lines) if lines else file:
            sys.stdout.write(line)
        while follow:
            sys.stdout.flush()
            if not (piece := file.read()):
                time.sleep(_FOLLOW_SECONDS)
            sys.stdout.write(piece)
    sys.stdout.flush()


def _root(where: Root) -> str:
    from failback.operator.local.root import default_root

    return "" if where.path == default_root() else f" --root {where.path}"


def _leftovers(where: Root) -> list[str]:
    from failback.operator.local.process import Identity
    from failback.operator.local.root import read_json

    pods = (read_json(where.state_file) or {}).get("pods", {})
    return [
        f"{name}: pid {pod['pid']} still runs"
        for name, pod in pods.items()
        if pod["pid"] is not None and Identity(pod["pid"], pod["ticks"]).alive()
    ]


def _show(where: Root, view: dict[str, Any], json: bool) -> None:
    if json:
        print_json(view)
        return
    members = [
        member
        for cluster in view["clusters"]
        for pair in cluster["pairs"]
        for member in pair["members"]
    ]
    print_table(
        ("POD", "KIND", "PAIR", "STATE", "ADDRESS", "HTTP", "PID", "RESTARTS", "REASON"),
        [
            (
                pod["pod"],
                pod["kind"],
                pod["pair"],
                pod["state"],
                pod["address"],
                pod["http"],
                pod["pid"],
                pod["restarts"],
                pod["reason"],
            )
            for pod in (*view["nameserver_pods"], *members)
        ],
    )
