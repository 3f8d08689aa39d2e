"""Our broker beside Apache RocketMQ 4.9 under the very same load, in alternating windows.

    make bench-broker                                     everything, under an hour
    make bench-broker ARGS="--scale small"                everything once, in minutes
    make bench-broker ARGS="--cells a,b --sizes 1024"     a part
    make bench-broker ARGS="--markdown docs/design/performance.md --readme README.md \\
        --readme docs/explanation/performance.md"

The load is the unmodified Java client 4.9.8 in one warm JVM (``lean`` uses a producer of our own).
Brokers of both engines are up at the same time, the load goes from one to the other and back,
because a machine's mood changes within minutes; what is printed are medians, ratios ours/Apache,
and whether each target is met. Nothing is asserted: figures are to be read. Cells:

    a, b, c       sends: async; synchronous slave; synchronous slave and flush
    consumption   a push consumer on a backlog          catch-up   a fresh slave, four pairings
    restart       kill -9, large store                  queues     1,000 topics x 8 queues
    growth        a small and a large store of ours     footing    boot and memory at rest
    lean          a producer that costs little itself
    names         new topics and groups on a broker that has many
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.benchmarks.broker import catch_up, consumption, footing, growth, lean, restart, sends
from tests.benchmarks.broker.generator import LoadGenerator
from tests.benchmarks.broker.proc import machine
from tests.benchmarks.broker.scale import GIB, SCALES, Scale
from tests.benchmarks.broker.table import in_short
from tests.benchmarks.documents import Table, with_figures
from tests.support.java.apache import server_home

COMMAND: Final = "make bench-broker"
CELLS: Final = (
    "a",
    "b",
    "c",
    "consumption",
    "catch-up",
    "restart",
    "queues",
    "growth",
    "footing",
    "lean",
    "names",
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=_names, default=CELLS, help="default: all")
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--sizes", type=_numbers, help="of bodies, bytes: 128,1024,16384")
    parser.add_argument("--threads", type=_numbers, help="1,16,64")
    parser.add_argument("--batches", type=_numbers, help="1,32")
    parser.add_argument("--seconds", type=float, help="length of one window")
    parser.add_argument("--rounds", type=int, help="windows per engine and cell")
    parser.add_argument("--folder", type=Path, help="where the stores are put; default: temporary")
    parser.add_argument("--markdown", type=Path, help="document whose figures are replaced")
    parser.add_argument(
        "--readme",
        type=Path,
        action="append",
        default=[],
        help="as --markdown, with six ratios only; repeatable",
    )
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in CELLS:
            raise argparse.ArgumentTypeError(f"no cell {name}; there are {', '.join(CELLS)}")
    return names


def chosen_scale(options: argparse.Namespace) -> Scale:
    """Return the scale with what the command line changes of it."""
    names = ("sizes", "threads", "batches", "seconds", "rounds")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return replace(SCALES[options.scale], **given)


def runners(
    scale: Scale, folder: Path, load: LoadGenerator
) -> dict[str, Callable[[], list[Table]]]:
    """Return what measures each cell; each works in a folder of its own."""
    return {
        **{cell: partial(sends.measure, cell, scale, folder / cell, load) for cell in "abc"},
        "consumption": partial(consumption.measure, scale, folder / "consumption", load),
        "catch-up": partial(catch_up.measure, scale, folder / "catch-up"),
        "restart": partial(restart.measure, scale, folder / "restart", load),
        "queues": partial(growth.measure_queues, scale, folder / "queues", load),
        "growth": partial(growth.measure_store, scale, folder / "growth", load),
        "footing": partial(footing.measure, scale, folder / "footing"),
        "lean": partial(lean.measure, scale, folder / "lean"),
        "names": partial(growth.measure_names, scale, folder / "names", load),
    }


def main() -> int:
    options = parse()
    scale = chosen_scale(options)
    try:
        server_home()
    except pytest.skip.Exception as reason:
        print(f"bench: {reason}", file=sys.stderr)
        return 2
    for path in filter(None, (options.markdown, *options.readme)):
        with_figures(path.read_text(), COMMAND, "")  # not after an hour: it has a place for them
    began = time.monotonic()
    tables, failed = measure(options, scale)
    minutes = (time.monotonic() - began) / 60
    print(json.dumps({"machine": machine(), "tables": [asdict(table) for table in tables]}))
    if not failed:
        head = f"{machine()}. Measured {time.strftime('%Y-%m-%d')} in {minutes:.0f} minutes, "
        head += f"{scale.rounds} rounds of {scale.seconds:g} s per cell, medians."
        text = "\n".join([head, "", *(table.markdown() for table in tables)])
        for path, figures in (
            (options.markdown, text),
            *((path, in_short(tables)) for path in options.readme),
        ):
            if path is not None:
                path.write_text(with_figures(path.read_text(), COMMAND, figures))
    for name in failed:
        print(f"did not finish: {name}", file=sys.stderr)
    return 1 if failed else 0


def measure(options: argparse.Namespace, scale: Scale) -> tuple[list[Table], list[str]]:
    """Measure cell by cell; one that fails is told and takes no other one with it."""
    tables: list[Table] = []
    failed: list[str] = []
    print(f"{machine()}\n", flush=True)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-broker-") as name:
        folder = Path(name)
        _warn_of_space(folder)
        with LoadGenerator(folder / "generator") as load:
            measures = runners(scale, folder, load)
            for cell in options.cells:
                try:
                    found = measures[cell]()
                except Exception:  # whatever one cell runs into is not the others' business
                    traceback.print_exc()
                    failed.append(cell)
                    found = []
                load.close_producers()
                shutil.rmtree(folder / cell, ignore_errors=True)
                for table in found:
                    print(table.markdown(), flush=True)
                tables += found
    return tables, failed


def _warn_of_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < 40 * GIB:
        print(f"only {free // GIB} GiB are free; a full run wants 40", file=sys.stderr)


if __name__ == "__main__":
    assert platform.system() == "Linux", "the figures come from /proc"
    sys.exit(main())
