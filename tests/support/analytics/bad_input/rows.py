"""Rows that say what cannot be, or what this version does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.support.analytics.bad_input.outcome import (
    Case,
    Document,
    Told,
    clean,
    codes,
    inconclusive,
)
from tests.support.analytics.run_builder import RunBuilder


def unknown_status(folder: Path) -> Told:
    b = clean()
    b.deliver(3, 20, 21, status="SURPRISE")
    late = b.deliver(4, 22, status="ABANDONED")
    b.add("deliver_end", did=late, et=30, status="SURPRISE")
    b.write(folder)

    def told(document: Document) -> None:
        assert document["quality"]["unknown_values"] == 2
        assert document["quality"]["unknown_names"] == {"deliver.status": 2}
        assert document["totals"]["delivered"] == 5
        inconclusive("BAD_ROWS")(document)

    return told


def unknown_end_reason(folder: Path) -> Told:
    """What ended a holding is unknown, so what was repeated after it has no cause."""
    b = RunBuilder("ends")
    b.assign(0, 0, end=(50, "TELEPORTED"))
    b.run_of(range(3), 10)
    b.assign(100, 1, proc=2)
    b.add("assign_end", proc=2, inc=2, pqe=1, broker="broker-a", ptopic="T", qid=0, end_t=200,
          end_reason="BEAMED")  # fmt: skip
    b.run_of(range(1, 3), 110, proc=2)
    b.assign(300, 2, proc=3)
    b.run_of(range(2, 3), 310, proc=3)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["quality"]["unknown_names"] == {"assign.end_reason": 2}
        assert document["groups"][0]["causes"] == {}
        assert document["groups"][0]["unattributed"] == document["totals"]["dup"] == 3
        assert "BAD_ROWS" in codes(document)

    return told


def unknown_source(folder: Path) -> Told:
    b = clean()
    b.assign(50, 3, proc=2, pqe=9, src="ORACLE")
    b.write(folder)

    def told(document: Document) -> None:
        assert document["quality"]["unknown_names"] == {"assign.src": 1}
        assert document["totals"]["delivered"] == 3
        inconclusive("BAD_ROWS")(document)

    return told


def unknown_send_result(folder: Path) -> Told:
    """Neither good nor bad: as doubtful as no answer, though it looks like an OK."""
    b = clean()
    b.produce(3, 12, 13, "OK_PERHAPS")
    b.produce(3, 14, 15, att=2)
    b.deliver(3, 20, 21)
    b.deliver(4, 22, 23, lid=3)
    b.scan(3)
    b.scan(4, lid=3)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["quality"]["unknown_names"] == {"produce.res": 1}
        assert document["groups"][0]["causes"] == {"SEND_TIMEOUT_DUP": 1}
        assert document["totals"]["acknowledged"] == 4
        assert document["producer"]["resends"] == 1
        inconclusive("BAD_ROWS")(document)

    return told


def impossible_rows(folder: Path) -> Told:
    b = clean()
    b.deliver(3, 20, 19)
    b.deliver(-1, 20, 21, lid=9)
    b.add("deliver_end", did=12345, et=30, status="SUCCESS")
    b.write(folder)

    def told(document: Document) -> None:
        assert document["quality"]["dropped_rows"] == {
            "et_before_bt": 1,
            "negative_offset": 1,
            "end_without_begin": 1,
        }
        assert document["totals"]["delivered"] == 3
        assert "BAD_ROWS" in codes(document)

    return told


def outside_any_assignment(folder: Path) -> Told:
    b = clean()
    b.deliver(0, 30, 31, proc=2, pqe=7)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["groups"][0]["unattributed"] == document["totals"]["dup"] == 1
        assert document["quality"]["outside_assignment"] == 1

    return told


def foreign_rows_without_any_key(folder: Path) -> Told:
    """They can only repeat as copies."""
    b = RunBuilder("foreign")
    b.assign(0, 0)
    bare: dict[str, Any] = {"lane": None, "lseq": None, "ukey": None, "keys": None}
    for at, qoff in enumerate((0, 1, 0)):
        b.deliver(qoff, 10 + at, 11 + at, **bare)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["quality"]["foreign_rows"] == 3
        assert document["groups"][0]["causes"] == {"CLIENT_BUG": 1}

    return told


def one_offset_with_two_ids(folder: Path) -> Told:
    """A log that was cut names two messages by one offset: a conflict, and no duplicate."""
    b = RunBuilder("split")
    b.assign(0, 0, end=(40, "SHUTDOWN"))
    b.run_of(range(3), 10)
    b.assign(50, 2, proc=2)
    b.deliver(2, 60, 61, proc=2, lid=9, omid=9)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["divergence"]["conflicts"] == 1
        assert document["divergence"]["truncation_artefacts"] == 1
        assert document["totals"]["dup"] == 0

    return told


def one_id_at_two_offsets(folder: Path) -> Told:
    b = clean()
    b.deliver(7, 30, 31, lid=1, omid=1)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["divergence"]["conflicts"] == 1

    return told


def nearly_everything_repeated(folder: Path) -> Told:
    b = RunBuilder("again")
    b.assign(0, 0, end=(400, "SHUTDOWN"))
    b.run_of(range(20), 10)
    b.assign(500, 0, proc=2)
    b.run_of(range(20), 510, proc=2)
    b.write(folder)

    def told(document: Document) -> None:
        totals = document["totals"]
        assert (totals["dup"], totals["dup_after_success"], totals["distinct"]) == (20, 20, 20)

    return told


def hostile_names(folder: Path) -> Told:
    b = clean()
    name = "<script>x</script>\n| # ../" + "y" * 10_000
    b.run["groups"][0]["name"] = name
    for table in ("deliver", "assign"):
        for row in b.rows[table]:
            row["grp"] = name
    b.deliver(0, 30, 31, proc=2, pqe=7, grp=name)
    b.write(folder)

    def told(document: Document) -> None:
        assert [group["group"] for group in document["groups"]] == [name]
        text = (folder / "report" / "summary.md").read_text()
        assert "<script>" not in text
        assert text.count("\n") < 80
        assert max(map(len, text.splitlines())) < 11_000

    return told


CASES: Final[tuple[Case, ...]] = (
    unknown_status,
    unknown_end_reason,
    unknown_source,
    unknown_send_result,
    impossible_rows,
    outside_any_assignment,
    foreign_rows_without_any_key,
    one_offset_with_two_ids,
    one_id_at_two_offsets,
    nearly_everything_repeated,
    hostile_names,
)
