"""Sessions, cross-site requests, hosts, proxies and the audit log, on a real dashboard."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.common.polling import SCALE
from tests.support.dashboard.dashboard_lab import RUN, Answer, DashboardLab, running_dashboard


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardLab]:
    with running_dashboard(tmp_path_factory.mktemp("lab"), with_tokens=True) as lab:
        yield lab


@pytest.fixture(scope="module")
def open_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardLab]:
    with running_dashboard(tmp_path_factory.mktemp("open")) as lab:
        yield lab


def log_in(lab: DashboardLab, token: str) -> Answer:
    return lab.ask("POST", "/login", (("token", token),))


def cookie_of(answer: Answer) -> dict[str, str]:
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def csrf_of(lab: DashboardLab, cookie: dict[str, str]) -> str:
    page = lab.ask("GET", "/experiments", headers=cookie)
    found = re.search(r'name="csrf" content="([^"]+)"', page.text)
    assert found is not None
    return found[1]


@pytest.mark.sample
def test_a_session_begins_with_a_token_and_ends_with_it(lab: DashboardLab) -> None:
    refused = log_in(lab, "nonsense")
    assert (refused.status, "set-cookie" in refused.headers) == (401, False)
    token = lab.add_token("read")
    answer = log_in(lab, token)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    flags = answer.headers["set-cookie"]
    assert "HttpOnly" in flags
    assert "samesite=strict" in flags.lower()
    assert token not in flags
    assert "secure" not in flags.lower(), "a browser would not send it back over plain HTTP"
    behind = {"X-Forwarded-Proto": "https"}
    by_tls = lab.ask("POST", "/login", (("token", token),), headers=behind)
    assert "; secure" in by_tls.headers["set-cookie"].lower()
    cookie = cookie_of(answer)
    assert lab.ask("GET", "/", headers=cookie).status == 200
    csrf = csrf_of(lab, cookie)
    assert lab.ask("POST", "/logout", (("csrf", "x"),), headers=cookie).status == 403
    assert lab.ask("POST", "/logout", (("csrf", csrf),), headers=cookie).status == 303
    assert lab.ask("GET", "/api/v1/runs", headers=cookie).status == 401


def test_a_session_ends_when_its_token_leaves_the_file(lab: DashboardLab) -> None:
    cookie = cookie_of(log_in(lab, lab.add_token("read")))
    assert lab.ask("GET", "/api/v1/runs", headers=cookie).status == 200
    (lab.folder / "tokens").write_text("")
    assert lab.ask("GET", "/api/v1/runs", headers=cookie).status == 401


def test_what_changes_something_needs_the_sessions_own_csrf_token(lab: DashboardLab) -> None:
    token = lab.add_token("operate")
    cookie = cookie_of(log_in(lab, token))
    other = csrf_of(lab, cookie_of(log_in(lab, token)))
    mine = csrf_of(lab, cookie)
    assert mine != other
    path = "/api/v1/experiments/demo/abort"
    for given in ({}, {"X-CSRF-Token": other}, {"X-CSRF-Token": ""}):
        answer = lab.ask("POST", path, headers={**cookie, **given})
        assert (answer.status, answer.json()["type"]) == (403, "urn:failback:dashboard:cross-site")
    accepted = lab.ask("POST", path, headers={**cookie, "X-CSRF-Token": mine})
    assert accepted.json()["type"] == "urn:failback:dashboard:not-running"
    form = (("confirm", "demo"), ("csrf", other))
    assert lab.ask("POST", "/experiments/demo/start", form, headers=cookie).status == 403


def test_other_sites_pages_may_send_nothing_even_on_an_open_loopback(
    open_lab: DashboardLab,
) -> None:
    path = "/api/v1/experiments/demo/abort"
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": open_lab.url, "Cookie": "x=y"},
    ):
        assert open_lab.ask("POST", path, headers=headers).status == 403, headers
    assert open_lab.ask("POST", path).status == 409, "a tool on this machine may"
    form = (("confirm", "demo"),)
    assert open_lab.ask("POST", "/experiments/demo/start", form).status == 403


def test_a_foreign_name_for_loopback_is_refused(open_lab: DashboardLab) -> None:
    for host, status in (
        ("evil.example", 421), (f"evil.example:{open_lab.port}", 421), ("", 421),
        (f"localhost:{open_lab.port}", 200), (f"[::1]:{open_lab.port}", 200),
    ):  # fmt: skip
        answer = open_lab.ask("GET", "/api/v1/runs", headers={"Host": host})
        assert answer.status == status, host


def test_two_names_in_one_request_are_refused(open_lab: DashboardLab) -> None:
    """A proxy that looks at the other one would let it through."""
    head = f"GET /api/v1/runs HTTP/1.1\r\nHost: localhost:{open_lab.port}\r\n"
    with socket.create_connection(("127.0.0.1", open_lab.port), 30 * SCALE) as peer:
        peer.sendall(f"{head}Host: evil.example\r\nConnection: close\r\n\r\n".encode())
        assert peer.makefile("rb").readline().startswith(b"HTTP/1.1 421 ")


def test_no_page_may_run_or_fetch_what_is_not_ours(open_lab: DashboardLab) -> None:
    for path in ("/", "/offsets", "/runs", f"/runs/{RUN}", "/compare", "/experiments",
                 "/experiments/demo", "/predict", "/nothing"):  # fmt: skip
        answer = open_lab.ask("GET", path, headers={"Accept": "text/html"})
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "script-src" not in policy, "scripts are those of default-src"
        assert "unsafe-eval" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<script(?![^>]*src=\"/static/)", answer.text), path
        assert not re.search(r"\son\w+=", answer.text), path
        assert "https://" not in answer.text, path


def test_names_from_outside_are_escaped(open_lab: DashboardLab) -> None:
    for path in ("/runs?text=%3Cscript%3Ealert(1)%3C/script%3E",
                 "/offsets?topic=%22%3E%3Cimg%20src=x%3E", "/runs/%3Cb%3E", "/predict?rate=%3Cb%3E",
                 "/experiments/%3Cb%3E"):  # fmt: skip
        page = open_lab.ask("GET", path, headers={"Accept": "text/html"}).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "<b>" not in page.replace("<b>demo</b>", "")


def test_a_wrong_confirmation_starts_nothing_and_is_in_no_log(open_lab: DashboardLab) -> None:
    answer = open_lab.ask("POST", "/api/v1/experiments/demo/start", {"confirm": "demo "})
    assert (answer.status, answer.json()["detail"]) == (422, "confirm: must be demo")
    csrf = csrf_of(open_lab, {})
    form = (("confirm", "demon"), ("csrf", csrf))
    page = open_lab.ask("POST", "/experiments/demo/start", form)
    assert page.status == 422
    assert "Type demo to confirm" in page.text
    bad = {"confirm": "demo", "options": {"rules": "wild"}}
    answer = open_lab.ask("POST", "/api/v1/experiments/demo/start", bad)
    assert "rules: must be compat or guarded" in answer.json()["detail"]
    assert open_lab.ask("GET", "/api/v1/experiments/demo").json()["job"] is None
    assert (open_lab.runs / "audit.jsonl").read_text() == ""


def test_bodies_that_are_none_are_refused(open_lab: DashboardLab) -> None:
    path, json_type = "/api/v1/predict", {"Content-Type": "application/json"}
    for body, headers, status in (
        (b"{}", {}, 415),
        (b"{", json_type, 400),
        (b"\xff", json_type, 400),
        (b"[]", json_type, 422),
        (b'{"fault": "kill", "more": 1}', json_type, 422),
        (b'{"fault": "nothing"}', json_type, 422),
        (b'{"fault": "kill", "settings": {"rate": -1}}', json_type, 422),
        (b" " * 70_000, json_type, 413),
    ):
        answer = open_lab.ask("POST", path, body, headers=headers)
        assert (answer.status, answer.json()["status"]) == (status, status), body[:40]


def test_a_report_is_sent_once(open_lab: DashboardLab) -> None:
    for path in (f"/api/v1/runs/{RUN}/report", f"/api/v1/runs/{RUN}/figures/timeline"):
        first = open_lab.ask("GET", path)
        assert first.status == 200
        again = open_lab.ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        changed = open_lab.ask("GET", path, headers={"If-None-Match": '"other"'})
        assert changed.body == first.body


def test_only_the_configured_proxy_is_believed(tmp_path: Path) -> None:
    options = ("--trust-proxy", "127.0.0.1", "--operator", "ann")
    user = "X-Forwarded-User"
    with running_dashboard(tmp_path / "believed", *options) as lab:
        assert lab.ask("GET", "/api/v1/runs").status == 401
        assert lab.ask("GET", "/api/v1/runs", headers={user: "bob"}).status == 200
        path = "/api/v1/experiments/demo/abort"
        assert lab.ask("POST", path, headers={user: "bob"}).status == 403
        page = lab.ask("GET", "/experiments", headers={user: "ann"})
        found = re.search(r'name="csrf" content="([^"]+)"', page.text)
        assert found is not None
        assert lab.ask("POST", path, headers={user: "ann"}).status == 403, "no CSRF token"
        headers = {user: "ann", "X-CSRF-Token": found[1]}
        assert lab.ask("POST", path, headers=headers).status == 409
    with running_dashboard(tmp_path / "other", "--trust-proxy", "127.0.0.9") as lab:
        assert lab.ask("GET", "/api/v1/runs", headers={user: "ann"}).status == 401


def test_a_client_that_asks_too_often_waits(tmp_path: Path) -> None:
    with running_dashboard(tmp_path, "--writes-per-minute", "20", with_tokens=True) as lab:
        answers = [log_in(lab, "guess") for _ in range(40)]
        assert {each.status for each in answers} == {401, 429}
        slowed = next(each for each in answers if each.status == 429)
        assert int(slowed.headers["retry-after"]) >= 1
        assert slowed.json()["type"] == "urn:failback:dashboard:too-many"


def test_strangers_are_kept_out_from_the_start(tmp_path: Path) -> None:
    lab = DashboardLab(tmp_path, "--host", "0.0.0.0")
    lab.process.start()
    with pytest.raises(AssertionError, match=r"0\.0\.0\.0 is not loopback: give --tokens"):
        lab.process.wait_for("listens on")
    lab.process.dispose()


def test_pages_of_runs_by_cursor(open_lab: DashboardLab) -> None:
    first = open_lab.ask("GET", "/api/v1/runs?limit=1").json()
    second = open_lab.ask("GET", f"/api/v1/runs?limit=1&cursor={first['next']}").json()
    assert len({each["run"] for each in (*first["runs"], *second["runs"])}) == 2
    assert second["next"] is None
    refused = open_lab.ask("GET", "/api/v1/runs?cursor=zzz")
    assert refused.json()["type"] == "urn:failback:dashboard:bad-cursor"
    compared = open_lab.ask("GET", "/api/v1/compare?" + "&".join(
        f"run={each['run']}" for each in (*first["runs"], *second["runs"])))  # fmt: skip
    assert len(compared.json()["compare"]["arms"]) == 2
    assert json.loads(json.dumps(compared.json())) == compared.json()
