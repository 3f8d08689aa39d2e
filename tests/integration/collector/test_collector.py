"""A real collector over HTTP: what it stores, what it refuses, and who may ask."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from failback.client.consumelog.schema import SCHEMA_ID
from failback.client.consumelog.upload.lake_files import ARROW_STREAM
from tests.support.analytics.collector_lab import (
    RUN,
    CollectorLab,
    Upload,
    check_lake,
    files_of,
    running_collector,
    uploads_of,
    write_log,
)
from tests.support.common.polling import SCALE, wait_until
from tests.support.processes.child_process import failback_environment


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorLab]:
    with running_collector(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


def uploads(folder: Path, run: str, *, deliveries: int = 30, proc_no: int = 1) -> list[Upload]:
    write_log(folder / run, run=run, deliveries=deliveries, proc_no=proc_no)
    return uploads_of(folder / run)


def slug(document: dict[str, object]) -> str:
    return str(document.get("type", "")).rpartition(":")[2]


def test_segments_in_any_order_are_stored_once(lab: CollectorLab, tmp_path: Path) -> None:
    sent = uploads(tmp_path, "order", deliveries=60)
    assert {each.id.rpartition("/")[2] for each in sent} == {"deliver", "life"}
    for upload in reversed(sent):
        status, document = lab.send(upload)
        assert (status, document) == (201, {"id": upload.id, "result": "stored"})
    before = {path: path.stat().st_mtime_ns for path in lab.lake.rglob("run=order/*")}
    for upload in sent:
        assert lab.send(upload) == (200, {"id": upload.id, "result": "known"})
    assert {path: path.stat().st_mtime_ns for path in before} == before
    check_lake(lab.lake, sent, "order")


def test_other_content_under_a_known_name_is_kept_aside_and_marks_the_run(
    lab: CollectorLab, tmp_path: Path
) -> None:
    (first, *_) = uploads(tmp_path / "a", "conflict")
    (other, *_) = uploads(tmp_path / "b", "conflict", deliveries=29)
    assert (first.id, first.body == other.body) == (other.id, False)
    assert lab.send(first)[0] == 201
    for _ in range(2):
        status, document = lab.send(other)
        assert (status, slug(document)) == (409, "other-content")
    check_lake(lab.lake, [first], "conflict")
    (kept,) = (lab.root / "quarantine" / "run=conflict").iterdir()
    assert kept.read_bytes() == other.body
    assert lab.ask("GET", "/v1/runs/conflict")[1]["evidence_changed"] is True


def test_what_is_not_what_it_says_is_refused(lab: CollectorLab, tmp_path: Path) -> None:
    (first, second, *_) = uploads(tmp_path, "wrong")
    cut = first.body[: len(first.body) // 2]
    sha_of_cut = hashlib.sha256(cut).hexdigest()
    for wanted, (status, document) in {
        (400, "hash-mismatch"): lab.send(first, body=second.body),
        (422, "bad-segment"): lab.send(first, body=cut, X_Content_SHA256=sha_of_cut),
        (415, "unsupported-type"): lab.send(first, Content_Type="application/vnd.apache.parquet"),
        (422, "bad-request"): lab.send(first, X_Content_SHA256="00"),
        (413, "too-large"): lab.send(first, body=bytes((16 << 20) + 1)),
    }.items():
        assert (status, slug(document)) == wanted, document
        assert document["status"] == status
    name = first.id.replace("wrong", "..")
    assert lab.ask("POST", f"/v1/segments/{name}", first.body)[0] in {404, 422}
    assert not files_of(lab.lake, "wrong")
    assert not list((lab.root / "incoming").iterdir())


def test_a_segment_under_the_name_of_another_is_refused(lab: CollectorLab, tmp_path: Path) -> None:
    (first, second, *_) = uploads(tmp_path, "named")
    moved = Upload(second.id, second.path, first.body, first.table)
    status, document = lab.send(moved)
    assert (status, slug(document)) == (422, "bad-segment")


def test_a_missing_column_is_named(lab: CollectorLab, tmp_path: Path) -> None:
    (first, *_) = uploads(tmp_path, "column")
    sink = pa.BufferOutputStream()
    table = first.table.drop_columns(["qoff"])
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    status, document = lab.send(first, body=body, X_Content_SHA256=hashlib.sha256(body).hexdigest())
    assert (status, document["detail"]) == (422, "column qoff of deliver is missing")


def test_a_cut_upload_leaves_nothing(lab: CollectorLab, tmp_path: Path) -> None:
    (first, *_) = uploads(tmp_path, "cut")
    refused = lab.metric('failback_ingest_rejected_total{code="400"}')
    head = (
        f"POST /v1/segments/{first.id} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {lab.token}\r\nContent-Type: {ARROW_STREAM}\r\n"
        f"X-Content-SHA256: {first.sha256}\r\nX-Failback-Schema: {SCHEMA_ID}\r\n"
        f"Content-Length: {len(first.body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", lab.port), timeout=60 * SCALE) as connection:
        connection.sendall(head.encode() + first.body[:-10])
    wait_until(
        lambda: lab.metric('failback_ingest_rejected_total{code="400"}') > refused,
        "the cut upload was noticed",
        60,
    )
    assert lab.metric("failback_ingest_uploads") == 0
    assert not files_of(lab.lake, "cut")
    assert lab.send(first)[0] == 201


def test_a_process_number_belongs_to_one_process(lab: CollectorLab, tmp_path: Path) -> None:
    (mine, *_) = uploads(tmp_path / "a", "number")
    assert lab.send(mine)[0] == 201
    hot = tmp_path / "b"
    write_log(hot, run="number", proc_no=2)
    (theirs, *_) = uploads_of(hot)
    note = theirs.table.schema.metadata[b"failback.segment"].replace(b'"proc_no":2', b'"proc_no":1')
    at = theirs.table.schema.get_field_index("proc_no")
    numbers = pa.array([1] * theirs.table.num_rows, pa.int32())
    table = theirs.table.set_column(at, theirs.table.schema.field(at), numbers)
    table = table.replace_schema_metadata(
        {**theirs.table.schema.metadata, b"failback.segment": note}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    status, document = lab.send(
        theirs, body=body, X_Content_SHA256=hashlib.sha256(body).hexdigest()
    )
    assert (status, slug(document)) == (409, "process-number-taken")


def test_a_run_is_closed_when_every_record_is_there(lab: CollectorLab, tmp_path: Path) -> None:
    last = write_log(tmp_path / "hot", run="closing")
    sent = uploads_of(tmp_path / "hot")
    late = next(each for each in sent if "/00000001/deliver" in each.id)
    for upload in sent:
        if upload is not late:
            assert lab.send(upload)[0] == 201
    client = lab.client()
    answer = client.close_run("closing", {1: last, 2: 5})
    assert answer.status == 409
    *holes, unknown = answer.document["gaps"]
    assert {hole["proc_no"] for hole in holes} == {1}
    assert unknown == {"proc_no": 2, "from_seq": 1, "to_seq": 5}
    assert lab.metric('failback_log_gaps_total{run="closing"}') == len(holes) + 1
    assert lab.send(late)[0] == 201
    assert client.close_run("closing", {1: last}).document == {"gaps": []}
    assert client.close_run("closing", {1: last}).status == 200
    client.close()
    assert lab.send(sent[0])[0] == 200
    hot = tmp_path / "more"
    write_log(hot, run="closing", proc_no=3)
    status, document = lab.send(uploads_of(hot)[0])
    assert (status, slug(document)) == (409, "run-closed")
    assert lab.ask("GET", "/v1/runs/closing")[1]["closed"] is True


def test_it_tells_what_it_has_of_a_process(lab: CollectorLab, tmp_path: Path) -> None:
    sent = uploads(tmp_path, "resume")
    for upload in sent[:3]:
        assert lab.send(upload)[0] == 201
    proc = sent[0].id.split("/")[1]
    client = lab.client()
    document = client.stored("resume", proc).document
    stored = {each["id"]: each["sha256"] for each in document["segments"]}
    assert stored == {each.id: each.sha256 for each in sent[:3]}
    assert document["next_index"] == 1 + max(int(each.id.split("/")[2]) for each in sent[:3])
    assert client.stored("resume", "f" * 32).document["segments"] == []
    client.close()
    page = lab.ask("GET", "/v1/runs?limit=1&cursor=resumd")[1]
    assert [each["run"] for each in page["runs"]] == ["resume"]


def test_pressure_is_answered_with_a_time_to_come_back(tmp_path: Path) -> None:
    """Uploads that stand still hold what they announced; the next one is told when to come back."""
    with running_collector(tmp_path / "lab", "--queue-mib", "32") as lab:
        (first, *_) = uploads(tmp_path, RUN)
        head = (
            f"POST /v1/segments/{first.id} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {lab.token}\r\nContent-Type: {ARROW_STREAM}\r\n"
            f"X-Content-SHA256: {first.sha256}\r\nX-Failback-Schema: {SCHEMA_ID}\r\n"
            f"Content-Length: {16 << 20}\r\n\r\n"
        )
        slow = [socket.create_connection(("127.0.0.1", lab.port)) for _ in range(2)]
        try:
            slow[0].sendall(head.encode())
            held = "failback_ingest_queue_bytes"
            wait_until(lambda: lab.metric(held) == 16 << 20, "one stands still", 60)
            slow[1].sendall(head.encode())
            slow[1].settimeout(60 * SCALE)
            answer = slow[1].recv(65536).decode()
            assert "HTTP/1.1 429" in answer
            (wait,) = (
                int(line.partition(":")[2])
                for line in answer.lower().splitlines()
                if line.startswith("retry-after")
            )
            assert 1 <= wait <= 30
        finally:
            for connection in slow:
                connection.close()
        wait_until(lambda: lab.metric(held) == 0, "what was held is given back", 60)
        assert lab.send(first)[0] == 201


def test_a_full_store_takes_nothing_and_says_so(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lab") as lab:
        first, second, *_ = uploads(tmp_path, RUN)
        assert lab.send(first)[0] == 201
        lab.limit_files(1000)  # every larger write fails, as on a full disk
        status, document = lab.send(second)
        assert (status, slug(document)) == (507, "store-full")
        assert not list((lab.root / "incoming").iterdir())
        check_lake(lab.lake, [first])
        lab.limit_files(None)
        assert lab.send(second)[0] == 201
        check_lake(lab.lake, [first, second])


def test_a_segment_whose_catalogue_line_does_not_fit_is_not_stored(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lab") as lab:
        sent = uploads(tmp_path, RUN, deliveries=200)
        late = next(each for each in sent if each.id.endswith("/life"))
        others = [each for each in sent if each is not late]
        for upload in others:
            assert lab.send(upload)[0] == 201
        catalogue = lab.lake / "_segments" / f"run={RUN}.jsonl"
        lab.limit_files(catalogue.stat().st_size)  # any smaller file may still be written
        status, document = lab.send(late)
        assert (status, slug(document)) == (507, "store-full")
        check_lake(lab.lake, others)
        lab.limit_files(None)
        assert lab.send(late)[0] == 201
        check_lake(lab.lake, sent)
        size = (lab.lake / late.path).stat().st_size
        assert size < catalogue.stat().st_size  # or the file itself would have been refused


def test_a_lake_at_its_bound_is_not_ready(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lab", "--max-store-mib", "0") as lab:
        status, document, _ = lab.ask("GET", "/readyz", token="")
        assert (status, slug(document)) == (503, "not-ready")
        status, document, _ = lab.ask("GET", "/livez", token="")
        assert (status, document) == (200, {"status": "ok"})
        status, document = lab.send(uploads(tmp_path, RUN)[0])
        assert (status, slug(document)) == (507, "store-full")


def test_old_runs_are_deleted_whole_and_stay_deleted(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lab", "--keep-days", "0") as lab:
        (first, *_) = uploads(tmp_path, RUN)
        assert lab.send(first)[0] == 201
        lab.process.stop()
        lab.start()  # retention looks at the start
        wait_until(lambda: not files_of(lab.lake), "the run is deleted", 60)
        status, document = lab.send(first)
        assert (status, slug(document)) == (409, "run-expired")
        assert not files_of(lab.lake)


def test_many_senders_of_one_segment_store_it_once(lab: CollectorLab, tmp_path: Path) -> None:
    (first, *_) = uploads(tmp_path, "crowd")
    answers: list[int] = []

    def send() -> None:
        answers.append(lab.send(first)[0])

    threads = [threading.Thread(target=send) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] * 11 + [201]
    check_lake(lab.lake, [first], "crowd")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--root", "{root}", "--tokens", "{tokens}"], "another collector's"),
        (["--root", "{new}", "--tokens", "{tokens}", "--port", "{port}"], "cannot listen on"),
        (["--root", "{new}", "--tokens", "{new}/absent"], "no such file or folder"),
        (["--root", "{tokens}/below", "--tokens", "{tokens}"], "--root"),
    ],
)
def test_what_cannot_run_says_why_and_ends_with_2(
    lab: CollectorLab, tmp_path: Path, options: list[str], message: str
) -> None:
    places = {
        "root": str(lab.root),
        "tokens": str(lab.root.parent / "tokens"),
        "new": str(tmp_path / "new"),
        "port": str(lab.port),
    }
    done = subprocess.run(
        [sys.executable, "-m", "failback.cli", "collect", *(o.format(**places) for o in options)],
        env={**os.environ, **failback_environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * SCALE,
    )
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_collector_ends_in_order(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lab") as lab:
        assert lab.process.stop() == 0
