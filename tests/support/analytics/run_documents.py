"""Puts the documents of a run beside its rows in a lake, as people do with a copying tool."""

from __future__ import annotations

from pathlib import Path

from failback.analytics.lake.layout import documented_zero, opened_day, put_guard
from failback.analytics.lake.store import LakeStore, open_store
from failback.analytics.run.folder_reading import read_run_folder
from failback.client.consumelog.upload.layout import OPENED, document_name, mark_name
from failback.client.consumelog.upload.run_days import opened_note


def put_documents(lake: LakeStore | Path, run: Path) -> None:
    """Copy ``run.json`` and ``closed.json`` of a run folder into the lake, and open the run."""
    store = lake if isinstance(lake, LakeStore) else open_store(lake)
    run_id = read_run_folder(run).run_id
    for name in ("run.json", "closed.json"):
        if (run / name).exists():
            store.write(document_name(run_id, name), (run / name).read_bytes())
    zero = documented_zero(store, run_id)
    if zero is not None and opened_day(store, run_id) is None:
        put_guard(store)
        store.write(mark_name(run_id, OPENED), opened_note(zero))
