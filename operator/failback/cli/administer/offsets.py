"""``failback offsets``: keep consumer offsets of a cluster in files, and give them back.

    save [FOLDER]      keep what masters and slaves say now, a file for each broker
    show [SOURCE]      the offsets of each group, as files have them or as brokers say them now
    restore [SOURCE]   preview what giving them to the masters means; --confirm or --yes does it

SOURCE is a saved file or folder, or the folder of an observed run. Without one slaves are asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections import Counter, defaultdict
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
        "Keep consumer offsets in files, and give them back: all queues of all groups at once.",
        examples=("failback offsets save", "failback offsets restore --broker broker-a --yes"),
    )
    restore = made.add_command(
        "restore",
        "Preview what giving kept offsets to masters that run means; --confirm or --yes does it. "
        "Offsets are raised only, unless --lower is given, and never set outside of their queue.",
        "failback offsets restore incident-7 --group billing",
        "failback offsets restore incident-7 --group billing --confirm 3f9c01ab22d7",
        "failback offsets restore --broker broker-a --yes",
    )
    show = made.add_command(
        "show",
        "Show the offsets of each group, as kept, or as brokers say them now.",
        "failback offsets show incident-7 --group billing --verbose",
    )
    save = made.add_command(
        "save",
        "Keep the offsets that masters and slaves have now, in a file for each broker.",
        "failback offsets save before-the-move --group billing",
    )
    kept = "Saved file or folder, or the folder of an observed run (default: "
    for each, call, name, text in (
        (restore, _restore, "SOURCE", f"{kept}slaves are asked, and saved)."),
        (show, _show, "SOURCE", f"{kept}brokers are asked)."),
        (save, _save, "FOLDER", "New folder (default: offsets-TIME)."),
    ):
        add = each.add_argument
        add("source", nargs="?", type=Path, metavar=name, help=text)
        add("--broker", default="", metavar="NAME", help="Only this pair (default: all).")
        add("-g", "--group", action="append", default=[], metavar="GROUP", help="Only this group.")
        add("--json", action="store_true", help="Print JSON, for machines.")
        add("-v", "--verbose", action="store_true", help="Print every queue.")
        add_cluster_options(each, end=", else the local cluster's).")
        each.set_defaults(call=call)
    add = restore.add_argument
    add("--lower", action="store_true", help="Lower offsets, too: their messages are re-consumed.")
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
    told, silent = _asked(options)
    told = _of_groups(told, options.group)
    folder = _keep(told, options.source)
    return _print_told(told, silent, options, f"Kept in {folder}.")


def _show(options: argparse.Namespace) -> int:
    told, silent = (_read(options.source), []) if options.source else _asked(options)
    told = [each for each in told if not options.broker or options.broker == each.broker]
    return _print_told(_of_groups(told, options.group), silent, options)


def _print_told(
    told: Sequence[Told], silent: Sequence[str], options: argparse.Namespace, end: str = ""
) -> int:
    rows: list[tuple[object, ...]] = []
    for each in told:
        queues = Counter[str]()
        for key, table in each.table.items():
            topic, group = split_offset_key(key)
            queues[group] += len(table)
            if options.verbose:
                rows += [(*each[:2], group, topic, *place) for place in sorted(table.items())]
        if not options.verbose:
            rows += [(*each[:3], *of) for of in sorted(queues.items())]
    if options.json:
        print_json({"offsets": [each._asdict() for each in told], "silent": silent})
    elif options.verbose:
        print_table(("BROKER", "SAID BY", "GROUP", "TOPIC", "QUEUE", "OFFSET"), rows)
    else:
        print_table(("BROKER", "SAID BY", "AT", "GROUP", "QUEUES"), rows)
    if end:
        note(end)
    return _said(silent)


def _said(silent: Sequence[str]) -> int:
    for each in silent:
        note(f"error: {each}")
    return Unreachable.exit_code if silent else 0


def _asked(options: argparse.Namespace, least_id: int = 0) -> tuple[list[Told], list[str]]:
    """Return what brokers with at least that id say, and why some did not."""

    async def tables(admin: AdminClient) -> tuple[list[Told], list[str]]:
        members = _of_pair((await admin.cluster_info()).members(), options.broker)
        names = {each.addr: each.broker_name for each in members if each.broker_id >= least_id}
        answers = await ask_slaves(admin, list(names))
        at = shown(time.time_ns() // 1_000_000)
        told = [Told(names[each.slave], each.slave, at, each.table) for each in answers]
        silent = {each.slave: each.problem for each in answers if each.problem}
        said = [each for each in told if each.source not in silent]
        return said, [f"{slave}: {problem}" for slave, problem in silent.items()]

    return ask(_cluster(options), tables)


def _of_pair(members: Sequence[RegisteredBroker], broker: str) -> list[RegisteredBroker]:
    found = [each for each in members if broker in ("", each.broker_name)]
    if not members:
        raise Unreachable("no name server lists a broker: does one run?")
    if not found:
        known = sorted({each.broker_name for each in members})
        near = near_or_all(nearest(broker, known), known)
        raise ConfigError("--broker", f'no name server lists "{broker}"{near}')
    return found


def _of_groups(told: Sequence[Told], groups: Sequence[str]) -> list[Told]:
    """Return the tables with the entries of groups; of all but RocketMQ's own without any."""
    known = {split_offset_key(key)[1] for each in told for key in each.table}
    for group in groups:
        if group not in known:
            raise ConfigError("--group", f'no offset of "{group}"{did_you_mean(group, known)}')
    return [each._replace(table=chosen({"": each.table}, groups or ["*"])[""]) for each in told]


# --- files ----------------------------------------------------------------------------------------


def _keep(told: Sequence[Told], folder: Path | None) -> Path:
    """Write a file for each broker into a new folder, in the form of ``carry --file``."""
    if not any(each.table for each in told):
        raise Unreachable("no broker told an offset: nothing is kept")
    path = folder or Path(f"offsets-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise ConfigError("FOLDER", f"{path} is not empty: name a new one")
    for name, address, at, table in told:
        content = {"brokerName": name, "address": address, "savedAt": at, "offsetTable": table}
        file = re.sub(r"[^0-9A-Za-z._-]", "_", f"{name}_{address}"[-200:])
        replace_file(path / f"{file}.json", json.dumps(content).encode())
    return path


def _read(source: Path) -> list[Told]:
    """Return the tables of a file or folder."""
    if not source.is_dir():
        return [_read_file(source)]
    is_run = (source / "carry").is_dir() or (source / "run.json").exists()
    files = sorted((source / "carry" if is_run else source).glob("*.json"))
    if not files:
        why_none = "no master went down while it was observed" if is_run else "no *.json in it"
        raise ConfigError("SOURCE", f"{source} holds no kept offsets: {why_none}")
    return [_read_file(each) for each in files]


def _read_file(path: Path) -> Told:
    try:
        found = read_document(read_file(path))
        at = found.others.get("savedAt") or shown(int(path.stat().st_mtime * 1000))
    except (OSError, ProtocolError) as error:
        raise ConfigError("SOURCE", f"{path} is no table of offsets: {why(error)}") from None
    return Told(str(found.others.get("brokerName", "")), str(path), str(at), found.table)


# --- restore --------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What a restore does, and what it leaves."""

    whole: Restore
    """Everything in which kept offsets and the masters' differ."""
    written: Restore
    """Of it what is asked for."""
    seen: Mapping[str, Seen]
    """By pair."""


def _restore(options: argparse.Namespace) -> int:
    if options.source is None and options.confirm:
        raise ConfigError("SOURCE", "is missing: --confirm needs that of its preview")
    if options.source:
        told = _read(options.source)
    else:  # kept at once: what a slave says now it may not say when it is confirmed
        told, silent = _asked(options, least_id=1)
        _said(silent)
        options.source = _keep(told, None)
        note(f"What slaves say is kept in {options.source}.")
    told = _of_groups(told, options.group)
    return ask(_cluster(options), lambda admin: _restored(admin, told, options))


async def _restored(admin: AdminClient, told: Sequence[Told], options: argparse.Namespace) -> int:
    plan = await _plan(admin, told, options)
    rows, made = plan.written.rows, plan.written.id_for("")
    is_meant = options.yes or options.confirm == made
    failed: list[str] = []
    if is_meant and rows:
        wanted = orders(rows, {name: each.master for name, each in plan.seen.items()})
        done = await asyncio.gather(*(store(admin, *each) for each in wanted))
        failed = [each.problem for of_one in done for each in of_one if each.problem]
    written = len(rows) - len(failed) if is_meant else 0
    document = {"id": made if rows else None, "source": str(options.source), "written": written,
                "groups": _groups(plan), "queues": _queues(rows)}  # fmt: skip
    left = sorted({row.group for row in plan.whole.rows} & plan.whole.online)
    left = [] if options.online else left
    if options.json:
        print_json(document)
    else:
        _print(plan, document, left, options)
    for each in failed:
        note(f"error: {each}")
    is_refused = bool(left) and (bool(options.group) or not rows)
    is_stale = bool(options.confirm and rows) and not is_meant
    return REFUSED if failed or is_stale or is_refused else 0


async def _plan(admin: AdminClient, told: Sequence[Told], options: argparse.Namespace) -> Plan:
    members = _of_pair((await admin.cluster_info()).members(), options.broker)
    pairs = sorted({each.broker_name for each in members})
    masters = {each.broker_name: each.addr for each in members if each.broker_id == 0}
    tables: dict[str, list[tuple[str, Table]]] = defaultdict(list)
    for each in told:
        if not each.broker and len(pairs) > 1:
            raise ConfigError("--broker", f"is missing: {each.source} does not say its broker")
        tables[each.broker or pairs[0]].append((each.source, each.table))
    tables = {name: tables[name] for name in tables if options.broker in ("", name)}
    if not tables:
        raise ConfigError("--broker", f'{options.source} has nothing of "{options.broker}"')
    if down := sorted(tables.keys() & set(pairs) - masters.keys()):
        text = f"the master of {', '.join(down)} is down: restore when it runs"
        raise Unreachable(f"{text}, or before its start: failback carry --conf BROKER.CONF")
    merged = {name: merge({}, None, each, lambda _t, _q, at: at) for name, each in tables.items()}
    for line in dict.fromkeys(line for each in merged.values() for line in each.odd):
        note(f"passed over: {line}")
    kept: dict[str, Table] = {name: each.applied({}) for name, each in merged.items()}

    async def look(name: str) -> tuple[str, Seen]:
        beside = [each.addr for each in members if each.broker_name == name and each.broker_id]
        return name, await look_at(admin, masters[name], kept[name], beside)

    seen = dict(await asyncio.gather(*map(look, kept.keys() & masters.keys())))
    kept |= {name: each.kept for name, each in seen.items()}
    whole = restore_of(kept, {name: each.master for name, each in seen.items()}, cut=True)
    assert whole is not None, "the masters have said all"

    def is_written(row: Row) -> bool:
        is_free = options.online or row.group not in whole.online
        return is_free and (options.lower or row.is_raise)

    return Plan(whole, whole.only(is_written), seen)


def _groups(plan: Plan) -> list[dict[str, Any]]:
    """Return the preview by group, for machines."""
    found = []
    for name in sorted({*(row.group for row in plan.whole.rows), *plan.whole.left_alone}):
        rows = [row for row in plan.whole.rows if row.group == name]
        written = [row for row in plan.written.rows if row.group == name]
        raised = sum(row.is_raise for row in written)
        is_unknown = any(name in each.unknown for each in plan.seen.values())
        found.append(
            {
                "group": name,
                "comesAgainWithout": sum(row.skipped for row in rows),
                "comesAgainWith": sum(row.redelivered for row in written),
                "skipped": sum(row.skipped for row in written),
                "raised": raised,
                "lowered": len(written) - raised,
                "leftAlone": plan.whole.left_alone.get(name, 0) + len(rows) - len(written),
                "online": None if is_unknown else name in plan.whole.online,
            }
        )
    return found


def _queues(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {"group": row.group, "broker": row.pair, "topic": row.topic, "queue": row.queue,
         "from": row.old, "to": row.new, "kept": row.kept}
        for row in rows
    ]  # fmt: skip


def _print(
    plan: Plan, document: dict[str, Any], left: Sequence[str], options: argparse.Namespace
) -> None:
    words = {None: "not known", True: "yes", False: "no"}
    rows = [
        (name, *map(count, figures), words[online])
        for name, *figures, online in map(dict.values, document["groups"])
    ]
    headers = ("AGAIN WITHOUT", "AGAIN WITH", "SKIPPED", "RAISED", "LOWERED", "LEFT ALONE")
    if rows:
        print_table(("GROUP", *headers, "MEMBERS"), rows)
    if options.verbose:
        queues = [tuple(each.values()) for each in document["queues"]]
        print_table(("GROUP", "BROKER", "TOPIC", "QUEUE", "FROM", "TO", "KEPT"), queues)
    for line in _remarks(plan, left, options):
        say(line)
    wanted = counted(len(plan.written.rows), "offset")
    if document["written"]:
        say(f"Restored {counted(document['written'], 'offset')}, and read back.")
    elif not plan.written.rows:
        say("Nothing to restore: no kept offset that may be written is above the master's.")
        say("A slave that has copied its master since knows less: name what was saved or observed.")
    elif not options.yes:
        if options.confirm:
            say(f"{options.confirm} is no longer what would come: nothing was written.")
        flags = [f"--{name}" for name in ("lower", "online") if getattr(options, name)]
        typed = [*flags, "--confirm", document["id"], *options_of(given_of(options))]
        named = {"groups": options.group, "broker": options.broker, "options": typed}
        say(f"To write {wanted}: {restore_command(options.source, yes=False, **named)}")


def _remarks(plan: Plan, left: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Return what is left and why, a line for each reason."""
    lines = [f"Not known: {line}." for each in plan.seen.values() for line in each.problems]
    if plan.whole.why_alone:
        lines.append(f"Left alone: {', '.join(plan.whole.why_alone)}.")
    if left:
        lines.append(f"Left to members: {', '.join(left)}. Stop them, or add --online.")
    lower = sum(not row.is_raise for row in plan.whole.rows)
    if lower and not options.lower:
        text = f"{counted(lower, 'kept offset')} below the master's: left out"
        lines.append(f"{text}; --lower takes them, and their messages are re-consumed.")
    cut = [row for row in plan.written.rows if row.kept > row.span.end]
    if cut:
        some = ", ".join(f"{row.topic} queue {row.queue} at {row.span.end}" for row in cut[:_NAMED])
        lines.append(f"Cut at the end of the queue: {counted(len(cut), 'offset')}, {some}.")
    if empty := sum(row.old is None for row in plan.written.rows):
        text = f"the master has no offset of {counted(empty, 'queue')}"
        lines.append(f"What is re-consumed is a lower bound: {text}.")
    return lines
