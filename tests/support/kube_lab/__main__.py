"""``python -m tests.support.kube_lab``: keep a lab open and say how kubectl finds it.

Ctrl-C ends it. Needs what ``make setup-kube`` and ``tools/setup_kube.py`` install, and root for
the node that runs the pods.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from tests.support.kube_lab.control_plane import OwnControlPlane
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.kube_lab.shared import fresh_folder, place_file, unused, users_file


def serve(plane: OwnControlPlane, folder: Path | None) -> None:
    """Start everything and wait: until nobody uses ``folder``, or for ctrl-C."""
    node: NodeProcess | None = None
    try:
        plane.start()
        if os.geteuid() == 0:
            node = NodeProcess(plane)
            node.start()
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        if folder is None:
            signal.pause()
            return
        half = place_file(folder).with_suffix(".half")
        half.write_text(str(plane.folder))
        half.rename(place_file(folder))
        with users_file(folder).open("a") as users:
            while not unused(users):
                time.sleep(0.2)
            place_file(folder).unlink()
    finally:
        if node is not None:
            node.stop()
        plane.stop()


def stop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--while-used", type=Path, help="folder of the processes that share it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    folder = fresh_folder(options.while_used)
    with suppress(KeyboardInterrupt):
        serve(OwnControlPlane(folder), options.while_used)
    if options.while_used is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
