"""``failback offsets``: keep consumer offsets of a cluster in files, and give them back.

    save [FOLDER]      keep what master and slaves of each pair say now, a file for each broker
    show [SOURCE]      the offsets of each group, as files have them or as brokers say them now
    restore [SOURCE]   preview what giving them to the masters means; --confirm or --yes does it

SOURCE is a saved file or folder, or the folder of an observed run. Without one slaves are asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from failback.carry.asking import ask_slaves
from failback.carry.merge import Table, merge
from failback.carry.offset_file import read_document
from failback.carry.online import Seen, look_at, store
from failback.carry.restoring import Restore, Row, chosen, orders, restore_command, restore_of
from failback.cli.shared.asking import Unreachable, ask
from failback.cli.shared.output import note, print_json, print_table, say
from failback.client.program import CommandParser
from failback.client.remoting.guarded.cluster import (
    Cluster,
    add_cluster_options,
    find_cluster,
    given_of,
    options_of,
)
from failback.common.files import read_file
from failback.common.numbers import count, counted
from failback.common.replacing import replace_file
from failback.common.text import did_you_mean, near_or_all, nearest, why
from failback.common.times import shown
from failback.protocol.errors import ConfigError, ProtocolError
from failback.protocol.route import RegisteredBroker, split_offset_key

if TYPE_CHECKING:
    from failback.client.admin.admin import AdminClient

REFUSED: Final = 4
_NAMED: Final = 5


class Told(NamedTuple):
    """The offsets of one broker."""

    broker: str
    """Its name; empty where a file does not say it."""
    source: str
    """Its address, or the file."""
    at: str
    """When it said them, UTC."""
    table: Table


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0; 2 for bad input, 3 for a silent broker, 4 if refused."""
    options = parser().parse_args(argv)
    code: int = options.call(options)
    return code


def parser() -> CommandParser:
    """Return what reads the command line."""
    made = CommandParser(
        "failback offsets",
        "Keep consumer offsets in files, and give them back: all queues of a group, or of all "
        "groups, at once.",
        examples=(
            "failback offsets save",
            "failback offsets restore incident-7 --group billing",
            "failback offsets restore --broker broker-a --yes",
        ),
    )
    save = made.add_command(
        "save",
        "Keep the offsets that masters and slaves hold now, in a file for each broker.",
        "failback offsets save before-the-move",
        "failback offsets save --broker broker-a --group billing",
    )
    show = made.add_command(
        "show",
        "Show the offsets of each group, as kept, or as brokers say them now.",
        "failback offsets show incident-7 --group billing --verbose",
    )
    restore = made.add_command(
        "restore",
        "Preview what giving kept offsets to masters that run means; --confirm or --yes does it. "
        "Offsets are raised only, unless --lower is given, and never set outside of their queue.",
        "failback offsets restore incident-7 --group billing",
        "failback offsets restore incident-7 --group billing --confirm 3f9c01ab22d7",
        "failback offsets restore --broker broker-a --yes",
    )
    what = "Saved file or folder, or the folder of an observed run (default: "
    save.add_argument(
        "folder", nargs="?", type=Path, metavar="FOLDER", help="New folder (default: offsets-TIME)."
    )
    show.add_argument(
        "source", nargs="?", type=Path, metavar="SOURCE", help=f"{what}brokers are asked)."
    )
    restore.add_argument(
        "source", nargs="?", type=Path, metavar="SOURCE", help=f"{what}slaves are asked and saved)."
    )
    for each, call in ((save, _save), (show, _show), (restore, _restore)):
        add = each.add_argument
        add("--broker", default="", metavar="NAME", help="Only this pair (default: all).")
        add("-g", "--group", action="append", default=[], metavar="GROUP", help="Only this group.")
        add("--json", action="store_true", help="Print JSON, for machines.")
        if each is not save:
            add("-v", "--verbose", action="store_true", help="Print every queue.")
        add_cluster_options(each, end=", else the local cluster's).")
        each.set_defaults(call=call)
    add = restore.add_argument
    add("--lower", action="store_true", help="Lower offsets, too: their messages come again.")
    add("--online", action="store_true", help="Write groups with running members too.")
    add("--confirm", default="", metavar="ID", help="Carry out the preview with this id.")
    add("--yes", action="store_true", help="Carry it out at once, without a preview to confirm.")
    return made


def _cluster(options: argparse.Namespace) -> Cluster:
    found = find_cluster(given_of(options))
    if found.name_servers:
        return found
    from failback.cli.shared.clusters import ClusterOptions  # typer takes a second

    return ClusterOptions(given_of(options)).found()


# --- save and show --------------------------------------------------------------------------------


def _save(options: argparse.Namespace) -> int:
    told, silent = ask(_cluster(options), lambda admin: _tables_of_brokers(admin, options))
    told = _of_groups(told, options.group)
    folder = _keep(told, options.folder)
    if options.json:
        print_json({"folder": str(folder), "offsets": _document(told), "silent": silent})
    else:
        for each in told:
            groups = {split_offset_key(key)[1] for key in each.table}
            offsets = sum(map(len, each.table.values()))
            what = f"{counted(offsets, 'offset')} of {counted(len(groups), 'group')}"
            say(f"{_file(folder, each)}: {what}")
    return _said(silent)


def _show(options: argparse.Namespace) -> int:
    silent: list[str] = []
    if options.source:
        told = _read(options.source)
        told = [each for each in told if options.broker in ("", each.broker)]
    else:
        told, silent = ask(_cluster(options), lambda admin: _tables_of_brokers(admin, options))
    told = _of_groups(told, options.group)
    if options.json:
        print_json({"offsets": _document(told), "silent": silent})
        return _said(silent)
    if options.verbose:
        queues = [
            (each.broker, each.source, *reversed(split_offset_key(key)), queue, offset)
            for each in told
            for key, table in each.table.items()
            for queue, offset in sorted(table.items())
        ]
        print_table(("BROKER", "SAID BY", "GROUP", "TOPIC", "QUEUE", "OFFSET"), queues)
        return _said(silent)
    rows = []
    for each in told:
        queues_of: dict[str, int] = defaultdict(int)
        for key, table in each.table.items():
            queues_of[split_offset_key(key)[1]] += len(table)
        rows += [(each.broker, each.source, each.at, *of) for of in sorted(queues_of.items())]
    print_table(("BROKER", "SAID BY", "AT", "GROUP", "QUEUES"), rows)
    return _said(silent)


def _said(silent: Sequence[str]) -> int:
    for each in silent:
        note(f"error: {each}")
    return Unreachable.exit_code if silent else 0


def _document(told: Sequence[Told]) -> list[dict[str, Any]]:
    return [each._asdict() for each in told]


async def _tables_of_brokers(
    admin: AdminClient, options: argparse.Namespace, *, slaves_only: bool = False
) -> tuple[list[Told], list[str]]:
    """Return what brokers say, and why some did not."""
    members = _of_pair((await admin.cluster_info()).members(), options.broker)
    asked = {each.addr: each for each in members if each.broker_id or not slaves_only}
    answers = await ask_slaves(admin, list(asked))
    at = shown(time.time_ns() // 1_000_000)
    told = [
        Told(asked[each.slave].broker_name, each.slave, at, each.table)
        for each in answers
        if not each.problem
    ]
    return told, [f"{each.slave}: {each.problem}" for each in answers if each.problem]


def _of_pair(members: Sequence[RegisteredBroker], broker: str) -> list[RegisteredBroker]:
    found = [each for each in members if broker in ("", each.broker_name)]
    if not found:
        known = sorted({each.broker_name for each in members})
        if not known:
            raise Unreachable("no name server lists a broker: does one run?")
        near = near_or_all(nearest(broker, known), known)
        raise ConfigError("--broker", f'no name server lists "{broker}"{near}')
    return found


def _of_groups(told: Sequence[Told], groups: Sequence[str]) -> list[Told]:
    """Return the tables with the entries of groups; of all but RocketMQ's own without any."""
    found = [each._replace(table=chosen({"": each.table}, groups or ["*"])[""]) for each in told]
    there = {split_offset_key(key)[1] for each in found for key in each.table}
    for group in groups:
        if group not in there:
            known = {split_offset_key(key)[1] for each in told for key in each.table}
            raise ConfigError("--group", f'no offset of "{group}"{did_you_mean(group, known)}')
    return found


# --- files ----------------------------------------------------------------------------------------


def _keep(told: Sequence[Told], folder: Path | None) -> Path:
    """Write a file for each broker into a new folder, in the form of ``carry --file``."""
    if not any(each.table for each in told):
        raise Unreachable("no broker told an offset: nothing is saved")
    path = folder or Path(f"offsets-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise ConfigError("FOLDER", f"{path} is not empty: name a new one")
    for each in told:
        content = {
            "brokerName": each.broker,
            "address": each.source,
            "savedAt": each.at,
            "offsetTable": each.table,
        }
        replace_file(_file(path, each), json.dumps(content).encode())
    return path


def _file(folder: Path, told: Told) -> Path:
    name = f"{told.broker}_{told.source}.json"
    return folder / "".join(each if each.isalnum() or each in "._-" else "_" for each in name)


def _read(source: Path) -> list[Told]:
    """Return the tables of a file or folder."""
    if not source.is_dir():
        return [_read_file(source)]
    is_run = (source / "run.json").exists()
    files = sorted((source / "carry" if is_run else source).glob("*.json"))
    if not files:
        why_none = "no master went away while it was observed" if is_run else "no *.json in it"
        raise ConfigError("SOURCE", f"{source} holds no kept offsets: {why_none}")
    return [_read_file(each) for each in files]


def _read_file(path: Path) -> Told:
    try:
        found = read_document(read_file(path))
        at = str(found.others.get("savedAt") or shown(int(path.stat().st_mtime * 1000)))
    except (OSError, ProtocolError) as error:
        raise ConfigError("SOURCE", f"{path} is no table of offsets: {why(error)}") from None
    return Told(str(found.others.get("brokerName", "")), str(path), at, found.table)


# --- restore --------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What a restore does, and what it leaves."""

    whole: Restore
    """Everything in which kept offsets and the masters' differ."""
    written: Restore
    """Of it what is asked for."""
    seen: Mapping[str, Seen]
    """By pair."""
    options: argparse.Namespace

    @property
    def left_online(self) -> list[str]:
        """Groups that are left to their members."""
        if self.options.online:
            return []
        return sorted({row.group for row in self.whole.rows} & self.whole.online)

    @property
    def id(self) -> str:
        return self.written.id_for("")


def _restore(options: argparse.Namespace) -> int:
    cluster = _cluster(options)
    if options.source is None and options.confirm:
        raise ConfigError("SOURCE", "is missing: --confirm needs that of its preview")
    told = _read(options.source) if options.source else []
    if not told:  # kept at once: what a slave says now it may not say when it is confirmed
        told, silent = ask(
            cluster, lambda admin: _tables_of_brokers(admin, options, slaves_only=True)
        )
        _said(silent)
        if not told:
            raise Unreachable("no slave answered: give a saved file, or the run of an observer")
        options.source = _keep(told, None)
        note(f"What slaves say is kept in {options.source}.")
    told = _of_groups(told, options.group)
    return ask(cluster, lambda admin: _previewed(admin, told, options))


async def _previewed(admin: AdminClient, told: Sequence[Told], options: argparse.Namespace) -> int:
    plan = await _plan(admin, told, options)
    is_asked = bool(options.yes or options.confirm)
    is_same = options.yes or options.confirm == plan.id
    document = _preview(plan)
    failed: list[str] = []
    if is_same and plan.written.rows:
        failed = await _write(admin, plan)
        document["written"] = len(plan.written.rows) - len(failed)
    if options.json:
        print_json(document)
    else:
        _print(plan, document)
    for each in failed:
        note(f"error: {each}")
    is_refused = bool(plan.left_online) and (bool(options.group) or not plan.written.rows)
    is_stale = is_asked and not is_same and bool(plan.written.rows)
    return REFUSED if failed or is_stale or is_refused else 0


async def _plan(admin: AdminClient, told: Sequence[Told], options: argparse.Namespace) -> Plan:
    members = _of_pair((await admin.cluster_info()).members(), options.broker)
    pairs = sorted({each.broker_name for each in members})
    masters = {each.broker_name: each.addr for each in members if each.broker_id == 0}
    tables: dict[str, list[tuple[str, Table]]] = defaultdict(list)
    for each in told:
        if not each.broker and len(pairs) > 1:
            raise ConfigError("--broker", f"is missing: {each.source} says of no broker")
        name = each.broker or pairs[0]
        if options.broker in ("", name):
            tables[name].append((each.source, each.table))
    if away := sorted(name for name in tables if name in pairs and name not in masters):
        text = f"the master of {', '.join(away)} is down: restore when it runs"
        raise Unreachable(f"{text}, or before its start: failback carry --conf BROKER.CONF")
    if not tables:
        raise ConfigError("--broker", f'nothing is kept of "{options.broker}"')
    kept: dict[str, Table] = {name: _largest(each) for name, each in tables.items()}
    beside = {
        name: [each.addr for each in members if each.broker_name == name and each.broker_id]
        for name in masters
    }
    about = [name for name in kept if name in masters]
    looked = await asyncio.gather(
        *(look_at(admin, masters[name], kept[name], beside[name]) for name in about)
    )
    seen = dict(zip(about, looked, strict=True))
    kept |= {name: each.kept for name, each in seen.items()}
    whole = restore_of(kept, {name: each.master for name, each in seen.items()}, cut=True)
    assert whole is not None, "the masters have said all"

    def is_written(row: Row) -> bool:
        is_free = options.online or row.group not in whole.online
        return is_free and (options.lower or row.is_raise)

    return Plan(whole, whole.only(is_written), seen, options)


def _largest(told: Sequence[tuple[str, Table]]) -> dict[str, dict[int, int]]:
    """Return the largest offset of each queue in tables of one pair."""
    merged = merge({}, None, told, lambda _topic, _queue, offset: offset)
    for each in merged.odd:
        note(f"passed over: {each}")
    return merged.applied({})


async def _write(admin: AdminClient, plan: Plan) -> list[str]:
    masters = {name: each.master for name, each in plan.seen.items()}
    wanted = orders(plan.written.rows, masters)
    done = await asyncio.gather(*(store(admin, *each) for each in wanted))
    return [each.problem for of_one in done for each in of_one if each.problem]


def _preview(plan: Plan) -> dict[str, Any]:
    """Return the preview, for machines."""
    names = sorted({*(row.group for row in plan.whole.rows), *plan.whole.left_alone})
    return {
        "id": plan.id if plan.written.rows else None,
        "source": str(plan.options.source),
        "groups": [_of_group(plan, name) for name in names],
        "queues": [
            {"group": row.group, "broker": row.pair, "topic": row.topic, "queue": row.queue,
             "from": row.old, "to": row.new, "kept": row.kept}
            for row in plan.written.rows
        ],
        "written": 0,
    }  # fmt: skip


def _of_group(plan: Plan, name: str) -> dict[str, Any]:
    rows = [row for row in plan.whole.rows if row.group == name]
    written = [row for row in plan.written.rows if row.group == name]
    is_unknown = any(name in each.unknown for each in plan.seen.values())
    return {
        "group": name,
        "comesAgainWithout": sum(row.skipped for row in rows),
        "comesAgainWith": sum(row.redelivered for row in written),
        "skipped": sum(row.skipped for row in written),
        "raised": sum(row.is_raise for row in written),
        "lowered": sum(not row.is_raise for row in written),
        "leftAlone": plan.whole.left_alone.get(name, 0) + len(rows) - len(written),
        "online": None if is_unknown else name in plan.whole.online,
    }


def _print(plan: Plan, document: Mapping[str, Any]) -> None:
    headers = ("GROUP", "AGAIN WITHOUT", "AGAIN WITH", "SKIPPED", "RAISED", "LOWERED",
               "LEFT ALONE", "MEMBERS")  # fmt: skip
    if document["groups"]:
        words = {None: "not known", True: "yes", False: "no"}
        rows = [
            (name, *map(count, figures), words[online])
            for name, *figures, online in map(dict.values, document["groups"])
        ]
        print_table(headers, rows)
    if plan.options.verbose:
        queues = [tuple(each.values()) for each in document["queues"]]
        print_table(("GROUP", "BROKER", "TOPIC", "QUEUE", "FROM", "TO", "KEPT"), queues)
    for line in _remarks(plan):
        say(line)
    written, rows_ = document["written"], plan.written.rows
    if written:
        say(f"Restored {counted(written, 'offset')}, and read back.")
    elif not rows_:
        say("Nothing to restore: no kept offset that may be written is above the master's.")
    elif not plan.options.yes:
        if plan.options.confirm:
            say(f"{plan.options.confirm} is no longer what would come: nothing was written.")
        say(f"To write {counted(len(rows_), 'offset')}: {_confirming(plan)}")


def _remarks(plan: Plan) -> list[str]:
    """Return what is left and why, a line for each reason."""
    lines = [f"Not known: {line}." for each in plan.seen.values() for line in each.problems]
    if plan.whole.why_alone:
        lines.append(f"Left alone: {', '.join(plan.whole.why_alone)}.")
    if plan.left_online:
        names = ", ".join(plan.left_online)
        lines.append(f"Left to running members: {names}. Stop them, or add --online.")
    lower = [row for row in plan.whole.rows if not row.is_raise]
    if lower and not plan.options.lower:
        text = f"{counted(len(lower), 'kept offset')} below the master's stay out"
        lines.append(f"{text}: --lower takes them, and their messages come again.")
    cut = [row for row in plan.written.rows if row.kept > row.span.end]
    if cut:
        some = ", ".join(f"{row.topic} queue {row.queue} at {row.span.end}" for row in cut[:_NAMED])
        lines.append(f"{counted(len(cut), 'queue')} end before the kept offset: {some}.")
    empty = sum(row.old is None for row in plan.written.rows)
    if empty:
        text = f"of {counted(empty, 'queue')} the master has no offset"
        lines.append(f"What comes again is a lower bound: {text}.")
    return lines


def _confirming(plan: Plan) -> str:
    options = plan.options
    flags = [f"--{name}" for name in ("lower", "online") if getattr(options, name)]
    return restore_command(
        options.source,
        groups=options.group,
        broker=options.broker,
        yes=False,
        options=[*flags, "--confirm", plan.id, *options_of(given_of(options))],
    )
