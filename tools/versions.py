"""Run the demo on every tested version and write docs/versions.md: ``python tools/versions.py``.

It runs Apache RocketMQ in each version that is tested, and Failback under both of its rules, one
after another, and checks of each: what came again is what had been consumed minus what the
returned master had loaded, queue by queue. ``--runs`` makes the page of folders of demos that ran.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from failback.operator.local.apache_release import TESTED
from failback.protocol.words import numbers

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "versions.md"
ARMS: Final = ("stay", "handover")
SLAVE_ONLY: Final = "ROLLBACK_SLAVE_ONLY_PROGRESS"
RESTART: Final = "ROLLBACK_RESTART"
_ENGINES: Final = {
    **{f"Apache {version}": ("--engine", "apache", "--version", version) for version in TESTED},
    "Failback, compat": (),
    "Failback, guarded": ("--rules", "guarded"),
}
_HEAD: Final = """# Versions

Does a newer RocketMQ consume less again after a failover? This page has the figures of
`failback demo` on each version that is tested. `make versions` runs them and writes this page.

The master is killed under load, and may start again 50 s later. In **stay** the consumer runs
through. In **handover** it is stopped while the slave serves, and a new one starts after the master
is back. *Slave-only progress* is what was consumed while only the slave was there. *Restart* is
what the master had not written to its file when it died. *Other* are messages that the producer
sent twice after a timeout.
"""
_EXACT: Final = """
## Queue by queue

Arm handover. *Consumed* is the offset that the group had reached, *loaded* the one that the
returned master had. In every row *again* is *consumed* minus *loaded*, exactly: the command checks
it, and fails otherwise.

| brokers | queue | consumed | loaded | again |
|---|---|---|---|---|
"""
_TAIL: Final = """
## What to know

* Counts differ between runs: they follow from how much was consumed while the master was away.
* Times begin with the kill, so the master's start is in them. The machine did other work as well.
* 5.x is not cured: the returned master still knows only its own file.
* A slave of 5.x takes commits with pulls too, and copies the master's offsets every 63 s, not 10.
* `enableSlaveActingMaster` of 5.x is off by default, and was off here.
"""


class NotExact(Exception):
    """A report does not add up."""


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
        NotExact: Something of it does not add up.
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
    problem = "; ".join(_problems(row, totals["dup"]))
    if problem:
        raise NotExact(f"{name}, {row.arm}: {problem}")
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
            yield f"queue {queue.number}: {queue.again} came again, not {expected}"
    if row.arm == "handover" and not row.queues:
        yield "no queue was taken anew from the returned master"
    rolled_back = row.causes[SLAVE_ONLY] + row.causes[RESTART]
    if rolled_back != sum(queue.again for queue in row.queues):
        yield f"{rolled_back} messages were rolled back, not the sum of the queues"
    if row.causes.total() != repeats:
        yield f"{repeats} messages came again, {row.causes.total()} have a cause"


def page(rows: Sequence[Row]) -> str:
    """Return the text of docs/versions.md."""
    lines = [
        _HEAD,
        "| brokers | arm | delivered | again | slave-only progress | restart | other | lost"
        " | RTO produce | RTO consume |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_line, rows),
    ]
    queues = [
        f"| {row.brokers} | {queue.number} | {numbers.count(queue.consumed)}"
        f" | {numbers.count(queue.loaded)} | {numbers.count(queue.again)} |"
        for row in rows
        for queue in row.queues
        if row.arm == "handover"
    ]
    return "\n".join(lines) + "\n" + _EXACT + "\n".join(queues) + "\n" + _TAIL


def _line(row: Row) -> str:
    again = row.causes.total()
    share = f" ({numbers.percent(again / row.distinct)})" if again else ""
    other = again - row.causes[SLAVE_ONLY] - row.causes[RESTART]
    cells = [
        row.brokers,
        row.arm,
        numbers.count(row.delivered),
        numbers.count(again) + share,
        *map(numbers.count, (row.causes[SLAVE_ONLY], row.causes[RESTART], other, row.lost)),
        numbers.milliseconds(row.sends_ms),
        numbers.milliseconds(row.reads_ms),
    ]
    return "| " + " | ".join(cells) + " |"


def run(folder: Path) -> None:
    """Run the demo on all kinds of brokers, one after another."""
    failback = str(Path(sys.executable).parent / "failback")
    for name, options in _ENGINES.items():
        print(f"{name}:", flush=True)
        command = [failback, "demo", "--no-spark", "--runs", str(folder), *options]
        done = subprocess.run(command, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: the demo ended with exit code {done.returncode}")


def rows_of(folders: Sequence[Path]) -> list[Row]:
    """Return the rows of all demos below ``folders``, in the order of the page.

    Raises:
        NotExact: A report does not add up, or there is not one of each.
    """
    files = [path for each in folders for path in each.glob("**/report/report.json")]
    found = {(row.brokers, row.arm): row for row in map(read, map(_json, sorted(files)))}
    wanted = [(name, arm) for name in _ENGINES for arm in ARMS]
    missing = [f"{name}, {arm}" for name, arm in wanted if (name, arm) not in found]
    if missing:
        raise NotExact(f"no report of {'; '.join(missing)}")
    return [found[each] for each in wanted]


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", help="folders of demos that ran")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="failback-versions-") as scratch:
        if not options.runs:
            run(Path(scratch))
        try:
            rows = rows_of(options.runs or [Path(scratch)])
        except NotExact as error:
            print(f"versions: {error}", file=sys.stderr)
            return 1
    PAGE.write_text(page(rows), encoding="utf-8")
    queues = sum(len(row.queues) for row in rows)
    print(f"{PAGE.relative_to(ROOT)}: {len(rows)} runs; in each of {queues} queues what came again")
    print("is what was consumed minus what the returned master had loaded, exactly")
    return 0


if __name__ == "__main__":
    sys.exit(main())
