"""Command lines of the workload: ``produce``, ``consume``, and ``run PLAN`` for the harness."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from failback.chaos.errors import ExitCode
from failback.chaos.workload.life import shipping
from failback.chaos.workload.plan import (
    ConsumerPlan,
    HandlerPlan,
    ProcessPlan,
    ProducerPlan,
    ShipPlan,
    TopicPlan,
    check_switches,
    read_plan,
)
from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumelog.upload.collector_client import CollectorClient
from failback.client.program import CommandParser, begin_logging, positive
from failback.client.remoting.guarded.cluster import (
    Cluster,
    Given,
    access_by,
    add_cluster_options,
    find_cluster,
    given_of,
)
from failback.protocol.errors import ConfigError, FailbackError
from failback.protocol.names import NameRefused, check_group, check_topic

if TYPE_CHECKING:
    from failback.chaos.workload.consumer import ConsumerProcess
    from failback.chaos.workload.producer import ProducerProcess

logger = logging.getLogger(__name__)

_PROCESS_NUMBERS = 1 << 23  # a delivery's id is this number and 40 bits more


def main(
    argv: Sequence[str] | None = None, *, find: Callable[[Given], Cluster] = find_cluster
) -> int:
    """Run one process of the workload.

    Args:
        find: Finds the cluster that the options mean.

    Returns 0 after a clean stop, 2 for bad arguments, 74 when the consume log took no more rows,
    1 for any other failure.
    """
    options = parser().parse_args(argv)
    begin_logging(logging.DEBUG if options.verbose else logging.INFO)
    try:
        plan = _plan(options, find)
        with shipping(plan.process):
            process = _process(plan)
            _run(process.run())
            if options.command == "run":  # a harness asks, and reads the log
                return ExitCode.PASS
            print(process.summary(), file=sys.stderr)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except ConsumeLogError as error:
        logger.error("stopped: %s", error)
        return ExitCode.LOG_FULL
    except FailbackError as error:
        logger.error("%s", error)
        return ExitCode.FAIL
    return ExitCode.FAIL if process.reached_nobody else ExitCode.PASS


def _process(plan: ProducerPlan | ConsumerPlan) -> ProducerProcess | ConsumerProcess:
    if isinstance(plan, ProducerPlan):
        from failback.chaos.workload.producer import ProducerProcess

        return ProducerProcess(plan)
    from failback.chaos.workload.consumer import ConsumerProcess

    return ConsumerProcess(plan)


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def _plan(
    options: argparse.Namespace, find: Callable[[Given], Cluster]
) -> ProducerPlan | ConsumerPlan:
    if options.command == "run":
        try:
            document = json.loads(options.plan.read_bytes())
            plan = read_plan(document)
            access = access_by(plan.process.access_files)
            return replace(plan, process=replace(plan.process, access=access))
        except (OSError, ValueError, LookupError, TypeError, msgspec.ValidationError) as error:
            raise ConfigError(str(options.plan), f"no usable plan: {error}") from error
    _check_names(options)
    cluster = find(given_of(options))
    if not cluster.name_servers:
        raise ConfigError("--namesrv", "is missing")
    process = ProcessPlan(
        run=options.run or f"workload-{time.time_ns() // 10**9}",
        hot=options.hot,
        proc_no=_process_number(options),
        proc=None,
        namesrv=cluster.name_servers,
        access=cluster.access,
        control=options.control,
        time_scale=options.time_scale,
        switches=_switches(options.switch),
        seed=options.seed,
        ship=_ship_plan(options),
    )
    if options.command == "produce":
        topic = TopicPlan(
            name=options.topic,
            queues=options.queues,
            rate_per_second=options.rate,
            body_bytes=options.body_bytes,
            keys=options.keys,
            limit=options.count,
        )
        return ProducerPlan(process, options.index, (topic,), seconds=options.seconds)
    handler = HandlerPlan(options.mean_ms, options.jitter_ms, options.fail_ratio)
    return ConsumerPlan(
        process,
        options.group,
        options.topic,
        consume_from=options.consume_from,
        message_model=options.message_model,
        threads=options.threads,
        pull_threshold_for_queue=options.pull_threshold_for_queue,
        handler=handler,
        seconds=options.seconds,
    )


def _check_names(options: argparse.Namespace) -> None:
    for option, check in (("topic", check_topic), ("group", check_group)):
        try:
            if hasattr(options, option):
                check(getattr(options, option))
        except NameRefused as error:
            raise ConfigError(f"--{option}", str(error)) from None


def _ship_plan(options: argparse.Namespace) -> ShipPlan | None:
    if options.ship_to is None:
        return None
    if "://" in options.ship_to:
        # Refuses what is no collector's address or no token, before anything is written.
        CollectorClient(options.ship_to, token_file=options.ship_token_file).check_token()
    return ShipPlan(options.ship_to, options.ship_token_file, options.ship_linger_seconds)


def _process_number(options: argparse.Namespace) -> int:
    """The given number; else the pid, or a random one where processes of other hosts join in."""
    if options.proc_no is not None:
        return int(options.proc_no)
    return os.getpid() if options.ship_to is None else secrets.randbelow(_PROCESS_NUMBERS)


def _switches(pairs: Sequence[str]) -> dict[str, Any]:
    """``name=value`` pairs; values are JSON where they can be."""
    switches: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError("--switch", f'must be NAME=VALUE, not "{pair}"')
        try:
            switches[name] = json.loads(text)
        except ValueError:
            switches[name] = text
    check_switches(switches, "--switch")
    return switches


def parser() -> CommandParser:
    """Return what reads the command line."""
    made = CommandParser(
        "failback workload",
        "Produce and consume with the consume log on, against any RocketMQ.",
        examples=(
            "failback workload produce -n 10.0.0.1:9876 --topic orders --rate 100 --seconds 60",
            "failback workload consume -n 10.0.0.1:9876 --topic orders --group billing",
        ),
    )
    made.add_argument("-v", "--verbose", action="store_true", help="Log every request.")
    _add_produce(made)
    _add_consume(made)
    made.add_command("run", "").add_argument("plan", type=Path)  # what the harness starts: hidden
    return made


def _add_produce(parser: CommandParser) -> None:
    command = parser.add_command(
        "produce",
        "Send messages at a fixed rate, whatever the answers.",
        "failback workload produce -n 10.0.0.1:9876 --topic orders --rate 100 --seconds 60",
    )
    _common(command)
    add = command.add_argument
    add("--rate", type=positive, default=400.0, metavar="NUMBER", help="Messages per second.")
    add("--queues", type=int, default=8, metavar="N", help="Queues of the topic.")
    add("--body-bytes", type=int, default=512, metavar="N", help="Size of a message's body.")
    add("--keys", type=int, default=1000, metavar="N", help="Number of ordering keys.")
    add("--count", type=int, metavar="N", help="End after this many messages (default: never).")
    add("--index", type=int, default=0, metavar="N", help="Number of this producer among several.")


def _add_consume(parser: CommandParser) -> None:
    command = parser.add_command(
        "consume",
        "Be one member of a consumer group.",
        "failback workload consume -n 10.0.0.1:9876 --topic orders --group billing",
    )
    _common(command)
    add = command.add_argument
    add("--group", required=True, metavar="GROUP", help="Consumer group.")
    add("--mean-ms", type=float, default=1.0, metavar="MS", help="Time that a handler takes.")
    add("--jitter-ms", type=float, default=0.0, metavar="MS", help="How much that time varies.")
    add("--fail-ratio", type=float, default=0.0, metavar="SHARE", help="Share of calls that fail.")
    add("--threads", type=int, default=20, metavar="N", help="Handlers at work at once.")
    add(
        "--pull-threshold-for-queue",
        type=int,
        default=1000,
        metavar="N",
        help="Messages of a queue to hold in memory at most.",
    )
    add(
        "--consume-from",
        choices=("LAST", "FIRST"),
        default="FIRST",
        help="Where a group without offsets begins.",
    )
    add(
        "--message-model",
        choices=("CLUSTERING", "BROADCASTING"),
        default="CLUSTERING",
        help="Whether members share the messages, or each gets all.",
    )


def _common(command: CommandParser) -> None:
    add = command.add_argument
    add_cluster_options(command, end=", else the local cluster's).")
    add("--topic", required=True, metavar="TOPIC", help="Topic.")
    add(
        "--hot",
        type=Path,
        default=Path("hot"),
        metavar="FOLDER",
        help="Where the consume log is written.",
    )
    add("--run", metavar="ID", help="Id of the run (default: workload-, and the time).")
    add("--proc-no", type=int, metavar="N", help="Number in the run (default: the process id).")
    add(
        "--ship-to",
        metavar="LAKE|URL",
        help="Put the consume log into this lake, or send it to this collector, as it is written.",
    )
    add(
        "--ship-token-file",
        type=Path,
        metavar="FILE",
        help="Token for the collector (default: the file that $FAILBACK_TOKEN_FILE names).",
    )
    add(
        "--ship-linger-seconds",
        type=positive,
        default=60.0,
        metavar="SECONDS",
        help="At the end, wait this long for a collector that is down.",
    )
    add("--control", type=Path, metavar="FILE", help="Unix socket to answer on.")
    add(
        "--time-scale",
        type=positive,
        default=1.0,
        metavar="NUMBER",
        help="Scale of all timers, as the brokers have it.",
    )
    add("--seed", type=int, default=0, metavar="N", help="Seed of everything random.")
    add("--seconds", type=positive, metavar="SECONDS", help="End after this time (default: never).")
    add("--switch", action="append", default=[], metavar="NAME=VALUE", help="A client setting.")
