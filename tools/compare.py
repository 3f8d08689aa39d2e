"""Ask Kafka and Redis the same question and write docs/compare.md: ``make compare``.

It runs ``failback compare`` with all settings, those of ``TIMES`` several times, and keeps the
figures in docs/compared.json, beside the rows of RocketMQ that ``make versions`` wrote last. A run
whose verdict is Inconclusive, and one in which the equation does not hold in some queue, is named
and kept, and makes no page. ``--page`` writes the page of the figures that are kept;
``--runs FOLDER`` takes runs that are there already.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.versions import PAGE as VERSIONS_PAGE

from failback.common import numbers

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "docs" / "compared.json"
PAGE: Final = ROOT / "docs" / "compare.md"
TIMES: Final[Mapping[tuple[str, str], int]] = {
    ("kafka", "defaults"): 3,
    ("kafka", "one-replica"): 1,
    ("redis", "defaults"): 2,
    ("redis", "lagging-replica"): 1,
}
"""How often each setting runs. Sessions of 10 s are a race, so one run says little of them."""
ROCKETMQ: Final = ("Apache 4.9.7", "Apache 5.3.3", "Failback, guarded")
_KEEP: Final = "Keep the defaults."
_SESSION: Final = "`session.timeout.ms` at its default of 45 s: the rows above."
_THREE: Final = "`offsets.topic.replication.factor` at its default of 3: the rows above."
_XACK: Final = "Repeat `XACK` until it is answered: the last row."
_REPLICAS: Final = (
    "`min-replicas-to-write 1` with a small `min-replicas-max-lag`: a master whose replica is"
    " behind takes no writes."
)
ROWS: Final[Mapping[tuple[str, str, str], tuple[str, str, str]]] = {
    ("kafka", "defaults", "stay"): ("defaults", "stay", _KEEP),
    ("kafka", "defaults", "handover"): ("defaults", "handover", _KEEP),
    ("kafka", "defaults", "early"): (
        "defaults",
        "early",
        "Repeat the last commit until it is answered, then close the consumer.",
    ),
    ("kafka", "defaults", "stay-10s-a"): (
        "sessions of 10 s, the coordinator is killed",
        "stay",
        _SESSION,
    ),
    ("kafka", "defaults", "stay-10s-b"): ("sessions of 10 s, it lives", "stay", _SESSION),
    ("kafka", "defaults", "handover-10s"): ("sessions of 10 s, it lives", "handover", _SESSION),
    ("kafka", "one-replica", "stay"): ("one replica of the offsets", "stay", _THREE),
    ("kafka", "one-replica", "handover"): (
        "one replica of the offsets",
        "handover",
        _THREE,
    ),
    ("redis", "defaults", "stay"): ("the client's own retries", "stay", _XACK),
    ("redis", "defaults", "handover"): ("the client's own retries", "handover", _XACK),
    ("redis", "defaults", "stay-one-xack"): ("`XACK` tried once", "stay", _XACK),
    ("redis", "defaults", "stay-until-taken"): ("`XACK` until taken", "stay", _KEEP),
    ("redis", "lagging-replica", "stay"): ("replica cut off for 8 s", "stay", _REPLICAS),
    ("redis", "lagging-replica", "handover"): ("replica cut off for 8 s", "handover", _REPLICAS),
    ("redis", "lagging-replica", "stay-one-xack"): (
        "the same, `XACK` tried once",
        "stay",
        _REPLICAS,
    ),
    ("redis", "lagging-replica", "stay-until-taken"): (
        "the same, `XACK` until taken",
        "stay",
        _REPLICAS,
    ),
}
"""By engine, setting and group: what the page calls it, the arm, and what changes the figure."""
_ROCKETMQ_CHANGES: Final[Mapping[str, str]] = {
    "stay": _KEEP,
    "handover": "`failback carry` before the master's start: the row below.",
    "handover with carry": "It is what changes the row above.",
    "guarded": "They are what changes the rows of Failback in [versions](versions.md).",
}
HEAD: Final = """# Kafka and Redis

One server is killed under load and comes back: how much does each system re-consume, and which
setting prevents it? Every row is measured on real processes of one machine. `make compare` runs
Kafka and Redis and writes this page, in under half an hour. The rows of RocketMQ are those of
[versions](versions.md).

In **stay** the consumer runs through. In **handover** it is stopped while the server is down, and a
new one starts after the return. In **early** it is stopped 4 s after the kill, before another
server has taken over. Figures of several runs are separated by a slash.
"""
TAIL: Final = """
## How it is counted

* All groups of one cluster share its one kill. Kafka's cluster runs three times: sessions of 10 s
  are a race between two timers.
* Kafka {kafka}, three brokers and a controller. Broker 1 is killed for 25 s, with one replica of
  the offsets for 75 s. It leads two of four partitions, and the offsets of the groups.
* Redis {redis}, three masters with a replica each. The first one is killed for 20 s. It leads two
  of four streams.
* Producers wait for all in-sync replicas of Kafka, and for the master of Redis alone.
* Every row has the same equation, checked in each partition and each stream: *re-consumed* is the
  last processed offset plus one, minus the offset that the group's next assignment saw. For Redis
  that offset is how many entries the group had acknowledged. A run in which it does not hold makes
  no page.
* A message is known by its producer's number, never by its offset: offsets are reused after a loss.
* *Send outage* is the longest time without an acknowledged message in a queue. *Receive outage* is
  the longest time in which a group handled nothing; of groups that were stopped it says nothing.
  Of RocketMQ both are as in [versions](versions.md).
* Times and counts differ between runs: they follow from how far the groups were when the server
  died.
* Words of the column *why*: [causes](reference/causes.md).

`failback compare kafka` and `failback compare redis` run it once more, with a report for each
setting. They need the extra `compare`; Kafka needs Java 17 and Maven besides.
"""
Rows = list[dict[str, Any]]


class NotUsable(Exception):
    """Runs make no page: a line for each reason."""


def run(folder: Path) -> None:
    """Run every setting as often as it has to; the runs lie below ``folder``."""
    failback = str(Path(sys.executable).parent / "failback")
    for (engine, setting), times in TIMES.items():
        for _ in range(times):
            command = [failback, "compare", engine, "--setting", setting, "--runs", str(folder)]
            print(f"{engine}, {setting}; load {os.getloadavg()[0]:.1f}", flush=True)
            subprocess.run(command, check=False)


def measured(folders: Sequence[Path]) -> Rows:
    """Return a row for each group of each run below some folders.

    Raises:
        NotUsable: A run is Inconclusive, its equation does not hold, or a setting has no run.
    """
    rows: Rows = []
    problems: list[str] = []
    found: Counter[tuple[str, str]] = Counter()
    paths = {path for folder in folders for path in folder.glob("**/report/report.json")}
    for path in sorted(paths):
        report = json.loads(path.read_bytes())
        if "foreign" not in report:
            continue
        engine = report["system"]["engine"]
        found[engine, report["arm"]] += 1
        problems += [f"{path}: {each}" for each in _problems(report)]
        labels = {each["name"]: each["label"] for each in _groups(path)}
        rows += [
            {
                "engine": engine,
                "version": report["system"]["versions"][engine],
                "date": report["created"][:10],
                **row,
                "group": labels[row["group"]],
            }
            for row in rows_of(report)
        ]
    problems += [f"{engine}, {setting}: no run" for engine, setting in TIMES.keys() - found.keys()]
    if problems:
        raise NotUsable("\n".join(problems))
    return rows


def rows_of(report: Mapping[str, Any]) -> Rows:
    """Return the figures of each group of a ``report.json``; ``None`` = not measured."""
    outages = [each["produce_ms"] for each in report["rto"] if each["produce_ms"] is not None]
    names = ("group", "delivered", "distinct", "dup", "dup_ratio", "lost", "causes", "unattributed")
    return [
        {
            **{name: group[name] for name in names},
            "setting": report["arm"],
            "produce_ms": max(outages, default=None),
            "receive_ms": report["foreign"]["receive_ms"].get(group["group"]),
            "verdict": report["verdict"]["value"],
            "run": report["run"],
        }
        for group in report["groups"]
    ]


def _groups(report: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((report.parent.parent / "run.json").read_bytes())[
        "groups"
    ]
    return found


def _problems(report: Mapping[str, Any]) -> Iterator[str]:
    if report["verdict"]["value"] == "Inconclusive":
        yield "; ".join(each["detail"] for each in report["verdict"]["reasons"])
    for check in report["checks"]:
        if check["id"] == "equation" and check["value"] != "Pass":
            yield "the equation does not hold: " + "; ".join(check["evidence"])


def rocketmq() -> Rows:
    """Return the rows of RocketMQ as docs/versions.md has them, with the day of its last change."""
    text = VERSIONS_PAGE.read_text(encoding="utf-8")
    asked = ["git", "log", "-1", "--format=%cs", "--", str(VERSIONS_PAGE)]
    date = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 10 and cells[0] in ROCKETMQ:
            names = ("brokers", "arm", "delivered", "again", "carry", "slave_only", "restart",
                     "lost", "send", "receive")  # fmt: skip
            rows.append({**dict(zip(names, cells, strict=True)), "date": date.strip()})
    return rows


# --- the page ------------------------------------------------------------------------------------


def page(kept: Mapping[str, Rows]) -> str:
    """Return the text of docs/compare.md."""
    compared = kept["compared"]
    lines = [
        HEAD,
        "| system | setting | arm | re-consumed | why | lost | send outage | receive outage | on |",
        "|---|---|---|---|---|---|---|---|---|",
        *(line for row in kept["rocketmq"] for line in _rocketmq_lines(row)),
        *(_line(key, _of(compared, key)) for key in ROWS if _of(compared, key)),
        "",
        "## What changes it",
        "",
        "| system | setting | arm | what changes it |",
        "|---|---|---|---|",
        *(line for row in kept["rocketmq"] for line in _rocketmq_changes(row)),
        *_changes(compared),
    ]
    versions = {row["engine"]: row["version"] for row in compared}
    return "\n".join(lines) + "\n" + TAIL.format(**versions)


def _changes(compared: Rows) -> Iterator[str]:
    """A line for each setting and what changes it, with the arms that it is about."""
    arms: dict[tuple[str, str, str], dict[str, None]] = {}
    for key in ROWS:
        if _of(compared, key):
            setting, arm, says = ROWS[key]
            arms.setdefault((key[0].capitalize(), setting, says), {})[arm] = None
    for (system, setting, says), mine in arms.items():
        yield f"| {system} | {setting} | {', '.join(mine)} | {says} |"


def _of(rows: Rows, key: tuple[str, str, str]) -> Rows:
    return [row for row in rows if (row["engine"], row["setting"], row["group"]) == key]


def _line(key: tuple[str, str, str], rows: Rows) -> str:
    setting, arm, _ = ROWS[key]
    why = dict.fromkeys(cause for row in rows for cause in row["causes"])
    if any(row["unattributed"] for row in rows):
        why["not known"] = None
    cells = [
        key[0].capitalize(),
        setting,
        arm,
        _each(_share(row["dup"], row["delivered"] - row["dup"]) for row in rows),
        ", ".join(why) or "–",
        _each(numbers.count(row["lost"]) for row in rows),
        _each(numbers.milliseconds(row["produce_ms"]) for row in rows),
        _each(numbers.milliseconds(row["receive_ms"]) for row in rows),
        max(row["date"] for row in rows),
    ]
    return "| " + " | ".join(cells) + " |"


def _each(cells: Iterator[str]) -> str:
    found = list(cells)
    return found[0] if len(set(found)) == 1 else " / ".join(found)


def _share(again: int, distinct: int) -> str:
    return f"{numbers.count(again)} ({numbers.percent(again / distinct)})" if again else "0"


def _rocketmq_lines(row: Mapping[str, Any]) -> Iterator[str]:
    why = [
        name
        for name, count in (
            ("ROLLBACK_SLAVE_ONLY_PROGRESS", row["slave_only"]),
            ("ROLLBACK_RESTART", row["restart"]),
        )
        if count != "0"
    ]
    yield _cells(row, row["arm"], row["again"], ", ".join(why) or "–", row["send"], row["receive"])
    carried = re.match(r"([\d,]+) of ", row["carry"])
    if carried is not None:
        yield _cells(row, "handover with carry", carried[1], "–", "–", "–")


def _cells(row: Mapping[str, Any], arm: str, again: str, why: str, send: str, receive: str) -> str:
    lost = row["lost"] if arm == row["arm"] else "–"
    cells = [_system(row), "defaults" if "guarded" not in row["brokers"] else "guarded rules", arm]
    cells += [again, why, lost, send, receive, row["date"]]
    return "| " + " | ".join(cells) + " |"


def _rocketmq_changes(row: Mapping[str, Any]) -> Iterator[str]:
    guarded = "guarded" in row["brokers"]
    arms = [row["arm"], *(["handover with carry"] if " of " in row["carry"] else [])]
    for arm in arms:
        setting = "guarded rules" if guarded else "defaults"
        changes = _ROCKETMQ_CHANGES["guarded" if guarded else arm]
        yield f"| {_system(row)} | {setting} | {arm} | {changes} |"


def _system(row: Mapping[str, Any]) -> str:
    return str(row["brokers"]).partition(",")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page of what is kept")
    parser.add_argument("--runs", type=Path, nargs="*", help="folders of runs that are there")
    options = parser.parse_args(arguments)
    if not options.page:
        folders = options.runs or [Path(tempfile.mkdtemp(prefix="failback-compare-"))]
        if not options.runs:
            began = datetime.datetime.now()
            run(folders[0])
            print(f"all runs took {(datetime.datetime.now() - began).seconds / 60:.0f} minutes")
        try:
            rows = measured(folders)
        except NotUsable as error:
            print(error, file=sys.stderr)
            print(f"no page; the runs are in {', '.join(map(str, folders))}", file=sys.stderr)
            return 1
        kept = {"compared": rows, "rocketmq": rocketmq()}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(f"the runs are in {', '.join(map(str, folders))}")
    PAGE.write_text(page(json.loads(KEPT.read_bytes())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
