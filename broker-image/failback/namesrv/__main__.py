"""``failback namesrv -c namesrv.conf``: run one name server until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from failback.namesrv.config import NamesrvConfig
from failback.namesrv.server import NameServer
from failback.protocol.errors import ConfigError

READY_LINE: Final = "The Name Server boot success. serializeType=JSON"
USER_ERROR: Final = 2


def main(argv: Sequence[str]) -> int:
    """Run; return 0 after an orderly stop, 2 when the configuration is wrong."""
    options = _parse(argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s - %(message)s"
    )
    try:
        config = NamesrvConfig.from_file(options.config) if options.config else NamesrvConfig({})
        if options.print_config:
            print(config.to_text(), end="")
            return 0
        asyncio.run(_serve(config))
    except ConfigError as error:
        print(f"failback namesrv: {error}", file=sys.stderr)
        return USER_ERROR
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="failback namesrv", description="Run a RocketMQ 4.9 name server."
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="Java properties file (namesrv.conf)"
    )
    parser.add_argument(
        "-p", "--print-config", action="store_true", help="print all settings and exit"
    )
    return parser.parse_args(argv)


async def _serve(config: NamesrvConfig) -> None:
    shutdown = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown.set)
    await NameServer(config).run(shutdown, lambda: print(READY_LINE, flush=True))
    logging.getLogger(__name__).info("stopped")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
