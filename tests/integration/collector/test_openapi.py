"""The collector does what its OpenAPI document says, and nothing for whom it may not."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.client.consumelog.upload.lake_files import ARROW_STREAM
from tests.support.analytics.collector_lab import (
    CollectorLab,
    running_collector,
    uploads_of,
    write_log,
)
from tests.support.common.polling import SCALE

OPEN = {"/livez", "/healthz", "/readyz"}
PLACES = {"{run}": "r", "{proc}": "ab" * 16, "{index}": "00000000", "{table}": "life"}
# Left out: random bytes are no segment, and whether a body is one is not in the document.
NOT_CHECKED = "positive_data_acceptance"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorLab]:
    with running_collector(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


def operations(lab: CollectorLab) -> list[tuple[str, str, dict[str, Any]]]:
    document = lab.ask("GET", "/openapi.json")[1]
    return [
        (method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def ask(lab: CollectorLab, method: str, path: str, token: str) -> tuple[int, dict[str, Any]]:
    for name, value in PLACES.items():
        path = path.replace(name, value)
    headers = {
        "X-Content-SHA256": "0" * 64,
        "X-Failback-Schema": "failback.log/1",
        "Content-Type": ARROW_STREAM if "segments" in path else "application/json",
    }
    status, document, _ = lab.ask(method, path, b'{"procs":{}}', headers, token=token)
    return status, document


def test_every_route_but_the_probes_refuses_who_has_no_token(lab: CollectorLab) -> None:
    found = operations(lab)
    assert len(found) > 8
    for method, path, operation in found:
        for token in ("", "nonsense"):
            status, document = ask(lab, method, path, token)
            assert (status == 401) == (path not in OPEN), (method, path, document)
        declared = set(operation["responses"])
        assert ("401" in declared, "security" in operation) == (path not in OPEN,) * 2


def test_every_route_refuses_the_wrong_role(lab: CollectorLab) -> None:
    roles = {
        "read": lab.add_token("read"),
        "other": lab.add_token("ingest:other"),
        "own": lab.add_token("ingest:r"),
    }
    for method, path, _ in operations(lab):
        allowed = {
            "read": method == "GET",
            "other": False,
            "own": "{run}" in path,
        }
        for role, token in roles.items():
            status, document = ask(lab, method, path, token)
            wanted = path in OPEN or allowed[role]
            assert (status != 403) == wanted, (role, method, path, status, document)


def test_unknown_places_and_methods_are_problems_too(lab: CollectorLab) -> None:
    for method, path, wanted in (
        ("GET", "/nothing", 404),
        ("DELETE", "/v1/runs", 405),
        ("GET", "/v1/segments/r", 404),
    ):
        status, document, headers = lab.ask(method, path)
        assert (status, document["status"]) == (wanted, wanted)
        assert headers["content-type"] == "application/problem+json"


def test_every_refusal_of_an_upload_is_declared(lab: CollectorLab, tmp_path: Path) -> None:
    write_log(tmp_path / "hot", run="declared")
    (first, second, *_) = uploads_of(tmp_path / "hot")
    (declared,) = (
        set(operation["responses"])
        for _, path, operation in operations(lab)
        if path.startswith("/v1/segments/")
    )
    answers = [
        lab.send(first),
        lab.send(first),
        lab.send(first, body=second.body),
        lab.send(first, body=second.body, X_Content_SHA256=second.sha256),
        lab.send(second, body=b"", X_Content_SHA256=hashlib.sha256(b"").hexdigest()),
        lab.send(first, Content_Type="text/plain"),
        lab.send(first, body=bytes((16 << 20) + 1)),
    ]
    statuses = [status for status, _ in answers]
    assert statuses == [201, 200, 400, 409, 422, 415, 413]
    assert declared >= {str(each) for each in statuses} | {"401", "403", "408", "429", "503", "507"}


def test_schemathesis_finds_no_500_and_no_undeclared_answer(
    lab: CollectorLab, tmp_path: Path
) -> None:
    write_log(tmp_path / "hot", run="r")
    assert lab.send(uploads_of(tmp_path / "hot")[0])[0] == 201
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{lab.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {lab.token}"),
            *("--checks", "all", "--exclude-checks", NOT_CHECKED),
            *("--max-examples", os.environ.get("FAILBACK_SCHEMATHESIS_EXAMPLES", "4")),
            *("--phases", "examples,coverage,fuzzing", "--seed", "20260729", "--no-color"),
            *("--generation-database", "none", "--request-timeout", str(60 * SCALE)),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SCHEMATHESIS_HOOKS": "tests.integration.collector.segment_bodies",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "tested" in done.stdout.lower()
    refused = lab.metric('failback_ingest_rejected_total{code="422"}')
    assert refused > 0, "no upload came as far as its content"
