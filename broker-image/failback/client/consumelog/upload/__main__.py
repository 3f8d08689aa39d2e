"""The command line of the shipper: ``python -m failback.client.consumelog.upload``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from failback.client.consumelog.upload.collector_client import TOKEN_VARIABLE, CollectorClient
from failback.client.consumelog.upload.run_days import settle
from failback.client.consumelog.upload.sealing import Shipper
from failback.client.consumelog.upload.upload import UploadShipper
from failback.client.program import CommandParser, begin_logging, positive
from failback.protocol.errors import ConfigError


def main(argv: Sequence[str] | None = None) -> int:
    """Ship until SIGTERM or SIGINT, then what is left.

    Returns 0 when every finished file was shipped, 1 when one had to stay or was refused, 2 for bad
    arguments.
    """
    options = parser().parse_args(argv)
    begin_logging()
    try:
        if "://" in options.to:
            return _upload(options)
        return _seal(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _seal(options: argparse.Namespace) -> int:
    shipper = Shipper(options.hot, Path(options.to))
    if options.once:
        report = shipper.seal_all()
        settle(Path(options.to), opening=not report.held)
        return 1 if report.bad else 0
    sealed = shipper.run(_stop_event(options), period_seconds=options.period_seconds)
    return 0 if sealed else 1


def _upload(options: argparse.Namespace) -> int:
    client = CollectorClient(options.to, token_file=options.token_file, ca_file=options.ca_file)
    shipper = UploadShipper(options.hot, client, textfile=options.textfile)
    try:
        if options.once:
            client.check_token()
            return 0 if shipper.ship_all().complete else 1
        emptied = shipper.run(
            _stop_event(options),
            period_seconds=options.period_seconds,
            linger_seconds=options.linger_seconds,
            now=time.monotonic,
        )
        return 0 if emptied else 1
    finally:
        client.close()


def _stop_event(options: argparse.Namespace) -> threading.Event:
    """Set by SIGTERM, SIGINT, or the end of standard input where that was asked for."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if options.until_eof:
        threading.Thread(target=_await_eof, args=(stop,), name="until-eof", daemon=True).start()
    return stop


def _await_eof(stop: threading.Event) -> None:
    # Not sys.stdin: its lock would be held by this thread while the interpreter ends.
    while os.read(0, 4096):
        pass
    stop.set()


def parser() -> CommandParser:
    """Return what reads the command line."""
    made = CommandParser(
        "failback ship",
        "Put finished consume logs into a lake on this host, or send them to a collector.",
        examples=(
            "failback ship --hot hot --to lake --once",
            "failback ship --hot hot --to https://collector:8095 --token-file agents.token",
        ),
    )
    made.add_argument(
        "--hot", type=Path, required=True, metavar="FOLDER", help="Folder of *.fblog files."
    )
    made.add_argument(
        "--to",
        "--lake",
        required=True,
        metavar="LAKE|URL",
        help="Folder of a lake, or http(s)://COLLECTOR.",
    )
    made.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"Token for the collector (default: the file that ${TOKEN_VARIABLE} names).",
    )
    made.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="Certificates to trust, for https (default: the system's).",
    )
    made.add_argument(
        "--period-seconds",
        type=positive,
        default=1.0,
        metavar="SECONDS",
        help="Time between two samples of the folder.",
    )
    made.add_argument("--once", action="store_true", help="One pass, then end.")
    made.add_argument(
        "--until-eof", action="store_true", help="Stop when standard input ends, too."
    )
    made.add_argument(
        "--linger-seconds",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="After the stop, wait this long for a collector that is down.",
    )
    made.add_argument(
        "--textfile",
        type=Path,
        metavar="FILE",
        help="Keep the backlog here, for Prometheus' textfile collector.",
    )
    return made


if __name__ == "__main__":
    sys.exit(main())
