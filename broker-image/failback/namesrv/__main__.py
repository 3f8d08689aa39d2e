"""``failback namesrv -c namesrv.conf``: run one name server until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from failback.client.program import CommandParser, begin_logging, keep_keys_from_core_files
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.server import NameServer
from failback.protocol.errors import ConfigError

READY_LINE: Final = "The Name Server boot success. serializeType=JSON"
USER_ERROR: Final = 2


def main(argv: Sequence[str]) -> int:
    """Run; return 0 after an orderly stop, 2 when the configuration is wrong."""
    options = parser().parse_args(argv)
    begin_logging(lines="%(asctime)s %(levelname)s %(name)s - %(message)s")
    try:
        config = NamesrvConfig.from_file(options.config) if options.config else NamesrvConfig({})
        if options.print_config:
            print(config.to_text(), end="")
            return 0
        keep_keys_from_core_files(config.access_folder)
        asyncio.run(_serve(config))
    except ConfigError as error:
        print(f"failback namesrv: {error}", file=sys.stderr)
        return USER_ERROR
    return 0


def parser() -> CommandParser:
    """Return what reads the command line."""
    made = CommandParser(
        "failback namesrv",
        "Run one RocketMQ name server until SIGTERM.",
        examples=("failback namesrv", "failback namesrv -c namesrv.conf"),
    )
    made.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="Its settings: namesrv.conf, properties (default: port 9876, all defaults).",
    )
    made.add_argument(
        "-p", "--print-config", action="store_true", help="Print all settings and exit."
    )
    return made


async def _serve(config: NamesrvConfig) -> None:
    shutdown = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown.set)
    await NameServer(config).run(shutdown, lambda: print(READY_LINE, flush=True))
    logging.getLogger(__name__).info("stopped")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
