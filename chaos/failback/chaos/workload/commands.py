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
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from failback.chaos.errors import ExitCode
from failback.chaos.workload.life import set_up_logging, shipping, write_pid_note
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
from failback.client.consumelog.errors import ConsumeLogError
from failback.client.consumelog.upload.collector_client import CollectorClient
from failback.protocol.errors import ConfigError, FailbackError

logger = logging.getLogger(__name__)

_PROCESS_NUMBERS = 1 << 23  # a delivery's id is this number and 40 bits more


def main(argv: Sequence[str] | None = None) -> int:
    """Run one process of the workload.

    Returns 0 after a clean stop, 2 for bad arguments, 74 when the consume log took no more rows,
    1 for any other failure.
    """
    options = _parser().parse_args(argv)
    set_up_logging(options.verbose)
    try:
        plan = _plan(options)
        with shipping(plan.process):
            reached = _work(plan, told=options.command == "produce")
    except ConfigError as error:
        print(f"failback workload: {error}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except ConsumeLogError as error:
        logger.error("stopped: %s", error)
        return ExitCode.LOG_FULL
    except FailbackError as error:
        logger.error("%s", error)
        return ExitCode.FAIL
    return ExitCode.PASS if reached else ExitCode.FAIL


def _work(plan: ProducerPlan | ConsumerPlan, *, told: bool) -> bool:
    """Run the process to its end.

    Args:
        told: Say what became of the sends, to a person; a harness asks, and reads the log.

    Returns:
        False for sends that are told and that reached nobody.
    """
    if isinstance(plan, ConsumerPlan):
        from failback.chaos.workload.consumer import ConsumerProcess

        _run(ConsumerProcess(plan).run())
        return True
    from failback.chaos.workload.producer import ProducerProcess

    producer = ProducerProcess(plan)
    _run(producer.run())
    if told:
        print(producer.summary(), file=sys.stderr)
    return not (told and producer.reached_nobody)


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def _plan(options: argparse.Namespace) -> ProducerPlan | ConsumerPlan:
    if options.command == "run":
        try:
            document = json.loads(options.plan.read_bytes())
            write_pid_note(options.plan)
            return read_plan(document)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(str(options.plan), f"no usable plan: {error}") from error
    process = ProcessPlan(
        run=options.run,
        hot=options.hot,
        proc_no=_process_number(options),
        proc=None,
        namesrv=tuple(each for part in options.namesrv for each in part.split(";") if each),
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="failback workload",
        description="Producers and consumers with the consume log on, against any RocketMQ.",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log every request")
    commands = parser.add_subparsers(dest="command", required=True)
    produce = commands.add_parser("produce", help="send at a fixed rate, open-loop")
    _common(produce)
    produce.add_argument("--rate", type=_positive, default=400.0, help="messages per second")
    produce.add_argument("--queues", type=int, default=8, help="queues of the topic, for lanes")
    produce.add_argument("--body-bytes", type=int, default=512)
    produce.add_argument("--keys", type=int, default=1000, help="number of ordering keys")
    produce.add_argument("--count", type=int, help="end after this many messages")
    produce.add_argument("--index", type=int, default=0, help="number of this producer, for lanes")
    consume = commands.add_parser("consume", help="one member of a consumer group")
    _common(consume)
    consume.add_argument("--group", required=True)
    consume.add_argument("--mean-ms", type=float, default=1.0, help="time a handler takes")
    consume.add_argument("--jitter-ms", type=float, default=0.0)
    consume.add_argument("--fail-ratio", type=float, default=0.0)
    consume.add_argument("--threads", type=int, default=20)
    consume.add_argument("--pull-threshold-for-queue", type=int, default=1000)
    consume.add_argument("--consume-from", choices=("LAST", "FIRST"), default="FIRST")
    consume.add_argument(
        "--message-model", choices=("CLUSTERING", "BROADCASTING"), default="CLUSTERING"
    )
    run = commands.add_parser("run", help="what the harness starts")
    run.add_argument("plan", type=Path)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namesrv", action="append", required=True, help="HOST:PORT, may be repeated"
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--hot", type=Path, default=Path("hot"), help="folder of the consume log (default: hot)"
    )
    parser.add_argument("--run", default=f"workload-{time.time_ns() // 10**9}", help="run name")
    parser.add_argument("--proc-no", type=int, help="number in the run (default: any)")
    parser.add_argument(
        "--ship-to",
        metavar="URL|FOLDER",
        help="ship the consume log to this collector, or into this lake, while it is written",
    )
    parser.add_argument(
        "--ship-token-file",
        type=Path,
        help="bearer token for the collector (default: what FAILBACK_TOKEN_FILE names)",
    )
    parser.add_argument(
        "--ship-linger-seconds",
        type=_positive,
        default=60.0,
        help="at the end, wait this long for a collector that is away",
    )
    parser.add_argument("--control", type=Path, help="Unix socket to answer on")
    parser.add_argument("--time-scale", type=_positive, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=_positive, help="end after this time")
    parser.add_argument(
        "--switch", action="append", default=[], metavar="NAME=VALUE", help="a client setting"
    )


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0: {text}")
    return value
