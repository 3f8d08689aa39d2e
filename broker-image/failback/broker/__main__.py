"""``failback broker -c broker.conf``: one broker, until SIGTERM.

Exit codes: 0 stopped in order (SIGTERM, SIGINT); 2 the configuration or a port is wrong; 253 a
slave without an id above 0, or a store that can't be opened, as 4.9.8 exits with -3; 74 the disk
failed while running.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from failback.broker.config.config import BrokerConfig
from failback.broker.config.config_checks import SlaveIdError
from failback.broker.native import kernels
from failback.broker.startup.controller import BrokerController
from failback.broker.store.log.unreadable import catch_bad_pages
from failback.client.program import CommandParser, begin_logging, keep_keys_from_core_files
from failback.client.remoting.addresses import addresses_of
from failback.common.text import where_and_why
from failback.protocol.errors import ConfigError, StoreError

logger = logging.getLogger("failback.broker")

EXIT_CONFIG: Final = 2
EXIT_DISK: Final = 74
EXIT_NOT_OPENED: Final = 253


def main(argv: Sequence[str] | None = None) -> int:
    """Run the broker; return the exit code."""
    arguments = parser().parse_args(argv)
    begin_logging(
        os.environ.get("FAILBACK_LOG_LEVEL", "INFO").upper(),
        "%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    catch_bad_pages()
    try:
        config = _configuration(arguments)
        if arguments.print_config:
            _print_config(config)
            return 0
        if arguments.config is None:
            _say_defaults(config)
        _allow_many_files()
        keep_keys_from_core_files(config.access_folder)
        keep_freed_memory()
        give_way_to_the_loop()
        return _run(config)
    except ConfigError as error:
        print(f"failback broker: {error}", file=sys.stderr)
        return EXIT_NOT_OPENED if isinstance(error, SlaveIdError) else EXIT_CONFIG


def parser() -> CommandParser:
    """Return what reads the command line."""
    made = CommandParser(
        "failback broker",
        "Run one RocketMQ broker until SIGTERM.",
        examples=(
            "failback broker -c broker.conf",
            "failback broker -c broker.conf -p      its settings, and those that it does not know",
        ),
    )
    made.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="Its settings: broker.conf, properties."
    )
    made.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDRESSES",
        help="Name servers, HOST:PORT;HOST:PORT (default: namesrvAddr of the file).",
    )
    made.add_argument(
        "--mounted",
        type=Path,
        metavar="FILE",
        help="Take changes of this file's failback* keys while the broker runs (ConfigMap).",
    )
    made.add_argument(
        "-p", "--print-config", action="store_true", help="Print all settings and exit."
    )
    return made


def _configuration(arguments: argparse.Namespace) -> BrokerConfig:
    if arguments.config is None:
        config = BrokerConfig.from_properties({}, environment=os.environ)
    else:
        config = BrokerConfig.load(arguments.config)
    config.mounted = arguments.mounted
    if arguments.namesrv:
        addresses_of("--namesrv", arguments.namesrv)
        config.apply({"namesrvAddr": arguments.namesrv})
    return config


def _say_defaults(config: BrokerConfig) -> None:
    """Without a file everything is a default: say where that puts the broker and its store."""
    port, root = config.listen_port, config.store_path_root_dir
    print(f"no -c FILE: a broker on port {port}, its store in {root}", file=sys.stderr)


def _print_config(config: BrokerConfig) -> None:
    for key, value in config.to_properties().items():
        print(f"{key}={value}")


def _allow_many_files() -> None:
    """Raise the limit of open files to what the system allows, as a JVM does at its start."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it; it stays as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def keep_freed_memory() -> None:
    """Let glibc keep up to 16 MiB of what is freed, instead of 256 KiB, for the next requests.

    It learns that from the largest block freed so far, of up to 32 MiB, unless the environment's
    MALLOC_ variables forbid it. Each batch of large messages is some blocks of half a MiB. Given
    back at once they cost a page fault for every 4 KiB, up to 2 us on a virtual machine. That is
    more than storing what is in them.
    """
    bytearray(8 << 20)


def give_way_to_the_loop() -> None:
    """Let a thread that writes a table hold the interpreter for 1 ms, instead of 5, while the loop
    waits for it: for so long no request is answered."""
    sys.setswitchinterval(0.001)


def _run(config: BrokerConfig) -> int:
    opened = False

    def note_ready() -> None:
        nonlocal opened
        opened = True

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, note_ready))
    except (StoreError, OSError) as error:
        problem = where_and_why(error) if isinstance(error, OSError) else str(error)
        print(f"failback broker: stopped: {problem}", file=sys.stderr)
        return EXIT_DISK if opened else EXIT_NOT_OPENED
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loops where it is installed: 1 to 2 µs a message, otherwise the same."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(config: BrokerConfig, note_ready: Callable[[], None]) -> None:
    shutdown = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown.set)
    controller = BrokerController(config)

    def ready() -> None:
        note_ready()
        name, address = controller.identity.broker_name, controller.identity.address
        line = f"The broker[{name}, {address}] boot success. serializeType=JSON"
        servers = ";".join(config.name_servers)
        print(f"{line} and name server is {servers}" if servers else line, flush=True)
        if kernels is None:
            logger.info("hot paths run in Python: there are no compiled kernels here")

    await controller.run(shutdown, ready)
    logger.info("broker %s stopped", controller.identity.address)


if __name__ == "__main__":
    sys.exit(main())
