"""``python -m failback.chaos``: the process of one repetition.

python -m failback.chaos run-arm FILE --arm A --repetition N --run-dir DIR --location JSON ...
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m failback.chaos", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run-arm", help="run one repetition in this process")
    run.add_argument("file", type=Path)
    run.add_argument("--arm", required=True)
    run.add_argument("--repetition", type=int, default=0)
    run.add_argument("--seed", type=int, required=True)
    run.add_argument("--time-scale", type=float, default=1.0)
    run.add_argument("--run-dir", type=Path, required=True)
    run.add_argument("--location", required=True, help="where the cluster is, as JSON")
    run.add_argument("--progress-address", default="", help="answer GET /run at host:port")
    options = parser.parse_args(argv)
    from failback.chaos.run.repetition import child_main
    from failback.chaos.targets.location import Location
    from failback.client.program import begin_logging

    begin_logging(lines="%(asctime)s %(levelname)s %(threadName)s %(name)s %(message)s")
    return child_main(
        options.file,
        options.arm,
        options.repetition,
        seed=options.seed,
        time_scale=options.time_scale,
        run_dir=options.run_dir,
        location=Location.from_json(options.location),
        progress_address=options.progress_address,
        emit=_emit,
    )


def _emit(document: Mapping[str, Any]) -> None:
    try:
        print(json.dumps(document), flush=True)
    except BrokenPipeError:
        # The reader is gone; the run goes on and its folder says everything.
        sys.stdout = open("/dev/null", "w", encoding="ascii")  # noqa: SIM115 - kept to the end


if __name__ == "__main__":
    sys.exit(main())
