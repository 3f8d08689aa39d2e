"""A real collector as a process, logs to send to it, and what its lake must hold afterwards."""

from __future__ import annotations

import hashlib
import http.client
import json
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.lake.catalogue import Catalogue, Entry
from failback.analytics.lake.layout import opened_day, run_files, settled_name
from failback.analytics.lake.segment_ids import UPLOAD_KEY
from failback.analytics.lake.store import open_store
from failback.analytics.web.tokens import digest_of, new_token
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import SCHEMA_ID
from failback.client.consumelog.upload.collector_client import CollectorClient
from failback.client.consumelog.upload.lake_files import (
    ARROW_STREAM,
    arrow_table,
    lake_order,
    stream_bytes,
)
from failback.client.consumelog.upload.segments import Segment, segments_of
from failback.client.consumelog.writer import ConsumeLog
from tests.support.clients.consumelog import begin
from tests.support.common.polling import SCALE
from tests.support.net.ports import free_port
from tests.support.processes.child_process import TestProcess, failback_environment

RUN = "lab"


@dataclass(frozen=True, slots=True)
class Upload:
    """One segment, ready to be sent."""

    id: str
    path: str
    """Below the lake's root, before its run is opened."""
    body: bytes
    table: pa.Table
    """What the lake must hold and the column ``run``, metadata of the segment included."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


def upload_of(segment: Segment) -> Upload:
    table = lake_order(arrow_table(segment))
    return Upload(segment.segment_id, segment.path(None), stream_bytes(segment), table)


def write_log(
    hot: Path, *, proc_no: int = 1, deliveries: int = 100, run: str = RUN, segment_bytes: int = 4096
) -> int:
    """Write deliveries and some rows of other tables, many small files; returns the last seq."""
    with ConsumeLog(
        hot,
        run=run,
        proc=proc_no.to_bytes(16, "big"),
        proc_no=proc_no,
        role="consumer",
        host="h",
        segment_bytes=segment_bytes,
        sync_seconds=0,
    ) as log:
        for n in range(deliveries):
            log.deliver_end(begin(log, deliveries - n, qid=n % 3), "SUCCESS", True, n)
            if n % 7 == 0:
                log.write("life", state="RUNNING")
        return log.last_seq


def uploads_of(hot: Path) -> list[Upload]:
    """Every segment of the finished files of a folder; the files stay."""
    return [
        upload_of(segment)
        for path in sorted(hot.glob("*.fblog"))
        for segment in segments_of(read_hot(path))
    ]


class CollectorLab:
    """One collector on loopback, with a token that may do everything."""

    def __init__(
        self, folder: Path, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.root = folder / "collected"
        self.lake = self.root / "lake"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token_file = folder / "token"
        self._tokens = folder / "tokens"
        self.token = self.add_token("ingest:*,read")
        self.token_file.write_text(self.token)
        self.process = TestProcess(
            "collector",
            [
                *(sys.executable, "-m", "failback.cli", "collect", "--root", str(self.root)),
                *("--tokens", str(self._tokens), "--port", str(self.port)),
                *("--min-free-mib", "0", *options),
            ],
            folder,
            environment={**failback_environment(), **(environment or {})},
        )

    def add_token(self, scopes: str) -> str:
        token = new_token()
        with self._tokens.open("a") as file:
            file.write(f"{digest_of(token)} {scopes} lab\n")
        return token

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process.start()
        self.process.wait_for("collector listens on")

    def kill(self) -> None:
        self.process.kill()

    def client(self) -> CollectorClient:
        return CollectorClient(self.url, token_file=self.token_file, timeout_seconds=60 * SCALE)

    def limit_files(self, most_bytes: int | None) -> None:
        """From now on no file of the collector may grow beyond this; ``None`` lifts it."""
        if not self.process.alive:
            raise ProcessLookupError("the collector was killed")
        soft = resource.RLIM_INFINITY if most_bytes is None else most_bytes
        limit = (soft, resource.RLIM_INFINITY)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, limit)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
    ) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        """One request; status, JSON document and headers of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SCALE)
        used = self.token if token is None else token
        sent = {"Authorization": f"Bearer {used}"} if used else {}
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            content = response.read()
            shown = dict(response.getheaders())
        finally:
            connection.close()
        return response.status, json.loads(content) if content[:1] in b"{[" else {}, shown

    def send(
        self, upload: Upload, *, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Upload a segment, some of it changed; status and document."""
        sent = {
            "Content-Type": ARROW_STREAM,
            "X-Content-SHA256": upload.sha256,
            "X-Failback-Schema": SCHEMA_ID,
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        content = upload.body if body is None else body
        status, document, _ = self.ask("POST", f"/v1/segments/{upload.id}", content, sent)
        return status, document

    def metric(self, line: str) -> float:
        """The value of one series, as it is written in the text format; 0 if it is not there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SCALE)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.token}"})
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        found = [each for each in text.splitlines() if each.startswith(f"{line} ")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0


@contextmanager
def running_collector(folder: Path, *options: str) -> Iterator[CollectorLab]:
    """A started collector, ended whatever happens."""
    lab = CollectorLab(folder, *options)
    try:
        lab.start()
        yield lab
    finally:
        lab.process.dispose()


def files_of(lake: Path, run: str = RUN) -> set[str]:
    """Names of a run's files below the lake's root."""
    return {each.name for files in run_files(open_store(lake), run).values() for each in files}


def path_now(lake: Path, upload: Upload, run: str = RUN) -> str:
    """Where the segment lies: its run may have been opened."""
    return settled_name(upload.path, opened_day(open_store(lake), run))


def check_lake(lake: Path, truth: list[Upload], run: str = RUN) -> list[Entry]:
    """The lake holds each of these segments once, row by row, and nothing else of the run.

    Returns the lines of its catalogue.
    """
    wanted = {path_now(lake, each, run): each for each in truth}
    assert len(wanted) == len(truth)
    assert files_of(lake, run) == set(wanted)
    for path, upload in wanted.items():
        table = pq.read_table(lake / path, partitioning=None)
        metadata = dict(table.schema.metadata)
        assert metadata.pop(UPLOAD_KEY.encode()).decode() == upload.sha256
        assert metadata == upload.table.schema.metadata
        assert table.equals(upload.table.drop_columns(["run"])), path
    entries = list(Catalogue(lake).entries(run))
    assert sorted(entry.id for entry in entries) == sorted(each.id for each in truth)
    assert {entry.path for entry in entries} == set(wanted)
    return entries
