"""Run the demo on every tested version and write docs/versions.md: ``python tools/versions.py``.

It runs Apache RocketMQ in each version that is tested, and Failback under both of its rules, one
after another, and checks of each: its verdict is Pass, and what was re-consumed is what had been
consumed minus what the returned master had loaded, queue by queue. Where that is not so it names
the row, writes no page and keeps the runs. ``--runs`` makes the page of folders of demos that ran.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from failback.common import numbers
from failback.operator.local.apache_release import TESTED

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "versions.md"
ARMS: Final = ("stay", "handover")
CARRIED: Final = "carried"
"""Of Apache only: its figures are a column beside those of arm handover."""
SLAVE_ONLY: Final = "ROLLBACK_SLAVE_ONLY_PROGRESS"
RESTART: Final = "ROLLBACK_RESTART"
_ENGINES: Final = {
    **{
        f"Apache {version}": ("--engine", "apache", "--carry", "--version", version)
        for version in TESTED
    },
    "Failback, compat": (),
    "Failback, guarded": ("--rules", "guarded"),
}
HEAD: Final = """# Versions

Does a newer RocketMQ consume less again after a failover? This page has the figures of
`failback demo` on each version that is tested. `make versions` runs them one after another and
writes this page. That takes 25 minutes, and longer where it has to fetch the versions first.

The master is killed under load, and may start again 50 s later. Of 5.x it is 70 s: there consumers
turn to the slave some 15 s later. In **stay** the consumer runs through. In **handover** it is
stopped while the slave serves, and a new one starts after the master is back. *With carry* is arm
**carried**: handover once more, where `failback carry` gives the master what its slave knows before
it starts ([prevent it](howto/prevent-it.md)). *Slave-only progress* is what was consumed while only
the slave was there. *Restart* is what the master had not written to its file when it died. Nothing
else was re-consumed.
"""
_EXACT: Final = """
## Queue by queue

Arm handover. *Consumed* is the offset that the group had reached, *loaded* the one that the
returned master had. In every row *again* is *consumed* minus *loaded*, exactly, and all that was
re-consumed in arm handover is the sum of its queues. The command checks it, and fails otherwise.

| brokers | queue | consumed | loaded | again |
|---|---|---|---|---|
"""
_TAIL: Final = """
## What to know

* Counts differ between runs: they follow from how much was consumed while the master was down.
* Times begin with the kill, so the master's start is in them. The machine did other work as well.
* 5.x by itself is not cured: the returned master still knows only its own file.
* A slave of 5.x takes commits with pulls too, and copies the master's offsets every 63 s, not 10.
* For its first minute a slave of 5.x has copied nothing: a new one knows no topic, group and offset
  ([before a maintenance](howto/planned-maintenance.md#before)).
* A published slave of 5.5.0 copies no consumer offsets at all (apache/rocketmq#10284).
* `enableSlaveActingMaster` of 5.x is off by default, and was off here.
"""


class NotExact(Exception):
    """Reports do not add up: a line for each problem, which names the row."""


@dataclass(frozen=True)
class Queue:
    """One queue of arm handover; offsets and messages."""

    number: int
    consumed: int
    loaded: int
    again: int


@dataclass(frozen=True)
class Row:
    """What one kind of brokers did in one arm."""

    brokers: str
    arm: str
    delivered: int
    distinct: int
    causes: Counter[str]
    lost: int
    sends_ms: float | None
    """The time without a master to send to."""
    reads_ms: float | None
    """The longest time that a queue was not consumed."""
    queues: tuple[Queue, ...]


def read(report: dict[str, Any]) -> Row:
    """Return the row of a ``report.json``.

    Raises:
        NotExact: Something of it does not add up, or its verdict is not Pass.
    """
    name = name_of(report["system"])
    causes: Counter[str] = Counter()
    for group in report["groups"]:
        causes.update(group["causes"])
    totals, times = report["totals"], report["rto"][0]
    row = Row(
        brokers=name,
        arm=report["arm"],
        delivered=totals["delivered"],
        distinct=totals["distinct"],
        causes=causes,
        lost=totals["lost"],
        sends_ms=times["produce_ms"],
        reads_ms=(times["consume_ms"] or {}).get("max"),
        queues=tuple(
            Queue(each["qid"], each["consumed"], each["loaded"], each["observed"])
            for each in sorted(report["handover"], key=lambda each: int(each["qid"]))
        ),
    )
    problems = list(_problems(row, totals["dup"]))
    verdict = report["verdict"]
    if verdict["value"] != "Pass":
        reasons = [reason["detail"] for reason in verdict["reasons"]]
        problems.append("; ".join([f"the verdict is {verdict['value']}", *reasons]))
    if problems:
        raise NotExact("\n".join(f"{name}, {row.arm}: {problem}" for problem in problems))
    return row


def name_of(system: dict[str, Any]) -> str:
    """Return how the page calls the brokers of a report."""
    if system["engine"] == "failback":
        return f"Failback, {system['rules']}"
    return f"Apache {str(system['version']).removeprefix('V').replace('_', '.')}"


def _problems(row: Row, repeats: int) -> Iterator[str]:
    for queue in row.queues:
        expected = max(0, queue.consumed - queue.loaded)
        if queue.again != expected:
            yield f"queue {queue.number}: {queue.again} were re-consumed, not {expected}"
    if row.arm in ("handover", CARRIED) and not row.queues:
        yield "no queue was taken again from the returned master"
    rolled_back = sum(queue.again for queue in row.queues)
    if repeats != rolled_back:
        yield f"{repeats} messages were re-consumed, not {rolled_back} as by its queues"
    if row.causes[SLAVE_ONLY] + row.causes[RESTART] != repeats:
        yield f"{repeats} messages were re-consumed, of these causes: {dict(row.causes)}"


def page(rows: Sequence[Row]) -> str:
    """Return the text of docs/versions.md."""
    carried = {row.brokers: row for row in rows if row.arm == CARRIED}
    lines = [
        HEAD,
        "| brokers | arm | delivered | again | with carry | slave-only progress | restart | lost"
        " | send outage | receive outage |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_line(row, carried.get(row.brokers)) for row in rows if row.arm != CARRIED),
    ]
    queues = [
        f"| {row.brokers} | {queue.number} | {numbers.count(queue.consumed)}"
        f" | {numbers.count(queue.loaded)} | {numbers.count(queue.again)} |"
        for row in rows
        for queue in row.queues
        if row.arm == "handover"
    ]
    return "\n".join(lines) + "\n" + _EXACT + "\n".join(queues) + "\n" + _TAIL


def _line(row: Row, carried: Row | None) -> str:
    again = row.causes.total()
    share = f" ({numbers.percent(again / row.distinct)})" if again else ""
    cells = [
        row.brokers,
        row.arm,
        numbers.count(row.delivered),
        numbers.count(again) + share,
        _with_carry(row, carried),
        *map(numbers.count, (row.causes[SLAVE_ONLY], row.causes[RESTART], row.lost)),
        numbers.milliseconds(row.sends_ms),
        numbers.milliseconds(row.reads_ms),
    ]
    return "| " + " | ".join(cells) + " |"


def _with_carry(row: Row, carried: Row | None) -> str:
    if row.arm != "handover" or not row.brokers.startswith("Apache"):
        return "–"
    if carried is None:
        return "not run"
    return f"{numbers.count(carried.causes.total())} of {numbers.count(carried.distinct)}"


def run(folder: Path) -> None:
    """Run the demo on all kinds of brokers, one after another; their reports say how it went."""
    failback = str(Path(sys.executable).parent / "failback")
    for name, options in _ENGINES.items():
        print(f"{name}:", flush=True)
        command = [failback, "demo", "--no-spark", "--runs", str(folder), *options]
        done = subprocess.run(command, check=False)
        if done.returncode:
            print(f"{name}: the demo ended with exit code {done.returncode}", file=sys.stderr)


def rows_of(folders: Sequence[Path]) -> list[Row]:
    """Return the rows of all demos below ``folders``, in the order of the page.

    Raises:
        NotExact: A report does not add up, or there is not one of each.
    """
    found: dict[tuple[str, str], Row] = {}
    problems = []
    for each in folders:
        for path in sorted(each.glob("**/report/report.json")):
            try:
                row = read(json.loads(path.read_bytes()))
            except NotExact as error:
                problems.append(str(error))
            else:
                found[row.brokers, row.arm] = row
    wanted = [
        (name, arm)
        for name in _ENGINES
        for arm in (*ARMS, *([CARRIED] if name.startswith("Apache") else []))
    ]
    missing = [f"{name}, {arm}" for name, arm in wanted if (name, arm) not in found]
    problems += [f"{row}: no good report" for row in missing]
    if problems:
        raise NotExact("\n".join(problems))
    return [found[each] for each in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", help="folders of demos that ran")
    options = parser.parse_args()
    folders = options.runs or [Path(tempfile.mkdtemp(prefix="failback-versions-"))]
    if not options.runs:
        run(folders[0])
    try:
        rows = rows_of(folders)
    except NotExact as error:
        print(error, file=sys.stderr)
        print(f"versions: no page; the runs are in {', '.join(map(str, folders))}", file=sys.stderr)
        return 1
    if not options.runs:
        shutil.rmtree(folders[0])
    PAGE.write_text(page(rows), encoding="utf-8")
    queues = sum(len(row.queues) for row in rows)
    print(
        f"{PAGE.relative_to(ROOT)}: {len(rows)} runs; in each of {queues} queues, what was repeated"
    )
    print("is what was consumed minus what the returned master had loaded, exactly")
    return 0


if __name__ == "__main__":
    sys.exit(main())
