"""``python -m tests.support.kube_lab.node``: one node, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path

from tests.support.kube_lab.node.runner import Node


async def run(options: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    node = Node(options.name, options.kubeconfig, options.pki, options.folder, options.root)
    await node.run(stopping)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    for name in ("kubeconfig", "pki", "folder", "root"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
