"""Files that are missing, damaged, changed, or of another version or run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.lake.catalogue import CHANGED
from failback.client.consumelog.upload.layout import mark_name
from tests.support.analytics.bad_input.outcome import (
    Case,
    Document,
    Refused,
    Told,
    clean,
    codes,
    inconclusive,
)
from tests.support.analytics.run_builder import RunBuilder, write_manifest


def _files(folder: Path, table: str = "deliver") -> list[Path]:
    return sorted((folder / "lake" / f"table={table}").rglob("*.parquet"))


def _rewrite(folder: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    for path in _files(folder, table):
        found = pq.read_table(path, partitioning=None)
        pq.write_table(change(found).replace_schema_metadata(found.schema.metadata), path)
    write_manifest(folder)


def missing_segment(folder: Path) -> Told:
    lost = _files(clean().write(folder, parts=3))[1]
    lost.unlink()

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Inconclusive"
        assert "RECORDER_GAP" in codes(document)
        assert document["evidence"]["gaps"]
        assert document["evidence"]["absent"] == [lost.relative_to(folder).as_posix()]
        assert document["totals"]["delivered"] == 2

    return told


def lost_tail(folder: Path) -> Told:
    """Every file is there; the process wrote more."""
    b = clean()
    assert b.closed is not None
    b.closed["procs"] = {"1": 99}
    b.write(folder)

    def told(document: Document) -> None:
        assert document["evidence"]["gaps"][0]["to_seq"] == 99
        assert codes(document) == ["RECORDER_GAP"]

    return told


def missing_table(folder: Path) -> Told:
    """Without send attempts nobody knows why a message was stored twice."""
    b = clean()
    b.deliver(7, 30, 31, lid=1)
    b.rows["produce"].clear()
    assert b.closed is not None
    b.write(folder)

    def told(document: Document) -> None:
        assert document["totals"]["dup"] == document["groups"][0]["unattributed"] == 1
        assert document["groups"][0]["causes"] == {}
        assert "RECORDER_GAP" in codes(document)

    return told


def segment_sent_again_with_other_content(folder: Path) -> Told:
    clean().write(folder)
    mark = folder / "lake" / mark_name("clean", CHANGED)
    mark.parent.mkdir()
    mark.write_text('{"id": "clean/01/00000000/deliver"}\n')

    def told(document: Document) -> None:
        assert codes(document) == ["EVIDENCE_CHANGED"]
        assert document["evidence"]["changed"] == ["segment clean/01/00000000/deliver"]
        assert document["totals"]["delivered"] == 3

    return told


def changed_file(folder: Path) -> Told:
    closed = clean().write(folder) / "closed.json"
    closed.write_text(closed.read_text() + " ")

    def told(document: Document) -> None:
        inconclusive("EVIDENCE_CHANGED")(document)
        assert document["evidence"]["changed"] == ["closed.json"]

    return told


def truncated_file(folder: Path) -> Told:
    bad = _files(clean().write(folder, parts=2))[0]
    bad.write_bytes(bad.read_bytes()[:100])
    write_manifest(folder)

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Inconclusive"
        assert bad.name in document["evidence"]["unreadable"][0]
        assert document["totals"]["delivered"] == 1

    return told


def corrupt_pages(folder: Path) -> Told:
    """The footer is whole, the rows are not: found only when they are read."""
    bad = _files(clean().write(folder, parts=2))[0]
    content = bytearray(bad.read_bytes())
    content[4:-2000] = b"\xff" * len(content[4:-2000])
    bad.write_bytes(content)
    write_manifest(folder)

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Inconclusive"
        assert "RECORDER_GAP" in codes(document)
        assert [text.split(": ")[0] for text in document["evidence"]["unreadable"]] == [
            bad.relative_to(folder / "lake").as_posix()
        ]
        assert document["totals"]["delivered"] == 1

    return told


def nullable_column_missing(folder: Path) -> Told:
    _rewrite(clean().write(folder), "deliver", lambda table: table.drop_columns(["okey"]))

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Pass"
        assert document["evidence"]["filled_columns"] == {"deliver": ["okey"]}

    return told


def required_column_missing(folder: Path) -> Refused:
    _rewrite(clean().write(folder), "deliver", lambda table: table.drop_columns(["qoff"]))
    return Refused("column qoff of deliver is missing")


def column_of_another_type(folder: Path) -> Refused:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("qoff")
        return table.set_column(at, "qoff", table.column(at).cast(pa.utf8()))

    _rewrite(clean().write(folder), "deliver", change)
    return Refused("qoff of deliver is string, not int64")


def _of_version(folder: Path, version: str) -> None:
    clean().write(folder)
    for path in (folder / "lake").rglob("*.parquet"):
        found = pq.read_table(path, partitioning=None)
        meta = {**found.schema.metadata, b"failback.schema": version.encode()}
        more = found.append_column("news", pa.array(["x"] * found.num_rows))
        pq.write_table(more.replace_schema_metadata(meta), path)
    write_manifest(folder)


def newer_minor_version(folder: Path) -> Told:
    _of_version(folder, "failback.log/1.7")

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Pass"
        assert document["totals"]["delivered"] == 3

    return told


def newer_major_version(folder: Path) -> Refused:
    _of_version(folder, "failback.log/2")
    return Refused(r"failback\.log/2 is newer")


def two_runs_in_one_folder(folder: Path) -> Refused:
    clean().write(folder)
    other = RunBuilder("other")
    other.assign(0, 0)
    other.write(folder)
    (folder / "run.json").write_text(json.dumps(clean().run))
    return Refused("clean, other")


def no_run_json(folder: Path) -> Refused:
    (clean().write(folder) / "run.json").unlink()
    return Refused(r"run\.json: is missing")


def run_json_of_another_schema(folder: Path) -> Refused:
    clean().write(folder)
    (folder / "run.json").write_text(json.dumps({"schema": "failback.run/2", "run": "x"}))
    return Refused(r"failback\.run/2")


def no_folder(folder: Path) -> Refused:
    return Refused("no such run folder")


CASES: Final[tuple[Case, ...]] = (
    missing_segment,
    lost_tail,
    missing_table,
    segment_sent_again_with_other_content,
    changed_file,
    truncated_file,
    corrupt_pages,
    nullable_column_missing,
    required_column_missing,
    column_of_another_type,
    newer_minor_version,
    newer_major_version,
    two_runs_in_one_folder,
    no_run_json,
    run_json_of_another_schema,
    no_folder,
)
