"""The lake of an observed run, made from its looks and from what was read of a trace.

All its rows follow from those. So it is written again when they have grown: by the observer at its
end, and by each reader of the run before that.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.lineage import BROKER, Lineage
from failback.analytics.errors import ReportInputError
from failback.analytics.live.known import YOUNG_SECONDS, Bound
from failback.analytics.observe.canary.ledger import Ledger, with_canary
from failback.analytics.observe.folder import LOOKS, looks_in, settings_of
from failback.analytics.observe.following import ahead_ms
from failback.analytics.observe.observation import Observation
from failback.analytics.observe.sampled import Sampler, fault_table, looks_for_rows
from failback.analytics.run.documents import OBSERVED, Run, read_run
from failback.analytics.run.history import History
from failback.analytics.run.run_source import RunSource, source_at
from failback.analytics.trace.deliveries import MS_NS
from failback.analytics.trace.pages import Pages
from failback.analytics.trace.run import Wanted, rows_of, write_tables
from failback.client.admin.queue_offsets import MASTER_TABLE
from failback.client.consumelog.upload.lake_files import lake_rows, write_parquet
from failback.client.consumelog.upload.layout import day_of, lake_path
from failback.common.files import place_in, read_json
from failback.common.replacing import replace_file

_MADE_OF: Final = "lake.json"
_NS: Final = 1_000_000_000
_TIMES: Final = ("mono_ns", "bt", "et", "due", "t0", "t1")


def run_at(run_dir: Path | str) -> RunSource:
    """Return the run of a run folder. The lake of an observed one is brought up to date first.

    Raises:
        ReportInputError: As ``source_at`` does, and where looks cannot be read.
    """
    bring_up(Path(run_dir))
    return source_at(run_dir)


def bring_up(folder: Path) -> None:
    """Write the lake of an observed run if looks or traces have grown. Other runs are left.

    A folder that cannot be written to stays as it is.

    Raises:
        ReportInputError: Looks or pages of the trace cannot be read.
    """
    try:
        run = read_run(folder / "run.json")
    except ReportInputError:
        return  # the reader of the run reports the problem
    if run.source != OBSERVED:
        return
    made_of = _made_of(folder)
    stamp = folder / _MADE_OF
    with contextlib.suppress(OSError, ValueError):
        if read_json(stamp) == made_of:
            return
    with contextlib.suppress(OSError):
        _write(folder, run)
        replace_file(stamp, json.dumps(made_of).encode() + b"\n")


def _made_of(folder: Path) -> dict[str, int]:
    looks = folder / LOOKS
    pages = list((folder / "trace").rglob("*.parquet"))
    return {"looks_bytes": looks.stat().st_size if looks.exists() else 0, "pages": len(pages)}


def _write(folder: Path, run: Run) -> None:
    name, zero = run.run, run.zero.wall_ns
    observation = Observation(*with_canary(settings_of(run.written), Ledger.read(folder)))
    addresses: dict[str, str] = {}
    for look in looks_in(folder):
        observation.look(look)
        addresses.update({at: place.broker for place, at in look.listed().items()})
    sampler = Sampler(name, zero, observation.is_wanted)
    day = day_of(zero) or day_of(0)
    for table, number, rows in sampler.tables(
        looks_for_rows(looks_in(folder), observation.finder.events)
    ):
        path = place_in(folder, folder / "lake" / lake_path(table, name, 0, number, day))
        write_parquet(lake_rows(rows, table), path)
    tables = {}
    if observation.outages:
        tables["fault"] = fault_table(name, observation.outages, sampler.lives, zero)
    if (folder / "trace").is_dir():
        tables |= _traced(folder, run, addresses)
    write_tables(folder, name, tables, zero)


def _traced(folder: Path, run: Run, addresses: dict[str, str]) -> dict[str, pa.Table]:
    """Return rows of the trace, in ns after run zero, on the observer's clock."""
    groups, _ = settings_of(run.written)
    wanted = Wanted(run.run, tuple(sorted(groups)))
    zero = run.zero.wall_ns
    ahead = (ahead_ms(folder) or 0) * MS_NS
    tables = rows_of(Pages(folder), wanted, addresses).by_table
    found = {}
    for name, table in tables.items():
        by = ahead if name == "clock" else -zero
        columns = ("offset_ns",) if name == "clock" else _TIMES if name != "scan" else ()
        found[name] = _moved(table, columns, by)
    return found


def _moved(table: pa.Table, columns: tuple[str, ...], by: int) -> pa.Table:
    for column in columns:
        at = table.schema.get_field_index(column)
        if at >= 0:
            field = table.schema.field(at)
            table = table.set_column(at, field, pc.add(table.column(at), by))
    return table


def recorded_bound(history: History, found: Lineage) -> Bound:
    """Return what the highest offset of a recorded run says of what a group had handled.

    :func:`failback.analytics.live.known.bound` is the same rule of now. A run whose clients log
    their own commits knows all of them.
    """
    run, last = history.folder.run, min(found.t, history.last_ns)
    if run.source != OBSERVED or found.safe_offset == history.end_of(found.queue.queue, last):
        return Bound.EXACT
    lives = [step for step in found.steps if step.place == BROKER and step.broker_id == 0]
    if not lives:
        has_master = any(step.place == MASTER_TABLE for step in found.steps)
        return Bound.EXACT if has_master else Bound.AT_LEAST
    is_down = not lives[-1].row.endswith("ACCEPT")
    is_young = last - lives[-1].t < YOUNG_SECONDS * (run.time_scale or 1.0) * _NS
    return Bound.AT_LEAST if is_down or is_young else Bound.EXACT
