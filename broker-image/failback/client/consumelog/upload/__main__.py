"""The command line of the shipper: ``python -m failback.client.consumelog.ship``."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from failback.client.consumelog.upload.collector_client import TOKEN_VARIABLE, CollectorClient
from failback.client.consumelog.upload.ship import Shipper
from failback.client.consumelog.upload.upload import UploadShipper
from failback.protocol.errors import ConfigError


def main(argv: Sequence[str] | None = None) -> int:
    """Ship until SIGTERM or SIGINT, then what is left.

    Returns 0 when every finished file was shipped, 1 when one had to stay or was refused, 2 for bad
    arguments.
    """
    options = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    try:
        if "://" in options.to:
            return _upload(options)
        return _seal(options)
    except ConfigError as error:
        print(f"ship: {error}", file=sys.stderr)
        return 2


def _seal(options: argparse.Namespace) -> int:
    shipper = Shipper(options.hot, Path(options.to))
    if options.once:
        return 1 if shipper.seal_all().bad else 0
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m failback.client.consumelog.ship",
        description="Ships finished consume logs into a lake on this host, or to a collector.",
    )
    parser.add_argument("--hot", type=Path, required=True, help="folder of *.fblog files")
    parser.add_argument(
        "--to", "--lake", required=True, help="root of a Parquet lake, or http(s)://COLLECTOR"
    )
    parser.add_argument(
        "--token-file", type=Path, help=f"bearer token (default: what {TOKEN_VARIABLE} names)"
    )
    parser.add_argument("--ca-file", type=Path, help="certificates to trust, for https")
    parser.add_argument("--period-seconds", type=float, default=1.0)
    parser.add_argument("--once", action="store_true", help="one pass, then leave")
    parser.add_argument(
        "--until-eof", action="store_true", help="stop when standard input ends as well"
    )
    parser.add_argument(
        "--linger-seconds",
        type=float,
        default=30.0,
        help="after the stop, wait this long for a collector that is away",
    )
    parser.add_argument("--textfile", type=Path, help="keep the backlog here, for Prometheus")
    return parser


if __name__ == "__main__":
    sys.exit(main())
