"""A real dashboard as a process, a folder of runs for it, and requests to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.report.measures.points import table_of
from failback.analytics.web.tokens import digest_of, new_token
from failback.client.consumelog.upload.layout import lake_path
from tests.support.analytics.sample_report import sample_points, sample_report
from tests.support.common.polling import SCALE
from tests.support.net.ports import free_port
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

RUN: Final = "demo-handover-0-0badcafe"
OTHER_RUN: Final = "demo-stay-0-0badcafe"
MESSAGE: Final = "00000001-00000000007"


def write_run(
    folder: Path, run: str, arm: str, *, zero_ns: int = 1_795_372_644_000_000_000, **totals: Any
) -> None:
    """A closed run folder with the sample report, as far as the dashboard reads it."""
    report = sample_report()
    report |= {"run": run, "arm": arm}
    report["totals"] |= totals
    (folder / "report").mkdir(parents=True)
    document = {
        "schema": "failback.run/1",
        "run": run,
        "experiment": "demo",
        "arm": arm,
        "repetition": 0,
        "engine": "failback",
        "zero": {"wall_ns": zero_ns, "mono_ns": 1_000_000_000},
        "system": {"rules": "compat"},
    }
    (folder / "run.json").write_text(json.dumps(document))
    (folder / "closed.json").write_text("{}")
    (folder / "manifest.json").write_text("{}")
    (folder / "report" / "report.json").write_text(json.dumps(report))
    pq.write_table(table_of(sample_points()), folder / "report" / "figures-data.parquet")
    _write_rows(folder / "lake", run)


def _write_rows(lake: Path, run: str) -> None:
    """One message that was sent once and delivered twice, and one delivered once."""

    def write(
        table: str, rows: list[dict[str, Any]], schema: list[tuple[str, pa.DataType]]
    ) -> None:
        path = lake / lake_path(table, run, 1, 0, "2026-01-01")
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(schema)), path)

    second, text, number = 1_000_000_000, pa.string(), pa.int64()
    write(
        "produce",
        [{"t0": 3 * second, "t1": 3 * second, "att": 1, "topic": "orders", "broker": "demo-0",
          "qid": 0, "res": "OK", "queue_offset": 210, "ukey": "7F", "lane": 1, "lseq": 7}],
        [("t0", number), ("t1", number), ("att", number), ("topic", text), ("broker", text),
         ("qid", number), ("res", text), ("queue_offset", number), ("ukey", text),
         ("lane", number), ("lseq", number), ("okey", text)],
    )  # fmt: skip
    common = {
        "grp": "billing", "client_id": "c1", "broker": "demo-0", "ptopic": "orders", "qid": 0,
        "rt": 0, "status": "SUCCESS", "ukey": "7F", "lane": 1, "proc_no": 2,
    }  # fmt: skip
    times = [(4, 210, 7), (85, 210, 7), (5, 211, 8)]
    rows = [
        {**common, "bt": at * second, "et": at * second + 5, "did": n, "qoff": offset, "lseq": seq}
        for n, (at, offset, seq) in enumerate(times)
    ]
    write(
        "deliver",
        rows,
        [("bt", number), ("et", number), ("did", number), ("grp", text), ("client_id", text),
         ("broker", text), ("ptopic", text), ("qid", number), ("qoff", number), ("rt", number),
         ("status", text), ("ukey", text), ("keys", text), ("lane", number), ("lseq", number),
         ("proc_no", number)],
    )  # fmt: skip


class Answer:
    """Status, headers and body of one answer."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class DashboardLab:
    """One dashboard on loopback."""

    def __init__(self, folder: Path, *options: str, with_tokens: bool = False) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.runs.mkdir(parents=True, exist_ok=True)
        self.root = folder / "root"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._tokens = folder / "tokens"
        more = ["--requests-per-minute", "100000", "--writes-per-minute", "100000", *options]
        if with_tokens:
            self._tokens.touch()
            more += ["--tokens", str(self._tokens)]
        self.process = TestProcess(
            "dashboard",
            failback_command(
                "cli", "dashboard", "--port", str(self.port), "--runs", str(self.runs),
                "--root", str(self.root), *more,
            ),
            folder,
            environment=failback_environment(),
        )  # fmt: skip

    def add_token(self, scopes: str) -> str:
        token = new_token()
        with self._tokens.open("a") as file:
            file.write(f"{digest_of(token)} {scopes} {scopes}\n")
        return token

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; a dict becomes a JSON body, a tuple of pairs a form."""
        sent: dict[str, str] = {}
        data: bytes | None = None
        if isinstance(body, dict):
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        elif isinstance(body, tuple):
            data = urlencode(body).encode()
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        elif isinstance(body, bytes):
            data = body
        if token:
            sent["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SCALE)
        try:
            connection.request(method, path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()


@contextmanager
def running_dashboard(
    folder: Path, *options: str, with_tokens: bool = False, with_runs: bool = True
) -> Iterator[DashboardLab]:
    """A dashboard that answers, with two runs to show."""
    lab = DashboardLab(folder, *options, with_tokens=with_tokens)
    if with_runs:
        write_run(lab.runs / "one" / "handover", RUN, "handover")
        write_run(lab.runs / "one" / "stay", OTHER_RUN, "stay", dup=0, dup_ratio=0.0)
    try:
        lab.process.start()
        lab.process.wait_for("dashboard listens on")
        yield lab
    finally:
        if lab.process.alive:
            lab.process.stop()
        lab.process.dispose()
