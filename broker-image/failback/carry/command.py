"""The command line of ``failback carry``: options, what it prints, exit codes, the command behind.

Exit codes: 0 carried, or nothing could be carried and the master starts all the same; 2 a mistake
in the command line; 3 refused where the broker could not start either; with ``--strict`` 4 for all
that could not be done. ``--online``, before which no start waits, ends with 4 if it learnt nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from failback.client.program import USER_ERROR, CommandParser, begin_logging, guard_last_resort
from failback.client.remoting.addresses import addresses_of
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.cluster import (
    Cluster,
    add_cluster_options,
    find_cluster,
    given_of,
    options_of,
)
from failback.common.text import visible, where_and_why
from failback.protocol.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from failback.carry.merge import Row
    from failback.carry.offline import Report, Request

REFUSED: Final = 3
COULD_NOT: Final = 4
_NOT_FOUND: Final = 127
_MASTER_SECONDS: Final = 60.0
"""How long --online waits for the master without --wait."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry, print, and go on as the command behind ``--``, if there is one."""
    words = list(sys.argv[1:] if argv is None else argv)
    at = words.index("--") if "--" in words else len(words)
    options, command = parser().parse_args(words), words[at + 1 :]
    guard_last_resort()
    if options.command != command or (at < len(words) and not command):
        parser().error("COMMAND: stands behind --, as in: -- sh mqbroker -c broker.conf")
    try:
        code = _act(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    if not command or (options.strict and code):
        return code
    return _become(command)


def _act(options: argparse.Namespace) -> int:
    if options.undo:
        return _undo(options)
    if options.keep:
        return _keep(options)
    if options.online:
        return _online(options)
    try:
        return _carry(options)
    except ConfigError:
        raise
    except Exception as error:  # no mistake of ours may keep a master from starting
        _warn(f"nothing was carried: {type(error).__name__}: {error}")
        return COULD_NOT if options.strict else 0


def _keep(options: argparse.Namespace) -> int:
    from failback.carry.keeper import keep_until_stopped

    slaves = addresses_of("--slave", ";".join(options.slave), typed=True)
    if len(slaves) != 1:
        raise ConfigError("--slave", "is to be given once with --keep: the slave beside this")
    begin_logging()
    cluster = find_cluster(given_of(options))
    asyncio.run(keep_until_stopped(slaves[0], cluster.name_servers, cluster.access))
    return 0


def _online(options: argparse.Namespace) -> int:
    from failback.carry.offline import table_of_file
    from failback.carry.online import ask_and_top_up

    if not options.slave and not options.file:
        raise ConfigError("--slave", "or --file is missing: --online needs what a slave knows")
    masters = addresses_of("--master", options.master, typed=True)
    if len(masters) != 1:
        raise ConfigError("--master", "is missing: give HOST:PORT of the running master")
    slaves = addresses_of("--slave", ";".join(options.slave), typed=True)
    tables = [table_of_file(path) for path in options.file]
    settings = RemotingSettings(access=find_cluster(given_of(options)).access)
    done = asyncio.run(
        ask_and_top_up(
            settings,
            masters[0],
            slaves,
            tables,
            wait_seconds=options.wait or _MASTER_SECONDS,
            dry_run=options.dry_run,
            accept_lower=options.accept_lower,
        )
    )
    _say(options, done.warnings, done.raised, done.line)
    return COULD_NOT if not done.is_known or (done.warnings and options.strict) else 0


def _carry(options: argparse.Namespace) -> int:
    from failback.carry.master_store import read_conf
    from failback.carry.offline import Request, carry

    conf = read_conf(_conf(options), options.store)
    cluster = _cluster(options, conf.name_servers)
    request = Request(
        conf=conf,
        slaves=addresses_of("--slave", ";".join(options.slave), typed=True),
        files=tuple(options.file),
        name_servers=cluster.name_servers,
        access=cluster.access,
        wait_seconds=options.wait,
        accept_lower=frozenset(options.accept_lower),
        dry_run=options.dry_run,
    )
    report = carry(request)
    _say(options, report.warnings, report.merged.raised, report.line)
    if options.json:
        _write(options.json, json.dumps(report.document(), indent=1).encode())
    if report.refused:
        return REFUSED
    if report.could_not and options.strict:
        return COULD_NOT
    if options.command and options.top_up:
        _leave_top_up(options, request, report)
    return 0


def _leave_top_up(options: argparse.Namespace, request: Request, report: Report) -> None:
    """Leave a process that is no child of COMMAND, and raises what slaves are told until then."""
    slaves = report.answered if report.asked else request.slaves
    if request.conf.idle or not slaves:
        return
    words = ["--online", "--master", options.master or request.conf.address]
    words += [word for slave in slaves for word in ("--slave", slave)]
    words += ["--wait", str(options.top_up), *options_of(given_of(options))]
    words += ["--dry-run"] if options.dry_run else []
    subprocess.run(
        ["sh", "-c", '"$@" &', "sh", sys.executable, "-m", "failback.carry", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
        check=False,
    )


def _undo(options: argparse.Namespace) -> int:
    from failback.carry.master_store import locked, read_conf
    from failback.carry.offset_file import OffsetFile

    conf = read_conf(_conf(options), options.store)
    try:
        with locked(conf.root):
            OffsetFile(conf.offset_file).undo(force=options.force)
    except (StoreError, OSError) as error:
        print(f"error: {visible(where_and_why(error))}", file=sys.stderr)
        return REFUSED
    print(f"carry: undone, {conf.offset_file} is as before the carry")
    return 0


def _conf(options: argparse.Namespace) -> Path:
    if options.conf is None:
        raise ConfigError("--conf", "is missing: give the broker.conf of the master")
    found: Path = options.conf
    return found


def _cluster(options: argparse.Namespace, of_conf: tuple[str, ...]) -> Cluster:
    """Return name servers and access: of options, then of broker.conf, then as every command."""
    found = find_cluster(given_of(options))
    return Cluster(of_conf, found.access) if of_conf and not options.namesrv else found


def _write(path: Path, content: bytes) -> None:
    from failback.common.replacing import replace_file

    try:
        replace_file(path, content)
    except OSError as error:
        _warn(f"--json: {where_and_why(error)}")


def _say(
    options: argparse.Namespace, warnings: Sequence[str], rows: Sequence[Row], line: str
) -> None:
    for warning in warnings:
        _warn(warning)
    for row in rows if options.verbose or options.dry_run else ():
        print(visible(str(row)))
    print(visible(f"carry: {line}"), flush=True)


def _warn(text: str) -> None:
    print(f"carry: warning: {visible(text)}", file=sys.stderr, flush=True)


def _become(command: list[str]) -> int:
    """Go on as another program, with this process's pid; return only if it can't be run."""
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"error: {visible(command[0])}: {where_and_why(error)}", file=sys.stderr)
        return _NOT_FOUND


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f'must be seconds, 0 or more, got "{visible(text)}"')
    return value


def parser() -> CommandParser:
    """Return what reads the command line."""
    made = CommandParser(
        "failback carry",
        "Give a master that is about to start what its slaves know better of consumer offsets, so "
        "that a failover repeats no message. Behind -- stands a command to go on as.",
        examples=(
            "failback carry --conf broker.conf --slave 10.0.0.12:10911",
            "failback carry --conf broker.conf --slave 10.0.0.12:10911 --dry-run",
            "failback carry --conf broker.conf -- sh mqbroker -c broker.conf",
            "failback carry --conf broker.conf --undo",
            "failback carry --online --master 10.0.0.11:10911 --slave 10.0.0.12:10911",
            "failback carry --keep --slave 127.0.0.1:10911",
        ),
    )
    add = made.add_argument
    add("--conf", type=Path, metavar="FILE", help="broker.conf of the stopped master.")
    add(
        "--store",
        type=Path,
        metavar="FOLDER",
        help="Store of the master (default: storePathRootDir and storePathCommitLog of --conf).",
    )
    add(
        "--slave",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="Slave to ask (default: those that name servers list).",
    )
    add(
        "--file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="consumerOffset.json of a stopped slave, used beside what slaves say.",
    )
    add_cluster_options(made, end=", else namesrvAddr of --conf).")
    add(
        "--wait",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="Ask again for so long until a slave answers; with --online: the master, 60 s.",
    )
    add(
        "--accept-lower",
        action="append",
        default=[],
        metavar="GROUP",
        help="Group whose offsets are taken from the slaves also where they are less.",
    )
    add(
        "--top-up",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="With COMMAND: wait so long beside it for the broker, then raise what slaves know.",
    )
    add("--dry-run", action="store_true", help="Print what would be raised, and write nothing.")
    add("--strict", action="store_true", help="End with 4 where something could not be carried.")
    add("--json", type=Path, metavar="FILE", help="Write what was done, for machines.")
    add("--online", action="store_true", help="Raise offsets of a master that runs already.")
    add("--master", default="", metavar="HOST:PORT", help="With --online, --top-up: the master.")
    add(
        "--keep",
        action="store_true",
        help="Run beside a slave, and tell it what members have finished while its master is down.",
    )
    add("--undo", action="store_true", help="Put back the offsets of before the carry.")
    add("--force", action="store_true", help="With --undo: also if the broker ran since.")
    add("command", nargs="*", metavar="-- COMMAND", help="Program to go on as, with arguments.")
    add("-v", "--verbose", action="store_true", help="Print every offset that is raised.")
    return made
