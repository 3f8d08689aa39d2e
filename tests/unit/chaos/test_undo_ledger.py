"""The ledger: on disk before the deed, readable after any crash, closed only by an observation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.chaos.faults.broker_faults import RELEASE
from failback.chaos.run_folder.undo_ledger import STOP_WORKLOAD, UndoLedger, read_ledger


def test_an_entry_is_open_until_it_was_seen_healed(tmp_path: Path) -> None:
    ledger = UndoLedger(tmp_path)
    first = ledger.add(RELEASE, {"pod": "a"}, "f1")
    second = ledger.add(RELEASE, {"pod": "b"}, "f2")
    assert [entry.id for entry in ledger.open_entries()] == [second, first]
    ledger.mark_undone(first)
    assert [entry.id for entry in ledger.open_entries()] == [second, first]
    ledger.mark_healed(first, {"accept_ns": 1})
    assert [entry.id for entry in ledger.open_entries()] == [second]


def test_another_process_reads_the_same(tmp_path: Path) -> None:
    ledger = UndoLedger(tmp_path)
    done = ledger.add(RELEASE, {"pod": "a"}, "f1")
    ledger.add(STOP_WORKLOAD, {"plan": "p"})
    ledger.mark_healed(done, {"seen": True})
    other = UndoLedger(tmp_path)
    assert [(entry.id, entry.call) for entry in other.open_entries()] == [("u0002", STOP_WORKLOAD)]
    assert other.open_entries(faults_only=True) == []
    assert other.add(RELEASE, {"pod": "c"}) == "u0003"


def test_repeating_a_heal_writes_nothing(tmp_path: Path) -> None:
    ledger = UndoLedger(tmp_path)
    name = ledger.add(RELEASE, {"pod": "a"})
    ledger.mark_healed(name, {})
    size = ledger.path.stat().st_size
    ledger.mark_healed(name, {"again": True})
    ledger.mark_undone(name)
    assert ledger.path.stat().st_size == size


@given(cut=st.integers(0, 1_000))
def test_a_ledger_cut_anywhere_keeps_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    ledger = UndoLedger(folder)
    for number in range(4):
        name = ledger.add(RELEASE, {"pod": f"pod-{number}"}, f"f{number}")
        if number % 2:
            ledger.mark_healed(name, {"seen": number})
    data = ledger.path.read_bytes()
    kept = data[: min(cut, len(data))]
    ledger.path.write_bytes(kept)
    whole = kept[: kept.rfind(b"\n") + 1]
    assert len(read_ledger(ledger.path)) == whole.count(b'"call"')
    again = UndoLedger(folder)
    again.add(RELEASE, {"pod": "later"})
    assert read_ledger(ledger.path)[-1].args == {"pod": "later"}
