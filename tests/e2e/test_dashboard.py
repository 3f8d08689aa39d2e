"""The dashboard in Chromium: every page, with the keyboard, and while a real experiment runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, Route

from failback.analytics.dashboard.sources.clusters import ask_runtime
from failback.analytics.report.make_report import report
from failback.cli.shared.bundled import bundled
from failback.client.admin.admin import AdminClient
from tests.e2e.demo_run import run_command
from tests.support.common.polling import wait_until
from tests.support.dashboard.browser import (
    OpenPage,
    dead_buttons,
    opened_page,
    picture_of,
    undrawn,
    unfold,
)
from tests.support.dashboard.dashboard_lab import (
    MESSAGE,
    OTHER_RUN,
    RUN,
    DashboardLab,
    running_dashboard,
)
from tests.support.observe.folders import add, written
from tests.support.observe.folders import opened as opened_folder
from tests.support.observe.outages import at_work, come_back, serve

NAME: Final = "failback-demo"
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
OBSERVED: Final = "observed-1"
LIVE: Final = "observed-2"
PAGES: Final = {
    "fleet": "/",
    "offsets": "/offsets",
    "runs": "/runs",
    "run": f"/runs/{RUN}",
    "queue": f"/runs/{RUN}/queues/0",
    "message": f"/runs/{RUN}/messages/{MESSAGE}",
    "compare": f"/compare?run={RUN}&run={OTHER_RUN}",
    "experiments": "/experiments",
    "experiment": "/experiments/demo",
    "predict": "/predict?fault=handover&rate=100",
    "observed": f"/runs/{OBSERVED}",
    "live": f"/runs/{LIVE}",
    "no-such-page": "/runs/none",
}
WITH_CLUSTER: Final = ("fleet", "offsets", "lineage", "experiments", "predict")
EMPTY: Final = ("fleet", "offsets", "runs", "compare", "experiments", "login")
"""Pages that look otherwise with a cluster, and where there is nothing to show."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardLab]:
    """A dashboard of two experiments, an observation that has ended, and one that goes on."""
    with running_dashboard(tmp_path_factory.mktemp("lab")) as lab:
        story = at_work()
        serve(story, 1500)
        come_back(story, 900)
        report(written(story, lab.runs / OBSERVED))
        folder = opened_folder(lab.runs / LIVE)
        add(folder, story)
        yield lab
        folder.close()


@pytest.fixture(scope="module")
def cluster(lab: DashboardLab) -> Iterator[str]:
    """The root of a pair of real brokers whose timers are ten times as quick."""
    file = lab.folder / "cluster.yaml"
    text = bundled("cluster.yaml").read_text()
    file.write_text(text + "  config: {failbackTimeScale: '0.1'}\n")
    root = str(lab.root)
    started = run_command("up", "-f", str(file), "--detach", "--root", root)
    try:
        assert started.code == 0, started.output + started.errors
        yield root
    finally:
        run_command("down", "--root", root)


@contextmanager
def watched_page(
    browser: Browser, lab: DashboardLab, width: int, scheme: str, expected: Sequence[str] = ()
) -> Iterator[OpenPage]:
    """A page whose errors and foreign requests fail the test at its end.

    ``expected``: how problems begin that are no mistake.
    """
    with opened_page(browser, width=width, scheme=scheme) as opened:
        yield opened
    problems = [each for each in opened.problems if not each.startswith(tuple(expected))]
    asked = [url for url in opened.requested if not url.startswith((f"{lab.url}/", "data:"))]
    assert (problems, asked) == ([], [])


def draw_figures(opened: OpenPage) -> int:
    """Unfold the page, and wait until every figure is drawn; how many there are."""
    unfold(opened)
    figures = opened.page.locator(".figure[data-src]")
    for figure in figures.all():
        figure.scroll_into_view_if_needed()
        figure.locator("svg.main-svg").first.wait_for(state="visible")
    return figures.count()


def serious(page: Page) -> list[str]:
    """What axe-core finds that keeps somebody out."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{each['id']}: {node['html'][:160]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def keep_picture(page: Page, name: str, folder: Path) -> None:
    page.screenshot(path=picture_of(f"dashboard-{name}", folder), full_page=True)


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_drawn_readable_and_open_to_everybody(
    browser: Browser, lab: DashboardLab, width: int, tmp_path: Path
) -> None:
    wait_until(lambda: lab.ask("GET", f"/runs/{LIVE}").status == 200, "the run that goes on")
    figures = {
        name: check_dashboard_page(browser, lab, name, path, width, tmp_path)
        for name, path in PAGES.items()
    }
    assert (figures["run"], figures["queue"]) == (6, 1)
    assert figures["compare"] == 1
    assert figures["observed"] > 0


_OUTSIDE: Final = """() => Array.from(document.querySelectorAll("[href], [src], [action]"))
  .map(each => new URL(each.getAttribute("href") ?? each.getAttribute("src")
                       ?? each.getAttribute("action"), location.href))
  .filter(url => url.host === location.host && !url.pathname.startsWith("/failback/"))
  .map(url => url.href)"""


def test_pages_stay_below_the_path_that_a_proxy_takes_away(
    browser: Browser, lab: DashboardLab
) -> None:
    """As nginx does with ``location /failback/`` and ``X-Forwarded-Prefix``."""
    escaped, streams = [], []

    def pass_on(route: Route) -> None:
        _, _, path = route.request.url.partition("//proxy.test")
        if not path.startswith("/failback/"):
            escaped.append(path)
            route.abort()
        elif "/api/v1/events" in path:
            streams.append(path)
            route.abort()  # it never ends
        else:
            headers = {**route.request.headers, "x-forwarded-prefix": "/failback"}
            url = lab.url + path.removeprefix("/failback")
            route.fulfill(response=route.fetch(url=url, headers=headers, max_redirects=0))

    wait_until(lambda: lab.ask("GET", f"/runs/{LIVE}").status == 200, "the run that goes on")
    with opened_page(browser) as opened:
        page = opened.page
        page.route("**/*", pass_on)
        for name, path in PAGES.items():
            page.goto(f"http://proxy.test/failback{path}", wait_until="load")
            draw_figures(opened)
            assert page.evaluate(_OUTSIDE) == [], name
        page.goto("http://proxy.test/failback/predict?fault=handover&rate=100", wait_until="load")
        with page.expect_response(lambda answer: "rate=250" in answer.url):
            page.locator("#predict-form [name=rate]").fill("250")
    assert escaped == []
    assert streams
    for wrong in ("//evil.test", "/a b", '/x"><script>', "failback"):
        body = lab.ask("GET", "/", headers={"X-Forwarded-Prefix": wrong}).body
        assert b'href="/runs"' in body, wrong


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_without_anything_to_show_say_what_to_do(
    browser: Browser, width: int, tmp_path: Path
) -> None:
    with running_dashboard(tmp_path / "lab", with_runs=False, with_tokens=True) as lab:
        token = lab.add_token("operate")
        for name in EMPTY:
            path = PAGES.get(name, f"/{name}").partition("?")[0]
            sent = None if name == "login" else {"Authorization": f"Bearer {token}"}
            check_dashboard_page(browser, lab, name, path, width, tmp_path, "empty", sent)


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_of_a_cluster_are_drawn_readable_and_open_to_everybody(
    browser: Browser, lab: DashboardLab, cluster: str, width: int, tmp_path: Path
) -> None:
    wait_until(lambda: lab.ask("GET", "/api/v1/clusters").json()["clusters"], "the pair", 120)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, commit(cluster, "invoices", 7)).result()
    asked = "/api/v1/offsets?group=invoices"
    wait_until(lambda: lab.ask("GET", asked).json()["offsets"], "the group")
    (row,) = lab.ask("GET", asked).json()["offsets"]
    queue = [row[name] for name in ("cluster", "broker", "group", "topic", "qid")]
    paths = PAGES | {"lineage": "/".join(["/offsets", *map(str, queue)])}
    for name in WITH_CLUSTER:
        check_dashboard_page(browser, lab, name, paths[name], width, tmp_path, "cluster")


def check_dashboard_page(
    browser: Browser,
    lab: DashboardLab,
    name: str,
    path: str,
    width: int,
    folder: Path,
    what: str = "full",
    headers: dict[str, str] | None = None,
) -> int:
    """Draw a page in both themes, and press its buttons; how many figures it has."""
    expected = ["console error"] if name == "no-such-page" else []
    with watched_page(browser, lab, width, "light", expected) as opened:
        page = opened.page
        page.set_extra_http_headers(headers or {})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            page.goto(lab.url + path, wait_until="load")
            figures = draw_figures(opened)
            where = f"{name}, {width}, {scheme}, {what}"
            assert not (found := undrawn(opened)), (where, found)
            keep_picture(page, f"{name}-{what}-{width}-{scheme}", folder)
            overflow = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert overflow <= 0, f"{where} is wider than the window"
            if (width, scheme) in ((1280, "light"), (390, "dark")):
                assert serious(page) == [], where
        assert page.locator("h1").count() == 1
        assert "object at 0x" not in page.content(), f"{where} shows something of Python's"
        page.goto(lab.url + path, wait_until="load")
        assert not (found := dead_buttons(opened)), (where, found)
        return figures


def test_a_page_that_keeps_somebody_out_or_calls_out_is_found(
    browser: Browser, lab: DashboardLab
) -> None:
    """The checks of this module can fail."""

    def call_out() -> None:
        with watched_page(browser, lab, 1280, "light") as opened:
            page = opened.page
            page.goto(lab.url + "/", wait_until="load")
            page.evaluate("document.querySelector('h1').innerHTML = '<img src=http://192.0.2.1/>'")
            assert any("image-alt" in each for each in serious(page))

    with pytest.raises(AssertionError, match="Content Security Policy"):
        call_out()


def test_everything_can_be_reached_with_the_keyboard(browser: Browser, lab: DashboardLab) -> None:
    with watched_page(browser, lab, 1280, "light") as opened:
        page = opened.page
        page.goto(lab.url + "/", wait_until="load")

        def focused() -> str:
            text: str = page.evaluate("document.activeElement.textContent.trim()")
            return text

        def tab_to(wanted: str, most: int = 40) -> None:
            for _ in range(most):
                page.keyboard.press("Tab")
                if focused() == wanted:
                    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                    assert outline != "none", f"nobody sees that {wanted} has the focus"
                    return
            raise AssertionError(f"{wanted} cannot be reached")

        page.keyboard.press("Tab")
        assert focused() == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.goto(lab.url + "/", wait_until="load")
        tab_to("Runs")
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs")
        tab_to("re-consumed")
        page.keyboard.press("Enter")
        column = page.locator("#part-runs tbody tr td[data-label='re-consumed']")
        assert column.all_inner_texts()[:2] == ["0", "40"], "what is no number comes behind"
        page.keyboard.press("Enter")
        assert column.all_inner_texts()[:2] == ["40", "0"]
        assert page.locator("th[aria-sort='descending']").inner_text().startswith("re-consumed")
        tab_to(RUN)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/runs/{RUN}")
        tab_to("orders demo-0/0", 80)
        page.keyboard.press("Enter")
        page.wait_for_url("**/queues/0")
        tab_to(MESSAGE)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/messages/{MESSAGE}")
        assert "delivered again" in page.locator(".story").inner_text()


def test_a_turned_knob_is_answered_at_once(browser: Browser, lab: DashboardLab) -> None:
    with watched_page(browser, lab, 1280, "dark") as opened:
        page = opened.page
        page.goto(lab.url + "/predict?fault=handover", wait_until="load")
        expected = page.locator("#part-prediction dd").first
        before = int(expected.inner_text().replace(",", ""))
        page.get_by_label("rate, slider").fill("4000")
        page.wait_for_function(
            "old => Number(document.querySelector('#part-prediction dd').textContent"
            ".replaceAll(',', '')) > 2 * old",
            arg=before,
        )
        assert "rate=4000" in page.url
        assert page.get_by_label("rate messages/s").input_value() == "4000"
        page.get_by_label("failbackGuardReturnedOffsets").check()
        page.wait_for_url("**failbackGuardReturnedOffsets=true**")


def test_an_experiment_is_started_watched_and_aborted_on_the_page(
    browser: Browser, lab: DashboardLab, cluster: str, tmp_path: Path
) -> None:
    with watched_page(browser, lab, 1280, "light") as opened:
        page = opened.page
        page.goto(f"{lab.url}/experiments/{NAME}", wait_until="load")
        page.locator("input[name=confirm]").fill(NAME)
        page.locator("input[name=time-scale]").fill("0.1")
        page.get_by_role("button", name="Start").click()
        page.get_by_role("button", name="Abort").wait_for()
        # Nothing is reloaded from here on: what appears is brought by the stream of events.
        page.evaluate("window.stays = true")
        figure = page.locator("#part-runs .figure").first
        figure.locator("svg.main-svg").first.wait_for(state="visible")
        page.locator("#part-runs td[data-label='seen (s)']").filter(has_text=".").first.wait_for()
        page.wait_for_function(
            "() => /in effect|healed/.test(document.querySelector('#part-runs .figure')"
            ".getAttribute('aria-label'))"
        )
        counted = page.locator("#part-runs dl.tiles dd").first.inner_text()
        assert page.evaluate("window.stays") is True
        keep_picture(page, "watching-1280-light", tmp_path)
        page.get_by_role("button", name="Abort").click()
        page.get_by_text("aborted by").wait_for()
        page.get_by_text("exit code").wait_for()
        page.get_by_role("button", name="Start").wait_for()
        assert int(counted.replace(",", "")) > 0
        assert serious(page) == []
        keep_picture(page, "aborted-1280-light", tmp_path)
    notes = [json.loads(line) for line in (lab.runs / "audit.jsonl").read_text().splitlines()]
    assert [note["what"] for note in notes] == ["started", "aborted", "ended"]

    def runs() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = lab.ask("GET", f"/api/v1/runs?experiment={NAME}").json()[
            "runs"
        ]
        return found

    assert [run["arm"] for run in runs()] == ["stay"], "the other arm was begun after the abort"
    wait_until(lambda: runs()[0]["state"] in ("closed", "reported"), "the aborted run is closed")


def test_choices_that_exclude_each_other_are_said_before_anything_is_sent(
    browser: Browser, lab: DashboardLab
) -> None:
    with watched_page(browser, lab, 1280, "light") as opened:
        page = opened.page
        page.goto(f"{lab.url}/experiments/demo", wait_until="load")
        form = page.locator("form.start")
        assert form.locator("input[type=text], input:not([type])").count() == 1, "the name alone"
        assert "half a minute" in form.inner_text()
        form.locator("input[name=confirm]").fill("demo")
        apache = form.get_by_label("needs Java")
        apache.check()
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.method))
        form.get_by_role("button", name="Start").click()
        assert apache.evaluate("each => each.validationMessage").startswith("Not together")
        assert "POST" not in sent
        form.get_by_label("real:").check()
        assert form.evaluate("each => each.checkValidity()") is True
        form.locator("input[name=confirm]").fill("dem")
        assert form.evaluate("each => each.checkValidity()") is False


def test_a_real_cluster_is_shown_with_its_roles_and_offsets(
    browser: Browser, lab: DashboardLab, cluster: str, tmp_path: Path
) -> None:
    def document() -> Any:
        found = lab.ask("GET", "/api/v1/clusters").json()["clusters"]
        return found[0] if found else {"state": "away"}

    wait_until(lambda: document()["state"] == "ok", "a pair with a master and a slave", 120)
    (pair,) = document()["pairs"]
    assert sorted(each["role"] for each in pair["members"]) == ["master", "slave"]
    ages = {each["role"]: each for each in pair["members"]}
    assert ages["master"]["persist_age_seconds"] is not None
    assert ages["slave"]["sync_age_seconds"] is not None
    with ThreadPoolExecutor(1) as pool:  # this thread has the browser's event loop
        pool.submit(asyncio.run, commit(cluster, "payments", 7)).result()
    with watched_page(browser, lab, 1280, "dark") as opened:
        page = opened.page
        page.goto(lab.url + "/", wait_until="load")
        page.locator("#part-clusters").get_by_text("At risk if the master of").first.wait_for()
        assert serious(page) == []
        keep_picture(page, "fleet-live-1280-dark", tmp_path)
        page.goto(lab.url + "/offsets?group=payments", wait_until="load")
        page.locator("#part-offsets tbody th a").first.click()
        assert page.locator("ol.lineage b").all_inner_texts() == [
            "client memory", "master table", "master file", "slave table",
        ]  # fmt: skip
        values = page.locator("ol.lineage .value")
        values.first.wait_for()
        assert values.nth(1).inner_text() == "7", "the master's memory"
        expect_everywhere(page, 7)  # its file, and the slave's copy, follow by themselves
        assert serious(page) == []
        keep_picture(page, "lineage-1280-dark", tmp_path)


def test_what_changed_before_the_stream_was_open_is_shown(
    browser: Browser, lab: DashboardLab, cluster: str
) -> None:
    """A page is read, then its stream opened: a change in between is told to nobody."""

    def rows() -> Any:
        return lab.ask("GET", "/api/v1/offsets?group=refunds").json()["offsets"]

    def store(offset: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, commit(cluster, "refunds", offset)).result()
        shown = ["master_memory", "master_file", "slave_table"]
        wait_until(
            lambda: [row[name] for row in rows() for name in shown] == [offset] * 3,
            "the offset is everywhere",
        )

    def late(route: Route) -> None:
        store(9)
        route.continue_()

    wait_until(lambda: lab.ask("GET", "/api/v1/clusters").json()["clusters"], "the pair", 120)
    store(8)
    with watched_page(browser, lab, 1280, "light") as opened:
        page = opened.page
        page.goto(lab.url + "/offsets?group=refunds", wait_until="load")
        link = page.locator("#part-offsets tbody th a").first.get_attribute("href")
        page.route("**/api/v1/events*", late, times=1)
        page.goto(f"{lab.url}{link}", wait_until="load")
        expect_everywhere(page, 9)


def expect_everywhere(page: Page, offset: int) -> None:
    """The master's memory and file and the slave's copy, on the page of a queue."""
    page.wait_for_function(
        "offset => Array.from(document.querySelectorAll('ol.lineage .value')).slice(1)"
        ".every(each => each.textContent === offset)",
        arg=str(offset),
    )


async def commit(root: str, group: str, offset: int) -> None:
    """Store an offset on the master, as a consumer does."""
    view = ask_runtime(Path(root))
    assert view is not None
    (cluster,) = view["clusters"]
    async with AdminClient(cluster["nameservers"]) as admin:
        (data,) = (await admin.cluster_info()).broker_addr_table.values()
        await admin.update_offset(data.broker_addrs[0], group, "orders", 0, offset)
