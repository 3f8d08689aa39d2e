"""The dashboard does what its OpenAPI document says, and nothing for whom it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.common.polling import SCALE
from tests.support.dashboard.dashboard_lab import (
    MESSAGE,
    RUN,
    Answer,
    DashboardLab,
    running_dashboard,
)
from tests.support.processes.child_process import ROOT

DOCUMENT = ROOT / "docs" / "reference" / "dashboard-api.json"
UPDATE = "FAILBACK_UPDATE_OPENAPI"
PLACES = {
    "{run}": RUN, "{cluster}": "c", "{broker}": "b", "{group}": "g", "{topic}": "t", "{qid}": "0",
    "{name}": "demo", "{message}": MESSAGE, "{number}": "0", "{version}": "1",
}  # fmt: skip
# Left out: whether a fault's name and a setting's range are valid is not in the document.
NOT_CHECKED = "positive_data_acceptance"
OPEN_PAGES = {"/livez", "/readyz", "/login", "/static/{version}/{name}"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardLab]:
    with running_dashboard(tmp_path_factory.mktemp("lab"), with_tokens=True) as lab:
        yield lab


@pytest.fixture(scope="module")
def tokens(lab: DashboardLab) -> dict[str, str]:
    return {scope: lab.add_token(scope) for scope in ("read", "operate", "ingest:*", "ingest:r")}


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def pages() -> list[tuple[str, str]]:
    """Every route of the application that is not in the document: method and path."""
    from failback.analytics.dashboard.serve import make_app
    from failback.analytics.dashboard.settings import DashboardSettings

    app, _ = make_app(DashboardSettings(ROOT / "docs", audit=Path("/dev/null")), [], lambda _: None)
    documented = set(app.openapi()["paths"])
    found: list[tuple[str, str]] = []

    def collect(routes: Any) -> None:
        for route in routes:
            collect(getattr(route, "routes", ()))
            path = getattr(route, "path", "")
            methods = sorted(getattr(route, "methods", None) or ())
            if path not in documented:
                found.extend((method, path) for method in methods if method != "HEAD")

    collect(app.routes)
    return found


def ask(lab: DashboardLab, method: str, path: str, token: str, **headers: str) -> Answer:
    for name, value in PLACES.items():
        path = path.replace(name, value)
    if path.startswith("/api/v1/lineage"):
        path += "?cluster=c&broker=b&group=g&topic=t&qid=0"
    if path.endswith("/compare"):
        path += f"?run={RUN}"
    body = {"confirm": "no", "fault": "kill"} if method == "POST" else None
    return lab.ask(method, path, body, token=token, headers=headers)


def test_the_document_in_the_repository_is_what_is_served(
    lab: DashboardLab, tokens: dict[str, str]
) -> None:
    served = lab.ask("GET", "/api/openapi.json", token=tokens["read"]).json()
    if os.environ.get(UPDATE):
        DOCUMENT.write_text(json.dumps(served, indent=1) + "\n")
    assert json.loads(DOCUMENT.read_text()) == served, f"to renew it run this test with {UPDATE}=1"


def test_every_route_of_the_api_refuses_strangers_and_wrong_roles(
    lab: DashboardLab, tokens: dict[str, str]
) -> None:
    document = json.loads(DOCUMENT.read_text())
    found = operations(document)
    assert len(found) > 18
    for method, path, operation in found:
        if path == "/api/v1/events":
            continue  # it has no end: see test_streams
        needs = "operate" if method == "POST" and not path.endswith("predict") else "read"
        assert {"401", "403"} <= set(operation["responses"]), path
        for token in ("", "nonsense"):
            answer = ask(lab, method, path, token)
            assert answer.status == 401, (method, path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
        allowed = {"read": needs == "read", "operate": True}
        for scope, token in tokens.items():
            answer = ask(lab, method, path, token)
            assert (answer.status == 403) != allowed.get(scope, False), (scope, method, path)
            assert answer.status < 500, (method, path, answer.text)
            assert str(answer.status) in operation["responses"], (method, path, answer.status)


def test_every_page_refuses_strangers_and_wrong_roles(
    lab: DashboardLab, tokens: dict[str, str]
) -> None:
    found = pages()
    assert len(found) > 15
    for method, path in found:
        if path in OPEN_PAGES:
            continue
        stranger = ask(lab, method, path, "", Accept="text/html")
        if method == "GET":
            assert (stranger.status, stranger.headers["location"]) == (303, "/login"), path
        else:
            assert stranger.status == 401, path
        assert ask(lab, method, path, tokens["ingest:*"]).status == 403, path
        if method == "POST" and path != "/logout":
            assert ask(lab, method, path, tokens["read"]).status == 403, path
        elif method == "GET":
            assert ask(lab, method, path, tokens["read"]).status in {200, 404}, path


def test_a_stream_needs_a_token_too(lab: DashboardLab, tokens: dict[str, str]) -> None:
    for token, status in (("", 401), (tokens["ingest:r"], 403)):
        assert lab.ask("GET", "/api/v1/events", token=token).status == status


def test_schemathesis_finds_no_500_and_no_undeclared_answer(
    lab: DashboardLab, tokens: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", str(DOCUMENT)),
            *("--url", lab.url, "--header", f"Authorization: Bearer {tokens['read']}"),
            *("--checks", "all", "--exclude-checks", NOT_CHECKED),
            *("--exclude-path", "/api/v1/events"),
            *("--max-examples", os.environ.get("FAILBACK_SCHEMATHESIS_EXAMPLES", "4")),
            *("--phases", "examples,coverage,fuzzing", "--seed", "20260729", "--no-color"),
            *("--generation-database", "none", "--request-timeout", str(60 * SCALE)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "tested" in done.stdout.lower()
